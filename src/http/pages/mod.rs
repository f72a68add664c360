//! The public pages that users open from their emails, without a login or a script.
//!
//! The holder of a link acts for its user, and for no other (P7, P8). GET changes nothing, because
//! email scanners follow every link. POST acts at once without a redirect, because email programs
//! send it by themselves (RFC 8058). No cache keeps a page. Start with [`unsubscribe`].

use actix_web::web::{self, ServiceConfig};
use actix_web::{HttpRequest, guard};

use crate::http::api::problem::Problem;
use crate::http::api::route;

mod preferences;
mod unsubscribe;
mod visit;

/// The methods and paths of all pages.
pub const ROUTES: &[(&str, &str)] = &[
    ("get", "/u/{token}"),
    ("post", "/u/{token}"),
    ("get", "/u/{token}/preferences"),
    ("post", "/u/{token}/preferences"),
];

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
        web::resource("/u/{token}/preferences")
            .route(reading().to(preferences::show))
            .route(web::post().to(preferences::save))
            .default_service(web::to(wrong_method)),
    );
}

async fn wrong_method(req: HttpRequest) -> Result<&'static str, Problem> {
    route::wrong_method(&req, &["get", "head", "post"])
}
