//! Twelve-byte ids in MongoDB's `ObjectId` layout: four bytes of seconds, then eight that make it
//! unique.
//!
//! The rule: an id's time is the time of what it names. A fan-out's id is the `i` of every event it
//! wrote, so an event carries its time without a field for it. Ids are made in [`crate::clock`],
//! never here.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};

use super::name::Invalid;

/// A twelve-byte id; ordered by time first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id([u8; 12]);

impl Id {
    /// An id of this moment (whole seconds, 1970 to 2106) with this tail.
    pub fn at(time: DateTime<Utc>, tail: [u8; 8]) -> Self {
        let seconds = time.timestamp().clamp(0, i64::from(u32::MAX)) as u32;
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&seconds.to_be_bytes());
        bytes[4..].copy_from_slice(&tail);
        Self(bytes)
    }

    /// The id of these bytes: four of seconds, big-endian, then eight that make it unique.
    pub const fn from_bytes(bytes: [u8; 12]) -> Self {
        Self(bytes)
    }

    /// Its bytes, in the layout of MongoDB's `ObjectId`.
    pub const fn bytes(self) -> [u8; 12] {
        self.0
    }

    /// When what it names happened, in whole seconds.
    pub fn time(self) -> DateTime<Utc> {
        let [a, b, c, d, ..] = self.0;
        DateTime::from_timestamp(i64::from(u32::from_be_bytes([a, b, c, d])), 0).unwrap_or_default()
    }

    /// The id that is hidden in 24 hexadecimal digits, if these are such.
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 12];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// The 24 lower-case hexadecimal digits, without a heap allocation.
    pub fn hex(self) -> [u8; 24] {
        let mut out = [0; 24];
        // It is as long as it has to be.
        hex::encode_to_slice(self.0, &mut out).unwrap_or_default();
        out
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = self.hex();
        f.write_str(std::str::from_utf8(&hex).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Id {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::from_hex(text).ok_or_else(|| Invalid::new("id", text, "is not 24 hexadecimal digits"))
    }
}

impl serde::Serialize for Id {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Id {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_carries_the_time_it_was_made_for() {
        let time = DateTime::from_timestamp(1_398_124_800, 0).unwrap();
        let id = Id::at(time, [7; 8]);
        assert_eq!(id.time(), time);
        assert_eq!(id.to_string().parse::<Id>().unwrap(), id);
    }

    #[test]
    fn anything_but_24_hex_digits_is_no_id() {
        for text in [
            "",
            "0",
            "5334647b139b2165160000d",
            "5334647b139b2165160000dg",
            "+334647b139b2165160000d8",
        ] {
            assert!(Id::from_hex(text).is_none(), "{text}");
        }
    }
}
