//! Signals that ask a long-running command to stop: SIGTERM and Ctrl-C.

use tokio::sync::watch;

/// Becomes true when the work should stop.
pub(super) type Stop = watch::Receiver<bool>;

/// Returns a `Stop` that stays false. Its sender is gone, so waiting for a change fails at once.
pub(super) fn never() -> Stop {
    watch::channel(false).1
}

/// Returns a `Stop` that becomes true at the first signal. The second signal ends the process at
/// once, with exit code 130.
pub(super) fn on_signal() -> std::io::Result<Stop> {
    let (stop, stopped) = watch::channel(false);
    let mut asked = Asked::new()?;
    tokio::spawn(async move {
        asked.again().await;
        tracing::info!("stopping; once more ends at once");
        // An error means that the work has already ended.
        let _ = stop.send(true);
        asked.again().await;
        std::process::exit(130);
    });
    Ok(stopped)
}

/// Ctrl-C, and SIGTERM on Unix.
struct Asked {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Asked {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn again(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(not(unix))]
impl Asked {
    fn new() -> std::io::Result<Self> {
        Ok(Self {})
    }

    async fn again(&mut self) {
        // If Ctrl-C cannot be handled, it ends the process by default.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
