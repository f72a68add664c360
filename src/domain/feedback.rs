//! What providers report of a mail after they took it.
//!
//! The rule: the worst news stands, whatever order it comes in, and of two pieces alike the
//! earlier. That a mail is delayed is no more than what is known until something final comes: a
//! mail that was delayed and then delivered is delivered.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};

use super::delivery_state::DeliveryState;
use super::name::Invalid;

/// What became of a mail; the later, the worse.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ReportKind {
    /// The recipient's server put it off; the provider may try again.
    Delayed,
    /// The recipient's server has it.
    Delivered,
    /// The recipient's server refused the sender or the content; the mailbox may be fine.
    Refused,
    /// Whoever reads it told the provider that they want no more.
    Unsubscribed,
    /// It will never be delivered.
    Bounced,
    /// Whoever reads it called it spam.
    Complained,
}

impl ReportKind {
    /// From the best news to the worst, as they are ordered.
    pub const ALL: [Self; 6] = [
        Self::Delayed,
        Self::Delivered,
        Self::Refused,
        Self::Unsubscribed,
        Self::Bounced,
        Self::Complained,
    ];

    /// The name in the store and in JSON.
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

    /// Whether it may suppress the address.
    pub fn concerns_address(self) -> bool {
        !matches!(self, Self::Delivered | Self::Refused)
    }

    /// News that is better than this.
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

/// The worst news of a mail so far, and of when it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feedback {
    /// The worst that is known.
    pub news: ReportKind,
    /// When it happened, as the provider says.
    pub at: DateTime<Utc>,
}

impl Feedback {
    /// Whether this takes the place of what stands.
    pub fn outweighs(self, standing: Self) -> bool {
        self.news > standing.news || (self.news == standing.news && self.at < standing.at)
    }
}

/// What became of the mails that were sent since some moment, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct ReportCounts {
    /// Mails that providers took, whatever is known of them since; those of the other counts are
    /// among them.
    pub sent: u64,
    /// Those of which the worst that is known is a delay.
    pub delayed: u64,
    /// Those that arrived, with nothing worse reported since.
    pub delivered: u64,
    /// Those that were refused because of the sender or the content.
    pub refused: u64,
    /// Those that made somebody unsubscribe at the provider.
    pub unsubscribed: u64,
    /// Those that will never be delivered.
    pub bounced: u64,
    /// Those that somebody called spam.
    pub complained: u64,
}

impl ReportCounts {
    /// Counts so many mails that ended like this. One whose outcome nobody saw was sent after all
    /// if something is heard of it.
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

    /// How many of these emails were reported on.
    pub fn reported(&self) -> u64 {
        self.delayed
            + self.delivered
            + self.refused
            + self.unsubscribed
            + self.bounced
            + self.complained
    }

    /// The share of these emails that were refused, 0 to 1; 0 where none was sent.
    pub fn refused_share(&self) -> f64 {
        share(self.refused, self.sent)
    }

    /// The share of these mails that bounced, 0 to 1; 0 where none was sent.
    pub fn bounce_share(&self) -> f64 {
        share(self.bounced, self.sent)
    }

    /// The share of these mails that somebody called spam.
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
    fn worse_news_outweighs_and_of_two_alike_the_earlier() {
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
    fn shares_are_of_the_mails_that_were_sent() {
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
