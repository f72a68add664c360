//! Interprets negative SMTP replies: do they concern the recipient, the session, or all emails?
//!
//! The reply code decides, and the enhanced status (RFC 3463) that directly follows it. The text
//! counts only where providers have no other way to name a used-up sending limit or an unknown
//! recipient. `docs/decisions/0006-providers.md` cites the sources.

use std::error::Error as _;
use std::time::Duration;

use lettre::transport::smtp::Error as SmtpError;

use crate::domain::{EnhancedStatus, FailureKind};
use crate::email::Outcome;

/// A negative reply of the server.
pub(super) struct Reply {
    code: u16,
    /// The enhanced status at the start of the text, if its class matches the code.
    status: Option<EnhancedStatus>,
    /// The text in lower case.
    text: String,
}

/// The wait after a used-up limit. Providers count by the hour or the day and do not say when a
/// limit ends, so one email tries again after this time.
const LIMIT_WAIT: Duration = Duration::from_secs(5 * 60);

/// The wait after a temporary reply that names the sending rate, which Amazon SES counts by the
/// second.
const RATE_WAIT: Duration = Duration::from_secs(10);

/// Statuses of sending limits: of an account at Google, of accounts and tenants at Exchange Online.
const LIMIT_STATUSES: [(u16, u16); 5] = [(4, 5), (1, 90), (7, 232), (7, 233), (7, 705)];
/// Statuses of a sender that is invalid, blocked, or may not use this address (Exchange Online).
const SENDER_STATUSES: [(u16, u16); 6] = [(1, 7), (1, 8), (7, 60), (7, 501), (7, 502), (7, 503)];
/// Words that name a used-up sending limit.
const LIMIT_WORDS: [&str; 15] = [
    "sending limit",
    "sending quota",
    "sending rate",
    "daily limit",
    "hourly limit",
    "daily quota",
    "relay limit",
    "rate limit",
    "message rate",
    "throttl",
    "per hour",
    "per day",
    "too many messages",
    "too many emails",
    "too much mail",
];

/// Microsoft's words for an unknown recipient. They count only with a status that names no cause,
/// as other servers also use the first phrase for refusals by policy.
const UNKNOWN_RECIPIENT_WORDS: [&str; 2] =
    ["mailbox unavailable", "recipient address rejected: access denied"];

impl Reply {
    /// Returns the reply in this error, if the server sent one.
    pub(super) fn from_error(error: &SmtpError) -> Option<Self> {
        let code = u16::from(error.status()?);
        let text = error.source().map(ToString::to_string).unwrap_or_default();
        Some(Self::new(code, &text))
    }

    fn new(code: u16, text: &str) -> Self {
        Self {
            code,
            status: EnhancedStatus::in_reply(text).filter(|status| status.class == code / 100),
            text: text.to_lowercase(),
        }
    }

    pub(super) fn code(&self) -> u16 {
        self.code
    }

    pub(super) fn is_temporary(&self) -> bool {
        (400..500).contains(&self.code)
    }

    /// Returns whether the status has one of these subjects and details.
    fn has_status(&self, statuses: &[(u16, u16)]) -> bool {
        self.status.is_some_and(|status| statuses.contains(&(status.subject, status.detail)))
    }

    /// Returns whether a sending limit of the account is used up. A mailbox's limits do not count.
    pub(super) fn names_sending_limit(&self) -> bool {
        let subject = self.status.map_or(0, |status| status.subject);
        let has_limit_word = !matches!(subject, 1 | 2) && self.has_limit_word();
        if self.is_temporary() {
            // Amazon SES: "454 Throttling failure: Daily message quota exceeded".
            return self.code == 454 && has_limit_word;
        }
        // Exchange Online: "5.2.0 STOREDRV.Submission.Exception:SubmissionQuotaExceeded…".
        let names_quota =
            subject == 7 && self.text.contains("quota") || self.text.contains("submissionquota");
        self.has_status(&LIMIT_STATUSES) || names_quota || has_limit_word
    }

    /// Returns the wait after a used-up sending limit.
    pub(super) fn limit_wait(&self) -> Duration {
        let is_rate = self.is_temporary() && self.text.contains("sending rate");
        if is_rate { RATE_WAIT } else { LIMIT_WAIT }
    }

    fn has_limit_word(&self) -> bool {
        LIMIT_WORDS.iter().any(|word| self.text.contains(word))
    }

    /// Returns whether the session accepts no more messages, though a new one may. RFC 3463,
    /// section 3.6, defines X.5.3 (too many recipients).
    pub(super) fn names_session_limit(&self) -> bool {
        self.has_status(&[(5, 3)]) || self.text.contains("session")
    }

    /// Returns the outcome that a reply to RCPT, to DATA, or to the content means for the email.
    pub(super) fn outcome(&self, reason: String) -> Outcome {
        match self.code {
            // The server closes the session.
            421 => Outcome::TryLater(reason, None),
            530 | 535 | 538 => Outcome::Stop(reason),
            _ if self.names_sending_limit() => Outcome::TryLater(reason, Some(self.limit_wait())),
            _ if self.is_temporary() => Outcome::Deferred(reason),
            _ if self.has_status(&SENDER_STATUSES) => Outcome::Stop(reason),
            _ => match self.failure() {
                Some(FailureKind::Soft) => Outcome::Deferred(reason),
                Some(FailureKind::BadAddress) => Outcome::Undeliverable(reason),
                Some(FailureKind::Refused) | None => Outcome::Refused(reason),
            },
        }
    }

