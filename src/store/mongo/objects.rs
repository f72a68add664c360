//! Objects, and retractions of events about them. [`super::mapped_models`] reads models in the
//! application's collections.
//!
//! `data` is returned exactly as written: it is stored as JSON text in `data_json`. Earlier
//! versions and other programs may have stored a document in `data`.

use std::collections::HashMap;

use async_trait::async_trait;
use bson::raw::cstr;
use bson::{Bson, RawBsonRef, RawDocument, RawDocumentBuf, doc, rawdoc};
use chrono::DateTime;

use super::bulk::Update;
use super::reads::in_order_of;
use super::{Mongo, OBJECTS, RETRACTIONS, oid};
use crate::domain::{
    ChangeNotice, Event, EventType, Id, Json, ModelName, Object, ObjectId, ObjectKey, Retraction,
};
use crate::store::entry::object_id;
use crate::store::record::small::ObjectRecord;
use crate::store::record::values::{StoredForm, parse_point};
use crate::store::record::{format_id, write_bson};
use crate::store::{Error, Objects, Result};

#[async_trait]
impl Objects for Mongo {
    async fn put_objects(&self, objects: &[Object]) -> Result<()> {
        let put = |object: &Object| {
            let by_id = doc! {"_id": object.key.as_str()};
            Ok(Update::upsert(by_id, encode_object(object)?))
        };
        let statements: Vec<_> = objects.iter().map(put).collect::<Result<_>>()?;
        self.upsert(OBJECTS, statements).await?;
        let keys = objects.iter().map(|object| object.key.as_str());
        self.notify(ChangeNotice::objects(keys)).await;
        Ok(())
    }

    async fn objects(&self, keys: &[ObjectKey]) -> Result<Vec<Option<Object>>> {
        let mut own: Vec<&str> = Vec::new();
        let mut mapped: HashMap<ModelName, Vec<&ObjectKey>> = HashMap::new();
        for key in keys {
            let model = key.split().map(|(model, _)| ModelName::stored(model));
            match model.filter(|model| self.0.options.mapped_models.contains_key(model)) {
                Some(model) => mapped.entry(model).or_default().push(key),
                None => own.push(key.as_str()),
            }
        }
        let mut objects: Vec<Object> = Vec::with_capacity(keys.len());
        for raw in &self.find_by_id(OBJECTS, own).raw().await? {
            match read_object(raw) {
                Ok(object) => objects.push(object),
                Err(error) => tracing::warn!(%error, "an object is skipped"),
            }
        }
        for (model, keys) in mapped {
            let mapping = &self.0.options.mapped_models[&model];
            objects.extend(self.mapped_objects(mapping, &keys).await?);
        }
        Ok(in_order_of(keys, objects, |object| &object.key))
    }

    async fn retract(&self, retractions: &[Retraction], notice: &ChangeNotice) -> Result<()> {
        let statement = |Retraction { kind, object, at }: &Retraction| {
            let latest = doc! {"$max": {"at": oid(*at)}};
            Update::upsert(doc! {"_id": retraction_id(kind, object)}, latest)
        };
        self.upsert(RETRACTIONS, retractions.iter().map(statement)).await?;
        self.notify(notice.clone()).await;
        Ok(())
    }

    async fn retractions(&self, events: &[Event]) -> Result<Vec<Option<Id>>> {
        let ids: Vec<String> =
            events.iter().map(|event| retraction_id(&event.kind, &event.object)).collect();
        let found = self.find_by_id(RETRACTIONS, &ids).raw().await?;
        let mut time_by_id: HashMap<&str, Id> = HashMap::with_capacity(found.len());
        for raw in &found {
            let retraction = read_retraction(raw).inspect_err(
                |error| tracing::warn!(%error, "a retraction cannot be read, and applies to all events"),
            );
            let at = retraction.map_or(Id::MAX, |retraction| retraction.at);
            time_by_id.insert(raw.get_str("_id").unwrap_or_default(), at);
        }
        Ok(ids.iter().map(|id| time_by_id.get(&**id).copied()).collect())
    }
}

/// Encodes an object. `data` is stored as text, which no conversion changes.
pub(super) fn encode_object(object: &Object) -> Result<RawDocumentBuf> {
    let mut record = ObjectRecord::from_value(object);
    record.data = None;
    let mut document = write_bson("encoding an object", &record)?;
    if !object.data.is_null() {
        document.append(cstr!("data_json"), object.data.text());
    }
    Ok(document)
}

/// Reads a field as JSON. Types that JSON lacks become Extended JSON.
fn json_of(value: RawBsonRef<'_>) -> Json {
    serde_json::to_string(&value).and_then(|text| serde_json::from_str(&text)).unwrap_or_default()
}

