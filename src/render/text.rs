//! Words for mails: what came from outside made harmless, cut to length, wrapped.
//!
//! The rule: what came from outside is one line without control characters, and cannot turn the
//! direction of what follows it. Lengths are in characters, and a cut never parts a letter from its
//! accents.

use std::borrow::Cow;

use crate::domain::link;

/// One line, whatever it was: white space and control characters are single spaces, and marks that
/// turn the direction of text are gone.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    joined(text, |c| !c.is_control() && !turns_text(c))
}

/// The same of what a template made: names that are isolated in it stay so.
pub(super) fn one_line(text: &str) -> Cow<'_, str> {
    let isolates = |c| matches!(c, '\u{2068}' | '\u{2069}');
    joined(text, |c| !c.is_control() && (isolates(c) || !turns_text(c)))
}

fn joined(text: &str, harmless: impl Fn(char) -> bool) -> Cow<'_, str> {
    let single = !text.starts_with(' ') && !text.ends_with(' ') && !text.contains("  ");
    if single
        && text
            .chars()
            .all(|c| c == ' ' || (harmless(c) && !c.is_whitespace()))
    {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()) {
        let start = out.len();
        out.extend(word.chars().filter(|c| harmless(*c)));
        if out.len() > start {
            out.push(' ');
        }
    }
    out.truncate(out.trim_end().len());
    Cow::Owned(out)
}

/// Embeddings, overrides and isolates; a byte-order mark.
fn turns_text(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Joins two characters into one picture, or binds letters.
const JOINER: char = '\u{200d}';

/// Marks that belong to the character before them, and what joins two.
fn clings(c: char) -> bool {
    matches!(c,
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{591}'..='\u{5c7}' | '\u{610}'..='\u{61a}'
        | '\u{64b}'..='\u{65f}' | '\u{670}' | '\u{6d6}'..='\u{6ed}' | '\u{900}'..='\u{903}'
        | '\u{93a}'..='\u{94f}' | '\u{e31}'..='\u{e3a}' | '\u{e47}'..='\u{e4e}' | '\u{1ab0}'..='\u{1aff}'
        | '\u{1dc0}'..='\u{1dff}' | '\u{200c}' | '\u{200d}' | '\u{20d0}'..='\u{20ff}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{fe20}'..='\u{fe2f}' | '\u{1f3fb}'..='\u{1f3ff}'
        | '\u{e0020}'..='\u{e007f}')
}

/// At most `max` characters, the last an ellipsis if something was cut off; cut between words if
/// one ends near.
pub(super) fn clamp(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max || text.chars().count() <= max {
        return Cow::Borrowed(text);
    }
    let room = max.saturating_sub(1);
    let mut cut = text
        .char_indices()
        .nth(room)
        .map_or(text.len(), |(at, _)| at);
    if let Some(space) = text[..cut].rfind(' ')
        && text[space..cut].chars().count() <= room / 4
    {
        cut = space;
    }
    while cut > 0 && (text[cut..].starts_with(clings) || text[..cut].ends_with(JOINER)) {
        cut = text[..cut]
            .char_indices()
            .next_back()
            .map_or(0, |(at, _)| at);
    }
    let kept = text[..cut].trim_end_matches(|c: char| {
        c == ' ' || matches!(c, ',' | ';' | ':' | '-' | '–' | '—' | '.')
    });
    Cow::Owned(format!("{kept}…"))
}

/// A web address that can stand in a mail: http(s), nothing an attribute or a line of text would
/// trip over, not endless.
pub(super) fn link(url: &str) -> Option<&str> {
    const MAX_BYTES: usize = 2_048;
    let fits =
        url.len() <= MAX_BYTES && link::check(url).is_ok() && !url.chars().any(char::is_whitespace);
    fits.then_some(url)
}

/// `ArtworkPublished` and `artwork_published` as `Artwork published`: for a type that nobody gave a
/// heading.
pub(super) fn spaced(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 8);
    let mut before = None;
    let mut chars = name.chars().peekable();
    while let Some(c) = chars.next() {
        let lower_next = chars.peek().is_some_and(|next| next.is_lowercase());
        match before {
            None => out.extend(c.to_uppercase()),
            Some(_) if matches!(c, '_' | '-' | '.') => out.push(' '),
            Some(b)
                if c.is_uppercase()
                    && (char::is_lowercase(b) || (b.is_uppercase() && lower_next)) =>
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
        before = Some(c);
    }
    clean(&out).into_owned()
}

/// Wrapped at spaces to lines of at most `width` characters, each further line indented by as much
/// as `indent` says. What has no spaces stays whole.
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

/// Adds a text as it stands in HTML.
pub(super) fn escape_into(out: &mut String, text: &str) {
    let Ok(()) = escape(text, |part| {
        out.push_str(part);
        Ok::<_, std::convert::Infallible>(())
    });
}

pub(super) fn escape<E>(text: &str, mut write: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
    let mut rest = text;
    while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
        write(&rest[..at])?;
        write(match rest.as_bytes()[at] {
            b'&' => "&amp;",
            b'<' => "&lt;",
            b'>' => "&gt;",
            b'"' => "&quot;",
            _ => "&#39;",
        })?;
        rest = &rest[at + 1..];
    }
    write(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_outside_becomes_one_harmless_line() {
        assert_eq!(clean("Norham Castle"), "Norham Castle");
        assert!(matches!(clean("Norham Castle"), Cow::Borrowed(_)));
        assert_eq!(clean(" a\r\n\tb \u{0}c\u{a0}d  e "), "a b c d e");
        assert_eq!(clean("safe\u{202e}gpj.exe\u{2066}"), "safegpj.exe");
        assert_eq!(clean("\u{202e} \u{feff}\r\n"), "");
        assert_eq!(
            clean("👩\u{200d}🎨 می\u{200c}خواهم"),
            "👩\u{200d}🎨 می\u{200c}خواهم"
        );
    }

    #[test]
    fn a_cut_stands_between_words_and_never_within_a_letter() {
        assert_eq!(clamp("short", 5), "short");
        assert_eq!(
            clamp("Sculpture with Colour, Deep Blue", 24),
            "Sculpture with Colour…"
        );
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
        assert_eq!(
            link("https://a.example/b?c=d&e"),
            Some("https://a.example/b?c=d&e")
        );
        for bad in [
            "javascript:alert(1)",
            "//a",
            "https://a b",
            "https://a\n",
            "",
        ] {
            assert_eq!(link(bad), None, "{bad:?}");
        }
        assert_eq!(link(&format!("https://{}", "a".repeat(3_000))), None);
    }

    #[test]
    fn names_of_types_read_well() {
        assert_eq!(spaced("ArtworkPublished"), "Artwork published");
        assert_eq!(spaced("artwork_published.now"), "Artwork published now");
        assert_eq!(spaced("NewPDFReady"), "New PDF ready");
        assert_eq!(spaced("NearbyShow2014"), "Nearby show2014");
        assert_eq!(spaced("New works"), "New works");
    }

    #[test]
    fn lines_wrap_at_spaces_and_what_has_none_stays_whole() {
        assert_eq!(wrap("aa bb cc", 5, 0), "aa bb\ncc");
        assert_eq!(wrap("aa bb cc", 7, 2), "aa bb\n  cc");
        assert_eq!(
            wrap("https://very.long.example/ a", 5, 0),
            "https://very.long.example/\na"
        );
        assert_eq!(wrap("one\ntwo", 70, 2), "one\n  two");
    }
}
