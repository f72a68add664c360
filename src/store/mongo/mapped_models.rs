//! Reads models that live in the application's own collections. It never writes to them.
//!
//! The application's filter decides which objects are still notifiable, and the database evaluates
//! it. An id from an event is only compared as a value (`$in`): text, ObjectId or number. So it
//! cannot become a query operator.

use std::collections::{HashMap, HashSet};

use bson::oid::ObjectId as Oid;
use bson::{Bson, Document, doc};
use chrono::{DateTime, Utc};
use mongodb::options::{FindOptions, ReadConcern};

use super::Mongo;
use super::reads::{Find, decode};
use crate::domain::object::ModelMapping;
use crate::domain::{Id, Object, ObjectKey, text_checks};
use crate::store::record::values::parse_point;
use crate::store::{Error, Result};

impl ModelMapping {
    /// Returns the fields to read. For a path, reads its whole first field, because MongoDB rejects
    /// a path next to a prefix of it.
    fn projection(&self) -> Document {
        let link_paths = [&self.url, &self.image].into_iter().flatten().flat_map(|link| {
            if link.contains('{') { placeholders(link).collect() } else { vec![link.as_str()] }
        });
        let other_paths = [&self.title, &self.by, &self.at, &self.place];
        let paths = link_paths
            .chain(other_paths.into_iter().flatten().map(String::as_str))
            .chain([&*self.id, "_id"]);
        let field = |path: &str| path.split('.').next().unwrap_or(path).to_owned();
        paths.map(|path| (field(path), Bson::Int32(1))).collect()
    }

    fn object(&self, key: ObjectKey, notifiable: bool, record: &Document) -> Object {
        let value = |path: &Option<String>| value_at(record, path.as_deref()?);
        let text = |path: &Option<String>| value(path).and_then(text_of);
        let link = |path_or_template: &Option<String>| {
            let path_or_template = path_or_template.as_deref()?;
            let link = if path_or_template.contains('{') {
                fill_template(path_or_template, record)?
            } else {
                text_of(value_at(record, path_or_template)?)?
            };
            // The link ends up in emails, so an unsafe one is dropped.
            text_checks::check_link(&link).is_ok().then_some(link)
        };
        Object {
            notifiable,
            title: text(&self.title),
            url: link(&self.url),
            image: link(&self.image),
            by: text(&self.by),
            at: value(&self.at).and_then(time_of),
            place: value(&self.place).and_then(parse_point),
            ..Object::without_data(key)
        }
    }
}

impl Mongo {
    /// Returns the records under these keys, which all belong to the mapping's model. Missing
    /// records are omitted.
    pub(super) async fn mapped_objects(
        &self,
        mapping: &ModelMapping,
        keys: &[&ObjectKey],
    ) -> Result<Vec<Object>> {
        let parts = keys.iter().filter_map(|key| key.split());
        let ids: Vec<Bson> = parts.flat_map(|(_, id)| spellings(id)).collect();
        let by_id = doc! {&mapping.id: {"$in": ids}};
        let records = self.application_records(mapping, by_id.clone(), mapping.projection());
        let notifiable_ids = self.notifiable_ids(mapping, &by_id);
        let (records, notifiable_ids) = futures::try_join!(records, notifiable_ids)?;
        let record_by_id: HashMap<String, &Document> = records
            .iter()
            .filter_map(|record| Some((text_of(value_at(record, &mapping.id)?)?, record)))
            .collect();
        let object = |key: &&ObjectKey| {
            let (_, id) = key.split()?;
            let by_oid = || record_by_id.get(&Id::from_hex(id)?.to_string());
            let record = record_by_id.get(id).or_else(by_oid)?;
            let notifiable = notifiable_ids.as_ref().is_none_or(|ids| {
                record.get("_id").is_some_and(|id| ids.contains(&id.to_string()))
            });
            Some(mapping.object((*key).clone(), notifiable, record))
        };
        Ok(keys.iter().filter_map(object).collect())
    }

    /// Returns the `_id`s of those of these records that match the application's filter. `None` if
    /// there is no filter.
    async fn notifiable_ids(
        &self,
        mapping: &ModelMapping,
        by_id: &Document,
    ) -> Result<Option<HashSet<String>>> {
        if mapping.filter.is_empty() {
            return Ok(None);
        }
        let filter = bson::serialize_to_document(&mapping.filter)
            .map_err(|why| Error::Unsupported(format!("the filter of a model: {why}")))?;
        let both = doc! {"$and": [by_id.clone(), filter]};
        let matching = self.application_records(mapping, both, doc! {"_id": 1}).await?;
        let ids = matching.iter().filter_map(|record| record.get("_id"));
        Ok(Some(ids.map(Bson::to_string).collect()))
    }

    async fn application_records(
        &self,
        mapping: &ModelMapping,
        filter: Document,
        projection: Document,
    ) -> Result<Vec<Document>> {
        let database = match &mapping.database {
            Some(name) => self.0.client.database(name),
            None => self.0.db.clone(),
        };
        // Reads the latest data without waiting for a majority: a withdrawal counts once it is
        // written.
        let options = FindOptions::builder().read_concern(ReadConcern::local()).build();
        let find = Find {
            store: self,
            collection: database.collection(&mapping.collection),
            filter,
            options,
        };
        let documents = find.fields(projection).raw().await?;
        Ok(documents.iter().filter_map(|raw| decode(raw)).collect())
    }
}

