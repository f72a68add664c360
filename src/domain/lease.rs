//! Leases: who works on something, and until when. And which of them are believed.
//!
//! The rule: clocks are wrong at times, so a time that no right clock can have written is not
//! believed. No lease lasts beyond [`LONGEST`], and nothing waits for longer than [`LONGEST_WAIT`]:
//! what lies further ahead was written by a clock that ran ahead, and keeps nobody off. A clock
//! that is behind may take a lease so that is held; that costs work and no mail, since what is
//! handed over is handed over by a compare-and-set of whoever holds it then, and a call that is
//! under way is resolved as one whose worker died.

use chrono::{DateTime, TimeDelta, Utc};

/// No lease that somebody holds lies further ahead: the configuration allows an hour, and clocks
/// may differ by another.
pub const LONGEST: TimeDelta = TimeDelta::hours(2);
/// The longest that something is left alone which nobody holds: what a provider asks for, say.
pub const LONGEST_WAIT: TimeDelta = TimeDelta::days(1);

/// Under this name due digests are looked for, by one worker, once a [`TICK`].
pub const DIGEST_SCAN: &str = "digest-scan";
/// Digests fall due on whole local hours, and time zones differ by quarters of an hour.
pub const TICK: TimeDelta = TimeDelta::minutes(15);

/// Who works on something, and until when it is theirs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Which process it is, by a name it made up for itself when it started.
    pub owner: String,
    /// The first moment at which it is anybody's again.
    pub until: DateTime<Utc>,
}

/// The last moment up to which a lease that is held at `now` can last.
pub fn furthest(now: DateTime<Utc>) -> DateTime<Utc> {
    now + LONGEST
}

/// The last moment up to which what nobody holds can be left alone at `now`.
pub fn furthest_wait(now: DateTime<Utc>) -> DateTime<Utc> {
    now + LONGEST_WAIT
}

/// The last moment up to which the lease of that name can last that is held at `now`.
pub fn furthest_of(name: &str, now: DateTime<Utc>) -> DateTime<Utc> {
    // Here being wrong costs work and nothing else.
    now + if name == DIGEST_SCAN {
        TICK * 2
    } else {
        LONGEST
    }
}

impl Lease {
    /// Whether it keeps others off at `now`.
    pub fn holds(&self, now: DateTime<Utc>) -> bool {
        now < self.until && self.until <= furthest(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_holds_until_it_ends_and_not_where_no_right_clock_has_written_it() {
        let now = DateTime::from_timestamp(1_398_124_800, 0).unwrap();
        let holds = |until| {
            let owner = "me".to_owned();
            Lease { owner, until }.holds(now)
        };

        assert!(holds(now + TimeDelta::milliseconds(1)) && holds(now + LONGEST));
        assert!(!holds(now) && !holds(now + LONGEST + TimeDelta::milliseconds(1)));
    }
}
