//! The sections `[metrics]` and `[log]`.

use std::net::SocketAddr;

use super::reader::{Reader, Stand};

/// The sections `[metrics]` and `[log]`, validated.
#[derive(Debug, Clone, Copy)]
pub struct Watch {
    /// The address that serves metrics without a key; `None` for none.
    pub metrics: Option<SocketAddr>,
    /// The format of the log.
    pub log: LogFormat,
}

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One line per message, for people.
    Text,
    /// One JSON object per line, for programs.
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
