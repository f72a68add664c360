//! Writes BSON directly into bytes, for pushes with thousands of statements per command, and reads
//! stacks from raw BSON, without a tree in between.
//!
//! Fields keep the order in which they are written. `$addToSet` treats `{t, o, i}` and `{i, o, t}`
//! as different entries, so each kind of entry has exactly one function. Every element of `events`
//! becomes exactly one [`Entry`], because positions count all elements.

use std::io::Write;

use bson::RawDocumentBuf;
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use bson::spec::ElementType;

use crate::domain::{Defect, Entry, Event, Form, Id, Mailed, Stack, StackId, UserId};
use crate::store::entry::{Malformed, count_of, id_of, read_entry};

type Result<T> = std::result::Result<T, Malformed>;

/// The maximum number of statements per command. More are not faster.
pub(super) const STATEMENTS: usize = 1_000;

/// A field name or an array index.
pub(super) trait Key {
    fn write(self, to: &mut Vec<u8>);
}

impl Key for &str {
    fn write(self, to: &mut Vec<u8>) {
        debug_assert!(!self.contains('\0'), "a field's name ends at its first NUL");
        to.extend_from_slice(self.as_bytes());
        to.push(0);
    }
}

impl Key for usize {
    fn write(self, to: &mut Vec<u8>) {
        write!(to, "{self}\0").expect("writing to memory succeeds");
    }
}

/// A document that is being written.
#[derive(Debug)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    /// The start positions of the documents that are not closed yet, outermost first.
    open: Vec<usize>,
}

impl Writer {
    pub(super) fn new() -> Self {
        let mut writer = Self {
            bytes: Vec::with_capacity(1024),
            open: Vec::with_capacity(8),
        };
        writer.begin();
        writer
    }

    fn begin(&mut self) {
        self.open.push(self.bytes.len());
        self.bytes.extend_from_slice(&[0; 4]);
    }

    fn field(&mut self, kind: ElementType, key: impl Key) {
        self.bytes.push(kind as u8);
        key.write(&mut self.bytes);
    }

    /// Opens a document. Later fields belong to it until [`Writer::close`].
    pub(super) fn document(&mut self, key: impl Key) {
        self.field(ElementType::EmbeddedDocument, key);
        self.begin();
    }

    /// Opens an array. Its fields are named by their index.
    pub(super) fn array(&mut self, key: impl Key) {
        self.field(ElementType::Array, key);
        self.begin();
    }

    pub(super) fn close(&mut self) {
        let start = self.open.pop().expect("a document was opened");
        self.bytes.push(0);
        let length = (self.bytes.len() - start) as i32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    pub(super) fn text(&mut self, key: impl Key, value: &str) {
        self.field(ElementType::String, key);
        let length = value.len() as i32 + 1;
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(value.as_bytes());
        self.bytes.push(0);
    }

    pub(super) fn id(&mut self, key: impl Key, value: Id) {
        self.field(ElementType::ObjectId, key);
        self.bytes.extend_from_slice(&value.bytes());
    }

    pub(super) fn int(&mut self, key: impl Key, value: i32) {
        self.field(ElementType::Int32, key);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn long(&mut self, key: impl Key, value: i64) {
        self.field(ElementType::Int64, key);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn flag(&mut self, key: impl Key, value: bool) {
        self.field(ElementType::Boolean, key);
        self.bytes.push(u8::from(value));
    }

    /// Writes a document that is encoded already.
    pub(super) fn encoded(&mut self, key: impl Key, document: &[u8]) {
        self.field(ElementType::EmbeddedDocument, key);
        self.bytes.extend_from_slice(document);
    }

    /// Writes an array that is encoded already.
    pub(super) fn encoded_array(&mut self, key: impl Key, array: &[u8]) {
        self.field(ElementType::Array, key);
        self.bytes.extend_from_slice(array);
    }

    /// Copies the fields of an encoded document into the open one.
    pub(super) fn fields(&mut self, document: &[u8]) {
        if let [_, _, _, _, fields @ .., 0] = document {
            self.bytes.extend_from_slice(fields);
        }
    }

    /// Writes `{t, o, i}`, the only form of events that tidings writes.
    pub(super) fn event(&mut self, key: impl Key, event: &Event) {
        self.document(key);
        self.text("t", event.t.as_str());
        self.text("o", event.o.as_str());
        if let Some(i) = event.i {
            self.id("i", i);
        }
        self.close();
    }

    /// Writes the fields of `{flushed, n}`, the only form of these markers that tidings writes.
    pub(super) fn marker(&mut self, id: Id, n: u32) {
        self.id("flushed", id);
        self.int("n", i32::try_from(n).unwrap_or(i32::MAX));
    }

    /// Writes the fields of `{mailed, i}`.
    pub(super) fn mailed(&mut self, mailed: &Mailed) {
        self.id("mailed", mailed.id);
        self.array("i");
        for (n, fanout) in mailed.fanouts.iter().enumerate() {
            self.id(n, *fanout);
        }
        self.close();
    }

    /// Returns the number of bytes so far.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Removes everything after the first `len` bytes.
    pub(super) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
        self.open.retain(|start| *start < len);
    }

    /// Closes all open documents and returns the result.
    pub(super) fn finish(mut self) -> RawDocumentBuf {
        while !self.open.is_empty() {
            self.close();
        }
        RawDocumentBuf::from_bytes(self.bytes).expect("lengths and ends were written by close")
    }
}

/// Returns the document `{mailed, i}`.
pub(super) fn mailed_document(mailed: &Mailed) -> RawDocumentBuf {
    let mut writer = Writer::new();
    writer.mailed(mailed);
    writer.finish()
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
        with_any_names(self.document, |document| match document.get("events")? {
            Some(RawBsonRef::Array(array)) => entries(array).map(Some),
            Some(_) => Ok(None),
            None => Ok(Some(Vec::new())),
        })
    }

    /// Returns a number from a field that a query added.
    pub(super) fn number(&self, name: &str) -> Result<Option<u32>> {
        with_any_names(self.document, |document| {
            Ok(document.get(name)?.and_then(count_of))
        })
    }
}

/// The maximum number of fields of a document that are renamed.
const RENAMED: usize = 16;

/// Reads a document. The library cannot read past a field whose name is not UTF-8, so such fields
/// are renamed if the first attempt fails.
fn with_any_names<T>(
    document: &RawDocument,
    read: impl Fn(&RawDocument) -> Result<T>,
) -> Result<T> {
    read(document).or_else(|Malformed| {
        let mut bytes = document.as_bytes().to_vec();
        for _ in 0..RENAMED {
            // The first name begins after the document's length and a type.
            let mut at = 4 + 1;
            let fields = RawDocument::from_bytes(&bytes)?.iter_elements();
            for field in fields.map_while(std::result::Result::ok) {
                at += field.key().as_str().len() + 1 + field.size() + 1;
            }
            let rest = bytes.get_mut(at..).ok_or(Malformed)?;
            let name = rest.split_mut(|byte| *byte == 0).next();
            match name.filter(|name| std::str::from_utf8(name).is_err()) {
                Some(name) => name.fill(b'?'),
                None => break,
            }
        }
        read(RawDocument::from_bytes(&bytes)?)
    })
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
    with_any_names(document, read_entry)
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
