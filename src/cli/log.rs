//! Logging to standard error, one line per message, as text or JSON.
//!
//! Messages of other crates are logged only from `warn` up, because those crates do not know which
//! data is private.

use tracing::subscriber::set_global_default;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use super::global::Level;
use super::harmless;
use crate::clock::{Clock, SystemClock};
use crate::config::LogFormat;

/// The time of a message in UTC, in whole seconds.
struct Moment;

impl FormatTime for Moment {
    fn format_time(&self, out: &mut Writer<'_>) -> std::fmt::Result {
        write!(out, "{}", SystemClock.now().format("%Y-%m-%dT%H:%M:%SZ"))
    }
}

/// Starts logging. Only the first call of a process has an effect.
pub(super) fn start(level: Level, format: LogFormat) {
    let (ours, others) = match level {
        Level::Off => ("off", "off"),
        Level::Error => ("error", "error"),
        Level::Warn => ("warn", "warn"),
        Level::Info => ("info", "warn"),
        Level::Debug => ("debug", "warn"),
        Level::Trace => ("trace", "warn"),
    };
    // actix reports malformed requests as errors. They are errors of the client, not of the server.
    let requests = match level {
        Level::Debug | Level::Trace => "error",
        _ => "off",
    };
    let filter = EnvFilter::new(format!("{others},tidings={ours},actix_http={requests}"));
    let color = format == LogFormat::Text && super::screen::colorful(&std::io::stderr());
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
