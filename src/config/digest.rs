//! The section `[digest]`: the schedule and the content of digests.

use chrono::TimeDelta;

use super::reader::Reader;
use crate::domain::content::Caps;
use crate::domain::schedule::TICK;
use crate::domain::{Cadence, Schedule};

/// The section `[digest]`, validated.
#[derive(Debug, Clone, Copy)]
pub struct Digest {
    /// The schedule of users who chose none.
    pub schedule: Schedule,
    /// The most items of a section and of an email.
    pub caps: Caps,
    /// The maximum age of an included event, 14 to 365 days. Older events expire.
    pub max_age: TimeDelta,
    /// The interval of full scans, 15 minutes to 1 day. Other scans read only users whose hour has
    /// come.
    pub full_look: TimeDelta,
    /// Whether digests exclude events that the user has seen in the feed.
    pub skip_seen: bool,
}

/// The least `digest.max_age`. A digest may be late by a whole period, a week at most.
const TWICE_THE_LONGEST_PERIOD: TimeDelta = TimeDelta::days(14);

pub(super) fn read(r: &mut Reader<'_>) -> Digest {
    Digest {
        schedule: Schedule {
            cadence: r.parse("digest.cadence", "never, daily or weekly", |text| {
                text.parse::<Cadence>().ok()
            }),
            weekday: r.parse(
                "digest.weekday",
                "a weekday: mon, tue, wed, thu, fri, sat or sun",
                |text| text.parse().ok(),
            ),
            hour: r.number("digest.hour", 0..=23) as u8,
            tz: r.parse(
                "digest.timezone",
                "a time zone such as Europe/Paris",
                |text| text.parse().ok(),
            ),
        },
        caps: Caps {
            section: r.number("digest.section_items", 1..=200) as usize,
            total: r.number("digest.items", 1..=1000) as usize,
        },
        max_age: r.duration(
            "digest.max_age",
            TWICE_THE_LONGEST_PERIOD..=TimeDelta::days(365),
        ),
        full_look: r.duration("digest.full_look", TICK..=TimeDelta::days(1)),
        skip_seen: r.flag("digest.skip_seen"),
    }
}
