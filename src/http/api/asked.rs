//! Which route a request asks, as the table of routes writes it.
//!
//! The rule: the route says it itself. Finding the route's path again by the request's costs more
//! than answering a poll does.

use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;

use actix_web::dev::ServiceRequest;
use actix_web::{HttpMessage, HttpRequest};

/// The path of the route that a request asks, once that is known; whoever keeps a copy learns it.
#[derive(Clone, Default)]
pub(super) struct Asked(Rc<Cell<Option<&'static str>>>);

impl Asked {
    /// Begins to follow a request.
    pub(super) fn of(req: &ServiceRequest) -> Self {
        let asked = Self::default();
        req.extensions_mut().insert(asked.clone());
        asked
    }

    /// It came to this route.
    pub(super) fn note(req: &ServiceRequest, path: &'static str) {
        if let Some(asked) = req.extensions().get::<Self>() {
            asked.0.set(Some(path));
        }
    }

    /// The route, if it came to one of the table.
    pub(super) fn path(&self) -> Option<&'static str> {
        self.0.get()
    }

    /// The same, by the request; its route is looked for where it is not of the table.
    pub(super) fn path_of(req: &HttpRequest) -> Option<Cow<'static, str>> {
        let noted = req.extensions().get::<Self>().and_then(Self::path);
        let found = || req.match_pattern().map(Cow::Owned);
        noted.map(Cow::Borrowed).or_else(found)
    }
}
