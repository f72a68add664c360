//! A visit of a public page: its link, its form, its language and brand, and its answer.
//!
//! The user's locale comes first, as soon as the user is known; otherwise the browser's. A form is
//! read whole or rejected with a sentence for the user (P10), also if a name repeats: its meaning
//! would be ambiguous. Answers forbid cookies, caching, referrers, resources, scripts, frames and
//! indexing (P8). Internal errors go to the log, not to the page.

use std::collections::HashSet;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, ACCEPT_LANGUAGE, HeaderValue};
use actix_web::web::{Bytes, Data, Payload};
use actix_web::{HttpMessage, HttpRequest, HttpResponse};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use sha2::{Digest, Sha256};

use crate::app::App;
use crate::domain::error_chain::error_chain;
use crate::domain::{BrandName, InvalidValue, User};
use crate::engine;
use crate::engine::access::links::{Link, LinkError};
use crate::http::api::problem::{Code, Problem};
use crate::http::api::request::read_body;
use crate::render::pages::Notice;
use crate::render::{Pages, WebPage};

/// The largest form: enough for the preferences of hundreds of types.
const FORM_LIMIT: usize = 64 << 10;

/// A request that gets a notice instead of its page.
#[derive(Debug)]
pub(super) struct PageFailure {
    pub status: StatusCode,
    pub notice: Notice,
    /// The internal error, for the log only.
    pub cause: Option<Box<engine::Error>>,
}

impl PageFailure {
    pub(super) fn form(why: &str) -> Self {
        Notice::InvalidForm(why.to_owned()).into()
    }
}

impl From<Notice> for PageFailure {
    fn from(notice: Notice) -> Self {
        let status = match notice {
            Notice::InvalidLink | Notice::UnknownUser => StatusCode::NOT_FOUND,
            Notice::ExpiredLink => StatusCode::GONE,
            Notice::NotFollowed | Notice::Mandatory(..) => StatusCode::OK,
            Notice::InvalidForm(_) | Notice::InvalidChoice(_) | Notice::IncompleteQuietHours => {
                StatusCode::BAD_REQUEST
            }
            Notice::InternalError => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self { status, notice, cause: None }
    }
}

impl From<engine::Error> for PageFailure {
    fn from(error: engine::Error) -> Self {
        match error {
            engine::Error::Invalid(invalid) => invalid.into(),
            error => Self { cause: Some(Box::new(error)), ..Notice::InternalError.into() },
        }
    }
}

impl From<InvalidValue> for PageFailure {
    fn from(invalid: InvalidValue) -> Self {
        Notice::InvalidChoice(invalid.to_string()).into()
    }
}

impl From<LinkError> for PageFailure {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Forged => Notice::InvalidLink.into(),
            LinkError::Expired => Notice::ExpiredLink.into(),
        }
    }
}

/// The problem with a form.
impl From<Problem> for PageFailure {
    fn from(problem: Problem) -> Self {
        Self {
            status: problem.code.status(),
            ..Self::form(&format!("The form cannot be read ({}).", problem.detail))
        }
    }
}

/// A request for a page. It holds the language and the brand of the answer.
pub(super) struct PageRequest {
    pub(super) app: Data<App>,
    locale: Option<String>,
    /// The brand of the email whose link was opened.
    brand: Option<BrandName>,
}

impl PageRequest {
    /// Selects the language from the browser's headers.
    pub(super) fn new(req: &HttpRequest, app: Data<App>) -> Self {
        let accepted = req.headers().get(ACCEPT_LANGUAGE).and_then(|header| header.to_str().ok());
        let catalogs = app.identities.default.pages.catalogs();
        Self {
            locale: accepted.and_then(|header| catalogs.locale_of_header(header)),
            brand: None,
            app,
        }
    }

    /// Verifies the token of a link. Returns its content, and the record of its user. A link from
    /// before the start of the record has none.
    pub(super) async fn open(&mut self, token: &str) -> Result<(Link, Option<User>), PageFailure> {
        let links = &self.app.identities.default.links;
        let link = links.open(token, self.app.context.clock.now()).await??;
        self.brand.clone_from(&link.brand);
        let is_recipient =
            |user: &User| user.start.is_none_or(|start| !start.invalidates(link.issued_at));
        let user = self.app.users().user(&link.user).await?.filter(is_recipient);
        let locale = user.as_ref().and_then(|user| user.locale.as_deref());
        let catalogs = self.pages().catalogs();
        if let Some(locale) = locale.filter(|locale| catalogs.nearest_locale(locale).is_some()) {
            self.locale = Some(locale.to_owned());
        }
        Ok((link, user))
    }

