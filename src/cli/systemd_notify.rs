//! Reports the state of a long-running command to systemd: `Type=notify` and `WatchdogSec=` of a
//! unit (sd_notify(3)).
//!
//! Does nothing unless systemd set `NOTIFY_SOCKET`.

use std::time::Duration;

use sd_notify::NotifyState;

use super::stop::Stop;

/// Reports that the process is ready; then, twice within the time of the watchdog, that it is
/// alive; and once `stop` becomes true, that it stops.
///
/// Await it in the task of the server and the worker. If something blocks that task, the reports
/// end, and systemd restarts the process. A store that does not answer blocks nothing.
pub(super) async fn report(mut stop: Stop) -> anyhow::Result<()> {
    notify(NotifyState::Ready);
    let limit = sd_notify::watchdog_enabled().unwrap_or(Duration::MAX);
    // An error of `wait_for` means that the sender is gone, which is a reason to stop as well.
    while tokio::time::timeout(limit / 2, stop.wait_for(|stop| *stop)).await.is_err() {
        notify(NotifyState::Watchdog);
    }
    notify(NotifyState::Stopping);
    Ok(())
}

fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!("systemd was not notified: {error}");
    }
}
