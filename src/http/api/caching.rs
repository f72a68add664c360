//! Conditional and compressed responses, and the static ones: `GET /widget.js`, the element that
//! shows a feed on a page, `GET /widget.json`, its texts, and `GET /openapi.json`.
//!
//! A tag that covers both content encodings must be weak (RFC 9110, 8.8.3), and the response needs
//! `Vary`. Never compress a secret together with other users' text: the length would reveal it.
//! Static files contain no user data. Browsers revalidate the widget by its entity tag.

use std::io::Write;
use std::sync::LazyLock;

use actix_web::http::header::{
    self, AcceptEncoding, ContentEncoding, Encoding, EntityTag, Header, IfNoneMatch,
};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
pub(super) use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

use super::request::ApiRequest;
use super::route::routes;
use crate::app::App;
use crate::wire::OPENAPI;

routes! {ROUTES under "":
    "/widget.js" => {get open: widget}
    "/widget.json" => {get open ["lang"]: widget_texts}
    "/openapi.json" => {get open: openapi}
}

/// Returns a hash of a body, for its entity tag.
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
    let accepted = AcceptEncoding::parse(req).ok();
    accepted.and_then(|accepted| accepted.negotiate(offered.iter())) == Some(Encoding::gzip())
}

pub(super) fn gzip(body: &[u8], level: Compression) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), level);
    let written = gzip.write_all(body).and_then(|()| gzip.finish());
    written.expect("writing to memory succeeds")
}

/// The widget without comments, indentation and empty lines; compressed; and its hash.
static WIDGET: LazyLock<(String, Vec<u8>, [u8; 16])> = LazyLock::new(|| {
    let lines = include_str!("../../../widget/widget.js").lines().map(str::trim);
    let code = lines.filter(|line| !line.is_empty() && !line.starts_with("//"));
    let text: String = code.flat_map(|line| [line, "\n"]).collect();
    let gzipped = gzip(text.as_bytes(), Compression::best());
    let hash = hash(text.as_bytes());
    (text, gzipped, hash)
});

/// `GET /widget.js`
async fn widget(req: HttpRequest) -> HttpResponse {
    let (text, gzipped, hash) = &*WIDGET;
    let is_known = is_known(&req, hash);
    let mut response = if is_known { HttpResponse::NotModified() } else { HttpResponse::Ok() };
    response
        .insert_header(header::ETag(entity_tag(hash)))
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        .insert_header((header::VARY, "Accept-Encoding"))
        // Browsers fetch modules by the rules of CORS.
        .insert_header((header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"))
        .insert_header(("Cross-Origin-Resource-Policy", "cross-origin"));
    if is_known {
        return response.finish();
    }
    response.content_type("text/javascript; charset=utf-8");
    if accepts_gzip(&req) {
        response.insert_header(ContentEncoding::Gzip);
        response.body(gzipped.as_slice())
    } else {
        response.body(text.as_str())
    }
}

/// `GET /widget.json`
///
/// Browsers keep the texts for an hour. A cross-origin page may read them, as it may load the
/// module.
async fn widget_texts(request: ApiRequest) -> HttpResponse {
    let catalogs = request.app.identities.default.pages.catalogs();
    HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "max-age=3600"))
        .insert_header((header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"))
        .insert_header(("Cross-Origin-Resource-Policy", "cross-origin"))
        .json(catalogs.widget_texts(request.text("lang")))
}

/// `GET /openapi.json`
async fn openapi(app: Data<App>) -> HttpResponse {
    let path = app.config.server.public_path();
    let servers = |path: &str| format!(r#""servers": [{{"url": "{path}"}}]"#);
    let mut response = HttpResponse::Ok();
    response.content_type("application/json").insert_header((header::CACHE_CONTROL, "no-cache"));
    match path {
        "" => response.body(OPENAPI),
        path => response.body(OPENAPI.replacen(&servers("/"), &servers(path), 1)),
    }
}
