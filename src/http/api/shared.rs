//! Answers that several routes share.

use actix_web::HttpResponse;
use actix_web::web::Data;

use super::problem::{Code, Problem};
use crate::app::App;
use crate::domain::UserId;
use crate::wire::Taken;

/// Answers a request for an unknown path.
pub(super) async fn not_found(app: Data<App>) -> Result<HttpResponse, Problem> {
    let path = app.config.server.public_path();
    let detail = format!("there is nothing here; {path}/openapi.json lists what there is");
    Err(Problem::new(Code::NotFound, detail))
}

/// Answers a list of records that was accepted.
pub(super) fn taken(count: usize) -> HttpResponse {
    HttpResponse::Ok().json(Taken { taken: count })
}

/// Creates the problem for a user without a record.
pub(super) fn unknown(id: &UserId) -> Problem {
    Problem::new(
        Code::UnknownUser,
        format!("there is no record of user {id:?}"),
    )
}
