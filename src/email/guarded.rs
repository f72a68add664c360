//! A request's body that goes out only while its sender has leave.
//!
//! The rule (P2): asked for leave before each piece. A body that is broken off is shorter than its
//! announced length, so no server takes the request; and the body remembers that it was broken off,
//! so nobody takes that for an answer that was lost.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::Leave;

/// So much goes out at a time: what is written at once by most connections.
const PIECE: usize = 16 * 1024;

pub(super) struct Guarded {
    rest: Bytes,
    leave: Leave,
    broken_off: Arc<AtomicBool>,
}

impl Guarded {
    /// The body, and what says later whether it was broken off.
    pub(super) fn new(bytes: Vec<u8>, leave: Leave) -> (Self, Arc<AtomicBool>) {
        let broken_off = Arc::new(AtomicBool::new(false));
        let body = Self {
            rest: bytes.into(),
            leave,
            broken_off: broken_off.clone(),
        };
        (body, broken_off)
    }
}

impl Body for Guarded {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        if let Some(reason) = self.leave.over() {
            self.broken_off.store(true, Ordering::SeqCst);
            return Poll::Ready(Some(Err(std::io::Error::other(reason))));
        }
        let most = PIECE.min(self.rest.len());
        let piece = self.rest.split_to(most);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}
