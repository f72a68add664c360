//! Compresses responses for clients that accept it (RFC 9110, 12.5.3).
//!
//! A tag that covers both encodings must be weak (8.8.3), and the response needs `Vary`. Never
//! compress a secret together with other users' text: the length would reveal it.

use std::io::Write;

use actix_web::HttpRequest;
use actix_web::http::header::{AcceptEncoding, Encoding, Header};
pub(super) use flate2::Compression;
use flate2::write::GzEncoder;

/// The smallest body that is compressed, in bytes. Smaller ones fit into one packet anyway.
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
