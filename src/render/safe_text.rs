//! Sanitizes, shortens and wraps text, names and headings for emails.
//!
//! External text becomes one line without control characters, and it cannot change the direction of
//! the text after it. Lengths are in characters. A cut never separates a letter from its accents.

use std::borrow::Cow;

use unicode_normalization::char::is_combining_mark;

use crate::domain::email_sections::{Author, EmailItem};
use crate::domain::{EventType, text_checks};

/// Returns the text as one line. White space and control characters become single spaces; marks
/// that change the text direction are removed.
pub(super) fn clean(text: &str) -> String {
    joined(text, |c| !changes_direction(c))
}

/// Like [`clean`], but keeps isolates (U+2068, U+2069), which templates add around names.
pub(super) fn one_line(text: &str) -> String {
    joined(text, |c| matches!(c, '\u{2068}' | '\u{2069}') || !changes_direction(c))
}

fn joined(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()) {
        let start = out.len();
        out.extend(word.chars().filter(|c| keep(*c)));
        if out.len() > start {
            out.push(' ');
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// Returns whether a character is an embedding, override, isolate or byte-order mark.
fn changes_direction(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The zero-width joiner, which combines two characters.
const JOINER: char = '\u{200d}';

/// Returns whether a character modifies the one before it, or joins two. Beside combining marks,
/// these are joiners, a Thai vowel, skin tones and the tags of flags.
fn is_extending(c: char) -> bool {
    is_combining_mark(c)
        || matches!(c, '\u{200c}' | JOINER | '\u{e33}' | '\u{1f3fb}'..='\u{1f3ff}' | '\u{e0020}'..='\u{e007f}')
}

/// Returns at most `max` characters. Shortened text ends with an ellipsis, and is cut at a space if
/// one is near.
pub(super) fn clamp(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max || text.chars().count() <= max {
        return Cow::Borrowed(text);
    }
    let room = max.saturating_sub(1);
    let mut cut = text.char_indices().nth(room).map_or(text.len(), |(at, _)| at);
    if let Some(space) = text[..cut].rfind(' ')
        && text[space..cut].chars().count() <= room / 4
    {
        cut = space;
    }
    while cut > 0 && (text[cut..].starts_with(is_extending) || text[..cut].ends_with(JOINER)) {
        cut = text[..cut].char_indices().next_back().map_or(0, |(at, _)| at);
    }
    let kept = text[..cut].trim_end_matches(|c: char| {
        c == ' ' || matches!(c, ',' | ';' | ':' | '-' | '–' | '—' | '.')
    });
    Cow::Owned(format!("{kept}…"))
}

/// Returns the URL if it is safe in an email. It must be `http` or `https`, have at most 2,048
/// bytes, and contain nothing that ends an attribute or a line.
pub(super) fn link(url: &str) -> Option<&str> {
    const MAX_BYTES: usize = 2_048;
    let fits = url.len() <= MAX_BYTES
        && text_checks::check_link(url).is_ok()
        && !url.chars().any(char::is_whitespace);
    fits.then_some(url)
}

/// Splits a type name into words: `ArtworkPublished` and `artwork_published` become `Artwork
/// published`.
pub(super) fn spaced(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 8);
    let mut previous: Option<char> = None;
    let mut chars = name.chars().peekable();
    while let Some(c) = chars.next() {
        let lower_next = chars.peek().is_some_and(|next| next.is_lowercase());
        match previous {
            None => out.extend(c.to_uppercase()),
            Some(_) if matches!(c, '_' | '-' | '.') => out.push(' '),
            Some(previous)
                if c.is_uppercase()
                    && (previous.is_lowercase() || (previous.is_uppercase() && lower_next)) =>
            {
                out.push(' ');
                if lower_next {
                    out.extend(c.to_lowercase());
                } else {
                    out.push(c);
                }
            }
            Some(_) => out.push(c),
        }
        previous = Some(c);
    }
    clean(&out)
}

/// Wraps text at spaces to at most `width` characters a line, and indents every line but the first
/// by `indent`. Words that are longer stay whole.
pub(super) fn wrap(text: &str, width: usize, indent: usize) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for (n, line) in text.lines().enumerate() {
        if n > 0 {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
        }
        let mut column = indent;
        for word in line.split(' ').filter(|word| !word.is_empty()) {
            let len = word.chars().count();
            if column > indent && column + 1 + len > width {
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', indent));
                column = indent;
            } else if column > indent {
                out.push(' ');
                column += 1;
            }
            out.push_str(word);
            column += len;
        }
    }
    out
}

/// Appends text, escaped for HTML.
pub(super) fn escape_into(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
}

/// The longest title, in characters.
pub(super) const MAX_TITLE: usize = 140;
/// The longest other name, in characters.
pub(super) const MAX_NAME: usize = 80;
/// The longest quoted text, in characters.
pub(super) const MAX_QUOTE: usize = 280;
/// The longest name that shares a line with others, in characters.
pub(super) const MAX_SHORT_NAME: usize = 60;

/// Returns the text as one safe line of at most `max` characters. Reads only the first `4 * max`
/// characters, to bound the cost.
pub(super) fn shorten(text: &str, max: usize) -> String {
    let enough = text.char_indices().nth(4 * max).map_or(text.len(), |(at, _)| at);
    clamp(&clean(&text[..enough]), max).into_owned()
}

/// Like [`shorten`], but `None` if the result is empty.
pub(super) fn non_empty(text: &str, max: usize) -> Option<String> {
    Some(shorten(text, max)).filter(|text| !text.is_empty())
}

/// Returns the title of an item's object, or the id if there is none.
pub(super) fn label(item: &EmailItem, max: usize) -> String {
    let title = item.object.title.as_deref();
    title.and_then(|title| non_empty(title, max)).unwrap_or_else(|| shorten(item.id.as_str(), max))
}

/// Returns the heading of a type. A type without a configured heading gets its name with spaces
/// between the words.
pub(super) fn heading_of(heading: &str, kind: &EventType) -> String {
    if heading == kind.as_str() {
        shorten(&spaced(heading), MAX_NAME)
    } else {
        shorten(heading, MAX_NAME)
    }
}

/// Returns the name of the one person behind all events; `None` if there are several, or if some
/// are unknown.
pub(super) fn only_author(
    mut authors: impl Iterator<Item = Option<Author>>,
    all_known: bool,
) -> Option<String> {
    let first = authors.next()??;
    let is_only = authors.all(|other| other.is_some_and(|other| other.is_same(&first)));
    non_empty(&first.name, MAX_NAME).filter(|_| is_only && all_known)
}

/// Returns names for a subject, taken from the sections in turn: three if there are three events,
/// else at most two.
pub(super) fn names(sections: &[Vec<(Author, u64)>], total: u64) -> Vec<Author> {
    const MAX_ROUNDS: usize = 12;
    let mut names: Vec<Author> = Vec::new();
    let rounds =
        (0..MAX_ROUNDS).flat_map(|n| sections.iter().filter_map(move |names| names.get(n)));
    for (name, _) in rounds {
        if !names.iter().any(|known| known.is_same(name)) {
            names.push(name.clone());
        }
        if names.len() == 3 {
            names.truncate(if total == 3 { 3 } else { 2 });
            break;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn external_text_becomes_one_harmless_line() {
        assert_eq!(clean("Norham Castle"), "Norham Castle");
        assert_eq!(clean(" a\r\n\tb \u{0}c\u{a0}d  e "), "a b c d e");
        assert_eq!(clean("safe\u{202e}gpj.exe\u{2066}"), "safegpj.exe");
        assert_eq!(clean("\u{202e} \u{feff}\r\n"), "");
        assert_eq!(clean("👩\u{200d}🎨 می\u{200c}خواهم"), "👩\u{200d}🎨 می\u{200c}خواهم");
    }

    #[test]
    fn text_is_cut_between_words_and_never_within_a_grapheme() {
        assert_eq!(clamp("short", 5), "short");
        assert_eq!(clamp("Sculpture with Colour, Deep Blue", 24), "Sculpture with Colour…");
        assert_eq!(clamp(&"x".repeat(200), 10), "xxxxxxxxx…");
        assert_eq!(clamp("abcde\u{301}f", 6), "abcd…");
        assert_eq!(clamp("abc👩\u{200d}🎨def", 6), "abc…");
        for max in 1..40 {
            let text = "é́ Žižek — 👩‍🎨, עברית; e\u{301}\u{301}\u{301}\u{301}x";
            assert!(clamp(text, max).chars().count() <= max, "{max}");
        }
    }

    #[test]
    fn only_web_addresses_become_links() {
        assert_eq!(link("https://a.example/b?c=d&e"), Some("https://a.example/b?c=d&e"));
        for bad in ["javascript:alert(1)", "//a", "https://a b", "https://a\n", ""] {
            assert_eq!(link(bad), None, "{bad:?}");
        }
        assert_eq!(link(&format!("https://{}", "a".repeat(3_000))), None);
    }

    #[test]
    fn type_names_become_readable_text() {
        assert_eq!(spaced("ArtworkPublished"), "Artwork published");
        assert_eq!(spaced("artwork_published.now"), "Artwork published now");
        assert_eq!(spaced("NewPDFReady"), "New PDF ready");
        assert_eq!(spaced("NearbyShow2014"), "Nearby show2014");
        assert_eq!(spaced("New works"), "New works");
    }

    #[test]
    fn lines_wrap_at_spaces_and_long_words_stay_whole() {
        assert_eq!(wrap("aa bb cc", 5, 0), "aa bb\ncc");
        assert_eq!(wrap("aa bb cc", 7, 2), "aa bb\n  cc");
        assert_eq!(wrap("https://very.long.example/ a", 5, 0), "https://very.long.example/\na");
        assert_eq!(wrap("one\ntwo", 70, 2), "one\n  two");
    }
}
