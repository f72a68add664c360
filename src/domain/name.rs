//! Names from outside: users, event types, objects, models, follow keys and brands.
//!
//! A name is checked once, when it enters. Names in the store may come from older writers and are
//! not checked (`stored`). `0` and `false` are names like any other.

use std::fmt;

/// The error about an invalid value from outside. It names the kind of value, the value and the
/// reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidValue {
    /// The kind of value, such as `user id`. The message starts with it.
    pub what: &'static str,
    /// At most 80 characters of the value, or its size if that is the problem.
    pub value: String,
    /// The reason, as a clause that follows the value.
    pub why: String,
    /// The kind of mistake, from which the API derives its problem type.
    pub kind: InvalidKind,
}

/// The kind of mistake, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidKind {
    /// An invalid value.
    Value,
    /// A value above a limit, in bytes or in number.
    Limit,
    /// A time outside the accepted range.
    Time,
    /// An event type that is not configured, with `strict_types` on.
    Type,
}

impl std::error::Error for InvalidValue {}

impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, value, why) = (self.what, &self.value, &self.why);
        match self.kind {
            // The value is a size that the caller did not write, so it is not quoted.
            InvalidKind::Limit => write!(f, "{what} {value} {why}"),
            InvalidKind::Value | InvalidKind::Time | InvalidKind::Type => {
                write!(f, "{what} {value:?} {why}")
            }
        }
    }
}

impl InvalidValue {
    /// Creates the error for a value. Longer values are cut to 80 characters.
    pub fn new(what: &'static str, value: impl fmt::Display, why: impl Into<String>) -> Self {
        let mut value = value.to_string();
        if let Some((end, _)) = value.char_indices().nth(80) {
            value.truncate(end);
            value.push('…');
        }
        Self { what, value, why: why.into(), kind: InvalidKind::Value }
    }

    /// Changes the kind of mistake.
    pub fn with_kind(self, kind: InvalidKind) -> Self {
        Self { kind, ..self }
    }

    /// Checks that a size, in bytes or in number, is at most `limit`.
    pub fn check_limit(
        what: &'static str,
        size: usize,
        limit: usize,
        why: fmt::Arguments<'_>,
    ) -> Result<(), Self> {
        if size <= limit {
            return Ok(());
        }
        Err(Self::new(what, size, why.to_string()).with_kind(InvalidKind::Limit))
    }
}

/// The longest accepted name in bytes, well below the limits of keys in MongoDB and SQLite.
pub const MAX_NAME_BYTES: usize = 256;

/// Checks a name: 1 to 256 bytes without control characters or surrounding white space.
pub(super) fn check_name<'a>(what: &'static str, text: &'a str) -> Result<&'a str, InvalidValue> {
    if text.is_empty() {
        return Err(InvalidValue::new(what, text, "is empty"));
    }
    if text.len() > MAX_NAME_BYTES {
        let why = format!("is longer than {MAX_NAME_BYTES} bytes");
        return Err(InvalidValue::new(what, text, why));
    }
    if text.chars().any(char::is_control) {
        return Err(InvalidValue::new(what, text.escape_debug(), "holds a control character"));
    }
    if text.trim() != text {
        return Err(InvalidValue::new(what, text, "begins or ends with white space"));
    }
    Ok(text)
}

/// Defines types that hold a checked text. The function returns the text to keep, or the error.
macro_rules! checked_texts {
    ($($(#[$doc:meta])* $name:ident: $check:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(compact_str::CompactString);

        impl $name {
            /// Checks a text from outside.
            pub fn new(text: impl AsRef<str>) -> Result<Self, $crate::domain::name::InvalidValue> {
                let check: fn(&str) -> Result<&str, $crate::domain::name::InvalidValue> = $check;
                check(text.as_ref()).map(Self::stored)
            }

            /// Wraps a text from the store without checking it.
            pub fn stored(text: impl AsRef<str>) -> Self {
                Self(text.as_ref().into())
            }

            /// Returns the text as it is stored.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::domain::name::InvalidValue;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::new(text)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(self.0.as_str(), f)
            }
        }

        $crate::domain::name::serde_as_text!($name);
    )*};
}
pub(super) use checked_texts;

