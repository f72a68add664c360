//! The section `[feed]`.

use chrono::{DateTime, TimeDelta, Utc};

use super::reader::Reader;

/// The section `[feed]`, validated.
#[derive(Debug, Clone, Copy)]
pub struct Feed {
    /// Events before this time count as seen.
    pub since: Option<DateTime<Utc>>,
    /// How long an unchanged poll is answered without reading the store, 0 to 5 minutes.
    pub fresh: TimeDelta,
    /// The most streams that one process serves at once, 0 to 100,000.
    pub streams: usize,
}

pub(super) fn read(r: &mut Reader<'_>) -> Feed {
    Feed {
        since: r.optional_parse(
            "feed.since",
            "a moment such as 2014-04-22T09:00:00Z",
            |text| text.parse().ok(),
        ),
        fresh: r.duration("feed.fresh", TimeDelta::zero()..=TimeDelta::minutes(5)),
        streams: r.number("feed.streams", 0..=100_000) as usize,
    }
}
