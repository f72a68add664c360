//! Batch keys: events of one user and key share a batch.
//!
//! Keys are compared byte by byte, without trimming, case folding or normalization. A chosen key is
//! never equal to the name of a type, so no events are batched together by accident.

use std::fmt;
use std::str::FromStr;

use compact_str::CompactString;
use serde::de::Error as _;
use serde_json::Value;

use crate::domain::name::{BrandName, EventType, InvalidValue};

/// The longest key in bytes.
pub const MAX_KEY_BYTES: usize = 256;

/// The key of a batch.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BatchKey {
    /// The key of an event type, used if no other key was chosen.
    Type(EventType),
    /// A key from the request or the configuration. Events of several types can share it.
    Chosen(ChosenKey),
    /// A key for the events of one brand, which are separate from those of other brands.
    Branded(BrandName, Box<Self>),
}

/// A key from the request or the configuration: 1 to 256 bytes without control characters. `0`,
/// `false`, `a.b`, `$x` and a space are valid.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChosenKey(CompactString);

impl ChosenKey {
    /// Checks that the key is 1 to [`MAX_KEY_BYTES`] bytes without control characters.
    pub fn new(text: impl AsRef<str>) -> Result<Self, InvalidValue> {
        let text = text.as_ref();
        let why = if text.is_empty() {
            "is empty; leave it out for the type's own batch".to_owned()
        } else if text.len() > MAX_KEY_BYTES {
            format!("is longer than {MAX_KEY_BYTES} bytes")
        } else if text.chars().any(char::is_control) {
            "holds a control character".to_owned()
        } else {
            return Ok(Self(CompactString::new(text)));
        };
        Err(InvalidValue::new("batch key", text.escape_debug(), why))
    }

    /// Returns the key without the prefix `key:` of its stored form.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ChosenKey {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        Self::new(text)
    }
}

/// Accepts only strings. A number, `false` or `null` is more likely a mistake of the sender, and
/// could put unrelated events into one batch.
impl<'de> serde::Deserialize<'de> for ChosenKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let why = match Value::deserialize(deserializer)? {
            Value::String(text) => return Self::new(text).map_err(D::Error::custom),
            Value::Null => {
                "batch key null is no key; leave it out for the type's own batch".to_owned()
            }
            value @ (Value::Bool(_) | Value::Number(_)) => {
                format!("batch key {value} is not text; if it is meant, write \"{value}\"")
            }
            Value::Array(_) | Value::Object(_) => {
                "batch key is not text; expected a string".to_owned()
            }
        };
        Err(D::Error::custom(why))
    }
}

/// The prefixes of type keys and chosen keys in stored form.
const TYPE: &str = "type:";
const CHOSEN: &str = "key:";
/// The prefix of branded keys. The brand, a colon and another key follow.
const BRAND: &str = "brand:";

impl BatchKey {
    /// Returns the key of an event: the request's, else the configured one, else that of its type.
    pub fn for_event(
        kind: &EventType,
        requested: Option<&ChosenKey>,
        configured: Option<&ChosenKey>,
    ) -> Self {
        match requested.or(configured) {
            Some(chosen) => Self::Chosen(chosen.clone()),
            None => Self::Type(kind.clone()),
        }
    }

    /// Returns the key for events of this brand; unchanged without a brand.
    pub fn with_brand(self, brand: Option<&BrandName>) -> Self {
        match brand {
            Some(brand) => Self::Branded(brand.clone(), Box::new(self)),
            None => self,
        }
    }

    /// Returns the brand of the events; `None` for the brand of the user.
    pub fn brand(&self) -> Option<&BrandName> {
        match self {
            Self::Branded(brand, _) => Some(brand),
            Self::Type(_) | Self::Chosen(_) => None,
        }
    }

    /// Returns the type if this is the key of a type, with or without a brand.
    pub fn kind(&self) -> Option<&EventType> {
        match self {
            Self::Type(kind) => Some(kind),
            Self::Chosen(_) => None,
            Self::Branded(_, key) => key.kind(),
        }
    }
}

/// Formats the key as it is stored and shown: `type:Comment`, `key:acme`,
/// `brand:acme:type:Comment`.
impl fmt::Display for BatchKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type(kind) => write!(f, "{TYPE}{kind}"),
            Self::Chosen(key) => write!(f, "{CHOSEN}{}", key.as_str()),
            Self::Branded(brand, key) => write!(f, "{BRAND}{brand}:{key}"),
        }
    }
}

impl fmt::Debug for BatchKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string(), f)
    }
}

impl FromStr for BatchKey {
    type Err = InvalidValue;

