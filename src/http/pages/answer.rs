//! Answers of the public pages: HTML with headers that protect the page and the token in its URL.
//!
//! The headers forbid cookies, caching, referrers, resources, scripts, frames and indexing (P8).
//! Internal errors go to the log through [`Cause`], not to the page.

use actix_web::HttpResponse;
use actix_web::http::{StatusCode, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::asked::Asked;
use super::form;
use crate::app::App;
use crate::domain::{EventType, Invalid, Mandate};
use crate::engine;
use crate::engine::access::links;
use crate::render::Page;
use crate::render::pages::Notice;

/// The reason of an error page, for the log only.
#[derive(Debug, Clone)]
pub struct Cause(pub String);

/// Why a page cannot be shown.
#[derive(Debug)]
pub(super) enum Failure {
    /// The token is invalid or expired.
    Link(links::Refused),
    /// The token is valid, but its user no longer exists.
    Gone,
    /// The user does not follow this key.
    NotFollowed,
    /// The link's types have become mandatory.
    Mandatory(EventType, Mandate),
    /// The form cannot be read.
    Form(form::Unreadable),
    /// The form holds an invalid choice.
    Choice(Invalid),
    /// The form of the preferences page has only one of the two times of the quiet hours.
    QuietHours,
    /// An internal error.
    Inside(engine::Error),
}

impl From<engine::Error> for Failure {
    fn from(error: engine::Error) -> Self {
        match error {
            engine::Error::Invalid(invalid) => Self::Choice(invalid),
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

/// Renders a page in the language of its user, or else of the request.
pub(super) fn page(app: &App, asked: &Asked, status: StatusCode, page: &Page<'_>) -> HttpResponse {
    match asked.pages(app).render(page, asked.locale()) {
        Ok(html) => sealed(status, html),
        Err(error) => {
            let text = "This page cannot be shown at the moment.".to_owned();
            let mut response = sealed(StatusCode::INTERNAL_SERVER_ERROR, text);
            response.extensions_mut().insert(Cause(chain(&error)));
            response
        }
    }
}

/// Redirects a GET to another of these pages, by a path relative to the current one.
pub(super) fn elsewhere(place: &str) -> HttpResponse {
    let mut response = sealed(StatusCode::SEE_OTHER, String::new());
    if let Ok(place) = header::HeaderValue::from_str(place) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    response
}

/// Renders a page that only shows a message.
pub(super) fn notice(
    app: &App,
    asked: &Asked,
    status: StatusCode,
    notice: Notice<'_>,
) -> HttpResponse {
    page(app, asked, status, &Page::Notice(notice))
}

/// Renders the page that explains a failure and the next step.
pub(super) fn failure(app: &App, asked: &Asked, failure: Failure) -> HttpResponse {
    let said = |status, told| notice(app, asked, status, told);
    match failure {
        Failure::Link(links::Refused::Forged) => said(StatusCode::NOT_FOUND, Notice::Forged),
        Failure::Link(links::Refused::Expired) => said(StatusCode::GONE, Notice::Expired),
        Failure::Gone => said(StatusCode::NOT_FOUND, Notice::Gone),
        Failure::NotFollowed => said(StatusCode::OK, Notice::NotFollowed),
        Failure::Mandatory(kind, why) => {
            let reason = asked.pages(app).reason(asked.locale(), &kind, &why);
            said(StatusCode::OK, Notice::Mandatory(&reason))
        }
        Failure::Form(unreadable) => said(unreadable.status, Notice::Form(&unreadable.why)),
        Failure::Choice(invalid) => said(
            StatusCode::BAD_REQUEST,
            Notice::Choice(&invalid.to_string()),
        ),
        Failure::QuietHours => said(StatusCode::BAD_REQUEST, Notice::QuietHours),
        Failure::Inside(error) => {
            let mut response = said(StatusCode::SERVICE_UNAVAILABLE, Notice::Inside);
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

/// Allows no resources and no scripts, only the page's own style (by its hash) and its own forms.
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
