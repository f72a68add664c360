//! The id of a request in the log and in the header `X-Request-Id`.
//!
//! A client may choose an id of letters, digits and `-_.:/+=`. Any other id is replaced, so that no
//! email address gets into the log (P8).

use actix_web::dev::ServiceRequest;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::domain::Id;

const HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// The longest accepted id, in bytes.
const LONGEST: usize = 64;

pub(super) struct RequestId(HeaderValue);

impl RequestId {
    /// Takes the id from the request, or else from `made`.
    pub(super) fn of(req: &ServiceRequest, made: impl FnOnce() -> Option<Id>) -> Self {
        let brought = req.headers().get(HEADER).filter(|id| is_one(id.as_bytes()));
        let id = brought.cloned().or_else(|| {
            let made = made()?.to_string();
            HeaderValue::try_from(made).ok()
        });
        Self(id.unwrap_or_else(|| HeaderValue::from_static("none")))
    }

    /// Adds the response header.
    pub(super) fn answer(&self, headers: &mut HeaderMap) {
        headers.insert(HEADER, self.0.clone());
    }
}

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.to_str().unwrap_or_default())
    }
}

fn is_one(id: &[u8]) -> bool {
    let fits = |c: &u8| c.is_ascii_alphanumeric() || b"-_.:/+=".contains(c);
    (1..=LONGEST).contains(&id.len()) && id.iter().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_request_ids_are_accepted() {
        let longest = "x".repeat(LONGEST);
        for id in ["7", "b7ad6b71-4c1f.3:Root=1-67/+", &longest] {
            assert!(is_one(id.as_bytes()), "{id}");
        }
        let longer = "x".repeat(LONGEST + 1);
        for other in ["", "a b", "ada@example.org", "a\"b", "ä", &longer] {
            assert!(!is_one(other.as_bytes()), "{other}");
        }
    }
}
