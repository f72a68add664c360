//! The public pages that users open from their emails, without a login or a script.
//!
//! The holder of a link acts for its user, and for no other (P7, P8). GET changes nothing, because
//! email scanners follow every link. POST acts at once without a redirect, because email programs
//! send it by themselves (RFC 8058). No cache keeps a page. Start with [`unsubscribe`].

use actix_web::guard;
use actix_web::http::{StatusCode, header};
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};

use crate::app::App;
use crate::render::pages::Notice;

mod form;
mod preferences;
mod unsubscribe;
mod visit;

pub use visit::Cause;
use visit::Visit;

/// The methods and paths of all pages.
pub const ROUTES: &[(&str, &str)] = &[
    ("get", "/u/{token}"),
    ("post", "/u/{token}"),
    ("get", "/u/{token}/preferences"),
    ("post", "/u/{token}/preferences"),
];

/// The path of the preferences, followed by punctuation. Programs that detect links in text may
/// include it.
const PUNCTUATED: &str = "/u/{token}/{end:preferences[.,;:!?)\\]>'\"]+}";

/// Registers the pages.
pub fn configure(config: &mut ServiceConfig) {
    let reading = || web::route().guard(guard::Any(guard::Get()).or(guard::Head()));
    config.service(
        web::resource("/u/{token}")
            .route(reading().to(unsubscribe::ask))
            .route(web::post().to(unsubscribe::act))
            .default_service(web::to(wrong_method)),
    );
    config.service(
        web::resource(["/u/{token}/preferences", PUNCTUATED])
            .route(reading().to(preferences::show))
            .route(web::post().to(preferences::save))
            .default_service(web::to(wrong_method)),
    );
}

async fn wrong_method(req: HttpRequest, app: Data<App>) -> HttpResponse {
    let notice = Notice::Method(req.method().as_str());
    let visit = Visit::new(&req, app);
    let mut response = visit.notice(StatusCode::METHOD_NOT_ALLOWED, notice);
    let allowed = header::HeaderValue::from_static("GET, HEAD, POST");
    response.headers_mut().insert(header::ALLOW, allowed);
    response
}
