//! JSON that tidings passes through, kept as compact text instead of a tree.
//!
//! Parsing checks the text and copies it piece by piece. Memory therefore grows with the number of
//! bytes, not with the number of values. Start with [`Json`].

use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// A JSON value as text. The default is `null`, which is the same as a missing value.
#[derive(Clone, Default)]
pub struct Json(Option<Arc<RawValue>>);

impl Json {
    /// Returns whether there is no value.
    pub fn is_null(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the text without white space between tokens.
    pub fn text(&self) -> &str {
        self.0.as_deref().map_or("null", RawValue::get)
    }

    /// Returns the length of the text in bytes; 0 if there is no value.
    pub fn bytes(&self) -> usize {
        self.0.as_deref().map_or(0, |raw| raw.get().len())
    }

    /// Returns whether both have the same values. The order of fields does not matter.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        let parse = |json: &Self| serde_json::from_str::<Value>(json.text()).ok();
        self == other || parse(self) == parse(other)
    }

    /// Deserializes an object into `T`, which can borrow from it. `None` if the value does not fit.
    pub fn parse_object<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        parse_object(self.text())
    }
}

/// Deserializes an object. Rejects JSON arrays, which serde would accept as a list of field values.
pub(super) fn parse_object<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    if text.starts_with('{') { serde_json::from_str(text).ok() } else { None }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self::deserialize(value).expect("every tree has a text")
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.as_deref().serialize(to)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut text = String::new();
        Appender(&mut text).deserialize(from)?;
        if text == "null" {
            return Ok(Self(None));
        }
        let raw = RawValue::from_string(text).map_err(D::Error::custom)?;
        Ok(Self(Some(raw.into())))
    }
}

/// A seed and visitor that append the text of a value.
struct Appender<'a>(&'a mut String);

impl Appender<'_> {
    fn append<E: Error>(self, value: impl Serialize) -> Result<(), E> {
        let text = serde_json::to_string(&value).map_err(E::custom)?;
        self.0.push_str(&text);
        Ok(())
    }

    /// Ends a list or an object, which has a comma after its last value.
    fn end(self, bracket: char) {
        if self.0.ends_with(',') {
            self.0.pop();
        }
        self.0.push(bracket);
    }
}

impl<'de> DeserializeSeed<'de> for Appender<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Appender<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.append(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.append(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.append(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.append(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.append(value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.append(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.0.push('[');
        while list.next_element_seed(Appender(self.0))?.is_some() {
            self.0.push(',');
        }
        self.end(']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        self.0.push('{');
        while fields.next_key_seed(Appender(self.0))?.is_some() {
            self.0.push(':');
            fields.next_value_seed(Appender(self.0))?;
            self.0.push(',');
        }
        self.end('}');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Json {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_value_is_written_as_read_but_without_spaces() {
        for (written, text) in [
            (" null ", "null"),
            ("[ ]", "[]"),
            ("{ }", "{}"),
            (r#"[ 1, -2, 1.50, true, null, "a\u00e4\n\"" ]"#, r#"[1,-2,1.5,true,null,"aä\n\""]"#),
            (r#"{ "b": [ { "": 0 }, [] ], "a": {} }"#, r#"{"b":[{"":0},[]],"a":{}}"#),
            ("18446744073709551615", "18446744073709551615"),
        ] {
            let json = read(written);
            assert_eq!(json.text(), text);
            assert_eq!(serde_json::to_string(&json).unwrap(), text);
            assert_eq!(read(text), json);
        }
        assert!(read("null").is_null() && read("null").bytes() == 0);
    }

    #[test]
    fn invalid_and_deeply_nested_json_is_rejected() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for wrong in ["", "[1,]", "{1:2}", "1e999", r#""\ud800""#, &deep] {
            assert!(serde_json::from_str::<Json>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_value_uses_as_much_memory_as_its_text() {
        let text = format!("[{}0]", r#"{"":0},"#.repeat(100_000));

        let json = read(&text);

        assert_eq!(json.bytes(), text.len());
    }

    #[test]
    fn the_order_of_fields_does_not_matter_for_equivalence() {
        let (one, other) = (read(r#"{"a":1,"b":2}"#), read(r#"{"b":2,"a":1}"#));
        assert!(one != other && one.is_equivalent(&other));
        assert!(!one.is_equivalent(&Json::from(json!({"a": 1}))));
    }
}
