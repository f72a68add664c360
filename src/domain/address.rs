//! E-mail addresses that do not leak: they print masked, and only what sends or stores them may reveal them.

use std::fmt;
use std::str::FromStr;

use super::name::Invalid;

/// An e-mail address. `Debug` and `Display` show `a…@example.org`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(String);

impl Address {
    /// The longest address SMTP can carry (RFC 5321, 4.5.3.1.3: a path of 256 with its brackets).
    pub const MAX_BYTES: usize = 254;

    /// Checks the outline: one part before and one after the last `@`, no white space, controls, or brackets.
    /// Whether it exists only a mail can tell.
    pub fn new(text: impl Into<String>) -> Result<Self, Invalid> {
        let text = text.into();
        let refuse = |why: &str| Err(Invalid::new("e-mail address", mask(&text), why));
        if text.contains('…') {
            return refuse("is masked, as it was shown; give the address itself");
        }
        let Some((local, domain)) = text.rsplit_once('@') else {
            return refuse("has no @");
        };
        if local.is_empty() || domain.is_empty() {
            return refuse("lacks what stands before or after the @");
        }
        if text.len() > Self::MAX_BYTES {
            return refuse("is longer than 254 bytes");
        }
        if text
            .chars()
            .any(|c| c.is_control() || c.is_whitespace() || "<>,;\"()[]\\".contains(c))
            || local.contains('@')
        {
            return refuse("holds a character that an address cannot have");
        }
        if domain.starts_with('.') || domain.ends_with('.') || domain.contains("..") {
            return refuse("has a malformed domain");
        }
        Ok(Self(text))
    }

    /// Whether it is at a host that nobody has, as the address that is configured when nobody says one.
    pub fn is_placeholder(&self) -> bool {
        self.0.ends_with("@localhost.localdomain")
    }

    /// What stands behind the `@`: whose mail server it is, which is nobody's secret.
    pub fn domain(&self) -> &str {
        self.0.rsplit_once('@').map_or("", |(_, domain)| domain)
    }

    /// What addresses are compared by: all in lower case. The domain has none (RFC 5321, 2.4), and no mailbox provider of note tells
    /// `Ada@` from `ada@`; whoever stopped the mails to one of them meant both.
    pub fn folded(&self) -> Self {
        let lower = self.0.to_lowercase();
        // A few letters beyond ASCII grow.
        if lower.len() <= Self::MAX_BYTES {
            Self(lower)
        } else {
            Self(self.0.to_ascii_lowercase())
        }
    }

    /// The address itself: for the mailer's envelope and the store's record, and for nothing else.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl FromStr for Address {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::new(text)
    }
}

/// Where a page of a list of addresses ends, so that the next one can be asked for. It prints as hexadecimal digits, as addresses do not belong into
/// URLs and what keeps them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(pub Address);

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0.reveal()))
    }
}

impl FromStr for Cursor {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let bytes = hex::decode(text).ok();
        bytes
            .and_then(|bytes| Address::new(String::from_utf8(bytes).ok()?).ok())
            .map(Self)
            .ok_or_else(|| Invalid::new("cursor", "", "is not one that a page gave as its next"))
    }
}

fn mask(text: &str) -> String {
    let first = |text: &str| text.chars().next().map_or(String::new(), String::from);
    match text.rsplit_once('@') {
        Some((local, domain)) => format!("{}…@{domain}", first(local)),
        None => format!("{}…", first(text)),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&mask(&self.0))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<'de> serde::Deserialize<'de> for Address {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_prints_masked() {
        let address = Address::new("ada.lovelace@example.org").unwrap();
        assert_eq!(
            format!("{address} {address:?}"),
            "a…@example.org a…@example.org"
        );
        assert_eq!(address.reveal(), "ada.lovelace@example.org");
    }

    #[test]
    fn spellings_that_differ_in_case_fold_to_one_address() {
        let folded = |text: &str| Address::new(text).unwrap().folded();
        assert_eq!(folded("Ada.L@Example.ORG"), folded("ada.l@example.org"));
        assert_eq!(folded("ÜNAL@MÜLLER.example"), folded("ünal@müller.example"));
        assert_ne!(folded("ada@example.org"), folded("ada.l@example.org"));

        let grows = format!("{}@a.org", "İ".repeat(124));
        let folded = folded(&grows);
        assert_eq!(Address::new(folded.reveal()).unwrap(), folded);
    }

    #[test]
    fn a_cursor_is_read_as_it_is_written_and_names_nobody() {
        let cursor = Cursor(Address::new("ünal@example.org").unwrap());
        let written = cursor.to_string();
        assert!(written.bytes().all(|digit| digit.is_ascii_hexdigit()));
        assert_eq!(written.parse(), Ok(cursor));
        for text in ["", "6", "zz", "61", "ünal@example.org", "ff40"] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_masked_address_is_not_taken_for_one() {
        let shown = Address::new("ada@example.org").unwrap().to_string();
        let error = Address::new(shown).unwrap_err();
        assert!(error.to_string().contains("is masked"), "{error}");
    }

    #[test]
    fn what_cannot_be_an_address_is_refused_without_naming_it_in_full() {
        for text in [
            "",
            "ada",
            "@example.org",
            "ada@",
            "a b@example.org",
            "ada@x\r\nBcc: eve@example.org",
            "a@b@c.org",
        ] {
            let error = Address::new(text).unwrap_err();
            assert!(error.value.len() <= text.len() + "…@".len(), "{error}");
        }
        assert!(
            !Address::new("secret@a..b")
                .unwrap_err()
                .to_string()
                .contains("secret")
        );
    }
}
