//! Makes text safe to print: it cannot move the cursor, turn the direction of a line, or start a
//! new one.
//!
//! All output and all log messages pass through here, in [`super::screen`], [`super::exit`] and
//! [`super::session`], so no command has to do it. A visible sign replaces each unsafe character.

use std::borrow::Cow;
use std::io::{self, Write};

/// Returns whether a terminal would interpret the character, or display the text after it in
/// another order.
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            | '\u{fff9}'..='\u{fffb}')
}

/// Returns the visible sign for an unsafe character.
fn sign(c: char) -> char {
    match c {
        '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or(UNKNOWN),
        '\u{7f}' => '\u{2421}',
        _ => UNKNOWN,
    }
}

const UNKNOWN: char = '\u{fffd}';

/// Makes text safe to print as a single line.
pub(super) fn line(text: &str) -> Cow<'_, str> {
    signed(text, is_obeyed)
}

/// Makes text safe to print, and keeps its line breaks.
pub(super) fn lines(text: &str) -> Cow<'_, str> {
    signed(text, |c| is_obeyed(c) && c != '\n')
}

/// Replaces these characters by signs. Direction isolates have no width and are omitted.
fn signed(text: &str, hides: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&hides) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars();
    let shown = shown.filter(|c| !matches!(c, '\u{2066}'..='\u{2069}'));
    let shown = shown.map(|c| if hides(c) { sign(c) } else { c });
    Cow::Owned(shown.collect())
}

/// Escapes the unsafe characters of compact JSON. Parsers read the same value.
pub(super) fn json(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    // All these characters are in the Basic Multilingual Plane, and compact JSON has them only in
    // strings.
    let escaped = text.chars().map(|c| match is_obeyed(c) {
        true => format!("\\u{:04x}", u32::from(c)),
        false => c.to_string(),
    });
    Cow::Owned(escaped.collect())
}

/// A writer for log messages.
pub(super) struct Log<W>(pub W);

impl<W: Write> Write for Log<W> {
    /// Each call writes one whole message.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.0.write_all(lines(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_as_symbols() {
        assert_eq!(line("Žižek, עברית 👩\u{200d}🎨"), "Žižek, עברית 👩\u{200d}🎨");
        assert_eq!(line("a\u{1b}[2J\r\n\tb\u{9b}\u{7f}"), "a␛[2J␍␊␉b\u{fffd}␡");
        assert_eq!(line("safe\u{202e}gpj.exe\u{2069}"), "safe\u{fffd}gpj.exe");
        assert_eq!(lines("one\n\u{1b}two\n"), "one\n␛two\n");
    }

    #[test]
    fn direction_isolates_are_removed() {
        assert_eq!(
            line("3 أعمال من \u{2068}Ada \u{2067}أدا\u{2069}\u{2069}: \u{2066}Ferry\u{2069}"),
            "3 أعمال من Ada أدا: Ferry"
        );
        assert_eq!(lines("by \u{2068}Ada\nNoor\u{2069}"), "by Ada\nNoor");
        assert_eq!(line("a\u{2068}b"), "ab");
    }

    #[test]
    fn json_escapes_control_characters() {
        let written = serde_json::to_string("a\u{1b}\u{9b}\u{7f}\u{202e}é").unwrap();

        let shown = json(&written);

        assert!(!shown.contains(is_obeyed), "{shown}");
        let read: String = serde_json::from_str(&shown).unwrap();
        assert_eq!(read, "a\u{1b}\u{9b}\u{7f}\u{202e}é");
    }

    #[test]
    fn a_log_message_is_one_safe_line() {
        let mut log = Log(Vec::new());
        log.write_all("\u{1b}[31mERROR\u{202e}\u{7}\n".as_bytes()).unwrap();

        let written = String::from_utf8(log.0).unwrap();
        assert_eq!(written, "␛[31mERROR\u{fffd}␇\n");
    }
}
