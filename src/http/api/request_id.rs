//! What a request is called in the log and by whoever asked it (`X-Request-Id`).
//!
//! The rule: what somebody sends is taken only where it can be an id. It stands in logs, which name
//! nobody, so that an address is none.

use actix_web::dev::ServiceRequest;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::domain::Id;

const HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// Longer ones are not taken.
const LONGEST: usize = 64;

/// A request's id.
pub(super) struct RequestId(HeaderValue);

impl RequestId {
    /// The one that it brought, or a new one.
    pub(super) fn of(req: &ServiceRequest, made: impl FnOnce() -> Option<Id>) -> Self {
        let brought = req.headers().get(HEADER).filter(|id| is_one(id.as_bytes()));
        let id = brought.cloned().or_else(|| {
            let made = made()?.to_string();
            HeaderValue::try_from(made).ok()
        });
        Self(id.unwrap_or_else(|| HeaderValue::from_static("none")))
    }

    /// Says it to whoever asked.
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
    fn what_can_be_an_id_is_taken_and_nothing_else() {
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
