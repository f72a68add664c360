//! Suppressed addresses, which get no email, and the reasons.
//!
//! An address stays suppressed until an operator lifts it (P7). The more severe of two reasons
//! wins, and the earlier report of two equal ones, so their order does not matter. A lift has a
//! time, and reports from before it have no effect. An unsubscribe still permits mandatory emails;
//! a manual suppression outweighs it. Addresses are compared in folded form ([`Address::folded`]).

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};

use super::address::Address;
use super::name::Invalid;

/// Why an address is suppressed, in order of severity.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Several emails in a row bounced softly (`delivery.soft_bounces`).
    SoftBounces,
    /// The recipient unsubscribed at the provider.
    Unsubscribe,
    /// An operator suppressed the address.
    Manual,
    /// The mailbox does not exist, or rejects all email permanently.
    HardBounce,
    /// The recipient reported an email as spam.
    Complaint,
}

impl Reason {
    /// All reasons, from the least to the most severe.
    pub const ALL: [Self; 5] = [
        Self::SoftBounces,
        Self::Unsubscribe,
        Self::Manual,
        Self::HardBounce,
        Self::Complaint,
    ];

    /// Returns the name in the store, in JSON and in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SoftBounces => "soft_bounces",
            Self::Manual => "manual",
            Self::Unsubscribe => "unsubscribe",
            Self::HardBounce => "hard_bounce",
            Self::Complaint => "complaint",
        }
    }

    /// Returns a text for people that follows "they are".
    pub fn suppressed(self) -> &'static str {
        match self {
            Self::SoftBounces => "suppressed after soft bounces",
            Self::Manual => "suppressed by an operator",
            Self::Unsubscribe => "suppressed after unsubscribing at the provider",
            Self::HardBounce => "suppressed after a hard bounce",
            Self::Complaint => "suppressed after a complaint",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Reason {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::ALL
            .into_iter()
            .find(|reason| reason.as_str() == text)
            .ok_or_else(|| {
                Invalid::new(
                    "reason",
                    text,
                    "is none of hard_bounce, complaint, unsubscribe, manual, soft_bounces",
                )
            })
    }
}

/// A suppressed address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suppression {
    /// The address in folded form.
    pub address: Address,
    /// The most severe reason so far.
    pub reason: Reason,
    /// When it was reported.
    pub at: DateTime<Utc>,
    /// The provider that reported it, or [`OPERATOR`].
    pub source: String,
    /// The provider's code, such as `550 5.1.1`, without the address.
    pub detail: Option<String>,
    /// When it was last lifted. Reports up to then have no effect.
    pub lifted: Option<DateTime<Utc>>,
}

/// The source of suppressions that people enter by hand, by file or with the API.
pub const OPERATOR: &str = "operator";

impl Suppression {
    /// Creates a suppression. The address is folded and the time cut to whole milliseconds.
    pub fn new(
        address: &Address,
        reason: Reason,
        at: DateTime<Utc>,
        source: impl Into<String>,
    ) -> Self {
        let at = DateTime::from_timestamp_millis(at.timestamp_millis()).unwrap_or(at);
        Self {
            address: address.folded(),
            reason,
            at,
            source: source.into(),
            detail: None,
            lifted: None,
        }
    }

    /// Adds the provider's code: at most 80 letters, digits, spaces and `._-`. Words with an `@`
    /// are dropped, so no address is stored.
    pub fn detailed(mut self, detail: Option<&str>) -> Self {
        self.detail = detail.map(discreet).filter(|detail| !detail.is_empty());
        self
    }

    /// Returns whether it was lifted and there is no later report.
    pub fn is_lifted(&self) -> bool {
        self.lifted.is_some_and(|lifted| self.at <= lifted)
    }

    /// Returns whether this replaces the stored suppression. Reports from before a lift never do.
    pub fn outweighs(&self, stored: &Self) -> bool {
        if stored.lifted.is_some_and(|lifted| self.at <= lifted) {
            return false;
        }
        stored.is_lifted()
            || self.reason > stored.reason
            || (self.reason == stored.reason && self.at < stored.at)
    }
}

fn discreet(text: &str) -> String {
    let words = text
        .split_whitespace()
        .filter(|word| !word.contains('@'))
        .map(|word| {
            word.chars()
                .filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c))
                .collect::<String>()
        })
        .filter(|word| !word.is_empty());
    words
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .take(80)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suppression(reason: Reason, second: i64) -> Suppression {
        let address = Address::new("Ada@Example.org").unwrap();
        let at = DateTime::from_timestamp(second, 0).unwrap();
        Suppression::new(&address, reason, at, "mailgun")
    }

    #[test]
    fn the_graver_reason_wins_and_on_a_tie_the_earlier_one() {
        let complaint = suppression(Reason::Complaint, 9);
        for reason in Reason::ALL {
            let other = suppression(reason, 5);
            assert_eq!(complaint.outweighs(&other), reason != Reason::Complaint);
            assert_eq!(other.outweighs(&complaint), reason == Reason::Complaint);
            assert!(!other.outweighs(&other), "it stands already");
        }
        let hard = suppression(Reason::HardBounce, 5);
        assert!(hard.outweighs(&suppression(Reason::SoftBounces, 1)));
    }

    #[test]
    fn only_reports_after_a_lift_suppress_again() {
        let lifted = Suppression {
            lifted: DateTime::from_timestamp(10, 0),
            ..suppression(Reason::HardBounce, 5)
        };
        assert!(lifted.is_lifted());
        for second in [1, 5, 9, 10] {
            assert!(!suppression(Reason::Complaint, second).outweighs(&lifted));
        }
        let later = suppression(Reason::SoftBounces, 11);
        assert!(later.outweighs(&lifted));
        let again = Suppression {
            lifted: lifted.lifted,
            ..later
        };
        assert!(!again.is_lifted());
        assert!(!suppression(Reason::Complaint, 9).outweighs(&again));
    }

    #[test]
    fn every_reason_round_trips() {
        for reason in Reason::ALL {
            assert_eq!(reason.as_str().parse(), Ok(reason));
        }
        assert!("Bounce".parse::<Reason>().is_err());
    }

    #[test]
    fn a_detail_keeps_codes_and_omits_addresses() {
        let said = "smtp;550 5.1.1 <ada.lovelace@example.org> \"no\nsuch\" user, see https://x";
        let detailed = suppression(Reason::HardBounce, 1).detailed(Some(said));
        assert_eq!(
            detailed.detail.as_deref(),
            Some("smtp550 5.1.1 no such user see httpsx")
        );
        assert_eq!(detailed.detailed(Some(" @ ")).detail, None);
    }
}
