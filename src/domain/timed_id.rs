//! Twelve-byte ids in the layout of MongoDB's `ObjectId`: four bytes of seconds, then eight unique
//! ones.
//!
//! The time in an id is the time of the named thing. The `i` of an entry is the id of its accepted
//! event, so entries need no field for the time. Ids are made in [`crate::ids`], never here.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};

use super::name::{InvalidValue, UserId, debug_as_text, serde_as_text};

/// A twelve-byte id, ordered by time first. The five bytes after the time identify the process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id([u8; 12]);

impl Id {
    /// The greatest id.
    pub const MAX: Self = Self([0xff; 12]);

    /// Creates an id with this time (whole seconds, 1970 to 2106) and tail.
    pub fn at(time: DateTime<Utc>, tail: [u8; 8]) -> Self {
        let seconds = time.timestamp().clamp(0, i64::from(u32::MAX)) as u32;
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&seconds.to_be_bytes());
        bytes[4..].copy_from_slice(&tail);
        Self(bytes)
    }

    /// Creates an id from its bytes: seconds, big-endian, then the tail.
    pub const fn from_bytes(bytes: [u8; 12]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes in the layout of MongoDB's `ObjectId`.
    pub const fn bytes(self) -> [u8; 12] {
        self.0
    }

    /// Returns the time in the id, in whole seconds.
    pub fn time(self) -> DateTime<Utc> {
        let [a, b, c, d, ..] = self.0;
        DateTime::from_timestamp(i64::from(u32::from_be_bytes([a, b, c, d])), 0).unwrap_or_default()
    }

    /// Returns whether the id was not made after `other`.
    ///
    /// Within one second only ids of the same process have an order. Ids of two processes count as
    /// made at the same time, so this returns `true` for them.
    pub fn is_no_later_than(self, other: Self) -> bool {
        let (seconds, tail) = self.0.split_at(4);
        let (other_seconds, other_tail) = other.0.split_at(4);
        let has_order = tail[..5] == other_tail[..5];
        seconds < other_seconds || (seconds == other_seconds && (!has_order || tail <= other_tail))
    }

    /// Returns whether the id is `other` or was certainly made before it.
    ///
    /// Within one second only ids of the same process have an order, so this returns `false` for
    /// ids of two processes.
    pub fn is_earlier_than(self, other: Self) -> bool {
        self.0[..4] < other.0[..4] || (self.0[..9] == other.0[..9] && self.0 <= other.0)
    }

    /// Parses 24 hexadecimal digits; `None` for any other text.
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 12];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// Returns the smallest id whose digits do not sort before this text; `None` if all do.
    pub fn first_not_before(text: &str) -> Option<Self> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [b'0'; 24];
        let parse = |hex: &[u8]| Self::from_hex(std::str::from_utf8(hex).ok()?);
        for (index, byte) in text.bytes().take(24).enumerate() {
            if DIGITS.contains(&byte) {
                hex[index] = byte;
                continue;
            }
            // This character is no digit, so the next greater digit replaces it. If there is none,
            // the result is the id after those that start with the digits so far.
            if let Some(digit) = DIGITS.iter().find(|digit| **digit > byte) {
                hex[index] = *digit;
                return parse(&hex);
            }
            hex[index..].fill(b'f');
            return parse(&hex)?.next();
        }
        let id = parse(&hex)?;
        if text.len() > 24 { id.next() } else { Some(id) }
    }

    /// Returns the smallest id whose digits sort after this text; `None` if there is none.
    pub fn first_after(text: &str) -> Option<Self> {
        let from = Self::first_not_before(text)?;
        if from.hex() == text.as_bytes() { from.next() } else { Some(from) }
    }

    fn next(self) -> Option<Self> {
        let mut bytes = self.0;
        for byte in bytes.iter_mut().rev() {
            *byte = byte.wrapping_add(1);
            if *byte != 0 {
                return Some(Self(bytes));
            }
        }
        None
    }

    /// Returns the 24 lower-case hexadecimal digits without a heap allocation.
    pub fn hex(self) -> [u8; 24] {
        let mut out = [0; 24];
        // The buffer has the right length, so this cannot fail.
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

debug_as_text!(Id);

serde_as_text!(Id);

impl FromStr for Id {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        Self::from_hex(text)
            .ok_or_else(|| InvalidValue::new("id", text, "is not 24 hexadecimal digits"))
    }
}