    /// Parses the form that [`fmt::Display`] writes.
    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        if let Some((brand, key)) = text.strip_prefix(BRAND).and_then(|rest| rest.split_once(':')) {
            return match key.parse()? {
                Self::Branded(..) => Err(InvalidValue::new("batch key", text, "names two brands")),
                key => Ok(key.with_brand(Some(&brand.parse()?))),
            };
        }
        if let Some(kind) = text.strip_prefix(TYPE) {
            return Ok(Self::Type(kind.parse()?));
        }
        match text.strip_prefix(CHOSEN) {
            Some(key) => Ok(Self::Chosen(key.parse()?)),
            None => Err(InvalidValue::new(
                "batch key",
                text,
                "does not begin with type: or key:, nor with brand:NAME: before that",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn chosen(text: &str) -> BatchKey {
        BatchKey::Chosen(ChosenKey::new(text).unwrap())
    }

    #[test]
    fn falsy_and_odd_keys_are_valid_and_distinct() {
        let texts = [
            "0", "false", "null", "a.b", "$ne", "a", " a", "a ", "A", " ", "é", "e\u{301}",
            "type:a", "key:a",
        ];
        let longest = "x".repeat(MAX_KEY_BYTES);

        let keys: BTreeSet<String> = texts
            .into_iter()
            .chain([longest.as_str()])
            .map(|text| chosen(text).to_string())
            .collect();

        assert_eq!(keys.len(), texts.len() + 1);
        for key in keys {
            assert_eq!(key.parse::<BatchKey>().unwrap().to_string(), key);
        }
    }

    #[test]
    fn an_invalid_key_is_rejected_with_the_reason() {
        let why = |text: &str| ChosenKey::new(text).unwrap_err().to_string();

        assert!(why("").contains("is empty; leave it out"));
        assert!(why(&"x".repeat(MAX_KEY_BYTES + 1)).contains("longer than 256 bytes"));
        assert!(why("a\0b").contains("control character"));
        assert!("a".parse::<BatchKey>().is_err());
        assert!("key:".parse::<BatchKey>().is_err());
    }

    #[test]
    fn a_key_must_be_a_json_string_and_other_values_get_a_hint() {
        let read = |json: &str| serde_json::from_str::<ChosenKey>(json);

        for text in ["0", "false", "null", "a.b", "$ne", " "] {
            let json = serde_json::to_string(text).unwrap();
            assert_eq!(read(&json).unwrap().as_str(), text);
        }
        for value in ["0", "-1", "1.5", "true", "false"] {
            let why = read(value).unwrap_err().to_string();
            let expected =
                format!("batch key {value} is not text; if it is meant, write \"{value}\"");
            assert!(why.starts_with(&expected), "{why}");
        }
        let why = read("null").unwrap_err().to_string();
        assert!(why.contains("leave it out for the type's own batch"), "{why}");
        for other in ["[]", "{}", "[\"a\"]", "\"\""] {
            assert!(read(other).is_err(), "{other}");
        }
    }

    #[test]
    fn a_chosen_key_never_equals_a_type() {
        let kind = EventType::new("Comment").unwrap();

        assert_ne!(BatchKey::Type(kind.clone()), chosen("Comment"));
        assert_ne!(BatchKey::Type(kind).to_string(), chosen("Comment").to_string());
    }

    #[test]
    fn keys_of_different_brands_are_distinct_and_round_trip() {
        let brand = |name: &str| BrandName::new(name).unwrap();
        let kind = || BatchKey::Type(EventType::new("a:b").unwrap());
        let keys = [
            kind(),
            kind().with_brand(Some(&brand("acme"))),
            kind().with_brand(Some(&brand("umbra"))),
            chosen("brand:acme:type:a:b"),
            chosen(":").with_brand(Some(&brand("acme"))),
        ];

        let written: BTreeSet<String> = keys.iter().map(BatchKey::to_string).collect();

        assert_eq!(written.len(), keys.len());
        for key in keys {
            assert_eq!(key.to_string().parse(), Ok(key));
        }
        assert_eq!(kind().with_brand(Some(&brand("acme"))).kind(), kind().kind());
        for odd in ["brand:", "brand:acme", "brand:Acme:type:a", "brand:a:brand:b:key:c"] {
            assert!(odd.parse::<BatchKey>().is_err(), "{odd}");
        }
    }

    #[test]
    fn the_batch_key_comes_from_the_request_then_the_policy_then_the_type() {
        let kind = EventType::new("Comment").unwrap();
        let (acme, all) = (ChosenKey::new("acme").unwrap(), ChosenKey::new("all").unwrap());

        assert_eq!(BatchKey::for_event(&kind, Some(&acme), Some(&all)), chosen("acme"));
        assert_eq!(BatchKey::for_event(&kind, None, Some(&all)), chosen("all"));
        assert_eq!(BatchKey::for_event(&kind, None, None), BatchKey::Type(kind));
    }
}