    /// Returns the failure that the status names. If it names no cause, 5.4.4 (no route to the
    /// domain) and Microsoft's words for an unknown recipient mean a bad address.
    fn failure(&self) -> Option<FailureKind> {
        let status = self.status?;
        status.failure_kind(&self.text).or_else(|| {
            let is_unknown = self.has_status(&[(4, 4)])
                || UNKNOWN_RECIPIENT_WORDS.iter().any(|words| self.text.contains(words));
            is_unknown.then_some(FailureKind::BadAddress)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(outcome: &Outcome) -> &'static str {
        match outcome {
            Outcome::TryLater(_, None) => "try later",
            Outcome::TryLater(..) => "limit",
            Outcome::Stop(..) => "stop",
            Outcome::Deferred(..) => "deferred",
            Outcome::Undeliverable(..) => "undeliverable",
            Outcome::Refused(..) => "refused",
            _ => "another",
        }
    }

    #[test]
    fn each_reply_has_the_documented_meaning() {
        let [later, limit, stop] = ["try later", "limit", "stop"];
        let [deferred, undeliverable, refused] = ["deferred", "undeliverable", "refused"];
        for (code, text, expected) in [
            (421, "4.7.0 Try again later", later),
            (450, "4.2.1 The user is receiving mail too quickly", deferred),
            (451, "4.7.1 greylisted", deferred),
            (452, "5.1.1 no such user", deferred),
            (454, "Throttling failure: Maximum sending rate exceeded", limit),
            (454, "Throttling failure: Daily message quota exceeded", limit),
            (454, "4.2.1 rate limit of this mailbox", deferred),
            (454, "4.7.0 Temporary authentication failure", deferred),
            (450, "4.7.1 rate limit", deferred),
            (530, "5.7.0 Must issue a STARTTLS command first", stop),
            (550, "5.4.5 Daily user sending limit exceeded", limit),
            (550, "5.4.5 congested", limit),
            (550, "5.7.0 quota exceeded", limit),
            (550, "5.7.1 Email quota exceeded", limit),
            (550, "5.1.90 You have reached a limit", limit),
            (550, "5.7.705 Access denied", limit),
            (554, "5.2.0 STOREDRV.Submission.Exception:SubmissionQuotaExceededException", limit),
            (550, "Domain a.example has exceeded the max emails per hour (150)", limit),
            (550, "5.1.8 Access denied, bad outbound sender", stop),
            (554, "5.7.60 no permission to send as this sender", stop),
            (552, "5.2.2 mailbox full", deferred),
            (550, "5.2.121 per hour message receive limit", deferred),
            (
                550,
                "5.2.1 The user you are trying to contact is receiving mail at a rate that",
                deferred,
            ),
            (550, "5.2.1 account closed", undeliverable),
            (550, "5.1.1 no such user", undeliverable),
            (550, "5.1.1", undeliverable),
            (553, "5.1.10 RESOLVER.ADR.RecipientNotFound", undeliverable),
            (550, "5.4.4 unable to route", undeliverable),
            (
                550,
                "5.5.0 Requested action not taken: mailbox unavailable (S2017062302).",
                undeliverable,
            ),
            (550, "5.4.1 Recipient address rejected: Access denied.", undeliverable),
            (550, "5.4.1 no answer from host", refused),
            (550, "5.5.0 command failed", refused),
            (550, "5.0.0 failed", refused),
            (550, "Requested action not taken: mailbox unavailable", refused),
            (550, "5.7.1 mailbox unavailable by policy", refused),
            (550, "mailbox quota exceeded", refused),
            (550, "4.1.1 the class is not the code's", refused),
            (550, "5.1.1.1 is no status", refused),
            (552, "5.3.4 message size exceeds limit", refused),
            (554, "5.7.1 rejected by FilterGate 5.2.1 (policy)", refused),
            (554, "5.7.1 rejected, see 5.4.5", refused),
            (554, "5.7.1 spam score exceeds the limit", refused),
            (550, "", refused),
        ] {
            let outcome = Reply::new(code, text).outcome(String::new());
            assert_eq!(name(&outcome), expected, "{code} {text}");
        }
    }

    #[test]
    fn a_rate_limit_waits_seconds_and_a_quota_minutes() {
        for (code, text, seconds) in [
            (454, "Throttling failure: Maximum sending rate exceeded", 10),
            (454, "Throttling failure: Daily message quota exceeded", 300),
            (550, "5.4.5 Daily user sending limit exceeded", 300),
            (550, "5.7.1 sending rate exceeded", 300),
        ] {
            let wait = Reply::new(code, text).limit_wait();
            assert_eq!(wait, Duration::from_secs(seconds), "{code} {text}");
        }
    }
}
