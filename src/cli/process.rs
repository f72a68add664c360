//! The logging of the process, and the signals that ask it to stop.

use tokio::sync::watch;
use tracing::subscriber::set_global_default;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use super::harmless;
use super::options::Level;
use super::screen::colorful;
use crate::clock::{Clock, SystemClock};
use crate::config::LogFormat;

/// The time of a message in UTC, in whole seconds.
struct Moment;

impl FormatTime for Moment {
    fn format_time(&self, out: &mut Writer<'_>) -> std::fmt::Result {
        write!(out, "{}", SystemClock.now().format("%Y-%m-%dT%H:%M:%SZ"))
    }
}

/// Starts logging to standard error, one line per message, as text or JSON. Only the first call of
/// a process has an effect.
///
/// Messages of other crates are logged only from `warn` up, because those crates do not know which
/// data is private.
pub(super) fn start_log(level: Level, format: LogFormat) {
    let ours = format!("{level:?}").to_lowercase();
    let others = match level {
        Level::Off | Level::Error => ours.as_str(),
        _ => "warn",
    };
    // actix reports malformed requests as errors. They are errors of the client, not of the server.
    let requests = match level {
        Level::Debug | Level::Trace => "error",
        _ => "off",
    };
    let filter = EnvFilter::new(format!("{others},tidings={ours},actix_http={requests}"));
    let color = format == LogFormat::Text && colorful(&std::io::stderr());
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || harmless::Log {
            out: std::io::stderr(),
            color,
        })
        .with_ansi(color)
        .with_timer(Moment)
        .with_target(false);
    // A test that runs several commands in one process gets here twice. The first logger stays.
    let _ = match format {
        LogFormat::Text => set_global_default(lines.finish()),
        LogFormat::Json => {
            let objects = lines.json().flatten_event(true).with_span_list(false);
            set_global_default(objects.finish())
        }
    };
}

/// Becomes true when the work should stop.
pub(super) type Stop = watch::Receiver<bool>;

/// Returns a `Stop` that stays false. Its sender is gone, so waiting for a change fails at once.
pub(super) fn never_stop() -> Stop {
    watch::channel(false).1
}

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
        tracing::info!("stopping; once more ends at once");
        // An error means that the work has already ended.
        let _ = stop.send(true);
        next_signal().await;
        std::process::exit(130);
    });
    Ok(stopped)
}
