//! Reads records that have fields that this version cannot read, such as those of a newer version.
//!
//! An unreadable field gets its default and is reported. If the default would send or show more, it
//! gets a restrictive value. An unreadable `suppressed` or `unsubscribed` counts as set (P7), and
//! an unreadable `start` hides all events (P8). Start with [`read_with_defaults`].

use bson::{Bson, Document, RawDeserializer, RawDocument, RawDocumentBuf};
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use super::Record;
use crate::domain::user::UnreadableField;

const EPOCH: bson::DateTime = bson::DateTime::from_millis(0);

/// A tree of fields, in JSON or BSON.
pub(in crate::store) trait Tree: Sized {
    /// Returns the value of this field or list element.
    fn child(&mut self, segment: &Segment) -> Option<&mut Self>;

    /// Removes and returns this field or list element.
    fn take(&mut self, segment: &Segment) -> Option<Self>;

    /// Sets a field.
    fn set(&mut self, field: &str, value: Self);

    /// Returns the first moment of 1970.
    fn epoch() -> Self;

    /// Converts a text to a value.
    fn of_text(text: &str) -> Self;

    /// Returns the text of a field.
    fn text(&self, field: &str) -> Option<String>;
}

macro_rules! tree {
    ($tree:ident: $map:path, $list:path, $text:path, $epoch:expr) => {
        impl Tree for $tree {
            fn child(&mut self, segment: &Segment) -> Option<&mut Self> {
                match (self, segment) {
                    ($map(fields), Segment::Map { key }) => fields.get_mut(key),
                    ($list(items), Segment::Seq { index }) => items.get_mut(*index),
                    _ => None,
                }
            }

            fn take(&mut self, segment: &Segment) -> Option<Self> {
                match (self, segment) {
                    ($map(fields), Segment::Map { key }) => fields.remove(key),
                    ($list(items), Segment::Seq { index }) => {
                        (*index < items.len()).then(|| items.remove(*index))
                    }
                    _ => None,
                }
            }

            fn set(&mut self, field: &str, value: Self) {
                if let $map(fields) = self {
                    fields.insert(field.to_owned(), value);
                }
            }

            fn epoch() -> Self {
                $epoch
            }

            fn of_text(text: &str) -> Self {
                $text(text.to_owned())
            }

            fn text(&self, field: &str) -> Option<String> {
                match self {
                    $map(fields) => match fields.get(field)? {
                        $text(text) => Some(text.clone()),
                        _ => None,
                    },
                    _ => None,
                }
            }
        }
    };
}

tree!(Value: Value::Object, Value::Array, Value::String, Value::from(0));
tree!(Bson: Bson::Document, Bson::Array, Bson::String, Bson::DateTime(EPOCH));

/// A start in the year 2106. See [`crate::domain::start::Start`].
const HIDES_ALL: &str = "0 ffffffffffffffffffffffff 0 0";
/// Fields whose parts are replaced one at a time.
const NESTED: [&str; 3] = ["digest", "types", "mutes"];

/// Reports a field whose bytes cannot be read, and sets its restrictive value, if it has one.
pub(in crate::store) fn note(
    field: &str,
    why: impl ToString,
    fields: &mut Document,
    unreadable: &mut Vec<UnreadableField>,
) {
    if let Some(value) = careful::<Bson>(field) {
        fields.insert(field, value);
    }
    let (field, why) = (field.to_owned(), super::cut(why.to_string()));
    unreadable.push(UnreadableField { field, why });
}

/// Returns the restrictive value of a field; `None` if the field gets its default.
pub(in crate::store) fn careful<T: Tree>(field: &str) -> Option<T> {
    match field {
        "suppressed" | "unsubscribed" => Some(T::epoch()),
        "start" => Some(T::of_text(HIDES_ALL)),
        _ => None,
    }
}

/// Reads a document as far as this version can. Unreadable fields get their defaults.
pub(in crate::store) fn read_bson_with_defaults<R: Record>(
    raw: &RawDocument,
    unreadable: &mut Vec<UnreadableField>,
) -> Option<R::Value> {
    let mut document = Document::new();
    for element in raw.iter_elements() {
        let element = element.ok()?;
        let field = element.key().as_str();
        match element.value().and_then(Bson::try_from) {
            Ok(value) => drop(document.insert(field, value)),
            Err(error) => note(field, error, &mut document, unreadable),
        }
    }
    read_with_defaults(Bson::Document(document), unreadable, |fields| {
        let failed = |why: String| (None, why);
        let Bson::Document(document) = fields else {
            return Err(failed("it is no document".to_owned()));
        };
        let raw = RawDocumentBuf::try_from(document).map_err(|why| failed(why.to_string()))?;
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
pub(in crate::store) fn read_with_defaults<R: Record, T: Tree>(
    mut fields: T,
    unreadable: &mut Vec<UnreadableField>,
    parse: impl Fn(&T) -> Result<R, (Option<Path>, String)>,
) -> Option<R::Value> {
    loop {
        let (path, why) = match parse(&fields) {
            Ok(record) => return record.value().ok(),
            Err(failed) => failed,
        };
        let field = replace(&mut fields, &path?)?;
        if unreadable
            .iter()
            .any(|known| known.field == field && careful::<T>(&field).is_some())
        {
            return None;
        }
        unreadable.push(UnreadableField {
            field,
            why: super::cut(why),
        });
    }
}

/// Replaces the field at this path by its default, and returns its name.
fn replace<T: Tree>(fields: &mut T, path: &Path) -> Option<String> {
    let mut segments = path.iter();
    let first = segments.next()?;
    let Segment::Map { key } = first else {
        return None;
    };
    if key == "_id" {
        return None;
    }
    if let Some(value) = careful(key) {
        fields.set(key, value);
        return Some(key.clone());
    }
    if let Some(inner) = segments.next().filter(|_| NESTED.contains(&key.as_str()))
        && let Some(removed) = fields.child(first)?.take(inner)
    {
        let name = match inner {
            Segment::Map { key } => Some(key.clone()),
            _ => removed.text("t").or_else(|| removed.text("s")),
        };
        return Some(format!(
            "{key}.{}",
            name.unwrap_or_else(|| inner.to_string())
        ));
    }
    fields.take(first).map(|_| key.clone())
}
