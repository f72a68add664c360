//! What asking a mailer found out: whether it would take mails, as far as can be told without
//! sending one.
//!
//! The rule: three answers that are never mixed up. It would; it was reached and would not; nobody
//! could be asked, which says nothing of the key. None of them holds a key or an address.

/// The answer of [`super::Mailer::check`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// It would take mails, as far as can be told.
    Ready {
        /// What was found.
        found: String,
        /// Where the keys stand that it signs mails with (DKIM), as names in the DNS; none if it
        /// does not say.
        dkim: Vec<String>,
    },
    /// It would not take a mail.
    Wrong {
        /// What is wrong.
        found: String,
        /// What to do.
        remedy: String,
    },
    /// It could not be asked.
    Unreached {
        /// Why it could not be asked.
        reason: String,
    },
}

impl Checked {
    /// It would take mails, and does not say where its DKIM keys stand.
    pub fn ready(found: impl Into<String>) -> Self {
        Self::Ready {
            found: found.into(),
            dkim: Vec::new(),
        }
    }

    /// It was reached, and would not take a mail.
    pub fn wrong(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Wrong {
            found: found.into(),
            remedy: remedy.into(),
        }
    }
}
