//! Reads stacks and their entries, as tidings, its earlier versions and other programs write them.
//!
//! An entry that is neither an event nor a marker still takes up its position. One bad entry must
//! not stop the digests of other users. Each kind of entry is written by exactly one function,
//! because `$addToSet` treats `{t, o, i}` and `{i, o, t}` as different entries.

use bson::error::Result;
use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::spec::ElementType;
use bson::{Bson, Document, RawBson, oid, rawdoc};

use crate::domain::{
    BatchMarker, Defect, DigestMarker, Entry, Event, EventType, Id, IdForm, ObjectId, Stack,
    StackId, UserId,
};
use crate::store::NewMarker;

/// Returns the id in an ObjectId.
fn read_id(value: RawBsonRef<'_>) -> Option<Id> {
    value.as_object_id().map(|id| Id::from_bytes(id.bytes()))
}

/// Reads a count from any number type. Negative numbers become 0.
pub(super) fn read_count(value: RawBsonRef<'_>) -> Option<u32> {
    let clamp = |n: i64| u32::try_from(n.max(0)).unwrap_or(u32::MAX);
    match value {
        RawBsonRef::Int32(n) => Some(clamp(n.into())),
        RawBsonRef::Int64(n) => Some(clamp(n)),
        // `as` saturates, and converts NaN to 0.
        RawBsonRef::Double(n) => Some(n as u32),
        _ => None,
    }
}

/// Reads an element of `events`, in the form of any writer.
pub(super) fn read_entry(document: &RawDocument) -> Result<Entry> {
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
                    other => read_id(other).map(|id| ObjectId::stored(id.to_string())),
                });
            }
            "i" => match value() {
                Some(RawBsonRef::Array(array)) => fanouts = read_ids(array)?,
                value => i = value.and_then(read_id),
            },
            "mailed" => mailed = value().and_then(read_id),
            "flushed" => flushed = Some(value().and_then(read_id)),
            "n" => n = value().and_then(read_count),
            _ => {}
        }
    }
    Ok(match (flushed, t, o) {
        (Some(id), ..) => Entry::DigestMarker(DigestMarker { id, n }),
        (None, Some(t), Some(o)) => Entry::Event(Event { kind: t, object: o, fanout_id: i }),
        _ => match (mailed, fanouts) {
            (Some(id), Some(fanouts)) => Entry::BatchMarker(BatchMarker { id, fanouts }),
            _ => Entry::Other,
        },
    })
}

/// Returns the ids in an array; `None` if it has any other element.
fn read_ids(array: &RawArray) -> Result<Option<Vec<Id>>> {
    let mut ids = Vec::new();
    for element in array.iter_elements() {
        match element?.value().ok().and_then(read_id) {
            Some(id) => ids.push(id),
            None => return Ok(None),
        }
    }
    Ok(Some(ids))
}

/// Returns a number of entries, in the smallest type that holds it.
fn encode_count(n: usize) -> RawBson {
    i32::try_from(n).map_or(RawBson::Int64(n as i64), RawBson::Int32)
}

pub(super) fn object_id(id: Id) -> oid::ObjectId {
    oid::ObjectId::from_bytes(id.bytes())
}

/// Returns `{t, o, i}`, the only form of events that tidings writes.
pub(super) fn event_document(event: &Event) -> RawDocumentBuf {
    let mut document = rawdoc! {"t": event.kind.as_str(), "o": event.object.as_str()};
    if let Some(i) = event.fanout_id {
        document.append(cstr!("i"), object_id(i));
    }
    document
}

/// Returns `{flushed, n}`, the only form of these markers that tidings writes.
pub(super) fn flushed_document(id: Id, n: u32) -> RawDocumentBuf {
    rawdoc! {"flushed": object_id(id), "n": encode_count(n as usize)}
}

/// Returns `{mailed, i}`.
pub(super) fn mailed_document(mailed: &BatchMarker) -> RawDocumentBuf {
    let fanouts = mailed.fanouts.iter().map(|id| object_id(*id));
    rawdoc! {"mailed": object_id(mailed.id), "i": RawArrayBuf::from_iter(fanouts)}
}

