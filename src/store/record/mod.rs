//! The stored form of each record, defined once for both stores.
//!
//! On MongoDB a record is a document. On SQLite it is a row with its fields as columns
//! ([`super::sqlite`]), or JSON in a column. A missing or `null` field is absent. An unreadable one
//! is [`Error::Corrupt`], which names the field, and never gets a default unless the record says
//! so. [`values`] defines the form of times, ids and places.

use bson::{RawBsonRef, RawDeserializer, RawDocument, RawDocumentBuf};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use super::types::{Error, Result};
use crate::domain::Address;

/// Declares the record type of a domain value and its conversions.
///
/// Fields before `;` are required, those after it are optional; `= "key"` gives the stored name.
/// `as` before the fields names the record in errors. `write` lists fields of the record, each with
/// the expression that computes it from the value. `read` lists fields of the value, each with the
/// expression that computes it from the record. Both may be omitted. The fields of a `part` are
/// optional and stored beside the others, under the name after `as`.
///
/// `MarkRecord of Mark { user = "u": CompactString; note: String }` expands to:
///
/// ```text
/// struct MarkRecord { #[serde(rename = "u")] user: CompactString, note: Option<String> }
/// impl StoredForm<Mark> for MarkRecord { fn from_value(&Mark) -> Self …; fn into_value(self) … }
/// ```
macro_rules! record {
    (
        $(#[$doc:meta])* $name:ident of $value:ident $(as $what:literal)? {
            $($field:ident $(= $key:literal)?: $form:ty),* ;
            $($optional:ident $(= $optional_key:literal)?: $optional_form:ty),*
        }
        write($from:ident) {
            $($written:ident $(= $written_key:literal)?: $written_form:ty = $write:expr,)*
        }
        read($record:ident) { $($computed:ident: $compute:expr,)* }
        $(part $part:ident: $Part:ident {
            $($in_part:ident as $stored:ident: $stored_form:ty),*
            $(; $part_computed:ident: $part_compute:expr)?
        })*
    ) => {
        $(#[$doc])*
        #[derive(serde::Serialize, serde::Deserialize)]
        pub(in crate::store) struct $name {
            $($(#[serde(rename = $key)])? $field: $form,)*
            $(
                $(#[serde(rename = $optional_key)])?
                #[serde(skip_serializing_if = "Option::is_none")]
                pub(in crate::store) $optional: Option<$optional_form>,
            )*
            $(
                $(#[serde(rename = $written_key)])?
                #[serde(skip_serializing_if = "Option::is_none")]
                pub(in crate::store) $written: Option<$written_form>,
            )*
            $($(
                #[serde(skip_serializing_if = "Option::is_none")]
                $stored: Option<$stored_form>,
            )*)*
        }

        impl StoredForm<$value> for $name {
            fn from_value($from: &$value) -> Self {
                Self {
                    $($field: StoredForm::from_value(&$from.$field),)*
                    $($optional: StoredForm::from_value(&$from.$optional),)*
                    $($written: $write,)*
                    $($($stored: StoredForm::from_value(&$from.$part.$in_part),)*)*
                }
            }

            fn into_value(self) -> Result<$value, String> {
                let $record = self;
                Ok($value {
                    $($part: $Part {
                        $($part_computed: $part_compute,)?
                        $($in_part: in_field(stringify!($stored), StoredForm::into_value($record.$stored))?,)*
                    },)*
                    $($computed: $compute,)*
                    $($field: in_field(
                        [$($key,)? stringify!($field)][0],
                        StoredForm::into_value($record.$field),
                    )?,)*
                    $($optional: in_field(
                        [$($optional_key,)? stringify!($optional)][0],
                        StoredForm::into_value($record.$optional),
                    )?,)*
                })
            }
        }

        $(impl $crate::store::record::Record for $name {
            const WHAT: &'static str = $what;
            type Value = $value;

            fn value(self) -> Result<$value, String> {
                self.into_value()
            }
        })?
    };
    ($(#[$doc:meta])* $name:ident of $value:ident $(as $what:literal)? { $($fields:tt)* }) => {
        record! {
            $(#[$doc])* $name of $value $(as $what)? { $($fields)* }
            write(value) {}
            read(record) {}
        }
    };
}

pub(super) mod batch;
pub(super) mod delivery;
pub(super) mod fanout;
pub(super) mod small;
pub(super) mod user;
pub(super) mod values;

/// The stored form of a value.
pub(super) trait Record: DeserializeOwned {
    /// Name of the record in errors.
    const WHAT: &'static str;
    /// The domain type.
    type Value;

    /// Converts to the domain value. The error names the invalid field and the defect.
    fn value(self) -> std::result::Result<Self::Value, String>;
}

/// Returns the value of a required field.
pub(super) fn require<T>(field: &str, value: Option<T>) -> std::result::Result<T, String> {
    value.ok_or_else(|| format!("{field} is missing"))
}

/// Prefixes the error of a field with its name.
pub(super) fn in_field<T>(
    field: &str,
    value: std::result::Result<T, String>,
) -> std::result::Result<T, String> {
    value.map_err(|why| format!("{field}: {why}"))
}

/// Truncates a reason to 80 characters, because it may repeat a secret value (P8).
fn truncate_reason(why: String) -> String {
    match why.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &why[..end]),
        None => why,
    }
}

/// Deserializes a record. In errors, `what` names the record and `why` formats the reason.
fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
    what: impl Fn() -> String,
    why: impl Fn(D::Error) -> String,
) -> Result<T> {
    serde_path_to_error::deserialize(from).map_err(|error| {
        let unreadable = match error.path().to_string().as_str() {
            "." | "?" => what(),
            field => format!("{field} of {}", what()),
        };
        Error::corrupt(unreadable, truncate_reason(why(error.into_inner())))
    })
}

/// Converts a record to its value. In errors, `what` names the record.
fn value_of<R: Record>(record: R, what: impl Fn() -> String) -> Result<R::Value> {
    record.value().map_err(|why| Error::corrupt(what(), truncate_reason(why)))
}

/// Deserializes a document.
pub(super) fn deserialize_document<T: DeserializeOwned>(
    what: &str,
    raw: &RawDocument,
) -> Result<T> {
    let what = || format!("{what} {}", format_id(raw));
    let corrupt = |error| Error::corrupt(what(), error);
    let from = RawDeserializer::new(raw.as_bytes()).map_err(corrupt)?;
    deserialize(from, what, |error| error.message.clone().unwrap_or_else(|| error.to_string()))
}

/// Reads JSON as a domain value. In errors, `what` names the record.
pub(super) fn read_json<'de, R: Record>(
    from: impl Deserializer<'de, Error = serde_json::Error>,
    what: impl Fn() -> String,
) -> Result<R::Value> {
    let record: R = deserialize(from, &what, |error| error.to_string())?;
    value_of(record, what)
}

/// Reads a document as a domain value.
pub(super) fn read_bson<R: Record>(raw: &RawDocument) -> Result<R::Value> {
    let record: R = deserialize_document(R::WHAT, raw)?;
    value_of(record, || format!("{} {}", R::WHAT, format_id(raw)))
}

/// Formats the `_id` of a document of any writer. Masks addresses (P8).
pub(super) fn format_id(raw: &RawDocument) -> String {
    match raw.get("_id").ok().flatten() {
        Some(RawBsonRef::ObjectId(id)) => id.to_string(),
        Some(RawBsonRef::String(text)) => format_text_id(text),
        // Ids of soft bounces contain an address.
        Some(RawBsonRef::Document(fields)) => {
            let values = fields.iter().map_while(|field| Some(field.ok()?.1));
            let texts = values.map(|value| match value.as_str() {
                Some(text) => format_text_id(text),
                None => format!("{value:?}"),
            });
            texts.collect::<Vec<_>>().join(" ")
        }
        Some(other) => format!("{other:?}"),
        None => "whose _id cannot be read".to_owned(),
    }
}

/// Formats a text id. Masks it if it is an address (P8).
pub(super) fn format_text_id(id: &str) -> String {
    Address::stored(id).map_or_else(|_| id.to_owned(), |address| address.to_string())
}

/// Serializes a value as JSON.
pub(super) fn to_json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|cause| Error::database("writing JSON", cause))
}

/// Serializes a record to a document.
pub(super) fn write_bson(doing: &str, record: &impl Serialize) -> Result<RawDocumentBuf> {
    bson::serialize_to_raw_document_buf(record)
        .map_err(|error| Error::Unsupported(format!("{doing}: {error}")))
}