/// Defines an enum whose variants have names in the store, in JSON, in files and for readers.
macro_rules! named_enum {
    ($(#[$meta:meta])* $name:ident($what:literal) {
        $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash,
            serde::Serialize, serde::Deserialize,
        )]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $text)] $variant,)*
        }

        impl $name {
            /// All values, in their order.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$variant),*];

            /// Returns the name.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::domain::name::InvalidValue;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let named = Self::ALL.into_iter().find(|value| value.as_str() == text);
                let why = || $crate::domain::name::is_none_of(&Self::ALL.map(Self::as_str));
                named.ok_or_else(|| $crate::domain::name::InvalidValue::new($what, text, why()))
            }
        }
    };
}
pub(crate) use named_enum;

/// Returns a clause such as `is not never, daily or weekly`.
pub(crate) fn is_none_of(names: &[&str]) -> String {
    match names {
        [others @ .., last] if !others.is_empty() => {
            format!("is not {} or {last}", others.join(", "))
        }
        names => format!("is not {}", names.concat()),
    }
}

/// Formats types for debugging as their text, without quotes.
macro_rules! debug_as_text {
    ($name:ty) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    };
}
pub(super) use debug_as_text;

/// Serializes and deserializes types as their text, by `Display` and `FromStr`.
macro_rules! serde_as_text {
    ($($name:ty),*) => {$(
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
pub(super) use serde_as_text;

checked_texts! {
    /// The id of a user, the `_id` of the user's stacks.
    UserId: |text| check_name("user id", text);
    /// The type of an event, `t` of an entry, such as `ArtworkPublished`.
    EventType: |text| check_name("event type", text);
    /// The id of an object, `o` of an entry.
    ObjectId: |text| check_name("object id", text);
    /// The model of an object, which is the part of its key before the colon.
    ModelName: |text| check_name("model", text);
    /// The key of something that users follow, such as `artist:558`.
    FollowKey: |text| check_name("follow key", text);
    /// The subject of a mute: an object's key, a topic, or a follow key.
    Subject: |text| check_name("subject", text);
    /// The name that operators give a server key, such as `web-app`.
    KeyName: |text| check_name("key name", text);
    /// The name of a brand in `[brands.NAME]`, such as `acme`.
    BrandName: check_brand;
}

/// The least similarity of a suggestion, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.75;

/// Returns the name that is most similar to `given`; `None` if none is similar enough.
pub fn most_similar<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = given.to_lowercase();
    names
        .into_iter()
        .map(|name| (strsim::normalized_damerau_levenshtein(&lower, &name.to_lowercase()), name))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}

/// Joins names for a message: `ada, ben and 3 more`, with at most `limit` names.
pub fn join_names<T: fmt::Display>(names: impl IntoIterator<Item = T>, limit: usize) -> String {
    let mut names = names.into_iter();
    let first: Vec<String> = names.by_ref().take(limit).map(|name| name.to_string()).collect();
    let list = first.join(", ");
    match names.count() {
        0 => list,
        more => format!("{list} and {more} more"),
    }
}

/// The longest name of a brand, in bytes. Links contain it.
pub const MAX_BRAND: usize = 40;

fn check_brand(text: &str) -> Result<&str, InvalidValue> {
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b);
    if (1..=MAX_BRAND).contains(&text.len()) && text.bytes().all(is_allowed) {
        return Ok(text);
    }
    let why = format!("is not 1 to {MAX_BRAND} lower-case letters, digits, - and _");
    Err(InvalidValue::new("brand", text.escape_debug(), why))
}

impl BrandName {
    /// Returns the reason why an email of this unconfigured brand waits, as its delivery stores it.
    pub fn unconfigured_reason(&self) -> String {
        format!("the brand {self} is not configured")
    }

    /// Returns the brand that an email waits for, if the reason is one from
    /// [`Self::unconfigured_reason`].
    pub fn from_unconfigured_reason(reason: &str) -> Option<Self> {
        let name = reason.strip_prefix("the brand ")?;
        name.strip_suffix(" is not configured").map(Self::stored)
    }
}

#[cfg(test)]
#[path = "name_tests.rs"]
mod tests;
