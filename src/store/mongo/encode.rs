//! Writes BSON directly into bytes, for pushes with thousands of statements per command.
//!
//! Fields keep the order in which they are written. `$addToSet` treats `{t, o, i}` and `{i, o, t}`
//! as different entries, so each kind of entry has exactly one function. [`super::decode`] reads
//! entries.

use std::io::Write;

use bson::RawDocumentBuf;
use bson::spec::ElementType;

use crate::domain::{Event, Id, Mailed};

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

#[cfg(test)]
mod tests {
    use bson::{Document, doc, oid::ObjectId};

    use super::*;
    use crate::domain::{EventType, ObjectId as Object};

    fn event() -> Event {
        Event {
            t: EventType::stored("NearbyShow"),
            o: Object::stored("0"),
            i: Some(Id::from_bytes([7; 12])),
        }
    }

    #[test]
    fn a_written_document_equals_that_of_the_bson_library() {
        let mut writer = Writer::new();
        writer.text("update", "ünïcode\0x");
        writer.array("list");
        for index in [0, 9, 10, 123_456] {
            writer.document(index);
            writer.int("n", -1);
            writer.flag("yes", true);
            writer.close();
        }
        writer.close();
        writer.event("e", &event());
        writer.document("m");
        writer.marker(Id::from_bytes([1; 12]), 3);
        writer.close();
        writer.encoded("copy", &bson::serialize_to_vec(&doc! {"a": 1}).unwrap());

        let written = Document::try_from(writer.finish()).unwrap();
        let item = doc! {"n": -1, "yes": true};
        let expected = doc! {
            "update": "ünïcode\0x",
            "list": [item.clone(), item.clone(), item.clone(), item],
            "e": {"t": "NearbyShow", "o": "0", "i": ObjectId::from_bytes([7; 12])},
            "m": {"flushed": ObjectId::from_bytes([1; 12]), "n": 3},
            "copy": {"a": 1},
        };
        assert_eq!(written, expected);
    }

    #[test]
    fn truncated_output_leaves_no_trace() {
        let mut writer = Writer::new();
        writer.int("kept", 1);
        let len = writer.len();
        writer.event("dropped", &event());
        writer.truncate(len);
        assert_eq!(
            Document::try_from(writer.finish()).unwrap(),
            doc! {"kept": 1}
        );
    }

    #[test]
    fn the_same_event_always_has_the_same_bytes() {
        let bytes = |event: &Event| {
            let mut writer = Writer::new();
            writer.event("e", event);
            writer.finish()
        };
        assert_eq!(bytes(&event()), bytes(&event().clone()));
    }
}
