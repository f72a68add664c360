//! Enhanced status codes (RFC 3463), such as `5.1.1`, and their meaning for an address.
//!
//! [`EnhancedStatus::judge`] interprets both SMTP replies and provider reports. Only the receiving
//! server's code counts, never a number in its free text.

use std::fmt;
use std::str::FromStr;

/// The code of a failure. Its class is 4 (transient) or 5 (permanent).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EnhancedStatus {
    class: u16,
    subject: u16,
    detail: u16,
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
        let text = text.trim_start();
        let text = match text.split_once(';') {
            Some((kind, reply)) if kind.trim().eq_ignore_ascii_case("smtp") => reply,
            _ => text,
        };
        let mut words = text
            .split(|c: char| c.is_whitespace() || c == '-')
            .filter(|word| !word.is_empty());
        let first = words.next()?;
        let is_reply_code = first.len() == 3 && first.bytes().all(|b| b.is_ascii_digit());
        let code = if is_reply_code { words.next()? } else { first };
        code.trim_matches(['#', '(', ')', '[', ']', ':', ','])
            .parse()
            .ok()
    }

    /// Returns the first number: 4 or 5.
    pub fn class(self) -> u16 {
        self.class
    }

    /// Returns the second and third numbers.
    pub fn subject_and_detail(self) -> (u16, u16) {
        (self.subject, self.detail)
    }

    /// Interprets the failure by class, subject and detail; `None` if the code names no cause.
    ///
    /// `reply` is the server's text. It matters in one case: Google also uses 5.2.1 for a user who
    /// receives email at too high a rate.
    pub fn judge(self, reply: &str) -> Option<FailureKind> {
        let kind = match (self.class, self.subject, self.detail) {
            // Full mailboxes are emptied eventually, though servers call them permanent failures.
            // Exchange Online uses the other two for a mailbox that receives too much in an hour.
            (4, ..) | (_, 2, 2 | 121 | 122) => FailureKind::Soft,
            (_, 2, 1) if reply.contains(" rate") => FailureKind::Soft,
            // Subject 1 is addressing, but these blame the sender's address or sending limit.
            (_, 1, 7 | 8 | 90) => FailureKind::Refused,
            (_, 1, _) | (_, 2, 1) => FailureKind::BadAddress,
            // Servers use these for unknown users and missing domains, and also for rejections.
            // Microsoft answers 5.4.1 and 5.5.0 for an unknown user.
            (_, 0 | 3 | 5, 0) | (_, 4, 1 | 4) => return None,
            _ => FailureKind::Refused,
        };
        Some(kind)
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
        let number = |part: Option<&str>| {
            let part = part.filter(|part| {
                (1..=3).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit())
            });
            part.and_then(|part| part.parse().ok()).ok_or(())
        };
        let mut parts = text.trim().split('.');
        let class = parts.next();
        let (subject, detail) = (number(parts.next())?, number(parts.next())?);
        match (class, parts.next()) {
            (Some("4"), None) => Ok(Self {
                class: 4,
                subject,
                detail,
            }),
            (Some("5"), None) => Ok(Self {
                class: 5,
                subject,
                detail,
            }),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_classified_by_class_subject_and_detail() {
        use FailureKind::{BadAddress, Refused, Soft};
        for (code, expected) in [
            ("5.1.0", BadAddress),
            ("5.1.1", BadAddress),
            ("5.1.2", BadAddress),
            ("5.1.3", BadAddress),
            ("5.1.6", BadAddress),
            ("5.1.10", BadAddress),
            ("5.2.1", BadAddress),
            ("5.1.7", Refused),
            ("5.1.8", Refused),
            ("5.2.2", Soft),
            ("5.2.121", Soft),
            ("5.1.90", Refused),
            ("4.2.2", Soft),
            ("4.1.1", Soft),
            ("4.7.1", Soft),
            ("4.4.1", Soft),
            ("5.2.3", Refused),
            ("5.3.4", Refused),
            ("5.4.0", Refused),
            ("5.4.5", Refused),
            ("5.5.1", Refused),
            ("5.7.1", Refused),
            ("5.7.26", Refused),
        ] {
            let status: EnhancedStatus = code.parse().unwrap();
            assert_eq!(status.to_string(), code);
            assert_eq!(status.judge(""), Some(expected), "{code}");
        }
        let too_fast = "The user you are trying to contact is receiving mail at a rate that";
        let status: EnhancedStatus = "5.2.1".parse().unwrap();
        assert_eq!(status.judge(too_fast), Some(Soft));
        for code in ["5.0.0", "5.3.0", "5.4.1", "5.4.4", "5.5.0"] {
            let status: EnhancedStatus = code.parse().unwrap();
            assert_eq!(status.judge(""), None, "{code}");
        }
        for text in [
            "", "5", "5.1", "5.1.1.1", "2.1.5", "6.1.1", "5.1.x", "5.1.1000", "5..1",
        ] {
            assert_eq!(text.parse::<EnhancedStatus>(), Err(()), "{text}");
        }
    }

    #[test]
    fn only_the_code_after_the_reply_code_is_read() {
        for (reply, expected) in [
            ("550 5.1.1 no such user", Some("5.1.1")),
            ("553-5.1.10\r\n553 5.1.10 takes none", Some("5.1.10")),
            (
                "554 5.7.1 Message rejected by FilterGate 5.2.1 (policy)",
                Some("5.7.1"),
            ),
            ("smtp; 550 5.1.1 user unknown", Some("5.1.1")),
            ("smtp;552-5.2.2 over quota", Some("5.2.2")),
            ("550 #5.1.0 Address rejected", Some("5.1.0")),
            ("5.2.1: disabled", Some("5.2.1")),
            ("550 no mailbox, see 5.1.1", None),
            ("host 192.0.2.1 said: 550 5.1.1", None),
            ("550", None),
            ("", None),
        ] {
            let found = EnhancedStatus::in_reply(reply);
            assert_eq!(found, expected.map(|code| code.parse().unwrap()), "{reply}");
        }
    }
}
