//! Checks DKIM (RFC 6376): whether receivers find the key that emails are signed with.
//!
//! If the provider signs, only the presence of a key is checked, because its private key is unknown
//! here. Our own key is compared. These are pure functions; [`super::sender`] does the look-ups.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{Finding, Verdict};

pub(super) const DKIM: &str = "DKIM";
/// The bytes of RSA keys with 1,024 bits, the minimum of RFC 8301, section 3.2, and with 2,048
/// bits.
const LEAST_BYTES: usize = 128;
const GOOD_BYTES: usize = 256;

/// Checks the texts under a key's name.
pub(super) fn judge(name: &str, texts: &[String]) -> Finding {
    let mut keys = texts.iter().filter_map(|text| Key::read(text));
    let publish = "publish the key there that the provider names";
    match (keys.next(), keys.next()) {
        (None, _) => Finding::error(
            DKIM,
            format!("there is no key at {name}, so receivers cannot verify mails"),
            publish,
        ),
        (Some(_), Some(_)) => Finding::error(
            DKIM,
            format!("there are several keys at {name}, so none is sure to count"),
            "leave one of them",
        ),
        (Some(key), None) => judge_key(name, &key, publish),
    }
}

/// Checks the texts under the name of our own key, whose expected record is `record`.
pub(super) fn judge_own(name: &str, texts: &[String], record: &str) -> Finding {
    let found = judge(name, texts);
    let publish = format!("publish this text there: {record}");
    if found.verdict == Verdict::Error {
        return Finding::error(DKIM, found.found, publish);
    }
    let ours = Key::read(record);
    let theirs = texts.iter().find_map(|text| Key::read(text));
    match (theirs, ours) {
        (Some(theirs), Some(ours)) if theirs.is_same(&ours) => found,
        _ => Finding::error(
            DKIM,
            format!(
                "the key at {name} is not the one that mails are signed with, so receivers refuse their signatures"
            ),
            publish,
        ),
    }
}

/// Adds the record to publish if our own key could not be looked up.
pub(super) fn or_to_publish(found: Finding, name: &str, record: &str) -> Finding {
    match found.verdict {
        Verdict::Unchecked => {
            let found = format!("{}; at {name} there has to be: {record}", found.found);
            Finding::unchecked(DKIM, found)
        }
        Verdict::Ok | Verdict::Warning | Verdict::Error => found,
    }
}

fn judge_key(name: &str, key: &Key, publish: &str) -> Finding {
    match (key.is_rsa, key.bytes.as_ref().map(Vec::len)) {
        (_, None) => Finding::error(DKIM, format!("the key at {name} is not Base64"), publish),
        (_, Some(0)) => Finding::error(DKIM, format!("the key at {name} is withdrawn"), publish),
        (true, Some(bytes)) if bytes < LEAST_BYTES => Finding::error(
            DKIM,
            format!("the key at {name} has less than 1,024 bits, and does not count"),
            "let the provider make one of 2,048 bits",
        ),
        (true, Some(bytes)) if bytes < GOOD_BYTES => Finding::ok(
            DKIM,
            format!("there is a key at {name}; 2,048 bits would be better"),
        ),
        _ => Finding::ok(DKIM, format!("there is a key at {name}")),
    }
}

struct Key {
    is_rsa: bool,
    /// The decoded key, if it is valid Base64.
    bytes: Option<Vec<u8>>,
}

impl Key {
    /// Parses a key record, a list of tags. The tag `p` is the key (section 3.6.1).
    fn read(text: &str) -> Option<Self> {
        let tags = text.split(';').filter_map(|tag| tag.split_once('='));
        let tags: Vec<_> = tags
            .map(|(name, value)| (name.trim(), value.trim()))
            .collect();
        let of = |wanted: &str| {
            tags.iter()
                .find(|(name, _)| *name == wanted)
                .map(|(_, value)| *value)
        };
        if of("v").is_some_and(|version| version != "DKIM1") {
            return None;
        }
        let key: String = of("p")?.split_whitespace().collect();
        Some(Self {
            is_rsa: of("k").is_none_or(|kind| kind == "rsa"),
            bytes: STANDARD.decode(key).ok(),
        })
    }

    /// Returns whether both are the same key. An RSA key may be stored with its algorithm
    /// identifier or without.
    fn is_same(&self, other: &Self) -> bool {
        let (Some(one), Some(other_one)) = (&self.bytes, &other.bytes) else {
            return false;
        };
        let is_within = self.is_rsa && (one.ends_with(other_one) || other_one.ends_with(one));
        self.is_rsa == other.is_rsa && (one == other_one || is_within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: usize) -> String {
        STANDARD.encode(vec![7; bytes])
    }

    #[test]
    fn a_published_key_must_be_readable_and_long_enough() {
        for (text, expected) in [
            (format!("v=DKIM1; k=rsa; p={}", of(294)), Verdict::Ok),
            (format!("p={}", of(162)), Verdict::Ok),
            (format!("v=DKIM1; k=ed25519; p={}", of(32)), Verdict::Ok),
            (format!("v=DKIM1; p={}", of(94)), Verdict::Error),
            ("v=DKIM1; p=".to_owned(), Verdict::Error),
            ("v=DKIM1; p=?".to_owned(), Verdict::Error),
            ("v=DKIM2; p=AAAA".to_owned(), Verdict::Error),
            ("something else".to_owned(), Verdict::Error),
        ] {
            let found = judge("k1._domainkey.art.example", std::slice::from_ref(&text));
            assert_eq!(found.verdict, expected, "{text}: {found:?}");
        }
    }

    #[test]
    fn the_published_key_must_match_the_configured_key() {
        let record = |key: &[u8]| format!("v=DKIM1; k=rsa; p={}", STANDARD.encode(key));
        let numbers = [9; 270];
        let whole = [&[1; 24], &numbers[..]].concat();
        let ours = record(&whole);
        let of = |texts: &[String]| judge_own("k1._domainkey.art.example", texts, &ours);

        assert_eq!(of(std::slice::from_ref(&ours)).verdict, Verdict::Ok);
        assert_eq!(of(&[record(&numbers)]).verdict, Verdict::Ok);
        let missing = of(&[]);
        let another = of(&[record(&[8; 294])]);
        let kind = of(&[ours.replace("rsa", "ed25519")]);
        for found in [&missing, &another, &kind] {
            assert_eq!(found.verdict, Verdict::Error, "{found:?}");
            assert!(found.advice.as_ref().unwrap().contains(&ours), "{found:?}");
        }
        assert!(missing.found.contains("there is no key"), "{missing:?}");
        assert!(another.found.contains("is not the one"), "{another:?}");
    }

    #[test]
    fn no_key_and_several_keys_are_errors() {
        let key = || format!("v=DKIM1; p={}", of(294));

        assert_eq!(judge("x", &[]).verdict, Verdict::Error);
        assert_eq!(judge("x", &[key(), key()]).verdict, Verdict::Error);
        assert_eq!(judge("x", &[key(), "a remark".into()]).verdict, Verdict::Ok);
    }
}
