//! Where the log goes: standard error, a line a message.
//!
//! The rule: other crates' messages are only heard from `warn` up. They do not know what must not be logged.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use super::global::Level;
use crate::clock::{Clock, SystemClock};

/// The moment of a message, to the second, in UTC.
struct Moment;

impl FormatTime for Moment {
    fn format_time(&self, out: &mut Writer<'_>) -> std::fmt::Result {
        write!(out, "{}", SystemClock.now().format("%Y-%m-%dT%H:%M:%SZ"))
    }
}

/// Begins to log; the first call of a process counts.
pub fn start(level: Level) {
    let (ours, others) = match level {
        Level::Off => ("off", "off"),
        Level::Error => ("error", "error"),
        Level::Warn => ("warn", "warn"),
        Level::Info => ("info", "warn"),
        Level::Debug => ("debug", "warn"),
        Level::Trace => ("trace", "warn"),
    };
    let filter = EnvFilter::new(format!("{others},tidings={ours}"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(super::screen::colourful(&std::io::stderr()))
        .with_timer(Moment)
        .with_target(false)
        .finish();
    // A test that runs commands in one process starts it twice; the first stays.
    let _ = tracing::subscriber::set_global_default(subscriber);
}
