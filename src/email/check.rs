//! The result of checking a mailer's configuration.
//!
//! The three results are kept apart. `Unreached` says nothing about the key. None of them contains
//! a key or an address.

/// The result of [`super::Mailer::check`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// The mailer would accept emails, as far as a check can find out.
    Ready {
        /// The finding, as text for the operator.
        found: String,
        /// The DNS names of the DKIM keys that the provider signs with; empty if it does not list
        /// them.
        dkim: Vec<String>,
    },
    /// The mailer was reached and would not accept an email.
    Wrong {
        /// The problem.
        found: String,
        /// The remedy, as text for the operator.
        remedy: String,
    },
    /// The mailer was not reached.
    Unreached {
        /// The cause.
        reason: String,
    },
}

impl Checked {
    /// Returns [`Self::Ready`] without DKIM names.
    pub fn ready(found: impl Into<String>) -> Self {
        Self::Ready {
            found: found.into(),
            dkim: Vec::new(),
        }
    }

    /// Returns [`Self::Wrong`].
    pub fn wrong(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Wrong {
            found: found.into(),
            remedy: remedy.into(),
        }
    }
}
