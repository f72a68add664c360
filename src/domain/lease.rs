//! Leases: which process works on something, and until when.
//!
//! Clocks can be wrong. An expiry more than [`LONGEST`] ahead, or a retry time more than
//! [`LONGEST_WAIT`] ahead, came from a fast clock and is ignored. A process with a slow clock may
//! therefore take a valid lease. That costs work but sends no email twice: sending requires a
//! compare-and-set by the holder, and an interrupted call is resolved as after a crash.

use chrono::{DateTime, TimeDelta, Utc};

/// The longest that a lease can last: an hour by configuration, and another for differing clocks.
pub const LONGEST: TimeDelta = TimeDelta::hours(2);
/// The longest time for which a record without a lease can be deferred, such as until a retry.
pub const LONGEST_WAIT: TimeDelta = TimeDelta::days(1);

/// The lease for finding due digests, which one worker does every [`TICK`].
pub const DIGEST_SCAN: &str = "digest-scan";
/// The time between two searches for due digests. They are due on whole local hours, and time zones
/// differ by multiples of this.
pub const TICK: TimeDelta = TimeDelta::minutes(15);

/// A process's claim on something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The process, by a name that it chose when it started.
    pub owner: String,
    /// When the lease expires.
    pub until: DateTime<Utc>,
}

/// Returns the latest time to which a lease can be valid at `now`.
pub fn furthest(now: DateTime<Utc>) -> DateTime<Utc> {
    now + LONGEST
}

/// Returns the latest time to which a record without a lease can be deferred at `now`.
pub fn furthest_wait(now: DateTime<Utc>) -> DateTime<Utc> {
    now + LONGEST_WAIT
}

/// Returns the latest time to which the lease of this name can be valid at `now`.
pub fn furthest_of(name: &str, now: DateTime<Utc>) -> DateTime<Utc> {
    // A wrong decision about this lease only costs work, so a shorter limit is safe.
    now + if name == DIGEST_SCAN {
        TICK * 2
    } else {
        LONGEST
    }
}

impl Lease {
    /// Returns whether the lease is valid at `now`.
    pub fn holds(&self, now: DateTime<Utc>) -> bool {
        now < self.until && self.until <= furthest(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_valid_until_it_expires_unless_it_ends_too_far_ahead() {
        let now = DateTime::from_timestamp(1_398_124_800, 0).unwrap();
        let holds = |until| {
            let owner = "me".to_owned();
            Lease { owner, until }.holds(now)
        };

        assert!(holds(now + TimeDelta::milliseconds(1)) && holds(now + LONGEST));
        assert!(!holds(now) && !holds(now + LONGEST + TimeDelta::milliseconds(1)));
    }
}
