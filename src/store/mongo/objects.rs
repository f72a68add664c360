//! Objects, and retractions of events about them. [`super::mapped`] reads models in the
//! application's collections.
//!
//! `data` is returned exactly as written. It is stored as a document, so that operators can query
//! it. If a document cannot hold it exactly, it is stored as JSON text in `data_json`.

use std::collections::HashMap;

use async_trait::async_trait;
use bson::raw::cstr;
use bson::{Bson, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, doc};
use chrono::DateTime;
use serde::{Deserialize, Serialize};

use super::bulk::Write;
use super::{Mongo, OBJECTS, RETRACTIONS, oid};
use crate::domain::{
    ChangeNotice, Event, EventType, Id, Json, ModelName, Object, ObjectId, ObjectKey, Retraction,
};
use crate::store::record::fields::{As, Oid, place};
use crate::store::record::small::ObjectRecord;
use crate::store::record::{read_fields, write_bson};
use crate::store::{Error, Objects, Result, Retractions};

#[async_trait]
impl Objects for Mongo {
    async fn put_objects(&self, objects: &[Object]) -> Result<()> {
        let doing = "putting objects";
        let put = |object: &Object| {
            let q = doc! {"_id": object.key.as_str()};
            let (u, upsert) = (record_of(doing, object)?, true);
            Ok(Write { q, u, upsert })
        };
        let statements: Vec<_> = objects.iter().map(put).collect::<Result<_>>()?;
        self.upsert(doing, OBJECTS, statements).await?;
        let names = objects.iter().map(|object| object.key.as_str());
        self.notify(ChangeNotice::objects(names)).await;
        Ok(())
    }

    async fn objects(&self, keys: &[ObjectKey]) -> Result<Vec<Option<Object>>> {
        let mut own: Vec<&str> = Vec::new();
        let mut mapped: HashMap<ModelName, Vec<&ObjectKey>> = HashMap::new();
        for key in keys {
            let model = key.parts().map(|(model, _)| ModelName::stored(model));
            match model.filter(|model| self.0.options.mapped.contains_key(model)) {
                Some(model) => mapped.entry(model).or_default().push(key),
                None => own.push(key.as_str()),
            }
        }
        let mut found: HashMap<ObjectKey, Object> = HashMap::with_capacity(keys.len());
        for record in &self.find_by_id("reading objects", OBJECTS, own).await? {
            let object = readable_object(record);
            found.extend(object.map(|object| (object.key.clone(), object)));
        }
        for (model, keys) in mapped {
            let mapping = &self.0.options.mapped[&model];
            for object in self.mapped(mapping, &keys).await? {
                found.insert(object.key.clone(), object);
            }
        }
        Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
    }
}

/// Decodes an object. An unreadable one is not notifiable, and does not affect other emails.
fn readable_object(raw: &RawDocumentBuf) -> Option<Object> {
    object_of(raw)
        .map_err(|error| tracing::warn!(%error, "an object cannot be read, and does not apply"))
        .ok()
        .or_else(|| {
            let key = raw.get_str("_id").ok()?;
            Some(Object {
                notifiable: false,
                ..Object::bare(ObjectKey::stored(key))
            })
        })
}

pub(super) fn record_of(doing: &str, object: &Object) -> Result<RawDocumentBuf> {
    let mut record = ObjectRecord::from_value(object);
    record.data = None;
    let mut document = write_bson(doing, &record)?;
    match bson_of(&object.data) {
        _ if object.data.is_null() => {}
        Some(data) => document.append(cstr!("data"), data),
        None => document.append(cstr!("data_json"), object.data.text()),
    }
    Ok(document)
}

/// Converts JSON to BSON. `None` if BSON would change the value: an integer above `i64::MAX`, or
/// field names that repeat, contain NUL or start with a dollar sign.
fn bson_of(json: &Json) -> Option<RawBson> {
    // In compact text, only a name follows a brace. A dollar sign would mean Extended JSON.
    if json.text().contains("{\"$") || json.text().contains(",\"$") {
        return None;
    }
    let value: Bson = serde_json::from_str(json.text()).ok()?;
    let value = RawBson::try_from(value).ok()?;
    (json_of(value.as_raw_bson_ref()) == *json).then_some(value)
}

/// Reads a field as JSON. Types that JSON lacks become Extended JSON.
fn json_of(value: RawBsonRef<'_>) -> Json {
    let text = serde_json::to_string(&value);
    let json = text.and_then(|text| serde_json::from_str(&text));
    json.unwrap_or_default()
}

