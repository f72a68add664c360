//! Objects: the store's own `objects`, and models in the application's collections
//! ([`super::mapped`]).
//!
//! `data` is returned exactly as written. It is stored as a document, so that operators can query
//! it. If a document cannot hold it exactly, it is stored as JSON text in `data_json`.

use std::collections::HashMap;

use async_trait::async_trait;
use bson::spec::ElementType;
use bson::{Bson, RawBsonRef, RawDocument, RawDocumentBuf, doc};
use chrono::DateTime;
use mongodb::options::FindOptions;

use super::bulk::Write;
use super::encode::Writer;
use super::{Mongo, OBJECTS, data};
use crate::domain::{ChangeNotice, ModelName, Object, ObjectKey};
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
        self.poke(ChangeNotice::objects(names)).await;
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

pub(super) fn record_of(object: &Object) -> RawDocumentBuf {
    let mut writer = Writer::new();
    writer.text("_id", object.key.as_str());
    writer.flag("notifiable", object.notifiable);
    for (name, text) in [
        ("title", &object.title),
        ("url", &object.url),
        ("image", &object.image),
        ("by", &object.by),
    ] {
        if let Some(text) = text {
            writer.text(name, text);
        }
    }
    if let Some(at) = object.at {
        writer.value(
            "at",
            ElementType::DateTime,
            &at.timestamp_millis().to_le_bytes(),
        );
    }
    if let Some(at) = object.place {
        writer.document("place");
        writer.text("type", "Point");
        writer.array("coordinates");
        writer.double(0, at.lng());
        writer.double(1, at.lat());
        writer.close();
        writer.close();
    }
    if !object.data.is_null() && !data::write(&mut writer, "data", &object.data) {
        writer.text("data_json", object.data.text());
    }
    writer.finish()
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
            "data" if !is_kept_as_text => object.data = data::read(value),
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
            assert_eq!(object_of(&record_of(&object)).unwrap(), object);
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
            let record = record_of(&object);
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
        assert!(object.data.is_same(&data.into()));
    }
}
