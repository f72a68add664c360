//! The public pages that users open from their emails, without a login or a script.
//!
//! The holder of a link acts for its user, and for no other (P7, P8). GET changes nothing, because
//! email scanners follow every link. POST acts at once without a redirect, because email programs
//! send it by themselves (RFC 8058). No cache keeps a page. Start with [`unsubscribe`].

use actix_web::guard::{self, Guard};
use actix_web::http::{StatusCode, header};
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};

use crate::app::App;
use crate::render::pages::Notice;

mod answer;
mod asked;
mod form;
mod link_path;
mod preferences;
mod unsubscribe;

pub use answer::Cause;
use answer::notice;
use asked::Asked;

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
    let reading = || guard::Any(guard::Get()).or(guard::Head());
    config.service(
        web::resource("/u/{token}")
            .route(page(reading()).to(unsubscribe::ask))
            .route(page(guard::Post()).to(unsubscribe::act))
            .default_service(web::to(wrong_method)),
    );
    config.service(
        web::resource(["/u/{token}/preferences", PUNCTUATED])
            .route(page(reading()).to(preferences::show))
            .route(page(guard::Post()).to(preferences::save))
            .default_service(web::to(wrong_method)),
    );
}

fn page(guard: impl Guard + 'static) -> actix_web::Route {
    web::route().guard(guard)
}

async fn wrong_method(req: HttpRequest, app: Data<App>) -> HttpResponse {
    let mut response = notice(
        &app,
        &Asked::of(&req, &app),
        StatusCode::METHOD_NOT_ALLOWED,
        Notice::Method(req.method().as_str()),
    );
    let allowed = header::HeaderValue::from_static("GET, HEAD, POST");
    response.headers_mut().insert(header::ALLOW, allowed);
    response
}
