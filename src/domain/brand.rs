//! Brands: under which name, look and sender somebody is mailed, where one installation writes for
//! several.
//!
//! The rule: a mail is of one brand, whole. The brand of a batch's events counts before that of the
//! person, and where neither has one it is the default, which has no name. A name that nobody
//! configured is refused where it comes in; one that was taken out of the configuration later is
//! never taken for another.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use compact_str::CompactString;
use serde::{Deserialize, Deserializer, Serialize};

use super::name::Invalid;

/// The longest name, in bytes: links hold it.
pub const MAX_BRAND: usize = 40;

/// What a brand is called in the configuration, in records and in JSON: 1 to [`MAX_BRAND`]
/// lower-case letters, digits, `-` and `_`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct BrandName(CompactString);

impl BrandName {
    /// Refuses what is no name of a brand.
    pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
        let text = text.as_ref();
        let known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b);
        if (1..=MAX_BRAND).contains(&text.len()) && text.bytes().all(known) {
            return Ok(Self(CompactString::new(text)));
        }
        let why = format!("is not 1 to {MAX_BRAND} lower-case letters, digits, - and _");
        Err(Invalid::new("brand", text.escape_debug(), why))
    }

    /// A name as it stands in the store.
    pub fn stored(text: impl AsRef<str>) -> Self {
        Self(CompactString::new(text))
    }

    /// The name as it was given, or as it stands in the store.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Why a mail of this brand waits while nobody configures it; the ledger has it so.
    pub fn absent(&self) -> String {
        format!("{ABSENT}{self}{FROM_HERE}")
    }

    /// The brand that a mail waits for, if that is why it does.
    pub fn awaited(reason: &str) -> Option<Self> {
        let name = reason.strip_prefix(ABSENT)?.strip_suffix(FROM_HERE)?;
        Some(Self::stored(name))
    }
}

/// What such a reason begins and ends with.
const ABSENT: &str = "the brand ";
const FROM_HERE: &str = " is not configured";

impl FromStr for BrandName {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::new(text)
    }
}

impl fmt::Display for BrandName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for BrandName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0.as_str(), f)
    }
}

impl<'de> Deserialize<'de> for BrandName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = CompactString::deserialize(deserializer)?;
        Self::new(&text).map_err(serde::de::Error::custom)
    }
}

/// The brands that are configured.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Brands(BTreeSet<BrandName>);

impl FromIterator<BrandName> for Brands {
    fn from_iter<T: IntoIterator<Item = BrandName>>(names: T) -> Self {
        Self(names.into_iter().collect())
    }
}

impl Brands {
    /// Whether there is a brand of this name; the default always is.
    pub fn knows(&self, name: Option<&BrandName>) -> bool {
        name.is_none_or(|name| self.0.contains(name))
    }

    /// Refuses a name that nobody configured, and names those that somebody did.
    pub fn check(&self, name: Option<&BrandName>) -> Result<(), Invalid> {
        match name.filter(|name| !self.0.contains(name)) {
            None => Ok(()),
            Some(name) => {
                let why = format!("is not configured; {}", self.told());
                Err(Invalid::new("brand", name, why))
            }
        }
    }

    fn told(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(BrandName::as_str).collect();
        match names.split_last() {
            None => "there are no brands, which are tables [brands.NAME]".to_owned(),
            Some((only, [])) => format!("there is {only}"),
            Some((last, others)) => format!("there are {} and {last}", others.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_plain() {
        for text in ["acme", "0", "a-b_c", &"x".repeat(40)] {
            assert_eq!(BrandName::new(text).unwrap().as_str(), text);
        }
        for text in ["", "Acme", "a b", "a.b", "$ne", "ä", "a:b", &"x".repeat(41)] {
            assert!(BrandName::new(text).is_err(), "{text}");
        }
    }

    #[test]
    fn who_waits_for_a_brand_says_for_which() {
        let acme = BrandName::new("acme").unwrap();

        assert_eq!(acme.absent(), "the brand acme is not configured");
        assert_eq!(BrandName::awaited(&acme.absent()), Some(acme));
        assert_eq!(BrandName::awaited("it waits for its turn"), None);
    }

    #[test]
    fn a_name_that_nobody_configured_is_refused_with_those_there_are() {
        let name = |text: &str| BrandName::new(text).unwrap();
        let brands = |names: &[&str]| names.iter().map(|text| name(text)).collect::<Brands>();
        let why = |known: &[&str]| {
            let refused = brands(known).check(Some(&name("acme")));
            refused.unwrap_err().to_string()
        };

        assert!(brands(&[]).check(None).is_ok());
        assert!(brands(&["acme"]).check(Some(&name("acme"))).is_ok());
        assert_eq!(
            why(&[]),
            "brand \"acme\" is not configured; there are no brands, which are tables [brands.NAME]"
        );
        assert!(why(&["b"]).ends_with("there is b"));
        assert!(why(&["c", "a", "b"]).ends_with("there are a, b and c"));
    }
}
