//! Addresses that must not be written to, and why.
//!
//! The rule (P7): an address is suppressed until an operator lifts it. Of two pieces of news about
//! one address the graver wins, and of two alike the earlier, so their order does not matter. A
//! lift is a moment: news from before it changes nothing. An operator's word outweighs the
//! reader's, which stops all but mandatory emails. Addresses are compared folded
//! ([`Address::folded`]).

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};

use super::address::Address;
use super::name::Invalid;

/// Why an address must not be written to; the later, the graver.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Mail after mail was put off.
    SoftBounces,
    /// Whoever reads it told the provider that they want no more.
    Unsubscribe,
    /// An operator says so.
    Manual,
    /// There is no such mailbox, or it takes nothing for good.
    HardBounce,
    /// Whoever reads it called a mail spam.
    Complaint,
}

impl Reason {
    /// From the least grave to the gravest, as they are ordered.
    pub const ALL: [Self; 5] = [
        Self::SoftBounces,
        Self::Unsubscribe,
        Self::Manual,
        Self::HardBounce,
        Self::Complaint,
    ];

    /// The name in the store, in JSON and in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SoftBounces => "soft_bounces",
            Self::Manual => "manual",
            Self::Unsubscribe => "unsubscribe",
            Self::HardBounce => "hard_bounce",
            Self::Complaint => "complaint",
        }
    }

    /// The same for people, where it follows "they are".
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

/// An address that must not be written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suppression {
    /// Folded.
    pub address: Address,
    /// The gravest that is known.
    pub reason: Reason,
    /// Since when.
    pub at: DateTime<Utc>,
    /// Who said so: a provider's name, or [`OPERATOR`].
    pub source: String,
    /// What the provider called it, such as `550 5.1.1`; without the address.
    pub detail: Option<String>,
    /// When it was last lifted. News up to then changes nothing any more.
    pub lifted: Option<DateTime<Utc>>,
}

/// The source of what people say by hand, by file or by the API.
pub const OPERATOR: &str = "operator";

impl Suppression {
    /// Times are kept in whole milliseconds.
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

    /// With what the provider called it: letters, digits and what codes are written with, at most
    /// 80 characters, so that no address and no sentence of a stranger's server gets in.
    pub fn detailed(mut self, detail: Option<&str>) -> Self {
        self.detail = detail.map(discreet).filter(|detail| !detail.is_empty());
        self
    }

    /// Whether it was lifted, and nothing has happened since.
    pub fn is_lifted(&self) -> bool {
        self.lifted.is_some_and(|lifted| self.at <= lifted)
    }

    /// Whether this takes the place of the stored one. News from before a lift never does.
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
    fn of_two_reasons_the_graver_stands_and_of_two_alike_the_earlier() {
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
    fn news_from_before_a_lift_outweighs_nothing_and_later_news_does() {
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
    fn every_reason_is_read_as_it_is_written() {
        for reason in Reason::ALL {
            assert_eq!(reason.as_str().parse(), Ok(reason));
        }
        assert!("Bounce".parse::<Reason>().is_err());
    }

    #[test]
    fn a_detail_holds_codes_and_no_address() {
        let said = "smtp;550 5.1.1 <ada.lovelace@example.org> \"no\nsuch\" user, see https://x";
        let detailed = suppression(Reason::HardBounce, 1).detailed(Some(said));
        assert_eq!(
            detailed.detail.as_deref(),
            Some("smtp550 5.1.1 no such user see httpsx")
        );
        assert_eq!(detailed.detailed(Some(" @ ")).detail, None);
    }
}
