//! Records: how each kept thing is written and read, said once for both stores.
//!
//! The rule: a record is a document on MongoDB. On SQLite it is a row, whose columns are its fields
//! ([`super::sqlite`]), or JSON in a column. What is missing or `null` is absent; what is there and
//! cannot be read is [`Error::Corrupt`], which names the field, and never a default unless the
//! record says so. How times, ids and places are written is said in [`fields`].

use bson::{RawBsonRef, RawDeserializer, RawDocument, RawDocumentBuf};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use super::extjson::shown;
use super::{Error, Result};
use crate::domain::Address;

/// Declares a record of a value: which of its fields is written under which name, in which form.
/// Those behind `;` may be absent. `extra` are what the value does not have, `odd` what the record
/// does not have. `as` is what to call it in an error.
macro_rules! record {
    (
        $(#[$doc:meta])* $name:ident of $value:ident $(as $what:literal)? {
            $($field:ident $(= $key:literal)?: $form:ty),* ;
            $($may:ident $(= $may_key:literal)?: $may_form:ty),*
        }
        extra($of:ident) { $($extra:ident $(= $extra_key:literal)?: $extra_form:ty = $put:expr,)* }
        odd($record:ident) { $($odd:ident: $take:expr,)* }
    ) => {
        $(#[$doc])*
        #[derive(serde::Serialize, serde::Deserialize)]
        pub(in crate::store) struct $name {
            $($(#[serde(rename = $key)])? $field: $form,)*
            $(
                $(#[serde(rename = $may_key)])?
                #[serde(skip_serializing_if = "Option::is_none")]
                pub(in crate::store) $may: Option<$may_form>,
            )*
            $(
                $(#[serde(rename = $extra_key)])?
                #[serde(skip_serializing_if = "Option::is_none")]
                pub(in crate::store) $extra: Option<$extra_form>,
            )*
        }

        impl As<$value> for $name {
            fn keep($of: &$value) -> Self {
                Self {
                    $($field: As::keep(&$of.$field),)*
                    $($may: As::keep(&$of.$may),)*
                    $($extra: $put,)*
                }
            }

            fn told(self) -> Result<$value, String> {
                let $record = self;
                Ok($value {
                    $($odd: $take,)*
                    $($field: of([$($key,)? stringify!($field)][0], As::told($record.$field))?,)*
                    $($may: of([$($may_key,)? stringify!($may)][0], As::told($record.$may))?,)*
                })
            }
        }

        $(impl super::Record for $name {
            const WHAT: &'static str = $what;
            type Value = $value;

            fn value(self) -> Result<$value, String> {
                self.told()
            }
        })?
    };
}

/// Declares what JSON has as a list of its fields, and BSON by their names, in the order that is
/// said last.
macro_rules! listed {
    (
        $(#[$doc:meta])* $name:ident { $($field:ident: $form:ty),* }
        [$($bson:ident),*]
    ) => {
        $(#[$doc])*
        #[derive(serde::Deserialize)]
        pub(in crate::store) struct $name {
            $($field: $form,)*
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap as _;
                if to.is_human_readable() {
                    return ($(&self.$field,)*).serialize(to);
                }
                let mut fields = to.serialize_map(None)?;
                $(fields.serialize_entry(stringify!($bson), &self.$bson)?;)*
                fields.end()
            }
        }
    };
}

/// Says that a record has the fields of its value, and no others.
macro_rules! by_field {
    ($name:ident of $value:ident { $($field:ident),* }) => {
        impl As<$value> for $name {
            fn keep(value: &$value) -> Self {
                Self { $($field: As::keep(&value.$field)),* }
            }

            fn told(self) -> Result<$value, String> {
                Ok($value { $($field: of(stringify!($field), self.$field.told())?),* })
            }
        }
    };
}

pub(super) mod batch;
pub(super) mod delivery;
pub(super) mod fallback;
pub(super) mod fanout;
pub(super) mod fields;
pub(super) mod inbox;
pub(super) mod mutes;
pub(super) mod small;
pub(super) mod suppression;
pub(super) mod user;

pub(super) use fallback::read_bson_with_defaults;

/// A kept thing as it is written.
pub(super) trait Record: DeserializeOwned {
    /// What to call it in an error.
    const WHAT: &'static str;
    /// What it is a record of.
    type Value;

    /// What it says; or which of its fields is wrong, and how.
    fn value(self) -> std::result::Result<Self::Value, String>;
}

/// The field must be there.
pub(super) fn needs<T>(field: &str, value: Option<T>) -> std::result::Result<T, String> {
    value.ok_or_else(|| format!("{field} is missing"))
}

/// What a field says; what is wrong with it is told with its name.
pub(super) fn of<T>(
    field: &str,
    told: std::result::Result<T, String>,
) -> std::result::Result<T, String> {
    told.map_err(|why| format!("{field}: {why}"))
}

/// At most 80 characters of a reason, which may repeat a value that is somebody's secret (P8).
fn cut(why: String) -> String {
    match why.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &why[..end]),
        None => why,
    }
}

/// Reads fields; `what` says whose they are in an error, `shown` what the store calls one of them.
pub(super) fn read<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
    what: impl Fn() -> String,
    shown: impl Fn(&str) -> String,
    why: impl Fn(D::Error) -> String,
) -> Result<T> {
    serde_path_to_error::deserialize(from).map_err(|error| {
        let what = match error.path().to_string().as_str() {
            "." | "?" => what(),
            field => format!("{} of {}", shown(field), what()),
        };
        Error::corrupt(what, cut(why(error.into_inner())))
    })
}

/// What a record says; `what` says whose it is in an error.
pub(super) fn value_of<R: Record>(record: R, what: impl Fn() -> String) -> Result<R::Value> {
    record
        .value()
        .map_err(|why| Error::corrupt(what(), cut(why)))
}

/// Reads fields of a document.
pub(super) fn read_fields<T: DeserializeOwned>(what: &str, raw: &RawDocument) -> Result<T> {
    let what = || format!("{what} {}", shown_id(raw));
    let corrupt = |error| Error::corrupt(what(), error);
    let from = RawDeserializer::new(raw.as_bytes()).map_err(corrupt)?;
    let why = |error: bson::error::Error| match error.message {
        Some(why) => why,
        None => error.to_string(),
    };
    read(from, what, str::to_owned, why)
}

/// Reads a document.
pub(super) fn read_bson<R: Record>(raw: &RawDocument) -> Result<R::Value> {
    let record: R = read_fields(R::WHAT, raw)?;
    value_of(record, || format!("{} {}", R::WHAT, shown_id(raw)))
}

/// The `_id` of a document that may be anybody's.
pub(super) fn shown_id(raw: &RawDocument) -> String {
    match raw.get("_id").ok().flatten() {
        Some(RawBsonRef::ObjectId(id)) => id.to_string(),
        Some(RawBsonRef::String(text)) => shown_text(text),
        Some(other) => shown(other),
        None => "whose _id cannot be read".to_owned(),
    }
}

/// An id that is text; masked where it is an address (P8).
pub(super) fn shown_text(id: &str) -> String {
    Address::stored(id).map_or_else(|_| id.to_owned(), |address| address.to_string())
}

/// A record as a document.
pub(super) fn write_bson(doing: &str, record: &impl Serialize) -> Result<RawDocumentBuf> {
    bson::serialize_to_raw_document_buf(record)
        .map_err(|error| Error::Unsupported(format!("{doing}: {error}")))
}
