//! What events are about: our own `objects`, and models that live in the application's collections
//! ([`super::mapped`]).
//!
//! The rule: `data` is the application's and comes back exactly. It is kept as a document, so that
//! people can query it, unless it holds what a document cannot: then it is kept as JSON text in
//! `data_json`.

use std::collections::HashMap;

use async_trait::async_trait;
use bson::{Bson, Document, RawDocumentBuf, doc};
use chrono::DateTime;
use mongodb::options::FindOptions;
use serde_json::Value;

use super::bulk::Write;
use super::values::{date, put};
use super::{Mongo, OBJECTS};
use crate::domain::{ModelName, Object, ObjectKey, Poke};
use crate::store::record::fields::place;
use crate::store::{Error, Objects, Result};

#[async_trait]
impl Objects for Mongo {
    async fn put_objects(&self, objects: &[Object]) -> Result<()> {
        let put = |object: &Object| Write {
            q: doc! {"_id": object.key.as_str()},
            u: record_of(object),
            upsert: true,
        };
        let statements = objects.iter().map(put);
        self.upsert("putting objects", OBJECTS, statements).await?;
        let names = objects.iter().map(|object| object.key.as_str());
        self.poke(Poke::objects(names)).await;
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
        if !own.is_empty() {
            let filter = doc! {"_id": {"$in": own}};
            let options = FindOptions::default();
            let records = self
                .find_raw("reading objects", OBJECTS, &filter, options)
                .await?;
            for record in &records {
                let object = readable_object(record);
                found.extend(object.map(|object| (object.key.clone(), object)));
            }
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

/// One bad record must not keep everybody's mail: it applies to nobody.
fn readable_object(raw: &RawDocumentBuf) -> Option<Object> {
    let read = match Document::try_from(&**raw) {
        Ok(record) => object_of(&record).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    read.map_err(|error| tracing::warn!(error, "an object cannot be read, and does not apply"))
        .ok()
        .or_else(|| {
            let key = raw.get_str("_id").ok()?;
            Some(Object {
                notifiable: false,
                ..Object::bare(ObjectKey::stored(key))
            })
        })
}

pub(super) fn record_of(object: &Object) -> Document {
    let mut record = doc! {"_id": object.key.as_str(), "notifiable": object.notifiable};
    put(&mut record, "title", object.title.as_deref());
    put(&mut record, "url", object.url.as_deref());
    put(&mut record, "image", object.image.as_deref());
    put(&mut record, "by", object.by.as_deref());
    put(&mut record, "at", object.at.map(date));
    put(
        &mut record,
        "place",
        object
            .place
            .map(|at| doc! {"type": "Point", "coordinates": [at.lng(), at.lat()]}),
    );
    match (&object.data, bson_of(&object.data)) {
        (Value::Null, _) => {}
        (_, Some(data)) => {
            record.insert("data", data);
        }
        (data, None) => {
            record.insert("data_json", data.to_string());
        }
    }
    record
}

/// What cannot be read is left out, so that one bad record does not spoil everybody's mail; whether
/// it is notifiable cannot be left out, and is then denied.
pub(super) fn object_of(record: &Document) -> Result<Object> {
    let key = record.get_str("_id").map(ObjectKey::stored);
    let text = |field| record.get_str(field).ok().map(str::to_owned);
    let time = |at: &bson::DateTime| DateTime::from_timestamp_millis(at.timestamp_millis());
    let data = match (record.get("data"), text("data_json")) {
        (_, Some(json)) => serde_json::from_str(&json).unwrap_or(Value::String(json)),
        (Some(data), None) => json_of(data),
        (None, None) => Value::Null,
    };
    Ok(Object {
        key: key.map_err(|error| Error::corrupt("_id of an object", error))?,
        notifiable: match record.get("notifiable") {
            None | Some(Bson::Null) => true,
            Some(notifiable) => notifiable.as_bool().unwrap_or(false),
        },
        title: text("title"),
        url: text("url"),
        image: text("image"),
        by: text("by"),
        at: record.get_datetime("at").ok().and_then(time),
        place: record.get("place").and_then(place),
        data,
    })
}

/// JSON as BSON, if BSON can hold it such that it comes back the same.
fn bson_of(value: &Value) -> Option<Bson> {
    Some(match value {
        Value::Null => Bson::Null,
        Value::Bool(value) => Bson::Boolean(*value),
        Value::Number(number) => match number.as_i64() {
            Some(number) => Bson::Int64(number),
            // What is larger than an i64 comes back as another number.
            None if number.is_u64() => return None,
            None => Bson::Double(number.as_f64()?),
        },
        Value::String(text) => Bson::String(text.clone()),
        Value::Array(values) => Bson::Array(values.iter().map(bson_of).collect::<Option<_>>()?),
        Value::Object(fields) => {
            let mut document = Document::new();
            for (name, value) in fields {
                // MongoDB gives names with dollars a meaning of their own, and NUL ends a name.
                if name.starts_with('$') || name.contains('\0') {
                    return None;
                }
                document.insert(name, bson_of(value)?);
            }
            Bson::Document(document)
        }
    })
}

/// BSON as JSON; what JSON does not have becomes Extended JSON.
fn json_of(value: &Bson) -> Value {
    match value {
        Bson::Array(values) => values.iter().map(json_of).collect(),
        Bson::Document(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), json_of(value)))
            .collect(),
        other => serde_json::to_value(other).unwrap_or(Value::Null),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::Point;

    fn with_data(data: Value) -> Object {
        Object {
            data,
            ..Object::bare(ObjectKey::stored("Artwork:A:1"))
        }
    }

    #[test]
    fn an_object_is_read_as_written() {
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
            assert_eq!(object_of(&record_of(&object)).unwrap(), object);
        }
    }

    #[test]
    fn data_that_no_document_can_hold_comes_back_all_the_same() {
        for data in [
            json!({"$ref": "#/x"}),
            json!([{"a\0b": 1}]),
            json!({"n": u64::MAX}),
        ] {
            let object = with_data(data);
            let record = record_of(&object);
            assert!(record.contains_key("data_json"), "{record}");
            assert_eq!(object_of(&record).unwrap(), object);
        }
    }

    #[test]
    fn what_cannot_be_read_is_left_out_and_never_notified() {
        let record =
            doc! {"_id": "Show:1", "notifiable": "yes", "title": 5, "at": "soon", "place": []};
        let object = object_of(&record).unwrap();
        let withdrawn = Object {
            notifiable: false,
            ..Object::bare(ObjectKey::stored("Show:1"))
        };
        assert_eq!(object, withdrawn);
    }

    #[test]
    fn a_record_of_another_hand_is_read() {
        let id = bson::oid::ObjectId::from_bytes([1; 12]);
        let object = object_of(&doc! {"_id": "Show:1", "data": {"n": 1_i32, "id": id}}).unwrap();
        assert!(object.notifiable);
        assert_eq!(
            object.data,
            json!({"n": 1, "id": {"$oid": "010101010101010101010101"}})
        );
    }
}
