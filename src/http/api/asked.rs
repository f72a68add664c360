//! The route of a request, as the route table writes it.
//!
//! The matched route records its own path. Looking it up again by the request's path would cost
//! more than answering a poll.

use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;

use actix_web::dev::ServiceRequest;
use actix_web::{HttpMessage, HttpRequest};

/// The path of the matched route, once it is known. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Asked(Rc<Cell<Option<&'static str>>>);

impl Asked {
    /// Attaches an empty record to a request.
    pub(super) fn of(req: &ServiceRequest) -> Self {
        let asked = Self::default();
        req.extensions_mut().insert(asked.clone());
        asked
    }

    /// Records the matched route.
    pub(super) fn note(req: &ServiceRequest, path: &'static str) {
        if let Some(asked) = req.extensions().get::<Self>() {
            asked.0.set(Some(path));
        }
    }

    /// Returns the path of the route; `None` if no route of the table matched.
    pub(super) fn path(&self) -> Option<&'static str> {
        self.0.get()
    }

    /// Returns the path of a request's route. Looks it up if the route is not in the table.
    pub(super) fn path_of(req: &HttpRequest) -> Option<Cow<'static, str>> {
        let noted = req.extensions().get::<Self>().and_then(Self::path);
        let found = || req.match_pattern().map(Cow::Owned);
        noted.map(Cow::Borrowed).or_else(found)
    }
}
