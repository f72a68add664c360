//! Reads stacks from raw BSON, which is the client's main cost when it reads many users.
//!
//! Every element of `events` becomes exactly one [`Entry`], because positions count all elements.
//! Only the fields of events and markers are copied. [`super::encode`] writes entries.

use crate::domain::{
    Defect, Entry, Event, EventType, Form, Id, Mailed, Marker, ObjectId, Stack, StackId, UserId,
};

/// The bytes are not valid BSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed BSON")]
pub(super) struct Malformed;

type Result<T> = std::result::Result<T, Malformed>;

// Element types of the BSON specification, version 1.1.
const DOUBLE: u8 = 0x01;
const STRING: u8 = 0x02;
const DOCUMENT: u8 = 0x03;
const ARRAY: u8 = 0x04;
const BINARY: u8 = 0x05;
const UNDEFINED: u8 = 0x06;
const OBJECT_ID: u8 = 0x07;
const BOOLEAN: u8 = 0x08;
const DATE: u8 = 0x09;
const NULL: u8 = 0x0A;
const REGEX: u8 = 0x0B;
const DB_POINTER: u8 = 0x0C;
const CODE: u8 = 0x0D;
const SYMBOL: u8 = 0x0E;
const CODE_WITH_SCOPE: u8 = 0x0F;
const INT: u8 = 0x10;
const TIMESTAMP: u8 = 0x11;
const LONG: u8 = 0x12;
const DECIMAL: u8 = 0x13;
const MIN_KEY: u8 = 0xFF;
const MAX_KEY: u8 = 0x7F;

/// The fields of a document or array, each with its type and the bytes of its value.
struct Fields<'a>(&'a [u8]);

#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    pub kind: u8,
    pub name: &'a [u8],
    pub value: &'a [u8],
}

/// The fields of a document or array, up to the first one that cannot be read.
pub(super) struct Elements<'a>(Fields<'a>);

impl<'a> Elements<'a> {
    pub(super) fn of(document: &'a [u8]) -> Self {
        Self(Fields::of(document).unwrap_or(Fields(&[])))
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        self.0.next().ok().flatten()
    }
}

impl<'a> Fields<'a> {
    fn of(document: &'a [u8]) -> Result<Self> {
        let length = usize::try_from(int(document)?).map_err(|_| Malformed)?;
        match document.get(4..length) {
            Some([fields @ .., 0]) if length == document.len() => Ok(Self(fields)),
            _ => Err(Malformed),
        }
    }

    fn next(&mut self) -> Result<Option<Field<'a>>> {
        let [kind, rest @ ..] = self.0 else {
            return Ok(None);
        };
        let end = cstring(rest)?;
        let (name, rest) = (&rest[..end], &rest[end + 1..]);
        let length = match *kind {
            UNDEFINED | NULL | MIN_KEY | MAX_KEY => 0,
            BOOLEAN => 1,
            INT => 4,
            DOUBLE | DATE | TIMESTAMP | LONG => 8,
            OBJECT_ID => 12,
            DECIMAL => 16,
            STRING | CODE | SYMBOL => counted(rest, 4)?,
            DOCUMENT | ARRAY | CODE_WITH_SCOPE => counted(rest, 0)?,
            BINARY => counted(rest, 5)?,
            DB_POINTER => counted(rest, 4 + 12)?,
            REGEX => {
                let pattern = cstring(rest)? + 1;
                pattern + cstring(&rest[pattern..])? + 1
            }
            _ => return Err(Malformed),
        };
        let value = rest.get(..length).ok_or(Malformed)?;
        self.0 = &rest[length..];
        Ok(Some(Field {
            kind: *kind,
            name,
            value,
        }))
    }
}

fn int(bytes: &[u8]) -> Result<i32> {
    let bytes = bytes.first_chunk().ok_or(Malformed)?;
    Ok(i32::from_le_bytes(*bytes))
}

/// Returns the length of a value that starts with a byte count. The count excludes `more` bytes.
fn counted(bytes: &[u8], more: usize) -> Result<usize> {
    let count = usize::try_from(int(bytes)?).map_err(|_| Malformed)?;
    count.checked_add(more).ok_or(Malformed)
}

/// Returns the position of the NUL that ends the text.
fn cstring(bytes: &[u8]) -> Result<usize> {
    bytes.iter().position(|byte| *byte == 0).ok_or(Malformed)
}

