//! A request whose body nobody read to its end ends its connection.
//!
//! The rule: what comes of a chunked body after the answer has no end that anybody knows, so it is
//! not waited for. The server ends a connection after its answer only where somebody still holds
//! what is to come; a handler that is done lets go of it, so the answer's body holds it until the
//! answer has left. Where the body was read to its end, nothing is left to come and the connection
//! stays.

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

/// What is to come of a request, shared by who reads it and who holds it.
#[derive(Clone)]
pub(super) struct Coming(Rc<RefCell<Payload>>);

impl Coming {
    /// Takes what is to come of a request into hand, and leaves the request a way to read it;
    /// nothing where nothing is to come.
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

/// The body of an answer, and what is to come of its request.
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
