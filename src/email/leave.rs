//! Leave to hand mails over: for as long as they are the caller's, and no longer.
//!
//! The rule (P2): a process may stand still at any instruction (a frozen container, a laptop that
//! sleeps, a disk that hangs), and others take over what it held. So whoever calls a provider asks
//! for leave right before a request goes out, and again before each piece of it: a request that is
//! not complete is not taken. What is left is the time between one look at the clock and the next
//! write.

use std::sync::Arc;

/// Whether mails may be handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// They are the caller's.
    Given,
    /// Nothing new is to be begun, as the process is to end; what has begun goes on.
    Ending,
    /// Nothing new is to be begun, as the recipients and the objects were checked too long ago.
    Stale,
    /// Others may have taken the mails over.
    Over,
}

/// Asked before anything is handed over.
#[derive(Clone)]
pub struct Leave(Arc<dyn Fn() -> Standing + Send + Sync>);

impl Leave {
    /// Leave that is asked of this each time, before a call and before each piece of it.
    pub fn new(standing: impl Fn() -> Standing + Send + Sync + 'static) -> Self {
        Self(Arc::new(standing))
    }

    /// Leave that never ends: nobody else can have the mails.
    pub fn always() -> Self {
        Self::new(|| Standing::Given)
    }

    /// How it stands now.
    pub fn standing(&self) -> Standing {
        (self.0)()
    }

    /// Why nothing may go out any more, if that is so.
    pub fn over(&self) -> Option<String> {
        (self.standing() == Standing::Over)
            .then(|| "it was held up until others could take it over, and did not go out".into())
    }

    /// Why nothing may be begun, if that is so.
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
