//! Stops a command on SIGTERM or Ctrl-C, within `server.grace`. Start with [`within_grace`].

use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::app::App;
use crate::engine;

/// Becomes true when the work should stop.
pub(super) type Stop = watch::Receiver<bool>;

/// Returns a `Stop` that becomes true at the first SIGTERM or Ctrl-C. The second one ends the
/// process at once, with exit code 130.
pub(super) fn stop_on_signal() -> std::io::Result<Stop> {
    let (stop, stopped) = watch::channel(false);
    #[cfg(unix)]
    let mut terminate = {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::terminate())?
    };
    let mut next_signal = async move || {
        #[cfg(unix)]
        let terminated = terminate.recv();
        #[cfg(not(unix))]
        let terminated = std::future::pending::<()>();
        tokio::select! {
            _ = terminated => {}
            // If Ctrl-C cannot be handled, it ends the process by default.
            Ok(()) = tokio::signal::ctrl_c() => {}
        }
    };
    tokio::spawn(async move {
        next_signal().await;
        tracing::info!("stopping; a second signal ends the process at once");
        // An error means that the work has already ended.
        let _ = stop.send(true);
        next_signal().await;
        std::process::exit(130);
    });
    Ok(stopped)
}

/// How long a process that stops may take for each of its last writes.
const LAST_WRITE_LIMIT: Duration = Duration::from_secs(5);

/// Awaits work that ends by itself soon after `stop` turns true. If it has not ended within
/// `server.grace`, this drops it, releases the leases of this process, and returns `None`. No call
/// to a provider starts once `stop` is true.
///
/// Emails whose calls are dropped stay `sending`, as after a crash. The next worker resolves them
/// (P5).
pub(super) async fn within_grace<T>(
    app: &App,
    stop: &Stop,
    work: impl Future<Output = T>,
) -> Option<T> {
    app.set_shutdown_signal(stop);
    let mut stop = stop.clone();
    let grace = app.config.server.grace.to_std().unwrap_or_default();
    let grace_ends = async {
        let must_stop = stop.wait_for(|stop| *stop).await.is_ok();
        if must_stop {
            sleep(grace).await;
        } else {
            // The sender is gone, so nothing will stop the work.
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        result = work => return Some(result),
        () = grace_ends => {}
    }
    tracing::warn!(
        "server.grace is over: requests and work are cut off; later runs continue the work"
    );
    if let Err(error) = last_write(true, app.worker().release_leases()).await {
        let effect = "other processes can continue only once the leases of this one expire";
        tracing::warn!("{effect}: {error:#}");
    }
    None
}

/// Awaits a write at the end of a command, for at most [`LAST_WRITE_LIMIT`] if the process stops.
pub(super) async fn last_write(
    is_stopping: bool,
    write: impl Future<Output = engine::Result<()>>,
) -> anyhow::Result<()> {
    if !is_stopping {
        return Ok(write.await?);
    }
    Ok(timeout(LAST_WRITE_LIMIT, write).await.context("the store did not answer in time")??)
}
