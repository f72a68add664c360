//! How long-running commands hear that they should end: SIGTERM, or Ctrl-C.

use tokio::sync::watch;

/// Turns true when work should end.
pub(super) type Stop = watch::Receiver<bool>;

/// Work that nobody asks to end.
pub(super) fn never() -> Stop {
    watch::channel(false).1
}

/// Turns true when the process is asked to end; asked a second time, it ends at once.
pub(super) fn on_signal() -> std::io::Result<Stop> {
    let (stop, stopped) = watch::channel(false);
    let mut asked = Asked::new()?;
    tokio::spawn(async move {
        asked.again().await;
        tracing::info!("stopping; once more ends at once");
        // Nobody listens any more once the work has ended by itself.
        let _ = stop.send(true);
        asked.again().await;
        std::process::exit(130);
    });
    Ok(stopped)
}

/// Ctrl-C, and SIGTERM where there are signals.
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
        // Without a way to hear Ctrl-C the system ends the process itself.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
