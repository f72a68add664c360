//! Reads stacks from raw BSON, which is the client's main cost when it reads many users.
//!
//! Every element of `events` becomes exactly one [`Entry`], because positions count all elements.
//! Only the fields of events and markers are copied. [`super::encode`] writes entries.

use bson::raw::{RawArray, RawBsonRef, RawDocument};
use bson::spec::ElementType;

use crate::domain::{
    Defect, Entry, Event, EventType, Form, Id, Mailed, Marker, ObjectId, Stack, StackId, UserId,
};

/// The bytes are not valid BSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed BSON")]
pub(super) struct Malformed;

impl From<bson::error::Error> for Malformed {
    fn from(_: bson::error::Error) -> Self {
        Self
    }
}

type Result<T> = std::result::Result<T, Malformed>;

fn id_of(value: RawBsonRef<'_>) -> Option<Id> {
    value.as_object_id().map(|id| Id::from_bytes(id.bytes()))
}

/// Reads a count from any number type. Negative numbers become 0.
fn count_of(value: RawBsonRef<'_>) -> Option<u32> {
    let clamp = |n: i64| u32::try_from(n.max(0)).unwrap_or(u32::MAX);
    match value {
        RawBsonRef::Int32(n) => Some(clamp(n.into())),
        RawBsonRef::Int64(n) => Some(clamp(n)),
        // `as` saturates, and converts NaN to 0.
        RawBsonRef::Double(n) => Some(n as u32),
        _ => None,
    }
}

/// MongoDB's maximum document size.
const LARGEST: usize = 16 << 20;
/// A document this close to the maximum is full: this leaves room for markers and concurrent
/// pushes.
const SPARE: usize = 64 << 10;

/// A document of a day. Only its `_id` has been read.
pub(super) struct RawStack<'a> {
    pub user: Owner<'a>,
    document: &'a RawDocument,
}

/// The owner of a stack, in the document's spelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner<'a> {
    Text(&'a str),
    Id(Id),
}

impl Owner<'_> {
    pub(super) fn form(self) -> Form {
        match self {
            Self::Text(_) => Form::Text,
            Self::Id(_) => Form::ObjectId,
        }
    }

    pub(super) fn user(self) -> UserId {
        match self {
            Self::Text(text) => UserId::stored(text),
            Self::Id(id) => UserId::stored(id.to_string()),
        }
    }
}

impl<'a> RawStack<'a> {
    /// Returns `None` if the `_id` is neither text nor an ObjectId. The stack has no owner then.
    pub(super) fn read(document: &'a [u8]) -> Result<Option<Self>> {
        let document = RawDocument::from_bytes(document)?;
        let owner = match document.get("_id")? {
            Some(RawBsonRef::String(text)) => Some(Owner::Text(text)),
            id => id.and_then(id_of).map(Owner::Id),
        };
        Ok(owner.map(|user| Self { user, document }))
    }

    /// Returns all elements of `events` in order, and the document's defect if it has one.
    pub(super) fn stack(&self, id: StackId) -> Stack {
        let (entries, defect) = match self.entries() {
            Ok(Some(entries)) if self.document.as_bytes().len() + SPARE > LARGEST => {
                (entries, Some(Defect::NoRoom))
            }
            Ok(Some(entries)) => (entries, None),
            Ok(None) => (Vec::new(), Some(Defect::NoList)),
            Err(Malformed) => (Vec::new(), Some(Defect::Unreadable)),
        };
        Stack {
            id,
            entries,
            defect,
        }
    }

    /// Returns `None` if `events` is not a list. A missing `events` is an empty list.
    fn entries(&self) -> Result<Option<Vec<Entry>>> {
        match self.document.get("events")? {
            Some(RawBsonRef::Array(array)) => entries(array).map(Some),
            Some(_) => Ok(None),
            None => Ok(Some(Vec::new())),
        }
    }

    /// Returns a number from a field that a query added.
    pub(super) fn number(&self, name: &str) -> Result<Option<u32>> {
        Ok(self.document.get(name)?.and_then(count_of))
    }
}

/// The approximate size of an event, to guess the number of entries.
const EVENT_BYTES: usize = 70;

/// Decodes one document of `events`. An unreadable one still takes up its position.
pub(super) fn element(document: &RawDocument) -> Entry {
    entry(document).unwrap_or(Entry::Other)
}

fn entries(array: &RawArray) -> Result<Vec<Entry>> {
    let mut entries = Vec::with_capacity(1 + array.as_bytes().len() / EVENT_BYTES);
    for element in array.iter_elements() {
        let element = element?;
        entries.push(match element.element_type() {
            ElementType::EmbeddedDocument => match element.value()? {
                RawBsonRef::Document(document) => entry(document)?,
                _ => Entry::Other,
            },
            _ => Entry::Other,
        });
    }
    Ok(entries)
}

fn entry(document: &RawDocument) -> Result<Entry> {
    let (mut t, mut o, mut i) = (None, None, None);
    let (mut flushed, mut n) = (None, None);
    let (mut mailed, mut fanouts) = (None, None);
    for field in document.iter_elements() {
        let field = field?;
        // Text that is not UTF-8 counts as missing: one bad document must not break the digests of
        // other users.
        let value = || field.value().ok();
        match field.key().as_str() {
            "t" => t = value().and_then(|t| t.as_str().map(EventType::stored)),
            "o" => {
                o = value().and_then(|o| match o {
                    RawBsonRef::String(text) => Some(ObjectId::stored(text)),
                    other => id_of(other).map(|id| ObjectId::stored(id.to_string())),
                });
            }
            "i" => match value() {
                Some(RawBsonRef::Array(array)) => fanouts = ids(array)?,
                value => i = value.and_then(id_of),
            },
            "mailed" => mailed = value().and_then(id_of),
            "flushed" => flushed = Some(value().and_then(id_of)),
            "n" => n = value().and_then(count_of),
            _ => {}
        }
    }
    Ok(match (flushed, t, o) {
        (Some(id), ..) => Entry::Marker(Marker { id, n }),
        (None, Some(t), Some(o)) => Entry::Event(Event { t, o, i }),
        _ => match (mailed, fanouts) {
            (Some(id), Some(fanouts)) => Entry::Mailed(Mailed { id, fanouts }),
            _ => Entry::Other,
        },
    })
}

/// Returns the ids in an array; `None` if it has any other element.
fn ids(array: &RawArray) -> Result<Option<Vec<Id>>> {
    let mut ids = Vec::new();
    for element in array.iter_elements() {
        match element?.value().ok().and_then(id_of) {
            Some(id) => ids.push(id),
            None => return Ok(None),
        }
    }
    Ok(Some(ids))
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
