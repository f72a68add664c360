//! Parses one line of a file into a record, or explains its error to the author of the file.
//!
//! An error names the field, the value and the expected form (P10). It uses the names of the file
//! and not of Rust types. The caller adds the line number.

use std::fmt::Display;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::domain::{
    Address, InvalidKind, InvalidValue, ModelName, Object, ObjectId, ObjectKey, SuppressionReason,
};
use crate::engine::feedback::suppressions::SuppressionInput;
use crate::engine::ingest::{EventInput, NewEvent};
use crate::engine::json_fields;
use crate::engine::users::input::{FollowInput, UserInput};

/// The kind of data in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportKind {
    /// Users. Each line needs an `id`.
    Users,
    /// Follows, one user and key per line.
    Follows,
    /// Objects. This model is put before ids that lack it.
    Objects(Option<ModelName>),
    /// Events. An event without an idempotency key gets one that is derived from its line.
    Events,
    /// Suppressed addresses, as JSON or as text whose first field is the address. The reason
    /// applies to lines that name none.
    Suppressions(SuppressionReason),
}

/// A parsed line.
pub(super) enum ImportedRecord {
    User(Box<UserInput>),
    Follow(FollowInput),
    Object(Box<Object>),
    Event(Box<NewEvent>),
    Suppression(SuppressionInput),
}

type Result<T, E = LineError> = std::result::Result<T, E>;

pub(super) fn parse(kind: &ImportKind, line: &[u8]) -> Result<ImportedRecord> {
    match kind {
        ImportKind::Users => {
            let user: UserInput = parse_object(line)?;
            if user.id.is_none() {
                return Err(LineError::missing_field("`id`"));
            }
            user.check()?;
            Ok(ImportedRecord::User(Box::new(user)))
        }
        ImportKind::Follows => Ok(ImportedRecord::Follow(parse_object(line)?)),
        ImportKind::Objects(model) => {
            let object: Object<json_fields::NameOrNumber> = parse_object(line)?;
            let key = |id: json_fields::NameOrNumber| -> Result<ObjectKey, InvalidValue> {
                let id: ObjectId = id.parse()?;
                ObjectKey::from_parts(model.as_ref(), &id).as_str().parse()
            };
            let object = object.map_key(key).map_err(|invalid: InvalidValue| LineError {
                field: Some("id".to_owned()),
                why: invalid.to_string(),
            })?;
            Ok(ImportedRecord::Object(Box::new(object)))
        }
        ImportKind::Events => {
            let mut event: EventInput = parse_object(line)?;
            // Without a key, importing the same line again would accept a second event.
            event.key.get_or_insert_with(|| {
                format!("import:{}", hex::encode(Sha256::digest(line.trim_ascii())))
            });
            Ok(ImportedRecord::Event(Box::new(event.into_request()?)))
        }
        ImportKind::Suppressions(reason) if line.trim_ascii_start().starts_with(b"{") => {
            let mut fields: Map<String, Value> = parse_object(line)?;
            fields.entry("reason").or_insert(Value::from(reason.as_str()));
            parse_value(Value::Object(fields)).map(ImportedRecord::Suppression)
        }
        ImportKind::Suppressions(reason) => {
            let address = Address::new(first_field(line)?).map_err(|why| why.to_string())?;
            Ok(ImportedRecord::Suppression(SuppressionInput::new(address, *reason)))
        }
    }
}

/// Returns whether a line is the header of a list of addresses, as providers write it.
pub(super) fn is_header(kind: &ImportKind, line: &[u8]) -> bool {
    let names = ["address", "email", "recipient"];
    matches!(kind, ImportKind::Suppressions(_))
        && first_field(line)
            .is_ok_and(|field| names.iter().any(|name| field.eq_ignore_ascii_case(name)))
}

/// Returns the first field of a line of comma-separated values.
fn first_field(line: &[u8]) -> Result<&str, String> {
    let text = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
    // Spreadsheet programs write a byte order mark at the start of a file.
    let text = text.trim_start_matches('\u{feff}').trim();
    let field = match text.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => text.split([',', ';', '\t']).next(),
    };
    Ok(field.unwrap_or_default().trim())
}

/// Why a line is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LineError {
    /// The invalid field, such as `digest.hour`; `None` if the error is not about one field.
    pub field: Option<String>,
    pub why: String,
}

impl LineError {
    /// Creates the error for a required field that is missing.
    pub(crate) fn missing_field(field: impl Display) -> Self {
        format!("has no field {field}, which is needed").into()
    }

    /// Creates the error for an event that was parsed but is not accepted.
    pub(crate) fn from_event_error(invalid: InvalidValue) -> Self {
        let field = match invalid.kind {
            InvalidKind::Time => Some("at".to_owned()),
            InvalidKind::Type => Some("type".to_owned()),
            InvalidKind::Value | InvalidKind::Limit => None,
        };
        Self { field, why: invalid.to_string() }
    }
}

