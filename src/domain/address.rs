//! Email addresses that do not leak into logs.
//!
//! They print masked. Only the mailer and the store may call [`Address::reveal`] (P8).

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use unicode_normalization::UnicodeNormalization;

use super::name::{InvalidValue, debug_as_text};
use super::text_checks::is_invisible;

/// An email address. `Debug` and `Display` print it masked, as `a…@example.org`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(String);

impl Address {
    /// The longest address that SMTP can carry (RFC 5321, 4.5.3.1.3: a path of 256 with its
    /// brackets).
    pub const MAX_BYTES: usize = 254;

    /// Checks that the address can receive email (RFC 5321 and 6531) and has no invisible
    /// characters.
    ///
    /// Quoted local parts and address literals are rejected. The mailbox may still not exist.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidValue> {
        let address = Self::stored(text)?;
        let refuse = |why: &str| Err(InvalidValue::new("email address", mask(&address.0), why));
        if address.0.chars().any(is_invisible) {
            return refuse(
                "holds a character that cannot be seen, or that turns the direction of text",
            );
        }
        let local = address.local_part();
        if local.len() > MAX_LOCAL_BYTES {
            return refuse("has a local part longer than 64 bytes");
        }
        if local.split('.').any(str::is_empty) {
            return refuse("has a dot at the start or the end of its local part, or two in a row");
        }
        if !local.chars().all(is_in_local_part) {
            return refuse("holds a character that an address cannot have");
        }
        let dns_name = address.domain_in_ascii();
        if !(is_host(address.domain()) && dns_name.is_ascii() && is_host(&dns_name)) {
            return refuse("has a domain that cannot receive email");
        }
        Ok(address)
    }

    /// Reads an address from the store. The checks are looser than in [`Self::new`], because older
    /// versions stored addresses that are rejected now.
    pub fn stored(text: impl Into<String>) -> Result<Self, InvalidValue> {
        let text = text.into();
        let refuse = |why: &str| Err(InvalidValue::new("email address", mask(&text), why));
        if text.contains('…') {
            return refuse("is masked, as it was shown; give the address itself");
        }
        let Some((local, domain)) = text.rsplit_once('@') else {
            return refuse("has no @");
        };
        if local.is_empty() || domain.is_empty() {
            return refuse("has nothing before or after the @");
        }
        if text.len() > Self::MAX_BYTES {
            return refuse("is longer than 254 bytes");
        }
        if local.starts_with('"') {
            return refuse("has a quoted local part, which is not supported");
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace() || "<>,;\"()[]\\".contains(c))
            || local.contains('@')
        {
            return refuse("holds a character that an address cannot have");
        }
        if domain.starts_with('.') || domain.ends_with('.') || domain.contains("..") {
            return refuse("has a malformed domain");
        }
        Ok(Self(text))
    }

    /// Returns whether the domain is `localhost.localdomain`, as in the default sender address.
    pub fn is_placeholder(&self) -> bool {
        self.0.ends_with("@localhost.localdomain")
    }

    /// Returns the domain, which is not secret.
    pub fn domain(&self) -> &str {
        self.0.rsplit_once('@').map_or("", |(_, domain)| domain)
    }

    /// Returns the form in which addresses are compared: lower case, NFC, and the domain in its DNS
    /// form (`xn--…`, UTS 46).
    ///
    /// Domains are case-insensitive (RFC 5321, 2.4), and no major mailbox provider distinguishes
    /// `Ada@` from `ada@`. Suppressing one of them therefore suppresses both.
    pub fn folded(&self) -> Self {
        if self.0.is_ascii() {
            return Self(self.0.to_ascii_lowercase());
        }
        let lower = self.to_lowercase();
        let local: String = lower.local_part().nfc().collect();
        let composed_domain: String = lower.domain().nfc().collect();
        let domain = idna::domain_to_ascii(&composed_domain).unwrap_or(composed_domain);
        Self::from_parts(&local, &domain).unwrap_or(lower)
    }

    /// Returns the spellings under which an older version may have stored this address, when it
    /// compared addresses in lower case only. The first is [`Self::folded`].
    pub fn spellings(&self) -> Vec<Self> {
        let folded = self.folded();
        if self.0.is_ascii() && !folded.0.contains("xn--") {
            return vec![folded];
        }
        let lower = self.to_lowercase();
        let unicode_domain = match idna::domain_to_unicode(folded.domain()) {
            (unicode, Ok(())) => unicode,
            (_, Err(_)) => folded.domain().to_owned(),
        };
        let decomposed = |text: &str| text.nfd().collect::<String>();
        let decomposed_local = decomposed(folded.local_part());
        let decomposed_domain = decomposed(&unicode_domain);
        let mut spellings = vec![folded.clone()];
        for local in [folded.local_part(), &decomposed_local, lower.local_part()] {
            for domain in [folded.domain(), &unicode_domain, &decomposed_domain, lower.domain()] {
                if let Some(spelling) = Self::from_parts(local, domain)
                    && !spellings.contains(&spelling)
                {
                    spellings.push(spelling);
                }
            }
        }
        spellings
    }

    /// Returns the address in lower case, otherwise unchanged.
    pub fn to_lowercase(&self) -> Self {
        let lower = self.0.to_lowercase();
        // Some non-ASCII letters take more bytes in lower case.
        if lower.len() <= Self::MAX_BYTES { Self(lower) } else { Self(self.0.to_ascii_lowercase()) }
    }

    /// Returns the address unless it became invalid. Mapping a domain to its DNS form can produce
    /// dots and other characters, or make it longer.
    fn from_parts(local: &str, domain: &str) -> Option<Self> {
        Self::stored(format!("{local}@{domain}")).ok()
    }

    /// Returns the part before the `@`. It is as confidential as the address.
    pub fn local_part(&self) -> &str {
        self.0.rsplit_once('@').map_or("", |(local, _)| local)
    }

    /// Returns the domain in its DNS form: Punycode if it is not ASCII.
    pub fn domain_in_ascii(&self) -> Cow<'_, str> {
        let domain = self.domain();
        if domain.is_ascii() {
            return domain.into();
        }
        idna::domain_to_ascii(domain).map_or(domain.into(), Cow::Owned)
    }

    /// Returns the unmasked address. Only the mailer and the store may use it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl FromStr for Address {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        Self::new(text)
    }
}

