//! Answers made smaller for those who take them so (RFC 9110, 12.5.3).
//!
//! The rule: what stands in both encodings under one tag has a weak tag (8.8.3), and says that it
//! varies. Only what holds no secret beside somebody else's words is made smaller: the length of an
//! answer would tell of it.

use std::io::Write;

use actix_web::HttpRequest;
use actix_web::http::header::{AcceptEncoding, Encoding, Header};
pub(super) use flate2::Compression;
use flate2::write::GzEncoder;

/// Smaller bodies fit into one packet as they are.
pub(super) const WORTHWHILE: usize = 1_200;

pub(super) fn is_taken(req: &HttpRequest) -> bool {
    let offered = [Encoding::gzip(), Encoding::identity()];
    let chosen = AcceptEncoding::parse(req).ok();
    let chosen = chosen.and_then(|accepted| accepted.negotiate(offered.iter()));
    chosen == Some(Encoding::gzip())
}

pub(super) fn gzipped(body: &[u8], how: Compression) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), how);
    let written = gzip.write_all(body);
    let done = written.and_then(|()| gzip.finish());
    done.expect("memory takes what is written")
}