impl From<String> for LineError {
    fn from(why: String) -> Self {
        Self { field: None, why }
    }
}

impl From<InvalidValue> for LineError {
    fn from(invalid: InvalidValue) -> Self {
        invalid.to_string().into()
    }
}

/// Parses the JSON object on a line.
pub(crate) fn parse_object<T: DeserializeOwned>(line: &[u8]) -> Result<T, LineError> {
    // Some editors write a byte order mark at the start of a file. Without the line end, an error
    // at the end of a line has a column on that line.
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii_end();
    // serde's derived code would accept an array of the values without their names.
    if line.trim_ascii_start().first() != Some(&b'{') {
        let why = "is not a JSON object, which begins with {; write one a line";
        return Err(why.to_owned().into());
    }
    let mut json = serde_json::Deserializer::from_slice(line);
    let object = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| json_mistake(error.path().to_string(), error.inner()))?;
    json.end().map_err(|error| json_mistake(String::new(), &error))?;
    Ok(object)
}

/// Deserializes an object that was parsed before.
pub(crate) fn parse_value<T: DeserializeOwned>(object: Value) -> Result<T, LineError> {
    serde_path_to_error::deserialize(object)
        .map_err(|error| json_mistake(error.path().to_string(), error.inner()))
}

fn json_mistake(field: String, error: &serde_json::Error) -> LineError {
    let (column, text) = (error.column(), error.to_string());
    let position = format!(" at line {} column {column}", error.line());
    let why = text.strip_suffix(&position).unwrap_or(&text);
    if error.is_eof() {
        return format!(
            "ends in the middle of its JSON, after column {column}; write one whole object a line"
        )
        .into();
    }
    if error.is_syntax() {
        return format!("is not JSON at column {column}: {why}").into();
    }
    let why = match why.strip_prefix("missing field ") {
        Some(missing) => LineError::missing_field(missing).why,
        None => why.to_owned(),
    };
    // These paths stand for the whole object.
    let field = Some(field).filter(|field| !matches!(field.as_str(), "" | "."));
    LineError { field, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::transfer::BadLine;

    fn error_of<T: DeserializeOwned>(line: &str) -> String {
        let mistake = parse_object::<T>(line.as_bytes()).err().unwrap();
        BadLine::new(1, mistake).to_string()
    }

    #[test]
    fn a_line_that_is_not_an_object_is_reported_with_its_position() {
        for line in ["nonsense", "[]", "5", "\"{}\""] {
            assert_eq!(
                error_of::<UserInput>(line),
                "line 1: is not a JSON object, which begins with {; write one a line"
            );
        }
        let half = "line 1: ends in the middle of its JSON, after column 10; write one whole object a line";
        assert_eq!(error_of::<UserInput>("{\"id\": \"a\"\n"), half);
        let two = error_of::<UserInput>("{\"id\": \"a\"} {}");
        assert_eq!(two, "line 1: is not JSON at column 13: trailing characters");
        assert!(parse_object::<UserInput>("\u{feff}{\"id\": \"a\"}\r\n".as_bytes()).is_ok());
    }

    #[test]
    fn an_invalid_field_is_reported_by_name_without_internal_type_names() {
        let event = |rest: &str| {
            error_of::<EventInput>(&format!("{{\"type\": \"T\", \"objects\": [\"a\"]{rest}}}"))
        };

        assert_eq!(
            error_of::<EventInput>("{\"type\": \"T\"}"),
            "line 1: has no field `objects`, which is needed"
        );
        assert_eq!(
            event(", \"at\": \"yesterday\""),
            "line 1, at: time \"yesterday\" is not a moment such as 2014-04-22T09:00:00Z"
        );
        assert_eq!(
            event(", \"near\": 5"),
            "line 1, near: invalid type: integer `5`, expected an object with point and km"
        );
        let user = |field: &str, value: &str| {
            error_of::<UserInput>(&format!("{{\"id\": \"a\", \"{field}\": {value}}}"))
        };
        assert_eq!(
            user("digest", "\"weekly\""),
            "line 1, digest: invalid type: string \"weekly\", expected an object with cadence, weekday and hour"
        );
        assert_eq!(
            user("digest", "{\"weekday\": \"funday\"}"),
            "line 1, digest.weekday: weekday \"funday\" is not mon, tue, wed, thu, fri, sat or sun"
        );
        assert_eq!(
            user("tz", "\"Mars\""),
            "line 1, tz: time zone \"Mars\" is not a name such as Europe/Paris"
        );
        assert_eq!(
            user("types", "{\"Reply\": \"batch\"}"),
            "line 1, types.Reply: invalid type: string \"batch\", expected an object with route and window"
        );
        assert_eq!(
            user("types", "{\"Reply\": {\"window\": \"1h\"}}"),
            "line 1, types.Reply: has no field `route`, which is needed"
        );
    }
}
