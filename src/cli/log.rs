//! Where the log goes: standard error, a line a message, for people or as JSON.
//!
//! The rule: other crates' messages are only heard from `warn` up. They do not know what must not
//! be logged.

use tracing::subscriber::set_global_default;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use super::global::Level;
use super::harmless;
use crate::clock::{Clock, SystemClock};
use crate::config::LogFormat;

/// The moment of a message, to the second, in UTC.
struct Moment;

impl FormatTime for Moment {
    fn format_time(&self, out: &mut Writer<'_>) -> std::fmt::Result {
        write!(out, "{}", SystemClock.now().format("%Y-%m-%dT%H:%M:%SZ"))
    }
}

/// Begins to log; the first call of a process counts.
pub(super) fn start(level: Level, format: LogFormat) {
    let (ours, others) = match level {
        Level::Off => ("off", "off"),
        Level::Error => ("error", "error"),
        Level::Warn => ("warn", "warn"),
        Level::Info => ("info", "warn"),
        Level::Debug => ("debug", "warn"),
        Level::Trace => ("trace", "warn"),
    };
    // What cannot be a request is an error of whoever sent it, and no error of ours.
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
    // A test that runs commands in one process starts it twice; the first stays.
    let _ = match format {
        LogFormat::Text => set_global_default(lines.finish()),
        LogFormat::Json => {
            let objects = lines.json().flatten_event(true).with_span_list(false);
            set_global_default(objects.finish())
        }
    };
}
