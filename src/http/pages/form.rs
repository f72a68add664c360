//! Reads forms of browsers and one-click requests of email programs.
//!
//! A form is read whole, within limits of size and time, or rejected with a sentence for the user
//! (P10). A repeated name is rejected, because its meaning is ambiguous. RFC 8058 allows two types:
//! email programs should send `multipart/form-data`, and most send the other.

use std::collections::HashSet;
use std::time::Duration;

use actix_web::http::{StatusCode, header};
use actix_web::web::{Bytes, Payload};
use actix_web::{HttpMessage, HttpRequest};

/// The largest body: enough for the preferences of hundreds of types.
const LIMIT: usize = 64 << 10;
/// The longest time for a body to arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a form was rejected, and the status of the answer.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub status: StatusCode,
    pub why: String,
}

impl Unreadable {
    fn new(status: StatusCode, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { status, why }
    }

    pub(super) fn bad(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, why)
    }
}

/// The fields in their order; no name occurs twice.
#[derive(Debug)]
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads the form of a request.
    pub(super) async fn read(req: &HttpRequest, payload: Payload) -> Result<Self, Unreadable> {
        if req.headers().contains_key(header::CONTENT_ENCODING) {
            let why = "The form was sent compressed, which is not read here.";
            return Err(Unreadable::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        }
        let kind = req.content_type();
        let pairs = if kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            let body = body(payload).await?;
            form_urlencoded::parse(&body).into_owned().collect()
        } else if kind.eq_ignore_ascii_case("multipart/form-data") {
            let content_type = req.headers().get(header::CONTENT_TYPE);
            let content_type = content_type.and_then(|value| value.to_str().ok());
            let boundary = multer::parse_boundary(content_type.unwrap_or_default());
            let boundary = boundary.map_err(|error| broken(&error))?;
            parts(body(payload).await?, boundary).await?
        } else {
            let why =
                "This is not a form (application/x-www-form-urlencoded or multipart/form-data).";
            return Err(Unreadable::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        };
        Self::of(pairs)
    }

    fn of(pairs: Vec<(String, String)>) -> Result<Self, Unreadable> {
        let mut known = HashSet::with_capacity(pairs.len());
        for (name, _) in &pairs {
            if !known.insert(name) {
                let why = format!("The form holds {:?} twice.", short(name));
                return Err(Unreadable::bad(why));
            }
        }
        Ok(Self(pairs))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.0.iter();
        pairs.map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// Returns the first 80 characters, for messages.
pub(super) fn short(text: &str) -> String {
    text.chars().take(80).collect()
}

async fn body(payload: Payload) -> Result<Bytes, Unreadable> {
    match tokio::time::timeout(PATIENCE, payload.to_bytes_limited(LIMIT)).await {
        Ok(Ok(Ok(bytes))) => Ok(bytes),
        Ok(Ok(Err(_))) => Err(Unreadable::bad("The form broke off on its way.")),
        Ok(Err(_)) => {
            let why = format!("The form is larger than {} KiB.", LIMIT >> 10);
            Err(Unreadable::new(StatusCode::PAYLOAD_TOO_LARGE, why))
        }
        Err(_) => {
            let why = "The form took too long to arrive.";
            Err(Unreadable::new(StatusCode::REQUEST_TIMEOUT, why))
        }
    }
}

async fn parts(body: Bytes, boundary: String) -> Result<Vec<(String, String)>, Unreadable> {
    let whole = futures::stream::iter([Ok::<_, std::convert::Infallible>(body)]);
    let mut parts = multer::Multipart::new(whole, boundary);
    let mut pairs = Vec::new();
    while let Some(part) = parts.next_field().await.map_err(|error| broken(&error))? {
        let name = part.name().unwrap_or_default().to_owned();
        let value = part.text().await.map_err(|error| broken(&error))?;
        pairs.push((name, value));
    }
    Ok(pairs)
}

fn broken(error: &multer::Error) -> Unreadable {
    Unreadable::bad(format!("The form cannot be read ({error})."))
}
