//! The language of a user, in the notation of BCP 47 or POSIX: `pt-BR`, `de_AT.UTF-8`.
//!
//! New values are checked. Stored values are read as they are; an invalid one means English. A
//! valid locale without a catalog is accepted and falls back.

use super::name::Invalid;

/// The longest locale in bytes. RFC 5646, 4.4.1 (BCP 47) asks for at least 35.
pub const MAX_LOCALE: usize = 100;

/// Checks a locale. The empty text is valid and means English.
pub fn check(locale: &str) -> Result<(), Invalid> {
    if locale.len() > MAX_LOCALE {
        let why = format!("bytes is more than the {MAX_LOCALE} that can be kept; shorten it");
        return Err(Invalid::limit("locale of", locale.len(), why));
    }
    let is_plain = locale.bytes().all(|byte| byte.is_ascii_graphic());
    if locale.is_empty() || is_plain && tag(locale).is_some() {
        return Ok(());
    }
    let why = "is no language tag; write one such as de or pt-BR, or leave it out for English";
    Err(Invalid::new("locale", locale, why))
}

/// Returns a locale in the notation of catalogs, such as `pt-BR` for `pt_br`; `None` if it is
/// invalid.
pub fn tag(locale: &str) -> Option<String> {
    let (locale, _) = locale.split_once(['.', '@']).unwrap_or((locale, ""));
    let mut parts = locale.trim().split(['-', '_']);
    let language = parts.next()?.to_ascii_lowercase();
    let is_language = |part: &str| {
        (2..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphabetic())
    };
    let mut tag = Some(language).filter(|language| is_language(language))?;
    for part in parts {
        if !(1..=8).contains(&part.len()) || !part.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return None;
        }
        tag.push('-');
        let lower = part.to_ascii_lowercase();
        match lower.len() {
            2 => tag.push_str(&lower.to_ascii_uppercase()),
            4 if lower.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                tag.push_str(&lower[..1].to_ascii_uppercase());
                tag.push_str(&lower[1..]);
            }
            _ => tag.push_str(&lower),
        }
    }
    Some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_locale_is_rejected_and_one_without_a_catalog_is_not() {
        for good in [
            "",
            "de",
            "pt-BR",
            "pt_br",
            "xx",
            "de_AT.UTF-8",
            "zh-Hant-TW",
            "tlh",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "german!",
            "d",
            "pt BR",
            " de",
            "de-",
            "de-toolongpart",
            "C.\u{e9}",
            "de\n",
        ] {
            let refused = check(bad).unwrap_err().to_string();
            assert!(
                refused.contains("is no language tag; write one such as de or pt-BR"),
                "{bad}: {refused}"
            );
        }
        let long = check(&"de-".repeat(40)).unwrap_err().to_string();
        assert!(long.contains("120 bytes is more than the 100"), "{long}");
    }
}