/// The end of a page in a list of addresses. It prints in hexadecimal, because addresses must not
/// appear in URLs and access logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressCursor(pub Address);

impl fmt::Display for AddressCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0.reveal()))
    }
}

impl FromStr for AddressCursor {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let decode = || Address::stored(String::from_utf8(hex::decode(text).ok()?).ok()?).ok();
        let why = "is not one that a page gave as its next";
        decode().map(Self).ok_or_else(|| InvalidValue::new("cursor", "", why))
    }
}

/// The longest local part (RFC 5321, 4.5.3.1.1).
const MAX_LOCAL_BYTES: usize = 64;

/// Returns whether a local part can contain this character unquoted (RFC 5322 `atext`, RFC 6531).
fn is_in_local_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || !c.is_ascii() || ".!#$%&'*+-/=?^_`{|}~".contains(c)
}

/// Returns whether the domain has at least two labels of 1 to 63 characters each. Underscores are
/// allowed, because hosts with one exist.
fn is_host(domain: &str) -> bool {
    let is_letter_or_digit = |c: char| c.is_ascii_alphanumeric() || !c.is_ascii();
    let is_label = |label: &str| {
        label.chars().all(|c| is_letter_or_digit(c) || "-_".contains(c))
            && label.starts_with(is_letter_or_digit)
            && label.ends_with(is_letter_or_digit)
            && label.chars().count() <= 63
    };
    domain.contains('.') && domain.split('.').all(is_label)
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

debug_as_text!(Address);

impl<'de> serde::Deserialize<'de> for Address {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folded_forms_of_an_address_are_readable_again() {
        for text in [
            "ada@。example.org",
            "ada@example.org。",
            "ada@example。。org",
            "ada@ｅxample.org",
            "ada@⑴.example",
        ] {
            let address = Address::stored(text).unwrap();
            for form in address.spellings().into_iter().chain([address.folded()]) {
                assert!(Address::stored(form.reveal()).is_ok(), "{text}: {}", form.reveal());
            }
        }
    }

    #[test]
    fn an_address_prints_masked() {
        let address = Address::new("ada.lovelace@example.org").unwrap();
        assert_eq!(format!("{address} {address:?}"), "a…@example.org a…@example.org");
        assert_eq!(address.reveal(), "ada.lovelace@example.org");
    }

    #[test]
    fn spellings_that_differ_in_case_fold_to_one_address() {
        let folded = |text: &str| Address::new(text).unwrap().folded();
        assert_eq!(folded("Ada.L@Example.ORG"), folded("ada.l@example.org"));
        assert_eq!(folded("ÜNAL@MÜLLER.example"), folded("ünal@müller.example"));
        assert_ne!(folded("ada@example.org"), folded("ada.l@example.org"));

        let grows = format!("{}@a.org", "İ".repeat(124));
        let folded = Address::stored(&*grows).unwrap().folded();
        assert_eq!(Address::stored(folded.reveal()).unwrap(), folded);
    }

    #[test]
    fn all_forms_of_an_address_fold_to_one_of_its_spellings() {
        let forms = [
            "René@ПРИМЕР.example",
            "rene\u{301}@пример.example",
            "RENÉ@xn--e1afmkfd.example",
            "rené@XN--E1AFMKFD.EXAMPLE",
            "rene\u{301}@Пример.example",
        ];
        let forms = forms.map(|form| Address::new(form).unwrap());
        for form in &forms {
            assert_eq!(form.folded().reveal(), "rené@xn--e1afmkfd.example");
            assert_eq!(form.folded().folded(), form.folded());
            assert_eq!(form.spellings()[0], form.folded());
            for other in &forms {
                assert!(form.spellings().contains(&other.to_lowercase()), "{}", other.reveal());
            }
        }
        let plain = Address::new("Ada_L@under_score.Example").unwrap();
        assert_eq!(plain.spellings(), [plain.to_lowercase()]);
        let accent = ["x@müller.example", "x@mu\u{308}ller.example", "x@xn--mller-kva.example"];
        let accent = accent.map(|form| Address::new(form).unwrap());
        assert!(accent.iter().all(|form| form.folded() == accent[2]));
        assert!(accent[2].spellings().contains(&accent[1]));
    }

    #[test]
    fn an_address_with_invisible_characters_is_rejected() {
        for unseen in [
            '\u{200b}',
            '\u{202e}',
            '\u{2066}',
            '\u{ad}',
            '\u{feff}',
            '\u{200d}',
            '\u{e0041}',
            '\u{fe0f}',
        ] {
            for text in [format!("a{unseen}da@example.org"), format!("ada@exam{unseen}ple.org")] {
                let refused = Address::new(text.clone()).unwrap_err();
                assert!(refused.to_string().contains("cannot be seen"), "{refused}");
                assert!(Address::stored(text).is_ok(), "an older program kept it");
            }
        }
        assert!(Address::new("अदा@उदाहरण.example").is_ok());
    }

    #[test]
    fn a_cursor_round_trips_and_hides_the_address() {
        let cursor = AddressCursor(Address::new("ünal@example.org").unwrap());
        let written = cursor.to_string();
        assert!(written.bytes().all(|digit| digit.is_ascii_hexdigit()));
        assert_eq!(written.parse(), Ok(cursor));
        for text in ["", "6", "zz", "61", "ünal@example.org", "ff40"] {
            assert!(text.parse::<AddressCursor>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_masked_address_is_rejected() {
        let shown = Address::new("ada@example.org").unwrap().to_string();
        let error = Address::new(shown).unwrap_err();
        assert!(error.to_string().contains("is masked"), "{error}");
    }

    #[test]
    fn an_undeliverable_address_is_rejected_with_the_reason() {
        let local = |bytes| "x".repeat(bytes) + "@example.org";
        for (text, reason) in [
            (".ada@example.org", "has a dot at the start"),
            ("ada.@example.org", "has a dot at the start"),
            ("a..da@example.org", "two in a row"),
            (local(65).as_str(), "has a local part longer than 64 bytes"),
            ("a:da@example.org", "holds a character"),
            ("\"ada l\"@example.org", "has a quoted local part"),
            ("\"a@b\"@example.org", "has a quoted local part"),
            ("☃@x", "has a domain that cannot receive email"),
            ("ada@-example.org", "has a domain that cannot receive email"),
            ("ada@exa$mple.org", "has a domain that cannot receive email"),
            (
                format!("ada@{}.org", "x".repeat(64)).as_str(),
                "has a domain that cannot receive email",
            ),
            ("ada@。example.org", "has a domain that cannot receive email"),
            ("ada@⑴.example", "has a domain that cannot receive email"),
        ] {
            let refused = Address::new(text).unwrap_err().to_string();
            assert!(refused.contains(reason), "{text}: {refused}");
        }
        for text in [
            "☃@example.org",
            local(64).as_str(),
            "a.!#$%&'*+-/=?^_`{|}~b@example.org",
            "ada@under_score.example",
            "ada@bücher.example",
            "अदा@उदाहरण.example",
        ] {
            let address = Address::new(text).unwrap();
            assert_eq!(address.reveal(), text);
        }
    }

    #[test]
    fn an_invalid_address_is_rejected_without_revealing_it() {
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
        assert!(!Address::new("secret@a..b").unwrap_err().to_string().contains("secret"));
    }
}
