//! When digests fall due, and what they hold.

use chrono::TimeDelta;

use super::reader::Reader;
use crate::domain::content::Caps;
use crate::domain::lease::TICK;
use crate::domain::{Cadence, Schedule};

/// The section `[digest]`, valid.
#[derive(Debug, Clone, Copy)]
pub struct Digest {
    /// What holds for people who have not chosen.
    pub schedule: Schedule,
    /// How many items a section and a mail show.
    pub caps: Caps,
    /// What is older is given up.
    pub max_age: TimeDelta,
    /// How often workers look at everybody, and not only at whoever's hour has come.
    pub full_look: TimeDelta,
    /// Whether what was seen in the feed is left out.
    pub skip_seen: bool,
}

/// The least that `digest.max_age` may be: a digest may be as late as a whole period.
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
