//! The states of a delivery, from pending to settled.

use std::str::FromStr;

use super::name::Invalid;

/// The state of a delivery.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryState {
    /// Waiting to be built and sent.
    Pending,
    /// About to be sent, or sent without an answer. It stays so if the process dies, until a worker
    /// determines the outcome of the call.
    Sending,
    /// Accepted by the provider.
    Sent,
    /// Rejected, or all attempts failed. The events of a digest go into the next digest; those of a
    /// batch stay in the feed.
    Failed,
    /// No event was left to email, or the user may not be emailed any more.
    Canceled,
    /// The outcome is unknown. Neither the email nor its events are sent again.
    Unknown,
}

impl DeliveryState {
    /// Returns the final state of an email that was not accepted. If markers exist, no later email
    /// would include its events, so the delivery stays unknown until an operator decides.
    pub fn not_taken(has_markers: bool) -> Self {
        if has_markers {
            Self::Unknown
        } else {
            Self::Failed
        }
    }

    /// All states: the two that are in progress, then the settled ones.
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Sending,
        Self::Sent,
        Self::Failed,
        Self::Canceled,
        Self::Unknown,
    ];

    /// Returns the name in the store and in JSON. [`FromStr`] parses it.
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

    /// Returns whether the delivery has ended, with a known or unknown outcome.
    pub fn settled(self) -> bool {
        !matches!(self, Self::Pending | Self::Sending)
    }

    /// Returns whether markers must cover the events, because the email was sent or may have been.
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
