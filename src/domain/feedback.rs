//! Provider reports about emails after their acceptance.
//!
//! The worst report wins, in any order of arrival, and the earlier of two equal ones. A delay is
//! only provisional: an email that was delayed and then delivered counts as delivered.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};

use super::delivery_state::DeliveryState;
use super::name::Invalid;

/// The kind of a report, ordered from good to bad.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ReportKind {
    /// The recipient's server deferred the email; the provider may try again.
    Delayed,
    /// The recipient's server accepted the email.
    Delivered,
    /// The recipient's server rejected the sender or the content. The mailbox may be fine.
    Refused,
    /// The recipient unsubscribed at the provider.
    Unsubscribed,
    /// The email will never be delivered.
    Bounced,
    /// The recipient reported the email as spam.
    Complained,
}

impl ReportKind {
    /// All kinds, from the best to the worst.
    pub const ALL: [Self; 6] = [
        Self::Delayed,
        Self::Delivered,
        Self::Refused,
        Self::Unsubscribed,
        Self::Bounced,
        Self::Complained,
    ];

    /// Returns the name in the store and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delayed => "delayed",
            Self::Delivered => "delivered",
            Self::Refused => "refused",
            Self::Unsubscribed => "unsubscribed",
            Self::Bounced => "bounced",
            Self::Complained => "complained",
        }
    }

    /// Returns whether a report of this kind can suppress the address.
    pub fn concerns_address(self) -> bool {
        !matches!(self, Self::Delivered | Self::Refused)
    }

    /// Returns the kinds that are better than this one.
    pub fn better(self) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |other| *other < self)
    }
}

impl fmt::Display for ReportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ReportKind {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::ALL
            .into_iter()
            .find(|news| news.as_str() == text)
            .ok_or_else(|| {
                Invalid::new(
                    "feedback",
                    text,
                    "is none of delayed, delivered, refused, unsubscribed, bounced, complained",
                )
            })
    }
}

/// The worst report about an email so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feedback {
    /// The kind of the report.
    pub news: ReportKind,
    /// When it happened, according to the provider.
    pub at: DateTime<Utc>,
}

impl Feedback {
    /// Returns whether this report replaces the stored one.
    pub fn outweighs(self, standing: Self) -> bool {
        self.news > standing.news || (self.news == standing.news && self.at < standing.at)
    }
}

/// The outcomes of emails that were sent since some time, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct ReportCounts {
    /// Emails that providers accepted. The other counts are part of this one.
    pub sent: u64,
    /// Emails whose worst report is a delay.
    pub delayed: u64,
    /// Emails that were delivered, without a worse report.
    pub delivered: u64,
    /// Emails that were rejected because of the sender or the content.
    pub refused: u64,
    /// Emails that made the recipient unsubscribe at the provider.
    pub unsubscribed: u64,
    /// Emails that will never be delivered.
    pub bounced: u64,
    /// Emails that were reported as spam.
    pub complained: u64,
}

impl ReportCounts {
    /// Adds `mails` emails with this state and worst report. An unknown outcome counts as sent once
    /// the provider reports on it.
    pub fn settled(&mut self, state: DeliveryState, news: Option<ReportKind>, mails: u64) {
        match (state, news) {
            (DeliveryState::Sent, _) | (DeliveryState::Unknown, Some(_)) => self.sent += mails,
            _ => return,
        }
        match news {
            None => {}
            Some(ReportKind::Delayed) => self.delayed += mails,
            Some(ReportKind::Delivered) => self.delivered += mails,
            Some(ReportKind::Refused) => self.refused += mails,
            Some(ReportKind::Unsubscribed) => self.unsubscribed += mails,
            Some(ReportKind::Bounced) => self.bounced += mails,
            Some(ReportKind::Complained) => self.complained += mails,
        }
    }

    /// Returns the number of emails with a report.
    pub fn reported(&self) -> u64 {
        self.delayed
            + self.delivered
            + self.refused
            + self.unsubscribed
            + self.bounced
            + self.complained
    }

    /// Returns the share of rejected emails, 0 to 1; 0 if none was sent.
    pub fn refused_share(&self) -> f64 {
        share(self.refused, self.sent)
    }

    /// Returns the share of bounced emails, 0 to 1; 0 if none was sent.
    pub fn bounce_share(&self) -> f64 {
        share(self.bounced, self.sent)
    }

    /// Returns the share of emails reported as spam, 0 to 1; 0 if none was sent.
    pub fn complaint_share(&self) -> f64 {
        share(self.complained, self.sent)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worse_feedback_outweighs_and_on_a_tie_the_earlier_one() {
        let feedback = |news, second| Feedback {
            news,
            at: DateTime::from_timestamp(second, 0).unwrap(),
        };
        for (better, worse) in ReportKind::ALL
            .into_iter()
            .zip(ReportKind::ALL.into_iter().skip(1))
        {
            assert!(feedback(worse, 9).outweighs(feedback(better, 1)), "{worse}");
            assert!(
                !feedback(better, 1).outweighs(feedback(worse, 9)),
                "{worse}"
            );
            assert!(feedback(worse, 1).outweighs(feedback(worse, 2)));
            assert!(!feedback(worse, 1).outweighs(feedback(worse, 1)));
        }
        assert_eq!(
            ReportKind::Delivered.better().collect::<Vec<_>>(),
            [ReportKind::Delayed]
        );
    }

    #[test]
    fn shares_are_relative_to_sent_emails() {
        let mut report_counts = ReportCounts::default();
        assert_eq!(report_counts.bounce_share(), 0.0);
        for (state, news, mails) in [
            (DeliveryState::Sent, None, 50),
            (DeliveryState::Sent, Some(ReportKind::Delivered), 40),
            (DeliveryState::Unknown, Some(ReportKind::Delivered), 5),
            (DeliveryState::Unknown, None, 7),
            (DeliveryState::Canceled, None, 9),
            (DeliveryState::Sent, Some(ReportKind::Bounced), 4),
            (DeliveryState::Sent, Some(ReportKind::Complained), 1),
        ] {
            report_counts.settled(state, news, mails);
        }
        assert_eq!((report_counts.sent, report_counts.bounced), (100, 4));
        assert_eq!(report_counts.bounce_share(), 0.04);
        assert_eq!(report_counts.complaint_share(), 0.01);
    }
}
