//! Access rules of routes.
//!
//! The table of routes gives each route a guard. It runs before the handler, so no handler can
//! forget it (P8). [`super::auth`] has identified the caller. Without one, only open routes run.

use actix_web::body::{BoxBody, EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::web::Data;
use actix_web::{Error, HttpMessage};

use super::caller::Caller;
use super::problem::{Code, Problem};
use super::uri::segment;
use crate::app::App;
use crate::domain::{Scope, UserId};

/// Who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    /// The scope that a server key needs; `None` opens the route to all.
    pub scope: Option<Scope>,
    /// Whether a user token opens the route for the user in its path, `{id}`.
    pub own: bool,
}

/// A route with its guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// In lower case.
    pub method: &'static str,
    /// With `{name}` for each variable segment.
    pub path: &'static str,
    /// Who may call it.
    pub guard: Guard,
}

/// The guards by their names in the route table.
pub(super) mod words {
    use super::{Guard, Scope};

    const fn key(scope: Scope) -> Guard {
        Guard {
            scope: Some(scope),
            own: false,
        }
    }

    pub(in crate::http::api) const fn open() -> Guard {
        Guard {
            scope: None,
            own: false,
        }
    }

    pub(in crate::http::api) const fn read() -> Guard {
        key(Scope::Read)
    }

    pub(in crate::http::api) const fn write() -> Guard {
        key(Scope::Write)
    }

    pub(in crate::http::api) const fn admin() -> Guard {
        key(Scope::Admin)
    }
}

impl Guard {
    /// Also admits a token of the user in the path.
    pub(super) const fn own(self) -> Self {
        Self { own: true, ..self }
    }

    /// Calls the handler if the caller may call this route.
    pub(super) async fn admit<B: MessageBody>(
        self,
        req: ServiceRequest,
        next: Next<B>,
    ) -> Result<ServiceResponse<EitherBody<B, BoxBody>>, Error> {
        match self.check_all(&req).await {
            Ok(()) => Ok(next.call(req).await?.map_into_left_body()),
            Err(problem) => Ok(req.error_response(problem).map_into_right_body()),
        }
    }

    async fn check_all(self, req: &ServiceRequest) -> Result<(), Problem> {
        self.check(req)?;
        let caller = req.extensions().get::<Caller>().cloned();
        match (caller, req.app_data::<Data<App>>()) {
            (Some(caller), Some(app)) => caller.check_start(app).await,
            _ => Ok(()),
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
