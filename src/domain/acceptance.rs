//! Decides which times an event may have.
//!
//! The range starts with the first day of the window, because feeds do not show earlier days. It
//! ends shortly after the current time, because users would not see a later event until its day.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};

use super::day::{Day, Window};
use super::name::Invalid;

/// The tolerance for a writer's clock that is ahead of ours.
pub const AHEAD: TimeDelta = TimeDelta::minutes(5);

/// The range of times that events may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acceptance {
    from: DateTime<Utc>,
    until: DateTime<Utc>,
}

impl Acceptance {
    /// Returns the range for events that arrive at `now`. `window_back` is in days before today.
    pub fn of(now: DateTime<Utc>, window_back: u32) -> Self {
        Self {
            from: Window::ending(Day::of(now), window_back).first().start(),
            until: now + AHEAD,
        }
    }

    /// Checks that an event may have this time.
    ///
    /// # Errors
    ///
    /// Names the accepted range, and suggests a unit if seconds and milliseconds were swapped.
    pub fn check(&self, at: DateTime<Utc>) -> Result<(), Invalid> {
        if (self.from..=self.until).contains(&at) {
            return Ok(());
        }
        let text = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::AutoSi, true);
        let bound = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Secs, true);
        let outside = if at < self.from {
            "lies before the window, where nobody would be shown or mailed it"
        } else {
            "lies in the future"
        };
        let why = format!(
            "{outside}; events can be of {} to {}: give the time in UTC or with its offset, or leave the time out where it happens now{}",
            bound(self.from),
            bound(self.until),
            self.hint(at)
        );
        Err(Invalid::new("time", text(at), why).out_of_time())
    }

    /// Returns a hint if the time would be in range with seconds read as milliseconds, or vice
    /// versa.
    fn hint(&self, at: DateTime<Utc>) -> &'static str {
        let fits = |millis: Option<i64>| {
            let meant = millis.and_then(DateTime::from_timestamp_millis);
            meant.is_some_and(|meant| (self.from..=self.until).contains(&meant))
        };
        let millis = at.timestamp_millis();
        if fits(millis.checked_mul(1_000)) {
            " (were seconds taken for milliseconds?)"
        } else if fits(Some(millis / 1_000)) {
            " (were milliseconds taken for seconds?)"
        } else {
            ""
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_at(at: &str) -> Result<(), String> {
        let now = "2014-04-19T10:00:00Z".parse().unwrap();
        let checked = Acceptance::of(now, 7).check(at.parse().unwrap());
        checked.map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn an_event_time_may_lie_in_the_window_or_slightly_ahead() {
        for at in [
            "2014-04-12T00:00:00Z",
            "2014-04-19T10:00:00Z",
            "2014-04-19T10:05:00Z",
        ] {
            assert_eq!(check_at(at), Ok(()), "{at}");
        }
    }

    #[test]
    fn a_time_outside_the_range_is_an_error_with_the_range_and_a_hint() {
        assert_eq!(
            check_at("2014-04-11T23:59:59.5Z").unwrap_err(),
            "time \"2014-04-11T23:59:59.500Z\" lies before the window, where nobody would be shown or mailed it; events can be of \
             2014-04-12T00:00:00Z to 2014-04-19T10:05:00Z: give the time in UTC or with its offset, or leave the time out where it happens now"
        );
        let future = check_at("2014-04-19T12:00:00Z").unwrap_err();
        assert!(future.contains("lies in the future"), "{future}");
    }

    #[test]
    fn mistaken_seconds_and_milliseconds_are_recognized() {
        let seconds = check_at("1970-01-17T04:18:00Z").unwrap_err();
        assert!(
            seconds.ends_with("(were seconds taken for milliseconds?)"),
            "{seconds}"
        );
        let millis = check_at("+46267-01-20T00:00:00Z").unwrap_err();
        assert!(
            millis.ends_with("(were milliseconds taken for seconds?)"),
            "{millis}"
        );
    }
}
