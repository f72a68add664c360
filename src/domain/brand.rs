//! Brands: the name, theme and sender of emails, if one installation sends for several products.
//!
//! An email has exactly one brand: that of its batch, else that of its user, else the default,
//! which has no name. New records cannot name a brand that is not configured. If a brand is later
//! removed from the configuration, its emails wait and no other brand replaces it.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use compact_str::CompactString;
use serde::{Deserialize, Deserializer, Serialize};

use super::name::Invalid;

/// The longest name in bytes. Links contain it.
pub const MAX_BRAND: usize = 40;

/// The name of a brand: 1 to [`MAX_BRAND`] lower-case letters, digits, `-` and `_`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct BrandName(CompactString);

impl BrandName {
    /// Checks a name.
    pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
        let text = text.as_ref();
        let known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b);
        if (1..=MAX_BRAND).contains(&text.len()) && text.bytes().all(known) {
            return Ok(Self(CompactString::new(text)));
        }
        let why = format!("is not 1 to {MAX_BRAND} lower-case letters, digits, - and _");
        Err(Invalid::new("brand", text.escape_debug(), why))
    }

    /// Wraps a name from the store without checking it.
    pub fn stored(text: impl AsRef<str>) -> Self {
        Self(CompactString::new(text))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the reason why an email of this unconfigured brand waits, as its delivery stores it.
    pub fn absent(&self) -> String {
        format!("{ABSENT}{self}{FROM_HERE}")
    }

    /// Returns the brand that an email waits for, if the reason is one from [`Self::absent`].
    pub fn awaited(reason: &str) -> Option<Self> {
        let name = reason.strip_prefix(ABSENT)?.strip_suffix(FROM_HERE)?;
        Some(Self::stored(name))
    }
}

/// The text before and after the name in that reason.
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

/// The configured brands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Brands(BTreeSet<BrandName>);

impl FromIterator<BrandName> for Brands {
    fn from_iter<T: IntoIterator<Item = BrandName>>(names: T) -> Self {
        Self(names.into_iter().collect())
    }
}

impl Brands {
    /// Returns whether this brand is configured. The default (`None`) always is.
    pub fn knows(&self, name: Option<&BrandName>) -> bool {
        name.is_none_or(|name| self.0.contains(name))
    }

    /// Rejects a brand that is not configured. The error lists the configured ones.
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
    fn a_brand_name_is_short_and_plain() {
        for text in ["acme", "0", "a-b_c", &"x".repeat(40)] {
            assert_eq!(BrandName::new(text).unwrap().as_str(), text);
        }
        for text in ["", "Acme", "a b", "a.b", "$ne", "ä", "a:b", &"x".repeat(41)] {
            assert!(BrandName::new(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_reason_of_a_waiting_email_names_its_missing_brand() {
        let acme = BrandName::new("acme").unwrap();

        assert_eq!(acme.absent(), "the brand acme is not configured");
        assert_eq!(BrandName::awaited(&acme.absent()), Some(acme));
        assert_eq!(BrandName::awaited("it waits for its turn"), None);
    }

    #[test]
    fn an_unconfigured_brand_is_rejected_with_the_configured_names() {
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