impl<'a> Field<'a> {
    /// Returns `None` for other types, and for text that is not UTF-8: one bad document must not
    /// break the digests of other users.
    fn text(self) -> Option<&'a str> {
        match self.value {
            [_, _, _, _, text @ .., 0] if self.kind == STRING => std::str::from_utf8(text).ok(),
            _ => None,
        }
    }

    fn id(self) -> Option<Id> {
        let bytes = <[u8; 12]>::try_from(self.value).ok()?;
        (self.kind == OBJECT_ID).then(|| Id::from_bytes(bytes))
    }

    pub(super) fn is_array(self) -> bool {
        self.kind == ARRAY
    }

    pub(super) fn is_document(self) -> bool {
        self.kind == DOCUMENT
    }

    /// Reads a count from any number type. Negative numbers become 0.
    pub(super) fn count(self) -> Option<u32> {
        let clamp = |n: i64| u32::try_from(n.max(0)).unwrap_or(u32::MAX);
        match self.kind {
            INT => int(self.value).ok().map(|n| clamp(n.into())),
            LONG => self
                .value
                .first_chunk()
                .map(|n| clamp(i64::from_le_bytes(*n))),
            // `as` saturates, and converts NaN to 0.
            DOUBLE => self
                .value
                .first_chunk()
                .map(|n| f64::from_le_bytes(*n) as u32),
            _ => None,
        }
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
    document: &'a [u8],
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
        let mut fields = Fields::of(document)?;
        while let Some(field) = fields.next()? {
            if field.name == b"_id" {
                let text = field.text().map(Owner::Text);
                let user = text.or_else(|| field.id().map(Owner::Id));
                return Ok(user.map(|user| Self { user, document }));
            }
        }
        Ok(None)
    }

    /// Returns all elements of `events` in order, and the document's defect if it has one.
    pub(super) fn stack(&self, id: StackId) -> Stack {
        let (entries, defect) = match self.entries() {
            Ok(Some(entries)) if self.document.len() + SPARE > LARGEST => {
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
        let mut fields = Fields::of(self.document)?;
        while let Some(field) = fields.next()? {
            if field.name == b"events" {
                return match field.kind {
                    ARRAY => entries(field.value).map(Some),
                    _ => Ok(None),
                };
            }
        }
        Ok(Some(Vec::new()))
    }

    /// Returns a number from a field that a query added.
    pub(super) fn number(&self, name: &str) -> Result<Option<u32>> {
        let mut fields = Fields::of(self.document)?;
        while let Some(field) = fields.next()? {
            if field.name == name.as_bytes() {
                return Ok(field.count());
            }
        }
        Ok(None)
    }
}

/// The approximate size of an event, to guess the number of entries.
const EVENT_BYTES: usize = 70;

/// Decodes one element of `events`. An unreadable one still takes up its position.
pub(super) fn element(kind: u8, value: &[u8]) -> Entry {
    match kind {
        DOCUMENT => entry(value).unwrap_or(Entry::Other),
        _ => Entry::Other,
    }
}

fn entries(array: &[u8]) -> Result<Vec<Entry>> {
    let mut entries = Vec::with_capacity(1 + array.len() / EVENT_BYTES);
    let mut elements = Fields::of(array)?;
    while let Some(element) = elements.next()? {
        entries.push(match element.kind {
            DOCUMENT => entry(element.value)?,
            _ => Entry::Other,
        });
    }
    Ok(entries)
}

fn entry(document: &[u8]) -> Result<Entry> {
    let (mut t, mut o, mut i) = (None, None, None);
    let (mut flushed, mut n) = (None, None);
    let (mut mailed, mut fanouts) = (None, None);
    let mut fields = Fields::of(document)?;
    while let Some(field) = fields.next()? {
        match field.name {
            b"t" => t = field.text().map(EventType::stored),
            b"o" => {
                let text = field.text().map(ObjectId::stored);
                o = text.or_else(|| field.id().map(|id| ObjectId::stored(id.to_string())));
            }
            b"i" if field.kind == ARRAY => fanouts = ids(field.value)?,
            b"i" => i = field.id(),
            b"mailed" => mailed = field.id(),
            b"flushed" => flushed = Some(field.id()),
            b"n" => n = field.count(),
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
fn ids(array: &[u8]) -> Result<Option<Vec<Id>>> {
    let (mut ids, mut elements) = (Vec::new(), Fields::of(array)?);
    while let Some(element) = elements.next()? {
        match element.id() {
            Some(id) => ids.push(id),
            None => return Ok(None),
        }
    }
    Ok(Some(ids))
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