/// Returns the BSON values that an id from an event may match.
fn spellings(id: &str) -> impl Iterator<Item = Bson> {
    let oid = Id::from_hex(id).map(|id| Bson::ObjectId(Oid::from_bytes(id.bytes())));
    let number = id.parse::<i64>().ok().filter(|number| number.to_string() == id);
    let text = [Bson::String(id.to_owned())].into_iter();
    text.chain(oid).chain(number.map(Bson::Int64))
}

/// Returns the value at a path. If there is an array on the way, its first element is used.
fn value_at<'a>(record: &'a Document, path: &str) -> Option<&'a Bson> {
    let mut fields = path.split('.');
    let mut value = record.get(fields.next()?)?;
    for field in fields {
        if let Bson::Array(values) = value {
            value = values.first()?;
        }
        value = value.as_document()?.get(field)?;
    }
    Some(value)
}

fn text_of(value: &Bson) -> Option<String> {
    match value {
        Bson::String(text) if text.is_empty() => None,
        Bson::String(text) => Some(text.clone()),
        Bson::ObjectId(id) => Some(id.to_hex()),
        Bson::Int32(number) => Some(number.to_string()),
        Bson::Int64(number) => Some(number.to_string()),
        Bson::Double(number) => Some(number.to_string()),
        Bson::Array(values) => {
            values.first().filter(|first| first.as_array().is_none()).and_then(text_of)
        }
        _ => None,
    }
}

fn time_of(value: &Bson) -> Option<DateTime<Utc>> {
    match value {
        Bson::DateTime(date) => DateTime::from_timestamp_millis(date.timestamp_millis()),
        Bson::String(text) => DateTime::parse_from_rfc3339(text).ok().map(|time| time.to_utc()),
        _ => None,
    }
}

/// Returns the names in braces.
fn placeholders(template: &str) -> impl Iterator<Item = &str> {
    let after_braces = template.split('{').skip(1);
    after_braces.filter_map(|text| text.split_once('}').map(|(field, _)| field))
}

/// Fills the template with percent-encoded field values; `None` if a value is missing.
fn fill_template(template: &str, record: &Document) -> Option<String> {
    let (start, rest) = template.split_once('{')?;
    let mut filled = start.to_owned();
    for part in rest.split('{') {
        let (field, literal) = part.split_once('}')?;
        let value = text_of(value_at(record, field)?)?;
        let encoded: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
        filled.push_str(&encoded.replace('+', "%20"));
        filled.push_str(literal);
    }
    Some(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping() -> ModelMapping {
        ModelMapping {
            collection: "artworks".into(),
            database: None,
            id: "_id".into(),
            filter: toml::Table::new(),
            title: Some("title".into()),
            url: Some("https://example.org/{artist.slug}/{_id}?x".into()),
            image: Some("images.large".into()),
            by: Some("artist.name".into()),
            at: Some("opens".into()),
            place: Some("where".into()),
        }
    }

    #[test]
    fn a_mapped_record_becomes_an_object() {
        let record = doc! {
            "_id": 7, "title": "Dawn", "artist": [{"slug": "j/ö", "name": "Jö"}], "images": {"large": "https://x.org/1.jpg"},
            "opens": "2014-04-22T00:00:00Z", "where": {"type": "Point", "coordinates": [1.0, 2.0]},
        };
        let object = mapping().object(ObjectKey::stored("Artwork:7"), true, &record);
        assert_eq!(object.url.as_deref(), Some("https://example.org/j%2F%C3%B6/7?x"));
        assert_eq!(object.image.as_deref(), Some("https://x.org/1.jpg"));
        assert_eq!((object.title.as_deref(), object.by.as_deref()), (Some("Dawn"), Some("Jö")));
        assert!(object.at.is_some() && object.place.is_some());
        assert!(object.check().is_ok());
    }

    #[test]
    fn missing_fields_and_invalid_links_are_omitted() {
        let record = doc! {"_id": 7, "title": "", "images": {"large": "javascript:alert(1)"}, "opens": "soon"};
        let key = ObjectKey::stored("Artwork:7");
        assert_eq!(mapping().object(key.clone(), true, &record), Object::without_data(key));
    }

    #[test]
    fn only_mapped_fields_are_read() {
        let projection = mapping().projection();
        let mut fields: Vec<&str> = projection.keys().map(String::as_str).collect();
        fields.sort_unstable();
        assert_eq!(fields, ["_id", "artist", "images", "opens", "title", "where"]);
    }

    #[test]
    fn an_id_is_compared_in_all_its_spellings_and_in_no_others() {
        let hex = "5334647b139b2165160000d8";
        assert_eq!(spellings(hex).count(), 2);
        assert_eq!(spellings("558").count(), 2);
        assert_eq!(spellings("0558").count(), 1);
        assert_eq!(
            spellings("{\"$ne\": 1}").collect::<Vec<_>>(),
            [Bson::String("{\"$ne\": 1}".into())]
        );
    }
}
