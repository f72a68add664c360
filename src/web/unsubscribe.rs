//! `GET /u/{token}` asks, `POST /u/{token}` unsubscribes: the page behind the link, and the one
//! click of RFC 8058.
//!
//! The rule (P7): asking changes nothing; one POST ends all mails, and a second one finds that it
//! is so. Mails that are on their way out are stopped by [`crate::services::mailing`], which asks
//! once more.

use actix_web::HttpRequest;
use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::{Data, Path, Payload};

use super::answer::{Failure, failure, page};
use super::form::{Form, Unreadable};
use crate::app::App;
use crate::domain::UserId;
use crate::render::Page;

/// Whose link this is.
pub(super) async fn person(app: &App, token: &str) -> Result<UserId, Failure> {
    let opened = app.links().open(token, app.clock.now()).await?;
    opened.map_err(Failure::Link)
}

/// `GET /u/{token}`
pub(super) async fn ask(token: Path<String>, app: Data<App>) -> HttpResponse {
    let asked = async {
        let id = person(&app, &token).await?;
        app.people().get(&id).await?.ok_or(Failure::Gone)
    };
    let token = token.as_str();
    match asked.await {
        Ok(user) => {
            let (user, policies) = (&user, &app.config.policies);
            let shown = match user.unsubscribed {
                Some(_) => Page::Unsubscribed {
                    user,
                    token,
                    policies,
                },
                None => Page::Unsubscribe {
                    user,
                    token,
                    policies,
                },
            };
            page(&app, StatusCode::OK, &shown)
        }
        Err(why) => failure(&app, why),
    }
}

/// `POST /u/{token}`
pub(super) async fn act(
    req: HttpRequest,
    token: Path<String>,
    payload: Payload,
    app: Data<App>,
) -> HttpResponse {
    let done = async {
        let id = person(&app, &token).await?;
        let form = Form::read(&req, payload).await?;
        if form.get("List-Unsubscribe") != Some("One-Click") {
            let why = "The form does not say List-Unsubscribe=One-Click; please use the button on the page.";
            return Err(Unreadable::bad(why).into());
        }
        Ok(app.people().unsubscribe(&id).await?)
    };
    let token = token.as_str();
    match done.await {
        Ok(Some(user)) => {
            let done = Page::Unsubscribed {
                user: &user,
                token,
                policies: &app.config.policies,
            };
            page(&app, StatusCode::OK, &done)
        }
        // Whoever is unknown gets no mails: the wish is granted.
        Ok(None) => {
            let mut response = failure(&app, Failure::Gone);
            *response.status_mut() = StatusCode::OK;
            response
        }
        Err(why) => failure(&app, why),
    }
}
