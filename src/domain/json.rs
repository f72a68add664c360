//! JSON that tidings passes through, kept as compact text instead of a tree.
//!
//! A tree takes many times the memory of its text, so it exists only while a value is read. Fields
//! are in alphabetical order. Start with [`Json`].

use std::fmt;
use std::sync::Arc;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

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

    /// Deserializes an object into `T`, which can borrow from it. `None` if the value does not fit.
    pub fn fields<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        fields(self.text())
    }
}

/// Deserializes an object. Rejects JSON arrays, which serde would accept as a list of field values.
pub(super) fn fields<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    let is_object = text.starts_with('{');
    is_object.then(|| serde_json::from_str(text).ok()).flatten()
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
        match Value::deserialize(from)? {
            Value::Null => Ok(Self(None)),
            tree => {
                let raw = to_raw_value(&tree).map_err(D::Error::custom)?;
                Ok(Self(Some(raw.into())))
            }
        }
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
    fn a_value_is_written_without_spaces_and_with_sorted_fields() {
        for (written, text) in [
            (" null ", "null"),
            ("[ ]", "[]"),
            ("{ }", "{}"),
            (
                r#"[ 1, -2, 1.50, true, null, "a\u00e4\n\"" ]"#,
                r#"[1,-2,1.5,true,null,"aä\n\""]"#,
            ),
            (
                r#"{ "b": [ { "": 0 }, [] ], "a": {} }"#,
                r#"{"a":{},"b":[{"":0},[]]}"#,
            ),
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
    fn the_order_of_fields_does_not_matter() {
        let (one, other) = (read(r#"{"a":1,"b":2}"#), read(r#"{"b":2,"a":1}"#));
        assert_eq!(one, other);
        assert_ne!(one, Json::from(json!({"a": 1})));
    }
}
