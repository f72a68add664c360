//! States of deliveries, provider reports about them, and suppressed addresses.
//!
//! The worst report wins, in any order of arrival, and the earlier of two equal ones. A delay is
//! only provisional: an email that was delayed and then delivered counts as delivered. Reports from
//! before a suppression was lifted have no effect. Addresses are compared in folded form
//! ([`Address::folded`]).

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};

use super::address::Address;
use super::name::named_enum;

named_enum! {
    /// The state of a delivery.
    DeliveryState("delivery state") {
        /// Waiting to be built and sent.
        Pending = "pending",
        /// About to be sent, or sent without an answer. It stays so if the process dies, until a
        /// worker determines the outcome of the call.
        Sending = "sending",
        /// Accepted by the provider.
        Sent = "sent",
        /// Rejected, or all attempts failed. The events of a digest go into the next digest; those
        /// of a batch stay in the feed.
        Failed = "failed",
        /// No event was left to email, or the user may not be emailed any more.
        Canceled = "canceled",
        /// The outcome is unknown. Neither the email nor its events are sent again.
        Unknown = "unknown",
    }
}

impl DeliveryState {
    /// Returns the final state of an email that was not accepted. If markers exist, no later email
    /// would include its events, so the delivery stays unknown until an operator decides.
    pub fn for_rejected(has_markers: bool) -> Self {
        if has_markers { Self::Unknown } else { Self::Failed }
    }

    /// Returns whether the delivery has ended, with a known or unknown outcome.
    pub fn is_settled(self) -> bool {
        !matches!(self, Self::Pending | Self::Sending)
    }

    /// Returns whether markers must cover the events, because the email was sent or may have been.
    pub fn needs_markers(self) -> bool {
        matches!(self, Self::Sent | Self::Unknown)
    }
}

named_enum! {
    /// The kind of a report, ordered from good to bad.
    ReportKind("feedback") {
        /// The recipient's server deferred the email; the provider may try again.
        Delayed = "delayed",
        /// The recipient's server accepted the email.
        Delivered = "delivered",
        /// The recipient's server rejected the sender or the content. The mailbox may be fine.
        Refused = "refused",
        /// The recipient unsubscribed at the provider.
        Unsubscribed = "unsubscribed",
        /// The email will never be delivered.
        Bounced = "bounced",
        /// The recipient reported the email as spam.
        Complained = "complained",
    }
}

impl ReportKind {
    /// Returns whether a report of this kind can suppress the address.
    pub fn concerns_address(self) -> bool {
        !matches!(self, Self::Delivered | Self::Refused)
    }

    /// Returns the kinds that are better than this one.
    pub fn better_kinds(self) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |other| *other < self)
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
    pub fn outweighs(self, stored: Self) -> bool {
        self.news > stored.news || (self.news == stored.news && self.at < stored.at)
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
    /// Adds emails with this state and worst report. An unknown outcome counts as sent once
    /// the provider reports on it.
    pub fn add(&mut self, state: DeliveryState, news: Option<ReportKind>, emails: u64) {
        if !matches!((state, news), (DeliveryState::Sent, _) | (DeliveryState::Unknown, Some(_))) {
            return;
        }
        self.sent += emails;
        match news {
            None => {}
            Some(ReportKind::Delayed) => self.delayed += emails,
            Some(ReportKind::Delivered) => self.delivered += emails,
            Some(ReportKind::Refused) => self.refused += emails,
            Some(ReportKind::Unsubscribed) => self.unsubscribed += emails,
            Some(ReportKind::Bounced) => self.bounced += emails,
            Some(ReportKind::Complained) => self.complained += emails,
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

    /// Returns a part of the sent emails as a share, 0 to 1; 0 if none was sent.
    pub fn share(&self, part: u64) -> f64 {
        part as f64 / self.sent.max(1) as f64
    }
}

/// The code of a failure. Its class is 4 (transient) or 5 (permanent).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EnhancedStatus {
    /// 4 or 5.
    pub class: u16,
    /// The second number.
    pub subject: u16,
    /// The third number.
    pub detail: u16,
}

/// The meaning of a failure for the recipient's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// The address accepts no email, so later emails would fail too.
    BadAddress,
    /// The mailbox is full or the fault is temporary, so a later email may be delivered.
    Soft,
    /// The receiver rejected the sender or the content. The mailbox may be fine.
    Refused,
}