    /// Returns the pages of the brand.
    fn pages(&self) -> &Pages {
        self.app.identities.pages_of(self.brand.as_ref())
    }

    /// Renders a page.
    pub(super) fn page(&self, status: StatusCode, page: &WebPage<'_>) -> HttpResponse {
        match self.pages().render(page, self.locale.as_deref()) {
            Ok(html) => private_response(status, html),
            Err(error) => {
                let text = "This page cannot be shown at the moment.".to_owned();
                tracing::error!(cause = error_chain(&error), "a page cannot be rendered");
                private_response(StatusCode::INTERNAL_SERVER_ERROR, text)
            }
        }
    }

    /// Renders the page that explains a failure and the next step.
    pub(super) fn failure(&self, failure: PageFailure) -> HttpResponse {
        let status = failure.status;
        let mut response = self.page(status, &WebPage::Notice(failure.notice));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            let soon = HeaderValue::from_static("30");
            response.headers_mut().insert(header::RETRY_AFTER, soon);
        }
        if let Some(error) = failure.cause {
            tracing::error!(cause = error_chain(&error), "a page cannot be shown");
        }
        response
    }
}

/// The fields of a form in their order; no name occurs twice.
#[derive(Debug)]
pub(super) struct FormFields(Vec<(String, String)>);

impl FormFields {
    /// Reads the form of a request. RFC 8058 allows two types: email programs should send
    /// `multipart/form-data`, and most send the other.
    pub(super) async fn read(req: &HttpRequest, payload: Payload) -> Result<Self, Problem> {
        let kind = req.content_type();
        let pairs = if kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            let body = read_body(req, payload, FORM_LIMIT).await?;
            form_urlencoded::parse(&body).into_owned().collect()
        } else if kind.eq_ignore_ascii_case("multipart/form-data") {
            let problem = |error: multer::Error| Problem::body(error.to_string());
            let header = req.headers().get(header::CONTENT_TYPE);
            let content_type = header.and_then(|value| value.to_str().ok()).unwrap_or_default();
            let boundary = multer::parse_boundary(content_type).map_err(problem)?;
            let body = read_body(req, payload, FORM_LIMIT).await?;
            read_parts(body, boundary).await.map_err(problem)?
        } else {
            let why = "it is not application/x-www-form-urlencoded or multipart/form-data";
            return Err(Problem::new(Code::UnsupportedMediaType, why));
        };
        let mut names = HashSet::with_capacity(pairs.len());
        if let Some((name, _)) = pairs.iter().find(|(name, _)| !names.insert(name)) {
            return Err(Problem::body(format!("it contains {:?} twice", shortened(name))));
        }
        Ok(Self(pairs))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.pairs().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// Returns the first 80 characters, for messages.
pub(super) fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

async fn read_parts(body: Bytes, boundary: String) -> multer::Result<Vec<(String, String)>> {
    let whole = futures::stream::iter([Ok::<_, std::convert::Infallible>(body)]);
    let mut parts = multer::Multipart::new(whole, boundary);
    let mut pairs = Vec::new();
    while let Some(part) = parts.next_field().await? {
        let name = part.name().unwrap_or_default().to_owned();
        pairs.push((name, part.text().await?));
    }
    Ok(pairs)
}

/// Redirects a GET to another of these pages, by a path relative to the current one.
pub(super) fn redirect(path: &str) -> HttpResponse {
    let mut response = private_response(StatusCode::SEE_OTHER, String::new());
    if let Ok(path) = HeaderValue::from_str(path) {
        response.headers_mut().insert(header::LOCATION, path);
    }
    response
}

fn private_response(status: StatusCode, html: String) -> HttpResponse {
    HttpResponse::build(status)
        .content_type("text/html; charset=utf-8")
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .insert_header((header::REFERRER_POLICY, "no-referrer"))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header(("X-Robots-Tag", "noindex, nofollow"))
        .insert_header((header::CONTENT_SECURITY_POLICY, content_policy(&html)))
        .body(html)
}

/// Allows no resources and no scripts, only the page's own style (by its hash) and its own forms.
fn content_policy(html: &str) -> String {
    let style = html.split_once("<style>").and_then(|(_, rest)| rest.split_once("</style>"));
    let source = match style {
        Some((style, _)) => format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(style))),
        None => "'none'".to_owned(),
    };
    format!(
        "default-src 'none'; style-src {source}; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
}
