//! How long it takes until so many mails have left, by the limits that are known before.
//!
//! The rule: nothing is guessed. How long the provider takes for a call nobody knows before, so it
//! is said up to when that does not matter.

use std::num::NonZeroU32;

use crate::render::report::{Bound, Pace};

/// What keeps mails from leaving faster.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// `delivery.mails_per_hour`; 0 for none.
    pub mails_per_hour: u32,
    /// `mail.calls_per_second`; nothing where no provider is called.
    pub calls_per_second: Option<NonZeroU32>,
    /// `delivery.in_flight`.
    pub in_flight: usize,
}

impl Limits {
    /// How long so many mails take, in so many calls.
    pub fn pace(&self, mails: u64, calls: u64) -> Pace {
        let mut bounds = Vec::new();
        if self.mails_per_hour > 0 {
            let limit = u64::from(self.mails_per_hour);
            bounds.push((
                "delivery.mails_per_hour",
                limit,
                (mails * 3_600).div_ceil(limit),
            ));
        }
        if let Some(limit) = self.calls_per_second {
            let limit = u64::from(limit.get());
            bounds.push(("mail.calls_per_second", limit, calls.div_ceil(limit)));
        }
        let longest = bounds.iter().map(|(_, _, seconds)| *seconds).max();
        let bound = |(option, value, seconds)| Bound {
            option,
            value,
            takes: words(seconds),
            rules: mails > 0 && Some(seconds) == longest,
        };
        Pace {
            calls: self.calls_per_second.map(|_| calls),
            seconds: longest,
            takes: longest.map_or_else(|| "at once".to_owned(), words),
            note: self.note(calls),
            bounds: bounds.into_iter().map(bound).collect(),
        }
    }

    fn note(&self, calls: u64) -> String {
        let Some(per_second) = self.calls_per_second else {
            return "Mails are written to a folder on this machine, as fast as its disk takes them.".into();
        };
        let in_flight = self.in_flight as u64;
        let tenths = in_flight * 10 / u64::from(per_second.get());
        let hint = if tenths < 10 {
            let slow = words(calls.div_ceil(in_flight.max(1)));
            format!(" At one second a call, they take {slow}.")
        } else {
            String::new()
        };
        format!(
            "With delivery.in_flight = {in_flight}, mail.calls_per_second is reached as long as the provider answers a call within {}.{} s and so many are made at a time.{hint} Of one process; several share delivery.mails_per_hour.",
            tenths / 10,
            tenths % 10
        )
    }
}

/// `less than a minute`, `12 min`, `2 h 5 min`, `3 days 4 h`.
fn words(seconds: u64) -> String {
    let minutes = seconds.div_ceil(60);
    match minutes {
        0..=1 => "less than a minute".into(),
        2..=99 => format!("{minutes} min"),
        100..=2_879 => format!("{} h {} min", minutes / 60, minutes % 60),
        _ => format!("{} days {} h", minutes / 1_440, minutes % 1_440 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(mails_per_hour: u32, calls_per_second: u32) -> Limits {
        Limits {
            mails_per_hour,
            calls_per_second: NonZeroU32::new(calls_per_second),
            in_flight: 4,
        }
    }

    fn ruling(pace: &Pace) -> Vec<&str> {
        let rules = pace.bounds.iter().filter(|bound| bound.rules);
        rules.map(|bound| bound.option).collect()
    }

    #[test]
    fn the_limit_that_takes_longest_rules() {
        let ramp = limits(2_000, 10).pace(10_000, 10_000);
        let calls = limits(1_000_000, 10).pace(10_000, 10_000);

        assert_eq!(
            (ramp.seconds, ramp.takes.as_str()),
            (Some(18_000), "5 h 0 min")
        );
        assert_eq!(ruling(&ramp), ["delivery.mails_per_hour"]);
        assert_eq!(
            (calls.seconds, calls.takes.as_str()),
            (Some(1_000), "17 min")
        );
        assert_eq!(ruling(&calls), ["mail.calls_per_second"]);
    }

    #[test]
    fn calls_that_hold_many_mails_take_less_long() {
        let pace = limits(0, 10).pace(1_000_000, 2_000);

        assert_eq!((pace.calls, pace.takes.as_str()), (Some(2_000), "4 min"));
        assert!(
            pace.note
                .contains("within 0.4 s and so many are made at a time. At one second a call, they take 9 min."),
            "{}",
            pace.note
        );
    }

    #[test]
    fn a_folder_has_no_limit_but_the_operators() {
        let free = limits(0, 0).pace(10, 0);
        let held = limits(3_600, 0).pace(180, 0);

        assert_eq!(
            (free.takes.as_str(), free.calls, free.bounds.len()),
            ("at once", None, 0)
        );
        assert_eq!((held.takes.as_str(), held.bounds.len()), ("3 min", 1));
    }

    #[test]
    fn long_times_are_told_in_days() {
        assert_eq!(
            [0, 61, 6_000, 400_000].map(words),
            ["less than a minute", "2 min", "1 h 40 min", "4 days 15 h"]
        );
    }
}
