//! What feeds show as new.

use chrono::{DateTime, Utc};

use super::reader::Reader;

/// The section `[feed]`, valid.
#[derive(Debug, Clone, Copy)]
pub struct Feed {
    /// What happened before is taken for seen.
    pub since: Option<DateTime<Utc>>,
}

pub(super) fn read(r: &mut Reader<'_>) -> Feed {
    Feed {
        since: r.optional_parse(
            "feed.since",
            "a moment such as 2014-04-22T09:00:00Z",
            |text| text.parse().ok(),
        ),
    }
}