/// Decodes an object. Unreadable fields are omitted, so that one bad record does not block all
/// emails. An unreadable `notifiable` means no.
pub(super) fn object_of(record: &RawDocument) -> Result<Object> {
    let corrupt = |error: &dyn std::fmt::Display| Error::corrupt("an object", error);
    let mut object = Object::bare(ObjectKey::stored(""));
    let (mut is_named, mut is_kept_as_text) = (false, false);
    for field in record {
        let (name, value) = field.map_err(|error| corrupt(&error))?;
        let text = || value.as_str().map(str::to_owned);
        match name.as_str() {
            "_id" => {
                let key = value
                    .as_str()
                    .ok_or_else(|| corrupt(&"its _id is no text"))?;
                object.key = ObjectKey::stored(key);
                is_named = true;
            }
            "notifiable" => {
                let is_absent = matches!(value, RawBsonRef::Null);
                object.notifiable = is_absent || value.as_bool().unwrap_or(false);
            }
            "title" => object.title = text(),
            "url" => object.url = text(),
            "image" => object.image = text(),
            "by" => object.by = text(),
            "at" => {
                let millis = value.as_datetime().map(|at| at.timestamp_millis());
                object.at = millis.and_then(DateTime::from_timestamp_millis);
            }
            "place" => object.place = Bson::try_from(value).ok().as_ref().and_then(place),
            "data" if !is_kept_as_text => object.data = json_of(value),
            "data_json" => {
                is_kept_as_text = true;
                let json = text().unwrap_or_default();
                let read = serde_json::from_str(&json);
                object.data = read.unwrap_or_else(|_| serde_json::Value::from(json).into());
            }
            _ => {}
        }
    }
    match is_named {
        true => Ok(object),
        false => Err(corrupt(&"it has no _id")),
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct StoredRetraction {
    #[serde(rename = "_id")]
    id: String,
    at: Oid,
}

/// Returns the `_id` of a retraction. Types and object ids contain no NUL.
fn retraction_id(t: &EventType, o: &ObjectId) -> String {
    format!("{t}\0{o}")
}

/// Reads a retraction.
pub(super) fn read_retraction(raw: &RawDocument) -> Result<Retraction> {
    let StoredRetraction { id, at } = read_fields("retraction", raw)?;
    let names = id.split_once('\0');
    let (t, o) = names.ok_or_else(|| Error::corrupt("a retraction", "it names no object"))?;
    let (t, o, at) = (EventType::stored(t), ObjectId::stored(o), at.0);
    Ok(Retraction { t, o, at })
}

/// The document of a retraction.
pub(super) fn retraction_record(Retraction { t, o, at }: &Retraction) -> StoredRetraction {
    let (id, at) = (retraction_id(t, o), Oid(*at));
    StoredRetraction { id, at }
}

#[async_trait]
impl Retractions for Mongo {
    async fn retract(&self, retractions: &[Retraction], about: &ChangeNotice) -> Result<()> {
        let statement = |retraction: &Retraction| Write {
            q: doc! {"_id": retraction_id(&retraction.t, &retraction.o)},
            u: doc! {"$max": {"at": oid(retraction.at)}},
            upsert: true,
        };
        let statements = retractions.iter().map(statement);
        self.upsert("taking events back", RETRACTIONS, statements)
            .await?;
        self.notify(about.clone()).await;
        Ok(())
    }

    async fn retractions(&self, events: &[Event]) -> Result<Vec<Option<Id>>> {
        let names = events.iter().map(|event| retraction_id(&event.t, &event.o));
        let names: Vec<String> = names.collect();
        let doing = "reading what was taken back";
        let found = self.find_by_id(doing, RETRACTIONS, &names).await?;
        let mut at: HashMap<String, Id> = HashMap::with_capacity(found.len());
        for raw in &found {
            match read_fields::<StoredRetraction>("retraction", raw) {
                Ok(kept) => drop(at.insert(kept.id, kept.at.0)),
                Err(error) => {
                    tracing::warn!(%error, "a retraction cannot be read, and reaches everything");
                    let id = raw.get_str("_id").unwrap_or_default();
                    at.insert(id.to_owned(), Id::LAST);
                }
            }
        }
        Ok(names.iter().map(|name| at.get(name).copied()).collect())
    }
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
        Object {
            data: data.into(),
            ..Object::bare(ObjectKey::stored("Artwork:A:1"))
        }
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
        for object in [
            whole,
            with_data(Value::Null),
            with_data(json!("text")),
            with_data(json!([])),
        ] {
            assert_eq!(
                object_of(&record_of("testing", &object).unwrap()).unwrap(),
                object
            );
        }
    }

    #[test]
    fn data_that_bson_cannot_represent_round_trips() {
        for data in [
            json!({"$ref": "#/x"}),
            json!([{"a\0b": 1}]),
            json!({"n": u64::MAX}),
        ] {
            let object = with_data(data);
            let record = record_of("testing", &object).unwrap();
            assert!(record.get_str("data_json").is_ok(), "{record:?}");
            assert_eq!(object_of(&record).unwrap(), object);
        }
    }

    #[test]
    fn unreadable_fields_are_omitted_and_the_object_is_not_notifiable() {
        let record =
            doc! {"_id": "Show:1", "notifiable": "yes", "title": 5, "at": "soon", "place": []};
        let object = object_of(&raw(&record)).unwrap();
        let withdrawn = Object {
            notifiable: false,
            ..Object::bare(ObjectKey::stored("Show:1"))
        };
        assert_eq!(object, withdrawn);
    }

    #[test]
    fn a_record_of_another_writer_is_readable() {
        let id = bson::oid::ObjectId::from_bytes([1; 12]);
        let record = raw(&doc! {"_id": "Show:1", "data": {"n": 1_i32, "id": id}});
        let object = object_of(&record).unwrap();
        assert!(object.notifiable);
        let data = json!({"n": 1, "id": {"$oid": "010101010101010101010101"}});
        assert_eq!(object.data, data.into());
    }
}
