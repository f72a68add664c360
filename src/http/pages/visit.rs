//! A visit of a public page: its link, its language and brand, and its answer.
//!
//! The user's locale comes first, as soon as the user is known. Otherwise the browser's preferred
//! available language is used. Answers forbid cookies, caching, referrers, resources, scripts,
//! frames and indexing (P8). Internal errors go to the log through [`Cause`], not to the page.

use actix_web::http::header::{self, HeaderValue};
use actix_web::http::{StatusCode, header::ACCEPT_LANGUAGE};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::form::Unreadable;
use crate::app::App;
use crate::domain::text::error_chain;
use crate::domain::{BrandName, EventType, Invalid, Mandate, User};
use crate::engine;
use crate::engine::access::links::{Link, LinkError};
use crate::render::pages::Notice;
use crate::render::{Page, Pages};

/// The reason of an error page, for the log only.
#[derive(Debug, Clone)]
pub struct Cause(pub String);

/// Why a page cannot be shown.
#[derive(Debug)]
pub(super) enum Failure {
    /// The token is invalid or expired.
    Link(LinkError),
    /// The token is valid, but its user no longer exists.
    Gone,
    /// The user does not follow this key.
    NotFollowed,
    /// The link's types have become mandatory.
    Mandatory(EventType, Mandate),
    /// The form cannot be read.
    Form(Unreadable),
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

impl From<Unreadable> for Failure {
    fn from(unreadable: Unreadable) -> Self {
        Self::Form(unreadable)
    }
}

/// A request for a page. It holds the language and the brand of the answer.
pub(super) struct Visit {
    pub(super) app: Data<App>,
    locale: Option<String>,
    /// The brand of the email whose link was opened.
    brand: Option<BrandName>,
}

impl Visit {
    /// Selects the language from the browser's headers.
    pub(super) fn new(req: &HttpRequest, app: Data<App>) -> Self {
        let header = req.headers().get(ACCEPT_LANGUAGE);
        let header = header.and_then(|header| header.to_str().ok());
        let catalogs = app.identities.default.pages.catalogs();
        Self {
            locale: header.and_then(|header| catalogs.accepted(header)),
            brand: None,
            app,
        }
    }

    /// Verifies the token of a link. Returns its content, and the record of its user. A link from
    /// before the start of the record has none.
    pub(super) async fn open(&mut self, token: &str) -> Result<(Link, Option<User>), Failure> {
        let (links, now) = (
            &self.app.identities.default.links,
            self.app.context.clock.now(),
        );
        let link = links.open(token, now).await?.map_err(Failure::Link)?;
        self.brand.clone_from(&link.brand);
        let user = self.app.people().get(&link.user).await?;
        let is_theirs = |user: &User| user.start.is_none_or(|start| !start.rejects(link.issued));
        let user = user.filter(is_theirs);
        let locale = user.as_ref().and_then(|user| user.locale.as_deref());
        let known = locale.filter(|own| self.pages().catalogs().nearest(own).is_some());
        if let Some(locale) = known {
            self.locale = Some(locale.to_owned());
        }
        Ok((link, user))
    }

    /// Returns the pages of the brand.
    fn pages(&self) -> &Pages {
        self.app.identities.pages_of(self.brand.as_ref())
    }

    /// Renders a page.
    pub(super) fn page(&self, status: StatusCode, page: &Page<'_>) -> HttpResponse {
        match self.pages().render(page, self.locale.as_deref()) {
            Ok(html) => sealed(status, html),
            Err(error) => {
                let text = "This page cannot be shown at the moment.".to_owned();
                let response = sealed(StatusCode::INTERNAL_SERVER_ERROR, text);
                with_cause(response, &error)
            }
        }
    }

    /// Renders a page that only shows a message.
    pub(super) fn notice(&self, status: StatusCode, notice: Notice<'_>) -> HttpResponse {
        self.page(status, &Page::Notice(notice))
    }

    /// Renders the page that explains a failure and the next step.
    pub(super) fn failure(&self, failure: Failure) -> HttpResponse {
        match failure {
            Failure::Link(LinkError::Forged) => self.notice(StatusCode::NOT_FOUND, Notice::Forged),
            Failure::Link(LinkError::Expired) => self.notice(StatusCode::GONE, Notice::Expired),
            Failure::Gone => self.notice(StatusCode::NOT_FOUND, Notice::Gone),
            Failure::NotFollowed => self.notice(StatusCode::OK, Notice::NotFollowed),
            Failure::Mandatory(kind, why) => {
                let reason = self.pages().reason(self.locale.as_deref(), &kind, &why);
                self.notice(StatusCode::OK, Notice::Mandatory(&reason))
            }
            Failure::Form(Unreadable { status, why }) => self.notice(status, Notice::Form(&why)),
            Failure::Choice(invalid) => {
                let why = invalid.to_string();
                self.notice(StatusCode::BAD_REQUEST, Notice::Choice(&why))
            }
            Failure::QuietHours => self.notice(StatusCode::BAD_REQUEST, Notice::QuietHours),
            Failure::Inside(error) => {
                let mut response = self.notice(StatusCode::SERVICE_UNAVAILABLE, Notice::Inside);
                let soon = HeaderValue::from_static("30");
                response.headers_mut().insert(header::RETRY_AFTER, soon);
                with_cause(response, &error)
            }
        }
    }
}

/// Redirects a GET to another of these pages, by a path relative to the current one.
pub(super) fn redirect(path: &str) -> HttpResponse {
    let mut response = sealed(StatusCode::SEE_OTHER, String::new());
    if let Ok(path) = HeaderValue::from_str(path) {
        response.headers_mut().insert(header::LOCATION, path);
    }
    response
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

fn with_cause(mut response: HttpResponse, error: &dyn std::error::Error) -> HttpResponse {
    response.extensions_mut().insert(Cause(error_chain(error)));
    response
}
