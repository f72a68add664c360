//! Names that come from outside: users, event types, objects, models and what people follow.
//!
//! The rule: a name is checked once, where it enters, and is valid ever after. What older writers
//! stored is taken as it stands (`stored`). Falsy-looking names (`0`, `false`) are names like any
//! other; only nothing is refused.

use std::fmt;
use std::str::FromStr;

use compact_str::CompactString;

/// What was wrong with a value from outside: what it was meant to be, the value, and why it will
/// not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// What the value was meant to be, such as `user id`; the message begins with it.
    pub what: &'static str,
    /// The value, or its size where that is what is wrong; at most 80 characters of it.
    pub value: String,
    /// Why it will not do, as a clause that follows the value.
    pub why: String,
    /// What sort of mistake it is; the API derives its problem type from it.
    pub kind: Kind,
}

/// What sort of mistake it is, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It is not what is asked for.
    Value,
    /// It is larger than what is kept, in bytes or in number.
    Limit,
    /// It is a moment that events cannot be of.
    Time,
    /// It is an event type that is not configured, where only those are accepted.
    Type,
}

impl std::error::Error for Invalid {}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what, value, why, ..
        } = self;
        match self.kind {
            // How much it is, which nobody wrote.
            Kind::Limit => write!(f, "{what} {value} {why}"),
            Kind::Value | Kind::Time | Kind::Type => write!(f, "{what} {value:?} {why}"),
        }
    }
}

impl Invalid {
    /// Long values are cut to 80 characters: an error message is for people.
    pub fn new(what: &'static str, value: impl fmt::Display, why: impl Into<String>) -> Self {
        let value = value.to_string();
        let value = match value.char_indices().nth(80) {
            Some((end, _)) => format!("{}…", &value[..end]),
            None => value,
        };
        Self {
            what,
            value,
            why: why.into(),
            kind: Kind::Value,
        }
    }

    /// The same as a mistake of this kind.
    pub fn of_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// More than the limit, in bytes or in number: how much it is, and what to do.
    pub fn limit(what: &'static str, size: usize, why: impl Into<String>) -> Self {
        Self {
            kind: Kind::Limit,
            ..Self::new(what, size, why)
        }
    }

    /// The same as a moment that events cannot be of.
    pub fn out_of_time(self) -> Self {
        Self {
            kind: Kind::Time,
            ..self
        }
    }
}

/// The longest name accepted, in bytes: well below what a MongoDB or SQLite key can be.
pub const MAX_NAME_BYTES: usize = 256;

fn check(what: &'static str, text: &str) -> Result<(), Invalid> {
    if text.is_empty() {
        return Err(Invalid::new(what, text, "is empty"));
    }
    if text.len() > MAX_NAME_BYTES {
        return Err(Invalid::new(
            what,
            text,
            format!("is longer than {MAX_NAME_BYTES} bytes"),
        ));
    }
    if text.chars().any(char::is_control) {
        return Err(Invalid::new(
            what,
            text.escape_debug(),
            "holds a control character",
        ));
    }
    if text.trim() != text {
        return Err(Invalid::new(what, text, "begins or ends with white space"));
    }
    Ok(())
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident: $what:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
        #[serde(transparent)]
        pub struct $name(CompactString);

        impl $name {
            /// A checked name: 1 to 256 bytes, no control characters, no white space around it.
            pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
                check($what, text.as_ref())?;
                Ok(Self(CompactString::new(text)))
            }

            /// A name as it stands in the store; older writers did not check theirs.
            pub fn stored(text: impl AsRef<str>) -> Self {
                Self(CompactString::new(text))
            }

            /// The name as it was given, or as it stands in the store.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Invalid;

            fn from_str(text: &str) -> Result<Self, Invalid> {
                Self::new(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self.0.as_str(), f)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = CompactString::deserialize(deserializer)?;
                Self::new(&text).map_err(serde::de::Error::custom)
            }
        }
    )*};
}

names! {
    /// Whom a stack belongs to: `_id` of their documents.
    UserId: "user id";
    /// What happened: `t` of an entry, such as `ArtworkPublished`.
    EventType: "event type";
    /// To what it happened: `o` of an entry.
    ObjectId: "object id";
    /// The kind of thing an object is: the part of its key before the colon.
    ModelName: "model";
    /// What people follow, such as `artist:558`.
    FollowKey: "follow key";
    /// What people mute: the key of an object, what objects are about, or what people follow.
    Subject: "subject";
    /// What operators call a server key, such as `web-app`.
    KeyName: "key name";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn falsy_looking_names_are_names() {
        for text in ["0", "false", "null", "$ne", "a.b", "NaN"] {
            assert_eq!(UserId::new(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn what_cannot_be_a_name_is_refused_with_its_value_and_the_reason() {
        let error = UserId::new("").unwrap_err().to_string();
        assert_eq!(error, "user id \"\" is empty");
        assert!(UserId::new("a\0b").is_err());
        assert!(UserId::new(" a").is_err());
        assert!(UserId::new("x".repeat(257)).is_err());
        assert!(UserId::new("x".repeat(256)).is_ok());
    }

    #[test]
    fn only_lower_case_hex_has_a_legacy_form() {
        assert!(
            UserId::new("533998b1c9dc24c371000041")
                .unwrap()
                .legacy()
                .is_some()
        );
        assert!(
            UserId::new("533998B1C9DC24C371000041")
                .unwrap()
                .legacy()
                .is_none()
        );
        assert!(UserId::new("alice").unwrap().legacy().is_none());
    }
}
