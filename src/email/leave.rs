//! The permission to send emails, which is valid only while the caller holds their lease.
//!
//! A process may be suspended at any instruction: a frozen container, a sleeping laptop, a hung
//! disk. Its lease may then pass to another process (P2). So a mailer checks the permit right
//! before it sends, and over HTTP before each piece of the body: servers reject incomplete
//! requests. A gap remains between a check and the next write.

use std::sync::Arc;

/// The state of a send permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Sending is allowed.
    Given,
    /// The process is shutting down. Calls that have started may finish; new ones must not start.
    Ending,
    /// Users and objects were checked too long ago. New calls must not start.
    Stale,
    /// Another process may hold the emails now. Nothing more may be sent.
    Over,
}

/// A send permit. A mailer checks it before it sends anything.
#[derive(Clone)]
pub struct Leave(Arc<dyn Fn() -> Standing + Send + Sync>);

impl Leave {
    /// Creates a permit that calls `standing` on each check.
    pub fn new(standing: impl Fn() -> Standing + Send + Sync + 'static) -> Self {
        Self(Arc::new(standing))
    }

    /// Creates a permit that never ends, for emails that no other process can claim.
    pub fn always() -> Self {
        Self::new(|| Standing::Given)
    }

    /// Returns the current state.
    pub fn standing(&self) -> Standing {
        (self.0)()
    }

    /// Returns the reason why nothing more may be sent, or `None` if sending may go on.
    pub fn over(&self) -> Option<String> {
        (self.standing() == Standing::Over)
            .then(|| "it was held up until others could take it over, and did not go out".into())
    }

    /// Returns the reason why no call may start, or `None` if one may.
    pub fn withheld(&self) -> Option<String> {
        let ending = || "it was not begun, as the process is to end".to_owned();
        match self.standing() {
            Standing::Given => None,
            Standing::Ending => Some(ending()),
            Standing::Stale => Some("it waited too long, and is checked again".into()),
            Standing::Over => self.over().or_else(|| Some(ending())),
        }
    }
}

impl std::fmt::Debug for Leave {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Leave").field(&self.standing()).finish()
    }
}
