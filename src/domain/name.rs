//! Names from outside: users, event types, objects, models and follow keys.
//!
//! A name is checked once, when it enters. Names in the store may come from older writers and are
//! not checked (`stored`). `0` and `false` are names like any other.

use std::fmt;
use std::str::FromStr;

use compact_str::CompactString;

/// The error about an invalid value from outside. It names the kind of value, the value and the
/// reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The kind of value, such as `user id`. The message starts with it.
    pub what: &'static str,
    /// At most 80 characters of the value, or its size if that is the problem.
    pub value: String,
    /// The reason, as a clause that follows the value.
    pub why: String,
    /// The kind of mistake, from which the API derives its problem type.
    pub kind: Kind,
}

/// The kind of mistake, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An invalid value.
    Value,
    /// A value above a limit, in bytes or in number.
    Limit,
    /// A time outside the accepted range.
    Time,
    /// An event type that is not configured, with `strict_types` on.
    Type,
}

impl std::error::Error for Invalid {}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what, value, why, ..
        } = self;
        match self.kind {
            // The value is a size that the caller did not write, so it is not quoted.
            Kind::Limit => write!(f, "{what} {value} {why}"),
            Kind::Value | Kind::Time | Kind::Type => write!(f, "{what} {value:?} {why}"),
        }
    }
}

impl Invalid {
    /// Creates the error for a value. Longer values are cut to 80 characters.
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

    /// Changes the kind of mistake.
    pub fn of_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// Creates the error for a size above a limit, in bytes or in number.
    pub fn limit(what: &'static str, size: usize, why: impl Into<String>) -> Self {
        Self {
            kind: Kind::Limit,
            ..Self::new(what, size, why)
        }
    }

    /// Changes the kind to [`Kind::Time`].
    pub fn out_of_time(self) -> Self {
        Self {
            kind: Kind::Time,
            ..self
        }
    }
}

/// The longest accepted name in bytes, well below the limits of keys in MongoDB and SQLite.
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
            /// Checks a name: 1 to 256 bytes without control characters or surrounding white space.
            pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
                check($what, text.as_ref())?;
                Ok(Self(CompactString::new(text)))
            }

            /// Wraps a name from the store without checking it.
            pub fn stored(text: impl AsRef<str>) -> Self {
                Self(CompactString::new(text))
            }

            /// Returns the name as it was given or stored.
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
    /// The id of a user, the `_id` of the user's stacks.
    UserId: "user id";
    /// The type of an event, `t` of an entry, such as `ArtworkPublished`.
    EventType: "event type";
    /// The id of an object, `o` of an entry.
    ObjectId: "object id";
    /// The model of an object, which is the part of its key before the colon.
    ModelName: "model";
    /// The key of something that users follow, such as `artist:558`.
    FollowKey: "follow key";
    /// The subject of a mute: an object's key, a topic, or a follow key.
    Subject: "subject";
    /// The name that operators give a server key, such as `web-app`.
    KeyName: "key name";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_falsy_are_valid() {
        for text in ["0", "false", "null", "$ne", "a.b", "NaN"] {
            assert_eq!(UserId::new(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn an_invalid_name_is_rejected_with_its_value_and_the_reason() {
        let error = UserId::new("").unwrap_err().to_string();
        assert_eq!(error, "user id \"\" is empty");
        assert!(UserId::new("a\0b").is_err());
        assert!(UserId::new(" a").is_err());
        assert!(UserId::new("x".repeat(257)).is_err());
        assert!(UserId::new("x".repeat(256)).is_ok());
    }

    #[test]
    fn only_lowercase_hex_has_a_legacy_form() {
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
