//! What those see who watch a process: its metrics and its log.

use std::net::SocketAddr;

use super::reader::{Reader, Stand};

/// The sections `[metrics]` and `[log]`, valid.
#[derive(Debug, Clone, Copy)]
pub struct Watch {
    /// Where metrics are told without a key; `None` for nowhere.
    pub metrics: Option<SocketAddr>,
    /// How the log is written.
    pub log: LogFormat,
}

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// A line a message, for people.
    Text,
    /// An object a line, for programs.
    Json,
}

impl Stand for LogFormat {
    fn stand_in() -> Self {
        Self::Text
    }
}

pub(super) fn read(r: &mut Reader<'_>) -> Watch {
    Watch {
        metrics: r.optional_parse(
            "metrics.listen",
            "an address and port such as 127.0.0.1:9464",
            |text| text.parse().ok(),
        ),
        log: r.parse("log.format", "text or json", |text| match text {
            "text" => Some(LogFormat::Text),
            "json" => Some(LogFormat::Json),
            _ => None,
        }),
    }
}
