//! The records of the objects that events refer to.
//!
//! `DELETE` stores that the object is withdrawn, so it disappears from feeds and emails at once and
//! stays away until it is put again (P6).

use actix_web::HttpResponse;

use super::problem::{ApiResult, Code, Problem};
use super::request::{ApiRequest, record_problem};
use super::route::routes;
use crate::domain::{ModelName, Object, ObjectId, ObjectKey};
use crate::engine::ingest::objects::key_of;
use crate::wire::AcceptedCount;
use crate::wire::feed::ObjectView;

routes! {ROUTES under "/v1":
    "/objects" => {post write bulk: post}
    "/objects/{model}/{id}" => {put write: put, get read: get, delete write: delete}
}

fn path_key(request: &ApiRequest) -> Result<ObjectKey, Problem> {
    let (model, id): (ModelName, ObjectId) = (request.segment("model")?, request.segment("id")?);
    key_of(&model, &id).map_err(|invalid| Problem::parameter("path", invalid.to_string()))
}

/// `PUT /v1/objects/{model}/{id}`
async fn put(mut request: ApiRequest) -> ApiResult {
    let key = path_key(&request)?;
    let object: Object<Option<ObjectKey>> = request.parse_one().await?;
    let object = object.map_key(|id| match id.filter(|id| *id != key) {
        Some(id) => Err(Problem::body(format!(
            "id {id:?} is not the object of the path, {key:?}; leave it out"
        ))),
        None => Ok(key),
    })?;
    request.app.objects().put(vec![object]).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `POST /v1/objects`
async fn post(mut request: ApiRequest) -> ApiResult {
    let objects: Vec<Object> = request.parse_many("objects").await?;
    let service = request.app.objects();
    for (index, object) in objects.iter().enumerate() {
        service.check(object).map_err(|invalid| record_problem("objects", index, invalid))?;
    }
    let accepted = objects.len();
    service.put(objects).await?;
    Ok(HttpResponse::Ok().json(AcceptedCount { accepted }))
}

/// `GET /v1/objects/{model}/{id}`
async fn get(request: ApiRequest) -> ApiResult {
    let key = path_key(&request)?;
    let Some(object) = request.app.objects().get(&key).await? else {
        let detail = format!("there is no record of object {key:?}");
        return Err(Problem::new(Code::UnknownObject, detail));
    };
    Ok(HttpResponse::Ok().json(ObjectView::from(&object)))
}

/// `DELETE /v1/objects/{model}/{id}`
async fn delete(request: ApiRequest) -> ApiResult {
    request.app.objects().withdraw(path_key(&request)?).await?;
    Ok(HttpResponse::NoContent().finish())
}