/// Decodes an object. Unreadable fields are omitted, so that one bad record does not block all
/// emails. An unreadable `notifiable`, or a field that is not valid BSON, means not notifiable.
pub(super) fn read_object(raw: &RawDocument) -> Result<Object> {
    let key = raw.get_str("_id").map_err(|error| Error::corrupt("an object", error))?;
    let text = |field: &str| raw.get_str(field).ok().map(str::to_owned);
    let value = |field: &str| raw.get(field).ok().flatten();
    let notifiable = value("notifiable").filter(|value| value.as_null().is_none());
    let is_valid = raw.iter().all(|field| field.is_ok());
    let at = raw.get_datetime("at").ok();
    let point = value("place").and_then(|value| Bson::try_from(value).ok());
    Ok(Object {
        notifiable: is_valid && notifiable.is_none_or(|value| value.as_bool().unwrap_or(false)),
        title: text("title"),
        url: text("url"),
        image: text("image"),
        by: text("by"),
        at: at.and_then(|at| DateTime::from_timestamp_millis(at.timestamp_millis())),
        place: point.as_ref().and_then(parse_point),
        data: match text("data_json") {
            Some(json) => {
                serde_json::from_str(&json).unwrap_or_else(|_| serde_json::Value::from(json).into())
            }
            None => value("data").map(json_of).unwrap_or_default(),
        },
        ..Object::without_data(ObjectKey::stored(key))
    })
}

/// Returns the `_id` of a retraction. Types and object ids contain no NUL.
fn retraction_id(kind: &EventType, object: &ObjectId) -> String {
    format!("{kind}\0{object}")
}

pub(super) fn read_retraction(raw: &RawDocument) -> Result<Retraction> {
    let corrupt = |why| Error::corrupt(format!("retraction {}", format_id(raw)), why);
    let at = raw.get_object_id("at").map_err(|error| corrupt(error.to_string()))?;
    let names = raw.get_str("_id").ok().and_then(|id| id.split_once('\0'));
    let (kind, object) = names.ok_or_else(|| corrupt("it names no object".to_owned()))?;
    Ok(Retraction {
        kind: EventType::stored(kind),
        object: ObjectId::stored(object),
        at: Id::from_bytes(at.bytes()),
    })
}

pub(super) fn encode_retraction(Retraction { kind, object, at }: &Retraction) -> RawDocumentBuf {
    rawdoc! {"_id": retraction_id(kind, object), "at": object_id(*at)}
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::domain::Point;

    fn raw(record: &bson::Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(record).unwrap()
    }

    fn with_data(data: Value) -> Object {
        Object { data: data.into(), ..Object::without_data(ObjectKey::stored("Artwork:A:1")) }
    }

    #[test]
    fn an_object_round_trips() {
        let whole = Object {
            notifiable: false,
            title: Some("Mornëng".into()),
            url: Some("https://example.org/1".into()),
            image: Some("https://example.org/1.jpg".into()),
            by: Some("N. N.".into()),
            at: DateTime::from_timestamp_millis(-1),
            place: Some(Point::new(1.0, -2.0).unwrap()),
            ..with_data(json!({"a": [1, -1, 1.5, null, true, {"b.c": "d"}], "": {}}))
        };
        for object in
            [whole, with_data(Value::Null), with_data(json!("text")), with_data(json!([]))]
        {
            assert_eq!(read_object(&encode_object(&object).unwrap()).unwrap(), object);
        }
    }

    #[test]
    fn data_that_bson_cannot_represent_round_trips() {
        for data in [json!({"$ref": "#/x"}), json!([{"a\0b": 1}]), json!({"n": u64::MAX})] {
            let object = with_data(data);
            let record = encode_object(&object).unwrap();
            assert!(record.get_str("data_json").is_ok(), "{record:?}");
            assert_eq!(read_object(&record).unwrap(), object);
        }
    }

    #[test]
    fn unreadable_fields_are_omitted_and_the_object_is_not_notifiable() {
        let record =
            doc! {"_id": "Show:1", "notifiable": "yes", "title": 5, "at": "soon", "place": []};
        let object = read_object(&raw(&record)).unwrap();
        let withdrawn =
            Object { notifiable: false, ..Object::without_data(ObjectKey::stored("Show:1")) };
        assert_eq!(object, withdrawn);
    }

    #[test]
    fn a_record_of_another_writer_is_readable() {
        let id = bson::oid::ObjectId::from_bytes([1; 12]);
        let record = raw(&doc! {"_id": "Show:1", "data": {"n": 1_i32, "id": id}});
        let object = read_object(&record).unwrap();
        assert!(object.notifiable);
        let data = json!({"n": 1, "id": {"$oid": "010101010101010101010101"}});
        assert!(object.data.is_equivalent(&data.into()));
    }
}
