//! The records of the objects that events refer to.
//!
//! `DELETE` stores that the object is withdrawn, so it disappears from feeds and emails at once and
//! stays away until it is put again (P6).

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::body;
use super::problem::{Code, Problem};
use super::shared::taken;
use super::uri::{NoQuery, segment};
use crate::app::App;
use crate::domain::{Json, ModelName, Object, ObjectId, ObjectKey, Point, moment};
use crate::engine::ingest::objects::key_of;
use crate::wire::feed::ObjectView;

/// The body that replaces the object in the path.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ObjectInput {
    #[serde(rename = "_id", alias = "id")]
    key: Option<ObjectKey>,
    #[serde(default = "yes")]
    notifiable: bool,
    title: Option<String>,
    url: Option<String>,
    image: Option<String>,
    by: Option<String>,
    #[serde(default, deserialize_with = "moment::read_if_any")]
    at: Option<DateTime<Utc>>,
    place: Option<Point>,
    #[serde(default)]
    data: Json,
}

fn yes() -> bool {
    true
}

impl ObjectInput {
    fn with_key(self, key: ObjectKey) -> Object {
        Object {
            key,
            notifiable: self.notifiable,
            title: self.title,
            url: self.url,
            image: self.image,
            by: self.by,
            at: self.at,
            place: self.place,
            data: self.data,
        }
    }
}

fn key(req: &HttpRequest) -> Result<ObjectKey, Problem> {
    let (model, id): (ModelName, ObjectId) = (segment(req, "model")?, segment(req, "id")?);
    key_of(&model, &id).map_err(|why| Problem::parameter("path", why.to_string()))
}

/// `PUT /v1/objects/{model}/{id}`
pub(super) async fn put(
    _: NoQuery,
    req: HttpRequest,
    payload: Payload,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let key = key(&req)?;
    let body = body::read(&req, payload, body::LIMIT).await?;
    let object: ObjectInput = body::aside(body, body::one).await?;
    if let Some(other) = object.key.as_ref().filter(|other| **other != key) {
        return Err(Problem::body(format!(
            "id {other:?} is not the object of the path, {key:?}; leave it out"
        )));
    }
    app.objects().put(vec![object.with_key(key)]).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `POST /v1/objects`
pub(super) async fn post(
    _: NoQuery,
    req: HttpRequest,
    payload: Payload,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let body = body::read(&req, payload, body::BULK_LIMIT).await?;
    let many = |body: &[u8]| body::many(body, "objects");
    let objects: Vec<Object> = body::aside(body, many).await?;
    let book = app.objects();
    for (index, object) in objects.iter().enumerate() {
        book.check(object)
            .map_err(|why| body::of_record("objects", index, why))?;
    }
    let count = objects.len();
    book.put(objects).await?;
    Ok(taken(count))
}

/// `GET /v1/objects/{model}/{id}`
pub(super) async fn get(
    _: NoQuery,
    req: HttpRequest,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let key = key(&req)?;
    let Some(object) = app.objects().get(&key).await? else {
        let detail = format!("there is no record of object {key:?}");
        return Err(Problem::new(Code::UnknownObject, detail));
    };
    Ok(HttpResponse::Ok().json(ObjectView::from(&object)))
}

/// `DELETE /v1/objects/{model}/{id}`
pub(super) async fn delete(
    _: NoQuery,
    req: HttpRequest,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    app.objects().withdraw(key(&req)?).await?;
    Ok(HttpResponse::NoContent().finish())
}
