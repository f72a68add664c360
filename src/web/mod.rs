//! The pages people reach from their mails, without a login and without a script.
//!
//! The rule (P7, P8): whoever holds a link acts for the person it names, and nobody else can. GET
//! changes nothing, as mail scanners follow every link; POST acts at once, without a redirect, as
//! mail programs do it by themselves (RFC 8058). Pages are kept by nobody, named to nobody, and
//! load nothing. Begin with [`unsubscribe`]; `form` reads what was sent, `answer` is how every
//! answer looks.

use actix_web::guard::{self, Guard};
use actix_web::http::{StatusCode, header};
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};

use crate::app::App;
use crate::render::pages::Notice;

mod answer;
mod asked;
mod form;
mod preferences;
mod unsubscribe;

pub use answer::Cause;
use answer::notice;
use asked::Asked;

/// Method and path of all pages.
pub const ROUTES: &[(&str, &str)] = &[
    ("get", "/u/{token}"),
    ("post", "/u/{token}"),
    ("get", "/u/{token}/preferences"),
    ("post", "/u/{token}/preferences"),
];

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
        web::resource("/u/{token}/preferences")
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
