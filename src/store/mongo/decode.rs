//! Reads stacks from raw BSON, which is the client's main cost when it reads many users.
//!
//! Every element of `events` becomes exactly one [`Entry`], because positions count all elements.
//! Only the fields of events and markers are copied. [`super::encode`] writes entries.

use bson::spec::ElementType as Kind;

use crate::domain::{
    Defect, Entry, Event, EventType, Form, Id, Mailed, Marker, ObjectId, Stack, StackId, UserId,
};

/// The bytes are not valid BSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed BSON")]
pub(super) struct Malformed;

type Result<T> = std::result::Result<T, Malformed>;

/// The fields of a document or array, each with its type and the bytes of its value.
struct Fields<'a>(&'a [u8]);

#[derive(Clone, Copy)]
struct Field<'a> {
    kind: Kind,
    name: &'a [u8],
    value: &'a [u8],
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
        let kind = Kind::from(*kind).ok_or(Malformed)?;
        let length = match kind {
            Kind::Undefined | Kind::Null | Kind::MinKey | Kind::MaxKey => 0,
            Kind::Boolean => 1,
            Kind::Int32 => 4,
            Kind::Double | Kind::DateTime | Kind::Timestamp | Kind::Int64 => 8,
            Kind::ObjectId => 12,
            Kind::Decimal128 => 16,
            Kind::String | Kind::JavaScriptCode | Kind::Symbol => counted(rest, 4)?,
            Kind::EmbeddedDocument | Kind::Array | Kind::JavaScriptCodeWithScope => {
                counted(rest, 0)?
            }
            Kind::Binary => counted(rest, 5)?,
            Kind::DbPointer => counted(rest, 4 + 12)?,
            Kind::RegularExpression => {
                let pattern = cstring(rest)? + 1;
                pattern + cstring(&rest[pattern..])? + 1
            }
        };
        let value = rest.get(..length).ok_or(Malformed)?;
        self.0 = &rest[length..];
        Ok(Some(Field { kind, name, value }))
    }
}

/// Returns the first field of this name.
fn field<'a>(document: &'a [u8], name: &str) -> Result<Option<Field<'a>>> {
    let mut fields = Fields::of(document)?;
    while let Some(field) = fields.next()? {
        if field.name == name.as_bytes() {
            return Ok(Some(field));
        }
    }
    Ok(None)
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
            [_, _, _, _, text @ .., 0] if self.kind == Kind::String => {
                std::str::from_utf8(text).ok()
            }
            _ => None,
        }
    }

    fn id(self) -> Option<Id> {
        let bytes = <[u8; 12]>::try_from(self.value).ok()?;
        (self.kind == Kind::ObjectId).then(|| Id::from_bytes(bytes))
    }

    /// Reads a count from any number type. Negative numbers become 0.
    fn count(self) -> Option<u32> {
        let clamp = |n: i64| u32::try_from(n.max(0)).unwrap_or(u32::MAX);
        match self.kind {
            Kind::Int32 => int(self.value).ok().map(|n| clamp(n.into())),
            Kind::Int64 => {
                let n = self.value.first_chunk();
                n.map(|n| clamp(i64::from_le_bytes(*n)))
            }
            // `as` saturates, and converts NaN to 0.
            Kind::Double => {
                let n = self.value.first_chunk();
                n.map(|n| f64::from_le_bytes(*n) as u32)
            }
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
        let owner = field(document, "_id")?.and_then(|field| {
            let text = field.text().map(Owner::Text);
            text.or_else(|| field.id().map(Owner::Id))
        });
        Ok(owner.map(|user| Self { user, document }))
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
        match field(self.document, "events")? {
            Some(field) if field.kind == Kind::Array => entries(field.value).map(Some),
            Some(_) => Ok(None),
            None => Ok(Some(Vec::new())),
        }
    }

    /// Returns a number from a field that a query added.
    pub(super) fn number(&self, name: &str) -> Result<Option<u32>> {
        Ok(field(self.document, name)?.and_then(Field::count))
    }
}

/// The approximate size of an event, to guess the number of entries.
const EVENT_BYTES: usize = 70;

/// Decodes one document of `events`. An unreadable one still takes up its position.
pub(super) fn element(document: &[u8]) -> Entry {
    entry(document).unwrap_or(Entry::Other)
}

fn entries(array: &[u8]) -> Result<Vec<Entry>> {
    let mut entries = Vec::with_capacity(1 + array.len() / EVENT_BYTES);
    let mut elements = Fields::of(array)?;
    while let Some(element) = elements.next()? {
        entries.push(match element.kind {
            Kind::EmbeddedDocument => entry(element.value)?,
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
            b"i" if field.kind == Kind::Array => fanouts = ids(field.value)?,
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
