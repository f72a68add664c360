//! The states of a row in the ledger, from pending to settled.

use std::str::FromStr;

use super::name::Invalid;

/// What became of a mail.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryState {
    /// To be built and sent.
    Pending,
    /// About to be handed to the provider, or handed over and not heard of: if the process dies, it
    /// stays so until somebody finds out what became of its call.
    Sending,
    /// The provider has it.
    Sent,
    /// The provider refused it for good. The events of a digest go into the next one; those of a
    /// batch stay in the feed.
    Failed,
    /// Nothing was left to mail, or the person may not be mailed any more.
    Canceled,
    /// It may have been sent, or not. It is not sent again, and neither are its events.
    Unknown,
}

impl DeliveryState {
    /// How a row ends whose mail will not be taken. Where its markers stand, no later mail would
    /// tell its events: it stays for a person to decide about.
    pub fn not_taken(has_markers: bool) -> Self {
        if has_markers {
            Self::Unknown
        } else {
            Self::Failed
        }
    }

    /// All states: the two that are under way, then those that are settled.
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Sending,
        Self::Sent,
        Self::Failed,
        Self::Canceled,
        Self::Unknown,
    ];

    /// The name in the store and in JSON; [`FromStr`] reads it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Sending => "sending",
            Self::Sent => "sent",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Unknown => "unknown",
        }
    }

    /// Whether its outcome is known, or known to be unknown.
    pub fn settled(self) -> bool {
        !matches!(self, Self::Pending | Self::Sending)
    }

    /// Whether markers must cover what the row covers, so that no later mail holds it: it was
    /// mailed, or may have been.
    pub fn flushes(self) -> bool {
        matches!(self, Self::Sent | Self::Unknown)
    }
}

impl FromStr for DeliveryState {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::ALL
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| {
                Invalid::new(
                    "delivery state",
                    text,
                    "is none of pending, sending, sent, failed, canceled, unknown",
                )
            })
    }
}
