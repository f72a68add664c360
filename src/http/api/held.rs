//! Closes a connection if the body of its request was not read to the end.
//!
//! If the payload is dropped before the response is sent, actix-web reads the rest of a chunked
//! body, which can be endless. Handlers drop it when they return, so the response body keeps it
//! alive. After a payload that was read to its end, the connection stays open.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use actix_web::HttpMessage;
use actix_web::body::{BodySize, MessageBody};
use actix_web::dev::{Payload, ServiceRequest};
use actix_web::error::PayloadError;
use actix_web::web::Bytes;
use futures::Stream;

/// The payload of a request, shared by its reader and the response body.
#[derive(Clone)]
pub(super) struct Coming(Rc<RefCell<Payload>>);

impl Coming {
    /// Takes the payload of a request, and leaves a stream that reads from it. Returns `None` if
    /// there is no body.
    pub(super) fn of(req: &mut ServiceRequest) -> Option<Self> {
        let payload = match req.take_payload() {
            Payload::None => return None,
            payload => Self(Rc::new(RefCell::new(payload))),
        };
        req.set_payload(Payload::Stream {
            payload: Box::pin(payload.clone()),
        });
        Some(payload)
    }
}

impl Stream for Coming {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_next(cx)
    }
}

/// A response body that keeps the payload of its request alive.
pub(super) struct Held<B> {
    pub body: B,
    #[expect(dead_code, reason = "it is held and not read")]
    pub coming: Option<Coming>,
}

impl<B: MessageBody + Unpin> MessageBody for Held<B> {
    type Error = B::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.body).poll_next(cx)
    }
}
