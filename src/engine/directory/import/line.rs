//! One line of a file, as the record it brings in.
//!
//! The rule (P10): a line is a record or a [`Mistake`], never half of one.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::json::{Mistake, read, read_value};
use crate::domain::{Address, ModelName, Object, ObjectId, ObjectKey, Reason};
use crate::engine::directory::people::{FollowInput, UserInput};
use crate::engine::feedback::suppressions::SuppressionInput;
use crate::engine::ingest::notify::{EventInput, Request};

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// People's records; each line needs an `id`.
    Users,
    /// That somebody follows a key, one pair a line.
    Follows,
    /// Records of objects, read by this mapping.
    Objects(Mapping),
    /// Events; one without a key gets one made from its line.
    Events,
    /// Addresses with this reason where a line names none; as JSON, or as text whose first field is
    /// the address.
    Suppressions(Reason),
}

/// How an application's own objects become ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mapping {
    /// Their ids get this model in front, unless it stands there, and fields we do not know go into
    /// `data`, beside what it holds.
    pub model: Option<ModelName>,
    /// (our field, their field), such as ("by", "artist"). A name that is none of our fields is one
    /// in `data`: so a field of theirs that means something else than ours of that name is moved
    /// out of the way.
    pub fields: Vec<(String, String)>,
}

/// A line, read.
pub(super) enum Record {
    /// With its line, as only the configuration can tell whether there is its brand.
    User(u64, Box<UserInput>),
    Follow(FollowInput),
    /// With its line, as only the configuration can tell whether its model is kept here.
    Object(u64, Box<Object>),
    /// With its line, as only the journal can tell whether its key is taken.
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
            // The same line brought in twice is the same event.
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

/// Whether a file's first line names the fields of the others, as providers write their lists.
pub(super) fn is_heading(kind: &Kind, line: &[u8]) -> bool {
    let names = ["address", "email", "recipient"];
    matches!(kind, Kind::Suppressions(_))
        && first_field(line)
            .is_ok_and(|field| names.iter().any(|name| field.eq_ignore_ascii_case(name)))
}

/// The first field of a line of comma-separated values.
fn first_field(line: &[u8]) -> std::result::Result<&str, String> {
    let line = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
    // Spreadsheets begin files with a byte order mark.
    let line = line.trim_start_matches('\u{feff}').trim();
    let field = match line.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => line.split([',', ';', '\t']).next(),
    };
    Ok(field.unwrap_or_default().trim())
}

/// What an object has besides its id and data.
const FIELDS: [&str; 7] = ["notifiable", "title", "url", "image", "by", "at", "place"];

/// A key of this model; an id that has the model in front already is a key as it is.
fn key_of(model: &ModelName, id: String) -> String {
    ObjectKey::new(Some(model), &ObjectId::stored(id)).to_string()
}

/// What is kept as `data`: the line's own, with the fields beside it that are none of ours.
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
