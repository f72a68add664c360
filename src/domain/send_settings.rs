//! The settings for sending email: chunk sizes, rate, retries, and limits that pause sending.
//!
//! `config.default.toml` documents their meaning, ranges and defaults under `[delivery]`.

use std::fmt;
use std::str::FromStr;

use chrono::TimeDelta;

use super::name::InvalidValue;

/// The valid settings of the section `[delivery]`, except `soft_bounces`.
#[derive(Debug, Clone, Copy)]
pub struct SendSettings {
    /// The number of emails that are checked and built together.
    pub chunk: usize,
    /// The most concurrent calls to the provider.
    pub in_flight: usize,
    /// How long a worker's claim on a delivery lasts without renewal. Then other workers may claim
    /// it.
    pub lease: TimeDelta,
    /// The delay before the first retry; it doubles each time.
    pub retry_after: TimeDelta,
    /// The number of counted attempts after which a delivery fails: see
    /// [`crate::domain::delivery::Deferral::has_failed`].
    pub attempts: u32,
    /// The age at which a delivery fails.
    pub give_up_after: TimeDelta,
    /// The delay before the provider is queried about an unknown outcome.
    pub ask_after: TimeDelta,
    /// The delay, after the lease, until a provider that does not know the email is believed.
    pub ask_until: TimeDelta,
    /// How long an unknown outcome is investigated.
    pub resolve_within: TimeDelta,
    /// The fewest outcomes for which `stop_share` applies.
    pub stop_after: u32,
    /// The share of failures above which sending is paused.
    pub stop_share: Share,
    /// The share of the last day's emails that may bounce or be rejected before sending is paused.
    pub stop_bounces: Share,
    /// The share of the last day's emails that may be reported as spam before sending is paused.
    pub stop_complaints: Share,
    /// How long a digest run waits for deferred emails without any progress.
    pub patience: TimeDelta,
    /// How long settled deliveries and batches are kept.
    pub keep: TimeDelta,
}

/// A share from 0% to 100%, with two decimal places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    basis_points: u32,
}

/// 100% in basis points.
const WHOLE: u32 = 10_000;

impl Share {
    /// 0%, a limit that any part above zero exceeds.
    pub const NONE: Self = Self { basis_points: 0 };

    /// Returns whether `part` of `whole` exceeds this share.
    pub fn is_exceeded_by(self, part: u64, whole: u64) -> bool {
        part * u64::from(WHOLE) > whole * u64::from(self.basis_points)
    }
}

impl FromStr for Share {
    type Err = InvalidValue;

    /// Parses a percentage such as `1%`, `0.5%` or `12.25%`.
    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let refuse = || InvalidValue::new("share", text, "is not a percentage such as 1% or 0.5%");
        let number = text.strip_suffix('%').ok_or_else(refuse)?;
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(part) || whole.len() > 3 || part.len() > 2 {
            return Err(refuse());
        }
        let parse = |text: &str| text.parse::<u32>().map_err(|_| refuse());
        let hundredths_per_unit = if part.len() == 1 { 10 } else { 1 };
        let basis_points = parse(whole)? * 100 + parse(part)? * hundredths_per_unit;
        if basis_points > WHOLE {
            return Err(refuse());
        }
        Ok(Self { basis_points })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.basis_points) / 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(text: &str) -> Share {
        text.parse().unwrap()
    }

    #[test]
    fn a_percentage_round_trips() {
        for text in ["0%", "1%", "0.5%", "0.05%", "12.25%", "100%"] {
            assert_eq!(share(text).to_string(), text);
        }
        for text in ["", "1", "%", "-1%", "101%", "100.01%", "1.%", "0.001%", "one%"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_share_is_exceeded_only_by_a_greater_one() {
        assert!(!share("20%").is_exceeded_by(10, 50));
        assert!(share("20%").is_exceeded_by(11, 50));
        assert!(share("0%").is_exceeded_by(1, 1_000_000));
    }
}
