//! Reads records that have fields that this version cannot read, such as those of a newer version.
//!
//! An unreadable field gets its default and is reported. If the default would send or show more, it
//! gets a restrictive value. An unreadable `suppressed` or `unsubscribed` counts as set (P7), and
//! an unreadable `start` hides all events (P8). Start with [`read_with_defaults`].

use bson::{Bson, Document, RawDeserializer, RawDocument, RawDocumentBuf};
use serde_json::{Value, json};
use serde_path_to_error::{Path, Segment};

use super::Record;
use crate::domain::user::UnreadableField;
use crate::domain::{User, UserId};
use crate::store::{Error, extjson};

/// A start in the year 2106. See [`crate::domain::start::Start`].
const HIDES_ALL: &str = "0 ffffffffffffffffffffffff 0 0";
/// Fields whose parts are replaced one at a time.
const NESTED: [&str; 3] = ["digest", "types", "mutes"];

/// The fields of a record, as JSON.
pub(in crate::store) struct StoredFields {
    pub fields: Value,
    /// The first moment of 1970, in the form of these fields.
    pub epoch: Value,
    /// Fields that are not in the JSON because their bytes cannot be read, each with the reason.
    pub broken: Vec<(String, String)>,
}

/// Returns a user whose record caused this error: what `read` could read, or only the id and a
/// start that hides all events.
pub(in crate::store) fn user_with_defaults(
    id: UserId,
    error: &Error,
    read: impl FnOnce(&mut Vec<UnreadableField>) -> Option<User>,
) -> User {
    tracing::warn!(%error, "a user's record has fields that this version cannot read");
    let mut unreadable = Vec::new();
    match read(&mut unreadable) {
        Some(user) => User { unreadable, ..user },
        None => User {
            start: HIDES_ALL.parse().ok(),
            unreadable: vec![UnreadableField::record(error)],
            ..User::new(id)
        },
    }
}

/// Reads a document as far as this version can. Unreadable fields get their defaults.
pub(in crate::store) fn read_bson_with_defaults<R: Record>(
    raw: &RawDocument,
    unreadable: &mut Vec<UnreadableField>,
) -> Option<R::Value> {
    let (mut document, mut broken) = (Document::new(), Vec::new());
    for element in raw.iter_elements() {
        let element = element.ok()?;
        let field = element.key().as_str();
        match element.value().and_then(Bson::try_from) {
            Ok(value) => drop(document.insert(field, value)),
            Err(error) => broken.push((field.to_owned(), error.to_string())),
        }
    }
    let readable = RawDocumentBuf::try_from(&document).ok()?;
    let stored = StoredFields {
        fields: serde_json::from_str(&extjson::to_line(&readable)).ok()?,
        epoch: json!({"$date": {"$numberLong": "0"}}),
        broken,
    };
    read_with_defaults(stored, unreadable, |fields| {
        let failed = |why: String| (None, why);
        let raw = extjson::from_line(&fields.to_string()).map_err(|why| failed(why.to_string()))?;
        let from = RawDeserializer::new(raw.as_bytes()).map_err(|why| failed(why.to_string()))?;
        serde_path_to_error::deserialize::<_, R>(from).map_err(|error| {
            let path = Some(error.path().clone());
            let why = error.into_inner();
            (path, why.message.clone().unwrap_or_else(|| why.to_string()))
        })
    })
}

/// Reads a record. Fields that `parse` rejects are replaced by their defaults and added to
/// `unreadable`. Returns `None` if this does not help, as with an unreadable id.
pub(in crate::store) fn read_with_defaults<R: Record>(
    stored: StoredFields,
    unreadable: &mut Vec<UnreadableField>,
    parse: impl Fn(&Value) -> Result<R, (Option<Path>, String)>,
) -> Option<R::Value> {
    let mut fields = stored.fields;
    // The restrictive value of a field; `None` if the field gets its default.
    let restrictive = |field: &str| match field {
        "suppressed" | "unsubscribed" => Some(stored.epoch.clone()),
        "start" => Some(Value::from(HIDES_ALL)),
        _ => None,
    };
    for (field, why) in stored.broken {
        if let Some(value) = restrictive(&field) {
            fields[&field] = value;
        }
        let why = super::cut(why);
        unreadable.push(UnreadableField { field, why });
    }
    loop {
        let (path, why) = match parse(&fields) {
            Ok(record) => return record.value().ok(),
            Err(failed) => failed,
        };
        let field = replace(&mut fields, &path?, restrictive)?;
        let is_known = unreadable.iter().any(|known| known.field == field);
        if is_known && restrictive(&field).is_some() {
            return None;
        }
        let why = super::cut(why);
        unreadable.push(UnreadableField { field, why });
    }
}

/// Replaces the field at this path by its restrictive value or its default, and returns its name.
fn replace(
    fields: &mut Value,
    path: &Path,
    restrictive: impl Fn(&str) -> Option<Value>,
) -> Option<String> {
    let mut segments = path.iter();
    let Segment::Map { key } = segments.next()? else {
        return None;
    };
    let fields = fields.as_object_mut().filter(|_| key != "_id")?;
    if let Some(value) = restrictive(key) {
        fields.insert(key.clone(), value);
        return Some(key.clone());
    }
    let nested = NESTED.contains(&key.as_str()).then(|| segments.next());
    let removed = match (fields.get_mut(key)?, nested.flatten()) {
        (Value::Object(parts), Some(Segment::Map { key: name })) => {
            parts.remove(name).map(|_| name.clone())
        }
        (Value::Array(parts), Some(Segment::Seq { index })) if *index < parts.len() => {
            let part = parts.remove(*index);
            let name = part["t"].as_str().or(part["s"].as_str());
            Some(name.map_or_else(|| format!("[{index}]"), str::to_owned))
        }
        _ => None,
    };
    match removed {
        Some(name) => Some(format!("{key}.{name}")),
        None => fields.remove(key).map(|_| key.clone()),
    }
}
