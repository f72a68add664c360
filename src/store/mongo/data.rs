//! Converts pass-through JSON to BSON in one pass, without a tree in between, and back.
//!
//! `data` is stored as a document so that operators can query it. JSON that a document cannot hold
//! exactly stays text: see [`write()`].

use std::collections::HashSet;
use std::fmt;

use bson::RawBsonRef;
use bson::spec::ElementType;
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};

use super::encode::{Key, Writer};
use crate::domain::Json;

/// Writes JSON as a field. Returns `false` and writes nothing if BSON would change the value: an
/// integer above `i64::MAX`, or field names that repeat, contain NUL or start with a dollar sign.
pub(super) fn write(writer: &mut Writer, name: &str, json: &Json) -> bool {
    let start = writer.len();
    let mut text = serde_json::Deserializer::from_str(json.text());
    let field = Field {
        writer: &mut *writer,
        name,
    };
    let written = field.deserialize(&mut text).is_ok();
    if !written {
        writer.take_back_to(start);
    }
    written
}

/// Reads a field as JSON. Types that JSON lacks become Extended JSON.
pub(super) fn read(value: RawBsonRef<'_>) -> Json {
    let text = serde_json::to_string(&value);
    let json = text.and_then(|text| serde_json::from_str(&text));
    json.unwrap_or_default()
}

/// Writes the value that it deserializes under a name.
struct Field<'a, K> {
    writer: &'a mut Writer,
    name: K,
}

impl<'de, K: Key> DeserializeSeed<'de> for Field<'_, K> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de, K: Key> Visitor<'de> for Field<'_, K> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that BSON can hold")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.writer.value(self.name, ElementType::Null, &[]);
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.writer.flag(self.name, value);
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.writer.long(self.name, value);
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        let value = i64::try_from(value).map_err(E::custom)?;
        self.visit_i64(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.writer.double(self.name, value);
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.writer.text(self.name, value);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Self { writer, name } = self;
        writer.array(name);
        let mut place = 0_usize;
        while let Some(()) = list.next_element_seed(Field {
            writer: &mut *writer,
            name: place,
        })? {
            place += 1;
        }
        writer.close();
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let Self { writer, name } = self;
        writer.document(name);
        let mut names = HashSet::new();
        while let Some(name) = fields.next_key::<String>()? {
            if name.starts_with('$') || name.contains('\0') || names.contains(&name) {
                return Err(A::Error::custom("no document has such a name"));
            }
            fields.next_value_seed(Field {
                writer: &mut *writer,
                name: name.as_str(),
            })?;
            names.insert(name);
        }
        writer.close();
        Ok(())
    }
}
