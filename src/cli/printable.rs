//! Makes text safe to print: it cannot move the cursor, turn the direction of a line, or start a
//! new one.
//!
//! All output and all log messages pass through here, in [`super::screen`],
//! [`super::failure_text`] and [`super::session`], so no command has to do it. A visible symbol
//! replaces each unsafe character.

use std::borrow::Cow;
use std::io::{self, Write};

/// Returns whether a terminal would interpret the character, or display the text after it in
/// another order.
fn is_unsafe(c: char) -> bool {
    let is_format = matches!(c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}'
        | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fff9}'..='\u{fffb}');
    c.is_control() || is_format
}

/// Returns the visible symbol for an unsafe character.
fn symbol(c: char) -> char {
    match c {
        '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or(UNKNOWN),
        '\u{7f}' => '\u{2421}',
        _ => UNKNOWN,
    }
}

const UNKNOWN: char = '\u{fffd}';

/// Makes text safe to print as a single line.
pub(super) fn line(text: &str) -> Cow<'_, str> {
    replace(text, is_unsafe)
}

/// Makes text safe to print, and keeps its line breaks.
pub(super) fn lines(text: &str) -> Cow<'_, str> {
    replace(text, |c| is_unsafe(c) && c != '\n')
}

/// Replaces these characters by symbols. Direction isolates have no width and are omitted.
fn replace(text: &str, is_replaced: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_replaced) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().filter(|c| !matches!(c, '\u{2066}'..='\u{2069}'));
    Cow::Owned(shown.map(|c| if is_replaced(c) { symbol(c) } else { c }).collect())
}

/// Escapes the unsafe characters of compact JSON. Parsers read the same value.
pub(super) fn json(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    // All these characters are in the Basic Multilingual Plane, and compact JSON has them only in
    // strings.
    let escape = |c| if is_unsafe(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    Cow::Owned(text.chars().map(escape).collect())
}

/// A writer for log messages.
pub(super) struct LogWriter<W>(pub W);

impl<W: Write> Write for LogWriter<W> {
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

        assert!(!shown.contains(is_unsafe), "{shown}");
        let parsed: String = serde_json::from_str(&shown).unwrap();
        assert_eq!(parsed, "a\u{1b}\u{9b}\u{7f}\u{202e}é");
    }

    #[test]
    fn a_log_message_is_one_safe_line() {
        let mut log = LogWriter(Vec::new());
        log.write_all("\u{1b}[31mERROR\u{202e}\u{7}\n".as_bytes()).unwrap();

        let written = String::from_utf8(log.0).unwrap();
        assert_eq!(written, "␛[31mERROR\u{fffd}␇\n");
    }
}