impl EnhancedStatus {
    /// Returns the code of a server's reply, such as `550 5.1.1 no such user`. Delivery status
    /// notifications write `smtp;` before the reply (RFC 3464).
    ///
    /// The code comes first or directly after the reply code (RFC 2034). Later digits are free
    /// text.
    pub fn in_reply(text: &str) -> Option<Self> {
        let reply = match text.trim_start().split_once(';') {
            Some((kind, reply)) if kind.trim().eq_ignore_ascii_case("smtp") => reply,
            _ => text,
        };
        let mut words =
            reply.split(|c: char| c.is_whitespace() || c == '-').filter(|word| !word.is_empty());
        let first = words.next()?;
        let is_reply_code = first.len() == 3 && first.bytes().all(|b| b.is_ascii_digit());
        let code = if is_reply_code { words.next()? } else { first };
        code.trim_matches(['#', '(', ')', '[', ']', ':', ',']).parse().ok()
    }

    /// Interprets the failure by class, subject and detail; `None` if the code names no cause.
    ///
    /// `reply` is the server's text. It matters in one case: Google also uses 5.2.1 for a user who
    /// receives email at too high a rate.
    pub fn failure_kind(self, reply: &str) -> Option<FailureKind> {
        match (self.class, self.subject, self.detail) {
            // Full mailboxes are emptied eventually, though servers call them permanent failures.
            // Exchange Online uses the other two for a mailbox that receives too much in an hour.
            (4, ..) | (_, 2, 2 | 121 | 122) => Some(FailureKind::Soft),
            (_, 2, 1) if reply.contains(" rate") => Some(FailureKind::Soft),
            // Subject 1 is addressing, but these blame the sender's address or sending limit.
            (_, 1, 7 | 8 | 90) => Some(FailureKind::Refused),
            (_, 1, _) | (_, 2, 1) => Some(FailureKind::BadAddress),
            // Servers use these for unknown users and missing domains, and also for rejections.
            // Microsoft answers 5.4.1 and 5.5.0 for an unknown user.
            (_, 0 | 3 | 5, 0) | (_, 4, 1 | 4) => None,
            _ => Some(FailureKind::Refused),
        }
    }
}

impl fmt::Display for EnhancedStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.class, self.subject, self.detail)
    }
}

impl FromStr for EnhancedStatus {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |part: &str| {
            let is_number = part.len() <= 3 && part.bytes().all(|b| b.is_ascii_digit());
            part.parse().ok().filter(|_| is_number)
        };
        let parts: Vec<&str> = text.trim().split('.').collect();
        match parts[..] {
            [class @ ("4" | "5"), subject, detail] => Ok(Self {
                class: number(class).ok_or(())?,
                subject: number(subject).ok_or(())?,
                detail: number(detail).ok_or(())?,
            }),
            _ => Err(()),
        }
    }
}

named_enum! {
    /// Why an address is suppressed, in order of severity.
    SuppressionReason("reason") {
        /// Several emails in a row bounced softly (`delivery.soft_bounces`).
        SoftBounces = "soft_bounces",
        /// The recipient unsubscribed at the provider.
        Unsubscribe = "unsubscribe",
        /// An operator suppressed the address.
        Manual = "manual",
        /// The mailbox does not exist, or rejects all email permanently.
        HardBounce = "hard_bounce",
        /// The recipient reported an email as spam.
        Complaint = "complaint",
    }
}

impl SuppressionReason {
    /// Returns a text for people that follows "they are".
    pub fn description(self) -> &'static str {
        match self {
            Self::SoftBounces => "suppressed after soft bounces",
            Self::Manual => "suppressed by an operator",
            Self::Unsubscribe => "suppressed after unsubscribing at the provider",
            Self::HardBounce => "suppressed after a hard bounce",
            Self::Complaint => "suppressed after a complaint",
        }
    }
}

/// A suppressed address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suppression {
    /// The address in folded form.
    pub address: Address,
    /// The most severe reason so far.
    pub reason: SuppressionReason,
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
        reason: SuppressionReason,
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
    pub fn with_detail(mut self, detail: Option<&str>) -> Self {
        self.detail = detail.map(without_address).filter(|detail| !detail.is_empty());
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

fn without_address(text: &str) -> String {
    let is_forbidden = |c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c);
    let plain_words: Vec<String> = text
        .split_whitespace()
        .filter(|word| !word.contains('@'))
        .map(|word| word.replace(is_forbidden, ""))
        .filter(|word| !word.is_empty())
        .collect();
    plain_words.join(" ").chars().take(80).collect()
}

#[cfg(test)]
#[path = "feedback_tests.rs"]
mod tests;
