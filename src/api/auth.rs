//! Who may ask: whoever holds the server key.
//!
//! The rule (P8): nothing under `/v1` is read or changed without it, and comparing tells nothing of
//! it, not even its length. Neither the key nor what came in its place is logged.

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header;
use actix_web::middleware::Next;
use actix_web::{Error, web};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::problem::{Code, Problem};

/// The server key, as what it is compared by.
#[derive(Clone)]
pub(super) struct Key([u8; 32]);

impl Key {
    pub(super) fn new(key: &str) -> Self {
        Self(Sha256::digest(key).into())
    }

    fn is(&self, given: &[u8]) -> bool {
        let given: [u8; 32] = Sha256::digest(given).into();
        self.0.ct_eq(&given).into()
    }
}

/// Lets requests pass that bring the key.
pub(super) async fn require(
    key: web::Data<Key>,
    req: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let why = match bearer(&req) {
        Some(given) if key.is(given) => return next.call(req).await,
        Some(_) => "this is not the server key",
        None => "the server key is missing; send it as \"Authorization: Bearer KEY\"",
    };
    Err(Problem::new(Code::Unauthorized, why)
        .at("header Authorization")
        .into())
}

fn bearer(req: &ServiceRequest) -> Option<&[u8]> {
    let value = req.headers().get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, rest) = value.split_at_checked("Bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then(|| rest.trim_ascii())
}
