//! The permission to send emails, which is valid only while the caller holds their lease.
//!
//! A process may be suspended at any instruction: a frozen container, a sleeping laptop, a hung
//! disk. Its lease may then pass to another process (P2). So a mailer checks the permit right
//! before it sends, and over HTTP before each piece of the body ([`GuardedBody`]): servers reject
//! incomplete requests. A gap remains between a check and the next write.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// The state of a send permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendPermitState {
    /// Sending is allowed.
    Valid,
    /// The process is shutting down. Calls that have started may finish; new ones must not start.
    ShuttingDown,
    /// Users and objects were checked too long ago. New calls must not start.
    Stale,
    /// Another process may have leased the emails since. Nothing more may be sent.
    Lost,
}

/// A send permit. A mailer checks it before it sends anything.
#[derive(Clone)]
pub struct SendPermit(Arc<dyn Fn() -> SendPermitState + Send + Sync>);

impl SendPermit {
    /// Creates a permit that calls `state` on each check.
    pub fn new(state: impl Fn() -> SendPermitState + Send + Sync + 'static) -> Self {
        Self(Arc::new(state))
    }

    /// Creates a permit that never ends, for emails that no other process can claim.
    pub fn always() -> Self {
        Self::new(|| SendPermitState::Valid)
    }

    /// Returns the current state.
    pub fn state(&self) -> SendPermitState {
        (self.0)()
    }

    /// Returns the reason why nothing more may be sent, or `None` if sending may go on.
    pub fn lost_reason(&self) -> Option<String> {
        match self.state() {
            SendPermitState::Valid | SendPermitState::ShuttingDown | SendPermitState::Stale => None,
            state => state.reason(),
        }
    }

    /// Returns the reason to cancel a call whose content is not sent yet. A stale permit does not
    /// cancel it.
    pub(super) fn cancel_reason(&self) -> Option<String> {
        match self.state() {
            SendPermitState::Valid | SendPermitState::Stale => None,
            state => state.reason(),
        }
    }

    /// Returns the reason why no call may start, or `None` if one may.
    pub fn withheld_reason(&self) -> Option<String> {
        self.state().reason()
    }
}

impl SendPermitState {
    /// Returns why no call may start in this state.
    fn reason(self) -> Option<String> {
        let reason = match self {
            Self::Valid => return None,
            Self::ShuttingDown => "it was not sent, because the process is shutting down",
            Self::Stale => "it was not sent yet, because its checks are too old and are repeated",
            Self::Lost => "it was not sent, because another process may send it now",
        };
        Some(reason.to_owned())
    }
}

impl std::fmt::Debug for SendPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Permit").field(&self.state()).finish()
    }
}

/// The size of a piece of a body. Most connections write this much at once.
const PIECE_BYTES: usize = 16 * 1024;

/// A request body that is sent only while the send permit is valid.
///
/// An aborted body is shorter than its announced length, so no server accepts the request. The body
/// records that it was aborted, so that the caller does not mistake this for a lost answer.
pub(super) struct GuardedBody {
    rest: Bytes,
    permit: SendPermit,
    aborted: Arc<AtomicBool>,
}

impl GuardedBody {
    /// Returns the body and a flag that is set if the body is aborted.
    pub(super) fn new(bytes: Vec<u8>, permit: SendPermit) -> (Self, Arc<AtomicBool>) {
        let aborted = Arc::new(AtomicBool::new(false));
        let body = Self { rest: bytes.into(), permit, aborted: aborted.clone() };
        (body, aborted)
    }
}

impl Body for GuardedBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        if let Some(reason) = self.permit.lost_reason() {
            self.aborted.store(true, Ordering::SeqCst);
            return Poll::Ready(Some(Err(std::io::Error::other(reason))));
        }
        let bytes = PIECE_BYTES.min(self.rest.len());
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}
