//! The output of a command: lines on standard output, notes on standard error.
//!
//! It makes text of users [`harmless`]; a color is a mark in the text until the line is written.
//! Colors appear only on a terminal, and never with `NO_COLOR` (no-color.org). A closed pipe
//! (`tidings feed … | head`) ends the output, not the work.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use super::harmless;
use super::ink::Ink;
use super::progress::Bar;
use super::table::{Table, wrapped};

pub(super) struct Screen {
    out: Box<dyn Write + Send>,
    notes: Box<dyn Write + Send>,
    color: bool,
    note_color: bool,
    /// The columns of the terminal; `None` for no limit.
    width: Option<usize>,
    indent: String,
    /// Whether progress bars are drawn.
    bars: bool,
    /// Whether standard output was closed by its reader.
    closed: bool,
}

/// Returns whether the stream shows colors.
pub(super) fn colorful(stream: &impl IsTerminal) -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !unwanted
}

impl Screen {
    /// Returns the process's own output.
    pub(super) fn standard() -> Self {
        let out = io::stdout();
        let width = terminal_size::terminal_size_of(&out)
            .map(|(terminal_size::Width(columns), _)| usize::from(columns));
        Self {
            color: colorful(&out),
            note_color: colorful(&io::stderr()),
            out: Box::new(out),
            notes: Box::new(io::stderr()),
            width,
            indent: String::new(),
            bars: true,
            closed: false,
        }
    }

    /// Returns a screen that discards everything.
    pub(super) fn nowhere() -> Self {
        Self {
            out: Box::new(io::sink()),
            notes: Box::new(io::sink()),
            color: false,
            note_color: false,
            width: None,
            indent: String::new(),
            bars: false,
            closed: false,
        }
    }

    /// Returns a progress bar that counts `what`.
    pub(super) fn bar(&self, what: &'static str) -> Bar {
        if self.bars {
            Bar::new(what)
        } else {
            Bar::hidden(what)
        }
    }

    /// Draws no progress bars from now on.
    pub(super) fn without_bars(&mut self) {
        self.bars = false;
    }

    /// Sets the indent of lines, and returns the previous one.
    pub(super) fn indent(&mut self, indent: String) -> String {
        std::mem::replace(&mut self.indent, indent)
    }

    /// Returns the columns of a line; `None` for no limit.
    pub(super) fn width(&self) -> Option<usize> {
        self.width
            .map(|width| width.saturating_sub(self.indent.len()).max(40))
    }

    pub(super) fn ink(&self, ink: Ink, text: impl Display) -> String {
        paint(self.color, ink, text)
    }

    /// Writes a line to standard output.
    pub(super) fn line(&mut self, text: impl Display) -> io::Result<()> {
        let text = colored(&harmless::line(&text.to_string()), self.color);
        self.write_line(&text)
    }

    /// Writes several lines.
    pub(super) fn text(&mut self, text: &str) -> io::Result<()> {
        text.lines().try_for_each(|line| self.line(line))
    }

    fn write_line(&mut self, text: &str) -> io::Result<()> {
        if self.closed {
            return Ok(());
        }
        let indent = if text.is_empty() { "" } else { &self.indent };
        match writeln!(self.out, "{indent}{text}") {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            written => written,
        }
    }

    pub(super) fn table(&mut self, table: &Table) -> io::Result<()> {
        let lines = table.lines(self.width(), |ink, text| paint(self.color, ink, text));
        lines.iter().try_for_each(|line| self.line(line))
    }

    /// Returns the columns of the terminal, or 80.
    fn page_width(&self) -> usize {
        self.width().unwrap_or(80)
    }

    /// Writes a table that is at most as wide as the terminal, or 80 columns.
    pub(super) fn page(&mut self, table: &Table) -> io::Result<()> {
        let width = Some(self.page_width());
        let lines = table.lines(width, |ink, text| paint(self.color, ink, text));
        lines.iter().try_for_each(|line| self.line(line))
    }

    /// Writes a text after a head, wrapped and indented below its first line.
    pub(super) fn paragraph(&mut self, head: &str, text: &str) -> io::Result<()> {
        self.write_paragraph(None, head, text)
    }

    /// Writes the text of a paragraph in this ink.
    pub(super) fn paragraph_in(&mut self, ink: Ink, head: &str, text: &str) -> io::Result<()> {
        self.write_paragraph(Some(ink), head, text)
    }

    fn write_paragraph(&mut self, ink: Option<Ink>, head: &str, text: &str) -> io::Result<()> {
        let room = self.page_width().saturating_sub(head.width());
        let text = harmless::line(text);
        for (place, line) in wrapped(&text, Some(room)).iter().enumerate() {
            let line = ink.map_or(line.clone(), |ink| self.ink(ink, line));
            match place {
                0 => self.line(format!("{head}{line}"))?,
                _ => self.line(format!("{}{line}", " ".repeat(head.width())))?,
            }
        }
        Ok(())
    }

    /// Writes a value as one line of JSON.
    pub(super) fn json(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_string(value)?;
        Ok(self.write_line(&harmless::json(&text))?)
    }

    /// Writes a line to standard error.
    pub(super) fn note(&mut self, text: impl Display) -> io::Result<()> {
        let text = colored(&harmless::line(&text.to_string()), self.note_color);
        writeln!(self.notes, "{}{text}", self.indent)
    }

    /// Writes a warning to standard error.
    pub(super) fn warning(&mut self, text: impl Display) -> io::Result<()> {
        let mark = paint(self.note_color, Ink::Warning, "note:");
        self.note(format!("{mark} {text}"))
    }
}

/// Starts colored text; the letter of its ink follows. A noncharacter, which text should not
/// contain. If it does, the only effect is a color.
const INK: char = '\u{fdd0}';
/// Ends colored text.
const PLAIN: char = '\u{fdd1}';

fn paint(color: bool, ink: Ink, text: impl Display) -> String {
    if color {
        format!("{INK}{}{text}{PLAIN}", ink.letter())
    } else {
        text.to_string()
    }
}

/// Replaces the marks in a text by escape sequences, or removes them if no color is shown.
fn colored(text: &str, color: bool) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            INK => {
                let ink = chars.next().and_then(Ink::of_letter);
                if let Some(ink) = ink.filter(|_| color) {
                    out.push_str(&format!("\x1b[{}m", ink.code()));
                }
            }
            PLAIN if color => out.push_str("\x1b[0m"),
            PLAIN => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_color_marks_become_colors() {
        let painted = paint(true, Ink::Bad, "late\u{1b}[2J");
        let line = harmless::line(&painted).into_owned();

        assert_eq!(colored(&line, true), "\u{1b}[31mlate␛[2J\u{1b}[0m");
        assert_eq!(paint(false, Ink::Bad, "late"), "late");
        let posing = "\u{fdd0}bx\u{fdd1}\u{fdd0}";
        assert_eq!(colored(posing, false), "x");
        for ink in Ink::ALL {
            assert_eq!(Ink::of_letter(ink.letter()), Some(ink));
        }
    }
}
