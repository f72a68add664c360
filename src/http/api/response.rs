//! Conditional and compressed responses.
//!
//! A tag that covers both content encodings must be weak (RFC 9110, 8.8.3), and the response needs
//! `Vary`. Never compress a secret together with other users' text: the length would reveal it.

use std::io::Write;

use actix_web::HttpRequest;
use actix_web::http::header::{AcceptEncoding, Encoding, EntityTag, Header, IfNoneMatch};
pub(super) use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

/// A hash of a body, for its entity tag.
pub(super) fn hash(body: &[u8]) -> [u8; 16] {
    let mut hash = [0; 16];
    hash.copy_from_slice(&Sha256::digest(body)[..16]);
    hash
}

/// Returns the entity tag of the body with this hash.
pub(super) fn entity_tag(hash: &[u8; 16]) -> EntityTag {
    EntityTag::new_weak(hex::encode(hash))
}

/// Returns whether `If-None-Match` names the body with this hash (RFC 9110, 13.1.2).
pub(super) fn is_known(req: &HttpRequest, hash: &[u8; 16]) -> bool {
    let tag = entity_tag(hash);
    match IfNoneMatch::parse(req) {
        Ok(IfNoneMatch::Any) => true,
        Ok(IfNoneMatch::Items(tags)) => tags.iter().any(|known| known.weak_eq(&tag)),
        Err(_) => false,
    }
}

/// Returns whether the client accepts gzip (RFC 9110, 12.5.3).
pub(super) fn accepts_gzip(req: &HttpRequest) -> bool {
    let offered = [Encoding::gzip(), Encoding::identity()];
    let chosen = AcceptEncoding::parse(req).ok();
    let chosen = chosen.and_then(|accepted| accepted.negotiate(offered.iter()));
    chosen == Some(Encoding::gzip())
}

pub(super) fn gzipped(body: &[u8], how: Compression) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), how);
    let written = gzip.write_all(body).and_then(|()| gzip.finish());
    written.expect("memory takes what is written")
}
