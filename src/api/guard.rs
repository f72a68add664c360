//! Who may ask a route.
//!
//! The rule (P8): a route says it in the table of routes, and this is asked before its handler is,
//! so that no handler can forget it. [`super::auth`] said before who is asking; where it did not,
//! nothing opens.

use actix_web::body::{BoxBody, EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage};

use super::auth::Caller;
use super::problem::{Code, Problem};
use super::uri::segment;
use crate::domain::{Scope, UserId};

/// Who may ask a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    /// What a server key must be allowed to; `None` opens it to all.
    pub scope: Option<Scope>,
    /// Whether a user token opens it to the person in its path, `{id}`.
    pub own: bool,
}

/// A route: what is asked, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// In lower case.
    pub method: &'static str,
    /// With `{name}` where something is filled in.
    pub path: &'static str,
    /// Who may ask it.
    pub guard: Guard,
}

/// The words that the table of routes is written in.
pub(super) mod words {
    use super::{Guard, Scope};

    const fn key(scope: Scope) -> Guard {
        Guard {
            scope: Some(scope),
            own: false,
        }
    }

    pub(in crate::api) const fn open() -> Guard {
        Guard {
            scope: None,
            own: false,
        }
    }

    pub(in crate::api) const fn read() -> Guard {
        key(Scope::Read)
    }

    pub(in crate::api) const fn write() -> Guard {
        key(Scope::Write)
    }

    pub(in crate::api) const fn admin() -> Guard {
        key(Scope::Admin)
    }
}

impl Guard {
    /// The same, also opened by a token of the person in the path.
    pub(super) const fn own(self) -> Self {
        Self { own: true, ..self }
    }

    /// Lets the request pass if whoever asks may ask this.
    pub(super) async fn admit<B: MessageBody>(
        self,
        req: ServiceRequest,
        next: Next<B>,
    ) -> Result<ServiceResponse<EitherBody<B, BoxBody>>, Error> {
        match self.check(&req) {
            Ok(()) => Ok(next.call(req).await?.map_into_left_body()),
            Err(problem) => Ok(req.error_response(problem).map_into_right_body()),
        }
    }

    fn check(self, req: &ServiceRequest) -> Result<(), Problem> {
        let Some(needed) = self.scope else {
            return Ok(());
        };
        let extensions = req.extensions();
        let why = match extensions.get::<Caller>() {
            Some(Caller::Key { scope, .. }) if *scope >= needed => return Ok(()),
            Some(Caller::Key { scope, .. }) => {
                format!("this needs a server key of the scope {needed}; the one given has {scope}")
            }
            Some(Caller::Person { user, .. }) if self.own => {
                if segment::<UserId>(req.request(), "id")? == *user {
                    return Ok(());
                }
                "a user token opens only what is that person's own".to_owned()
            }
            Some(Caller::Person { .. }) => {
                "a user token does not open this; it needs a server key".to_owned()
            }
            None => {
                return Err(Problem::new(
                    Code::Unauthorized,
                    "nobody said who is asking",
                ));
            }
        };
        Err(Problem::new(Code::Forbidden, why).at("header Authorization"))
    }
}