impl UserId {
    /// Returns the id as an ObjectId, which older writers may have stored. `None` unless it
    /// consists of 24 lower-case hexadecimal digits.
    pub fn to_object_id(&self) -> Option<Id> {
        Id::from_hex(self.as_str()).filter(|id| id.hex() == self.as_str().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_contains_its_creation_time() {
        let time = DateTime::from_timestamp(1_398_124_800, 0).unwrap();
        let id = Id::at(time, [7; 8]);
        assert_eq!(id.time(), time);
        assert_eq!(id.to_string().parse::<Id>().unwrap(), id);
    }

    #[test]
    fn only_24_hex_digits_are_an_id() {
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

    #[test]
    fn the_first_id_after_a_text_is_the_first_with_a_greater_hex_form() {
        let cases = [
            ("", Some("000000000000000000000000")),
            ("0", Some("000000000000000000000000")),
            ("5", Some("500000000000000000000000")),
            ("alice", Some("b00000000000000000000000")),
            ("AB", Some("a00000000000000000000000")),
            ("f g", Some("f00000000000000000000000")),
            ("bob", Some("c00000000000000000000000")),
            ("fz", None),
            ("zoe", None),
            ("ffffffffffffffffffffffff", None),
            ("ffffffffffffffffffffffe", Some("ffffffffffffffffffffffe0")),
            ("fffffffffffffffffffffffe", Some("ffffffffffffffffffffffff")),
            ("5334647b139b2165160000ff", Some("5334647b139b216516000100")),
            ("5334647b139b2165160000ff0", Some("5334647b139b216516000100")),
            ("5334647b139b2165160000f/", Some("5334647b139b2165160000f0")),
            ("5334647b139b2165160000fx", Some("5334647b139b216516000100")),
        ];
        for (text, expected) in cases {
            let found = Id::first_after(text).map(|id| id.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn the_first_id_from_a_text_is_the_first_whose_hex_form_is_not_less() {
        for (text, expected) in [
            ("", Some("000000000000000000000000")),
            ("$ne", Some("000000000000000000000000")),
            ("5", Some("500000000000000000000000")),
            ("5A", Some("5a0000000000000000000000")),
            ("5g", Some("600000000000000000000000")),
            ("ag", Some("b00000000000000000000000")),
            ("af~", Some("b00000000000000000000000")),
            ("ffg", None),
            ("g", None),
            ("ü", None),
            ("533998b1c9dc24c371000041", Some("533998b1c9dc24c371000041")),
            ("533998b1c9dc24c3710000ff0", Some("533998b1c9dc24c371000100")),
            ("ffffffffffffffffffffffff", Some("ffffffffffffffffffffffff")),
            ("ffffffffffffffffffffffff!", None),
        ] {
            let found = Id::first_not_before(text).map(|id| id.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn the_first_id_from_a_text_is_exact(
            text in "[0-9a-g]{0,3}|[ -~]{0,26}|[0-9a-f]{23,26}", bytes: [u8; 12],
        ) {
            let (from, id) = (Id::first_not_before(&text), Id::from_bytes(bytes));
            let not_before = id.to_string().as_str() >= text.as_str();
            proptest::prop_assert_eq!(not_before, from.is_some_and(|from| id >= from));
        }

        #[test]
        fn the_first_id_after_a_text_is_exact(text in "[0-9a-f/:g]{0,26}") {
            match Id::first_after(&text) {
                None => proptest::prop_assert!("ffffffffffffffffffffffff" <= text.as_str()),
                Some(id) => {
                    proptest::prop_assert!(id.to_string() > text);
                    let number = u128::from_str_radix(&id.to_string(), 16).unwrap();
                    if let Some(before) = number.checked_sub(1) {
                        let hex = format!("{before:024x}");
                        proptest::prop_assert!(hex <= text);
                    }
                }
            }
        }
    }
}
