//! Serves requests that keep the path of `server.public_url`.
//!
//! A proxy strips that path or keeps it. Addresses in answers start with it, so callers that reach
//! the server directly send it as well. Paths that are routes by themselves stay unchanged.

use actix_web::Error;
use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Uri;
use actix_web::middleware::Next;
use actix_web::web::Data;

use crate::app::App;

/// Routes a request by its path without that of `server.public_url`.
pub(super) async fn strip<B: MessageBody>(
    mut req: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    if let Some(uri) = stripped(&req) {
        req.match_info_mut().get_mut().update(&uri);
        req.head_mut().uri = uri;
    }
    next.call(req).await
}

fn stripped(req: &ServiceRequest) -> Option<Uri> {
    let app = req.app_data::<Data<App>>()?;
    let uri = req.uri();
    let rest = uri.path_and_query()?.as_str();
    let rest = rest.strip_prefix(app.config.server.public_path())?;
    if !rest.starts_with('/') || req.resource_map().has_resource(uri.path()) {
        return None;
    }
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(rest.parse().ok()?);
    Uri::from_parts(parts).ok()
}
