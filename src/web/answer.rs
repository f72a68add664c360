//! How every answer looks: a page, with headers that keep it, and the token in its address, from
//! going anywhere.
//!
//! The rule (P8): no cookie, nothing kept by a cache, no address handed on by a referrer, nothing
//! loaded, nothing run, no frame, not in a search engine. What went wrong inside goes to the log,
//! by way of [`Cause`], and not to the page.

use actix_web::HttpResponse;
use actix_web::http::{StatusCode, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::form;
use crate::app::App;
use crate::domain::{Invalid, Mandate};
use crate::render::Page;
use crate::render::pages::TOO_OLD;
use crate::services::{self, links};

/// Why an answer is an apology: for the log alone.
#[derive(Debug, Clone)]
pub struct Cause(pub String);

/// Why a page is not what was asked for.
#[derive(Debug)]
pub(super) enum Failure {
    /// The token opens nothing.
    Link(links::Refused),
    /// The token is sound, and nobody has this name any more.
    Gone,
    /// What the link ended once cannot be turned off any more.
    Mandatory(Mandate),
    /// What was sent cannot be read.
    Form(form::Unreadable),
    /// What was sent cannot be chosen.
    Choice(Invalid),
    /// It could not be done.
    Inside(services::Error),
}

impl From<services::Error> for Failure {
    fn from(error: services::Error) -> Self {
        match error {
            services::Error::Invalid(invalid) => Self::Choice(invalid),
            error => Self::Inside(error),
        }
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        Self::Choice(invalid)
    }
}

impl From<form::Unreadable> for Failure {
    fn from(unreadable: form::Unreadable) -> Self {
        Self::Form(unreadable)
    }
}

/// A page.
pub(super) fn page(app: &App, status: StatusCode, page: &Page<'_>) -> HttpResponse {
    match app.pages().render(page) {
        Ok(html) => sealed(status, html),
        Err(error) => {
            let text = "This page cannot be shown at the moment.".to_owned();
            let mut response = sealed(StatusCode::INTERNAL_SERVER_ERROR, text);
            response.extensions_mut().insert(Cause(chain(&error)));
            response
        }
    }
}

/// A page that only says something.
pub(super) fn notice(app: &App, status: StatusCode, heading: &str, text: &str) -> HttpResponse {
    page(app, status, &Page::Notice { heading, text })
}

/// The page that says what went wrong and what to do.
pub(super) fn failure(app: &App, failure: Failure) -> HttpResponse {
    match failure {
        Failure::Link(links::Refused::Forged) => notice(
            app,
            StatusCode::NOT_FOUND,
            "This link does not work",
            "It is not complete, or it is not one of ours. Some mail programs break long links: copy the whole link out of the \
             mail, or use the one in a newer mail. Nothing was changed.",
        ),
        Failure::Link(links::Refused::Expired) => {
            notice(app, StatusCode::GONE, TOO_OLD.0, TOO_OLD.1)
        }
        Failure::Gone => notice(
            app,
            StatusCode::NOT_FOUND,
            "You get no mails from us",
            "We no longer have a record of you, so there is nothing to choose and nothing to stop.",
        ),
        Failure::Mandatory(why) => {
            let why = why.as_str().trim_end_matches('.');
            let text = format!("{why}. All other e-mail can be. Nothing was changed.");
            notice(app, StatusCode::OK, "This cannot be turned off", &text)
        }
        Failure::Form(unreadable) => {
            let text = format!("{} Nothing was changed.", unreadable.why);
            notice(app, unreadable.status, "That did not work", &text)
        }
        Failure::Choice(invalid) => {
            let text =
                format!("The {invalid}. Nothing was changed; please go back and choose again.");
            notice(app, StatusCode::BAD_REQUEST, "That cannot be chosen", &text)
        }
        Failure::Inside(error) => {
            let text = "We cannot reach our records at the moment, and do not know whether something was changed. Please try again in \
                        a minute: doing it twice does no harm.";
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let mut response = notice(app, status, "Please try again", text);
            let soon = header::HeaderValue::from_static("30");
            response.headers_mut().insert(header::RETRY_AFTER, soon);
            response.extensions_mut().insert(Cause(chain(&error)));
            response
        }
    }
}

fn sealed(status: StatusCode, html: String) -> HttpResponse {
    HttpResponse::build(status)
        .content_type("text/html; charset=utf-8")
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .insert_header((header::REFERRER_POLICY, "no-referrer"))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header(("X-Robots-Tag", "noindex, nofollow"))
        .insert_header((header::CONTENT_SECURITY_POLICY, policy(&html)))
        .body(html)
}

/// Nothing is loaded and nothing runs; the page's own style is known by its hash, and forms come
/// back here.
fn policy(html: &str) -> String {
    let style = html
        .split_once("<style>")
        .and_then(|(_, rest)| rest.split_once("</style>"));
    let style = match style {
        Some((style, _)) => format!("'sha256-{}'", STANDARD.encode(Sha256::digest(style))),
        None => "'none'".to_owned(),
    };
    format!(
        "default-src 'none'; style-src {style}; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}