/// An entry to append to a stack that exists, unless it is already there.
pub(super) struct NewEntry<'a> {
    pub user: &'a UserId,
    pub stack: StackId,
    pub document: RawDocumentBuf,
}

/// Returns the entries of a marker, one for each stack.
pub(super) fn entries_of_marker(marker: &NewMarker) -> Vec<NewEntry<'_>> {
    let entry = |user, stack, document| NewEntry { user, stack, document };
    match marker {
        NewMarker::Flushed(user, marker, watermarks) => {
            // A user who cannot have such an id has no such stack.
            let can_have =
                |stack: StackId| stack.form == IdForm::Text || user.to_object_id().is_some();
            let existing = watermarks.iter().filter(|(stack, _)| can_have(*stack));
            existing.map(|(stack, n)| entry(user, *stack, flushed_document(*marker, *n))).collect()
        }
        NewMarker::Mailed(user, day, mailed) => {
            vec![entry(user, StackId::for_day(*day), mailed_document(mailed))]
        }
    }
}

/// Returns a marker `{flushed, n}` with this number of covered entries. `None` if a field of it
/// cannot be read.
pub(super) fn with_covered_count(marker: &RawDocument, count: usize) -> Option<RawDocumentBuf> {
    let mut fields = Document::try_from(marker).ok()?;
    fields.insert("n", Bson::try_from(encode_count(count)).ok()?);
    RawDocumentBuf::try_from(&fields).ok()
}

/// MongoDB's maximum document size.
const MAX_BYTES: usize = 16 << 20;
/// A document this close to the maximum is full. This leaves room for markers and concurrent
/// pushes.
const RESERVED_BYTES: usize = 64 << 10;
/// The approximate size of an event, to guess the number of entries.
const EVENT_BYTES: usize = 70;

/// A document of a day as raw BSON. Only its `_id` has been decoded.
pub(super) struct StackDocument<'a> {
    pub user: UserId,
    /// The spelling of the `_id`.
    pub form: IdForm,
    document: &'a RawDocument,
}

impl<'a> StackDocument<'a> {
    /// Returns `None` if the `_id` is neither text nor an ObjectId. The stack has no owner then.
    pub(super) fn read(document: &'a [u8]) -> Result<Option<Self>> {
        let document = RawDocument::from_bytes(document)?;
        let (user, form) = match document.get("_id")? {
            Some(RawBsonRef::String(text)) => (UserId::stored(text), IdForm::Text),
            Some(RawBsonRef::ObjectId(id)) => (UserId::stored(id.to_hex()), IdForm::ObjectId),
            _ => return Ok(None),
        };
        Ok(Some(Self { user, form, document }))
    }

    /// Returns the elements of `events` in order, and the document's defect if it has one. Every
    /// element becomes exactly one [`Entry`], because positions count all elements.
    pub(super) fn stack(&self, id: StackId) -> Stack {
        let (entries, defect) = match self.entries() {
            Ok(Some(entries)) if self.document.as_bytes().len() + RESERVED_BYTES > MAX_BYTES => {
                (entries, Some(Defect::NoRoom))
            }
            Ok(Some(entries)) => (entries, None),
            Ok(None) => (Vec::new(), Some(Defect::NoList)),
            Err(_) => (Vec::new(), Some(Defect::Unreadable)),
        };
        Stack { id, entries, defect }
    }

    /// Returns `None` if `events` is not a list. A missing `events` is an empty list.
    fn entries(&self) -> Result<Option<Vec<Entry>>> {
        let list = match self.document.get("events")? {
            Some(RawBsonRef::Array(list)) => list,
            Some(_) => return Ok(None),
            None => return Ok(Some(Vec::new())),
        };
        let mut entries = Vec::with_capacity(1 + list.as_bytes().len() / EVENT_BYTES);
        for element in list.iter_elements() {
            let element = element?;
            let entry = match element.element_type() {
                ElementType::EmbeddedDocument => element.value()?.as_document(),
                _ => None,
            };
            entries.push(entry.map_or(Ok(Entry::Other), read_entry)?);
        }
        Ok(Some(entries))
    }

    /// Returns the number in a field that a query added.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        self.document.get(name).ok()?.and_then(read_count)
    }
}

#[cfg(test)]
#[path = "entry_tests.rs"]
mod tests;
