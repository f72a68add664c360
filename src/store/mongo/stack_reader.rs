//! Reads the documents of stacks as raw BSON, without a tree in between.
//!
//! Every element of `events` becomes exactly one [`Entry`], because positions count all elements.

use bson::raw::{RawArray, RawBsonRef, RawDocument};
use bson::spec::ElementType;

use crate::domain::{Defect, Entry, Form, Stack, StackId, UserId};
use crate::store::entry::{Malformed, count_of, id_of, read_entry};

type Result<T> = std::result::Result<T, Malformed>;

/// MongoDB's maximum document size.
const LARGEST: usize = 16 << 20;
/// A document this close to the maximum is full: this leaves room for markers and concurrent
/// pushes.
const SPARE: usize = 64 << 10;

/// A document of a day. Only its `_id` has been read.
pub(super) struct RawStack<'a> {
    pub user: UserId,
    /// The spelling of the `_id`.
    pub form: Form,
    document: &'a RawDocument,
}

impl<'a> RawStack<'a> {
    /// Returns `None` if the `_id` is neither text nor an ObjectId. The stack has no owner then.
    pub(super) fn read(document: &'a [u8]) -> Result<Option<Self>> {
        let document = RawDocument::from_bytes(document)?;
        let owner = match document.get("_id")? {
            Some(RawBsonRef::String(text)) => Some((UserId::stored(text), Form::Text)),
            id => id
                .and_then(id_of)
                .map(|id| (UserId::stored(id.to_string()), Form::ObjectId)),
        };
        Ok(owner.map(|(user, form)| Self {
            user,
            form,
            document,
        }))
    }

    /// Returns all elements of `events` in order, and the document's defect if it has one.
    pub(super) fn stack(&self, id: StackId) -> Stack {
        let (entries, defect) = match self.entries() {
            Ok(Some(entries)) if self.document.as_bytes().len() + SPARE > LARGEST => {
                (entries, Some(Defect::NoRoom))
            }
            Ok(Some(entries)) => (entries, None),
            Ok(None) => (Vec::new(), Some(Defect::NoList)),
            Err(_) => (Vec::new(), Some(Defect::Unreadable)),
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
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        self.document.get(name).ok()?.and_then(count_of)
    }
}

/// The approximate size of an event, to guess the number of entries.
const EVENT_BYTES: usize = 70;

fn entries(array: &RawArray) -> Result<Vec<Entry>> {
    let mut entries = Vec::with_capacity(1 + array.as_bytes().len() / EVENT_BYTES);
    for element in array.iter_elements() {
        let element = element?;
        entries.push(match element.element_type() {
            ElementType::EmbeddedDocument => match element.value()? {
                RawBsonRef::Document(document) => read_entry(document)?,
                _ => Entry::Other,
            },
            _ => Entry::Other,
        });
    }
    Ok(entries)
}

#[cfg(test)]
#[path = "stack_reader_tests.rs"]
mod tests;
