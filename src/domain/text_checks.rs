//! Checks texts from outside: web addresses, locales, phrases and other short lines.

use std::ops::RangeInclusive;

use unic_langid::LanguageIdentifier;
use url::Url;

use super::name::{InvalidValue, checked_texts};

/// Returns the text if it has only ASCII letters, digits and characters of `others`, and if its
/// length in bytes is in this range.
pub fn plain_word(text: &str, others: &str, length: RangeInclusive<usize>) -> Option<String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || others.contains(c);
    let is_plain = length.contains(&text.len()) && text.chars().all(is_allowed);
    is_plain.then(|| text.to_owned())
}

/// Checks that a text is a web address that an email can contain.
///
/// # Errors
///
/// Says what is wrong with it, as the end of a sentence.
pub fn check_link(text: &str) -> Result<(), String> {
    let is_web = text.split_once("://").is_some_and(|(scheme, _)| {
        scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http")
    });
    if !is_web {
        return Err("does not begin with https:// or http://".into());
    }
    if text.chars().any(|c| c.is_control() || is_invisible(c)) || text.trim() != text {
        return Err("holds a character that cannot be seen".into());
    }
    let url = Url::parse(text).map_err(|error| format!("is not a web address: {error}"))?;
    let after_scheme = &text[url.scheme().len() + "://".len()..];
    let authority = after_scheme.split(['/', '?', '#', '\\']).next();
    if authority.is_none_or(|authority| authority.contains('@')) {
        return Err("holds a user or a password".into());
    }
    if url.port() == Some(0) {
        return Err("has port 0".into());
    }
    Ok(())
}

/// The longest locale in bytes. RFC 5646, 4.4.1 (BCP 47) asks for at least 35.
pub const MAX_LOCALE: usize = 100;

/// Checks a locale. The empty text is valid and means English.
pub fn check_locale(locale: &str) -> Result<(), InvalidValue> {
    let why = format_args!("bytes is more than the {MAX_LOCALE} that can be kept; shorten it");
    InvalidValue::check_limit("locale of", locale.len(), MAX_LOCALE, why)?;
    let is_plain = locale.bytes().all(|byte| byte.is_ascii_graphic());
    if locale.is_empty() || is_plain && to_language_tag(locale).is_some() {
        return Ok(());
    }
    let why = "is no language tag; write one such as de or pt-BR, or leave it out for English";
    Err(InvalidValue::new("locale", locale, why))
}

/// Returns a locale in the notation of catalogs, such as `pt-BR` for `pt_br`, without extensions
/// such as `-u-ca-gregory`. `None` if it is invalid.
pub fn to_language_tag(locale: &str) -> Option<String> {
    let (without_encoding, _) = locale.split_once(['.', '@']).unwrap_or((locale, ""));
    let subtags = without_encoding.trim().split(['-', '_']);
    let without_extensions: Vec<&str> = subtags.take_while(|subtag| subtag.len() != 1).collect();
    let tag: LanguageIdentifier = without_extensions.join("-").parse().ok()?;
    Some(tag.to_string())
}

/// Returns whether a character is invisible or changes the direction or shape of text: Unicode's
/// `Cf` and `Default_Ignorable_Code_Point`.
pub(crate) fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

checked_texts! {
    /// A phrase such as `commented on`, placed between the actors and the topic. One line of 1 to
    /// 60 characters.
    Phrase: |text| one_line("phrase", text, 60);
    /// A category such as `Community`. It groups types on the preferences page, and feeds can
    /// filter by it. One line of 1 to 60 characters.
    Category: |text| one_line("category", text, 60);
    /// The reason why users cannot turn a type off, such as `Security notices cannot be turned
    /// off`. One line of 1 to 120 characters.
    Mandate: |text| one_line("reason", text, 120);
}

impl Default for Mandate {
    fn default() -> Self {
        Self::stored("This cannot be turned off")
    }
}

/// Checks that a text is one line of 1 to `max_chars` characters, and trims spaces.
pub(crate) fn one_line<'a>(
    what: &'static str,
    text: &'a str,
    max_chars: usize,
) -> Result<&'a str, InvalidValue> {
    let trimmed = text.trim_matches(' ');
    let why = if trimmed.is_empty() {
        "says nothing".to_owned()
    } else if trimmed.chars().any(char::is_control) {
        "holds a line break or another control character".to_owned()
    } else if trimmed.chars().count() > max_chars {
        format!("is longer than {max_chars} characters")
    } else {
        return Ok(trimmed);
    };
    Err(InvalidValue::new(what, text.escape_debug(), why))
}

#[cfg(test)]
#[path = "text_checks_tests.rs"]
mod tests;
