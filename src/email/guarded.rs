//! A request body that is sent only while the send permit is valid.
//!
//! The permit is checked before each piece (P2). An aborted body is shorter than its announced
//! length, so no server accepts the request. The body records that it was aborted, so that the
//! caller does not mistake this for a lost answer.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::Leave;

/// The size of a piece in bytes. Most connections write this much at once.
const PIECE: usize = 16 * 1024;

pub(super) struct Guarded {
    rest: Bytes,
    leave: Leave,
    broken_off: Arc<AtomicBool>,
}

impl Guarded {
    /// Returns the body and a flag that is set if the body is aborted.
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
