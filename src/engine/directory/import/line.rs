//! Parses one line of a file into a record, or into a [`Mistake`] (P10).

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::json::{Mistake, read, read_value};
use crate::domain::{Address, ModelName, Object, ObjectId, ObjectKey, Reason};
use crate::engine::directory::people::{FollowInput, UserInput};
use crate::engine::feedback::suppressions::SuppressionInput;
use crate::engine::ingest::notify::{EventInput, Request};

/// The kind of data in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Users. Each line needs an `id`.
    Users,
    /// Follows, one user and key per line.
    Follows,
    /// Objects, converted by this mapping.
    Objects(Mapping),
    /// Events. An event without an idempotency key gets one that is derived from its line.
    Events,
    /// Suppressed addresses, as JSON or as text whose first field is the address. The reason
    /// applies to lines that name none.
    Suppressions(Reason),
}

/// How an application's objects are converted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mapping {
    /// The model, which is put before ids that lack it. Unknown fields are moved into `data`.
    pub model: Option<ModelName>,
    /// Pairs of our field and the file's field, such as ("by", "artist"). If the first name is not
    /// one of our fields, the value becomes a field of `data`. This also moves a field out of the
    /// way that has one of our names but another meaning.
    pub fields: Vec<(String, String)>,
}

/// A parsed line.
pub(super) enum Record {
    /// With the line number, because its brand and routes are checked later.
    User(u64, Box<UserInput>),
    Follow(FollowInput),
    /// With the line number, because its model is checked later.
    Object(u64, Box<Object>),
    /// With the line number, because a conflict of its key is detected later.
    Event(u64, Box<Request>),
    Suppression(SuppressionInput),
}

type Result<T> = std::result::Result<T, Mistake>;

pub(super) fn parse(kind: &Kind, line: &[u8], number: u64) -> Result<Record> {
    match kind {
        Kind::Users => {
            let user: UserInput = read(line)?;
            if user.id.is_none() {
                return Err(Mistake::missing("`id`"));
            }
            user.check()?;
            Ok(Record::User(number, Box::new(user)))
        }
        Kind::Follows => Ok(Record::Follow(read(line)?)),
        Kind::Objects(mapping) => {
            let object: Object = match mapping {
                Mapping {
                    model: None,
                    fields,
                } if fields.is_empty() => read(line)?,
                mapping => mapping.object(read(line)?)?,
            };
            Ok(Record::Object(number, Box::new(object)))
        }
        Kind::Events => {
            let mut event: EventInput = read(line)?;
            // Without a key, importing the same line again would accept a second event.
            event.key.get_or_insert_with(|| {
                format!("import:{}", hex::encode(Sha256::digest(line.trim_ascii())))
            });
            let request = event.into_request()?;
            request.check()?;
            Ok(Record::Event(number, Box::new(request)))
        }
        Kind::Suppressions(reason) if line.trim_ascii_start().starts_with(b"{") => {
            let mut fields: Map<String, Value> = read(line)?;
            let reason = Value::from(reason.as_str());
            fields.entry("reason").or_insert(reason);
            read_value(Value::Object(fields)).map(Record::Suppression)
        }
        Kind::Suppressions(reason) => {
            let address = Address::new(first_field(line)?).map_err(|why| why.to_string())?;
            Ok(Record::Suppression(SuppressionInput::new(address, *reason)))
        }
    }
}

/// Returns whether a line is the header of a list of addresses, as providers write it.
pub(super) fn is_heading(kind: &Kind, line: &[u8]) -> bool {
    let names = ["address", "email", "recipient"];
    matches!(kind, Kind::Suppressions(_))
        && first_field(line)
            .is_ok_and(|field| names.iter().any(|name| field.eq_ignore_ascii_case(name)))
}

/// Returns the first field of a line of comma-separated values.
fn first_field(line: &[u8]) -> std::result::Result<&str, String> {
    let line = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
    // Spreadsheet programs write a byte order mark at the start of a file.
    let line = line.trim_start_matches('\u{feff}').trim();
    let field = match line.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => line.split([',', ';', '\t']).next(),
    };
    Ok(field.unwrap_or_default().trim())
}

/// The fields of an object, without its id and `data`.
const FIELDS: [&str; 7] = ["notifiable", "title", "url", "image", "by", "at", "place"];

/// Returns the key of an object of this model. An id that starts with the model is unchanged.
fn key_of(model: &ModelName, id: String) -> String {
    ObjectKey::new(Some(model), &ObjectId::stored(id)).to_string()
}

/// Merges the line's own `data` with the fields that are not ours. A name in both is an error.
fn data_of(own: Option<Value>, beside: Map<String, Value>) -> Result<Option<Value>> {
    let own = own.filter(|own| !own.is_null());
    match own {
        None if beside.is_empty() => Ok(None),
        None => Ok(Some(Value::Object(beside))),
        Some(own) if beside.is_empty() => Ok(Some(own)),
        Some(Value::Object(mut own)) => {
            for (name, value) in beside {
                if own.contains_key(&name) {
                    let why = format!(
                        "is in data as well as beside it; leave one out, or bring it elsewhere with --map NAME={name}"
                    );
                    return Err(Mistake {
                        field: Some(name),
                        why,
                    });
                }
                own.insert(name, value);
            }
            Ok(Some(Value::Object(own)))
        }
        Some(_) => {
            let names: Vec<&str> = beside.keys().map(String::as_str).collect();
            let why = format!(
                "is no object, so that {} cannot go into it; bring it elsewhere with --map NAME=data",
                names.join(", ")
            );
            Err(Mistake {
                field: Some("data".into()),
                why,
            })
        }
    }
}

impl Mapping {
    fn object(&self, mut theirs: Map<String, Value>) -> Result<Object> {
        let (mut ours, mut data) = (Map::new(), Map::new());
        for (to, from) in &self.fields {
            if let Some(value) = theirs.remove(from) {
                let ours_too = to == "id" || to == "data" || FIELDS.contains(&to.as_str());
                let place = if ours_too { &mut ours } else { &mut data };
                place.insert(to.clone(), value);
            }
        }
        for field in FIELDS {
            if let Some(value) = theirs.remove(field) {
                ours.entry(field).or_insert(value);
            }
        }
        let id = ours
            .remove("id")
            .or_else(|| theirs.remove("id"))
            .or_else(|| theirs.remove("_id"));
        let id = match id {
            Some(Value::String(text)) if !text.is_empty() => text,
            Some(Value::Number(number)) => number.to_string(),
            Some(other) => return Err(format!("id {other} is not text or a number").into()),
            None => return Err(Mistake::missing("`id`")),
        };
        let id = self
            .model
            .as_ref()
            .map_or_else(|| id.clone(), |model| key_of(model, id.clone()));
        ours.insert("_id".into(), Value::String(id));
        ours.retain(|_, value| !value.is_null());
        for text in ["title", "by"] {
            if let Some(value) = ours.get_mut(text).filter(|value| value.is_number()) {
                *value = Value::String(value.to_string());
            }
        }
        let own = ours.remove("data").or_else(|| theirs.remove("data"));
        data.append(&mut theirs);
        if let Some(data) = data_of(own, data)? {
            ours.insert("data".into(), data);
        }
        read_value(Value::Object(ours))
    }
}
