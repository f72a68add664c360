//! The output of a command: lines on standard output, notes and progress on standard error.
//!
//! Text is made safe to print here ([`printable_line`]), so no command has to do it. A closed pipe
//! (`tidings feed … | head`) ends the output, not the work. With `--json`, every line of standard
//! output is JSON ([`Screen::answer`], [`Screen::line`]).

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Row};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tokio::sync::watch;

use crate::engine::Progress;

pub(super) struct Screen {
    /// The columns of the terminal; `None` for no limit.
    width: Option<usize>,
    /// Whether the command answers in JSON.
    pub is_json: bool,
    /// Whether anything is shown. Otherwise, everything is discarded.
    is_shown: bool,
    /// Whether standard output was closed by its reader.
    is_closed: bool,
}

impl Screen {
    pub(super) fn new(is_shown: bool, is_json: bool) -> Self {
        let size = terminal_size::terminal_size_of(io::stdout());
        Self {
            width: size.map(|(terminal_size::Width(columns), _)| usize::from(columns)),
            is_json,
            is_shown,
            is_closed: false,
        }
    }

    /// Returns a progress bar that counts `what`, such as "users checked". It draws nothing if
    /// standard error is no terminal.
    pub(super) fn progress_bar(&self, what: &'static str) -> Bar {
        let bar = ProgressBar::no_length().with_style(style(COUNTER)).with_prefix(what);
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        Bar { bar, stop: None }
    }

    /// Writes a line of text to standard output; with `--json`, as `{"message": …}`.
    pub(super) fn line(&mut self, text: impl Display) -> io::Result<()> {
        self.write_text(&printable_line(&text.to_string()))
    }

    /// Writes a line that is safe to print.
    fn write_text(&mut self, text: &str) -> io::Result<()> {
        match (self.is_json, text.trim()) {
            (false, _) => self.write_line(text),
            (true, "") => Ok(()),
            (true, text) => self.write_line(&serde_json::json!({"message": text}).to_string()),
        }
    }

    /// Writes several lines.
    pub(super) fn text(&mut self, text: &str) -> io::Result<()> {
        text.lines().try_for_each(|line| self.line(line))
    }

    fn write_line(&mut self, text: &str) -> io::Result<()> {
        if self.is_closed || !self.is_shown {
            return Ok(());
        }
        match writeln!(io::stdout(), "{text}") {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(())
            }
            written => written,
        }
    }

    /// Returns this screen with a width of 80 columns if standard output is no terminal.
    pub(super) fn with_page_width(&self) -> Self {
        Self { width: self.width.or(Some(80)), ..*self }
    }

    /// Writes a table, at most as wide as the terminal.
    pub(super) fn table(&mut self, table: &Table) -> io::Result<()> {
        table.lines(self.width).iter().try_for_each(|line| self.write_text(line))
    }

    /// Writes a blank line and a table, unless it is empty.
    pub(super) fn section(&mut self, table: &Table) -> io::Result<()> {
        if table.is_empty() {
            return Ok(());
        }
        self.line("")?;
        self.table(table)
    }

    /// Writes an indented text that is wrapped like a table.
    pub(super) fn paragraph(&mut self, text: &str) -> io::Result<()> {
        let column = Column("", Fit::Wrap, |text: &&str| (*text).to_owned());
        let width = self.width.map(|width| width.saturating_sub(2));
        let lines = Table::new([text], &[column]).lines(width);
        lines.iter().try_for_each(|line| self.write_text(&format!("  {line}")))
    }

    /// Writes a list, or `none` if it is empty, and a note if rows were cut.
    pub(super) fn list(&mut self, table: &Table, cut_note: Option<String>) -> io::Result<()> {
        if table.is_empty() {
            return self.line("none");
        }
        self.table(table)?;
        cut_note.map_or(Ok(()), |note| self.note(note))
    }

    /// Writes a value as one line of JSON.
    pub(super) fn json(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_string(value)?;
        Ok(self.write_line(&printable_json(&text))?)
    }

    /// With `--json`, writes the answer of a command as one line of JSON. Returns whether it did.
    pub(super) fn answer(&mut self, value: &impl Serialize) -> anyhow::Result<bool> {
        if self.is_json {
            self.json(value)?;
        }
        Ok(self.is_json)
    }

    /// Writes a line to standard error.
    pub(super) fn note(&mut self, text: impl Display) -> io::Result<()> {
        if !self.is_shown {
            return Ok(());
        }
        writeln!(io::stderr(), "{}", printable_line(&text.to_string()))
    }

    /// Writes a warning to standard error.
    pub(super) fn warning(&mut self, text: impl Display) -> io::Result<()> {
        self.note(format!("note: {text}"))
    }

    /// Writes several warnings.
    pub(super) fn warnings<T: Display>(
        &mut self,
        warnings: impl IntoIterator<Item = T>,
    ) -> io::Result<()> {
        warnings.into_iter().try_for_each(|warning| self.warning(warning))
    }
}

/// How a column fits on a terminal that is too narrow for the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// All cells are shown in full.
    Full,
    /// The same, aligned to the right.
    Number,
    /// Long cells are cut, and end in `…`.
    Cut,
    /// Long cells are wrapped between words.
    Wrap,
}

/// A column: its heading, how it fits, and the text of a cell.
pub(super) struct Column<T>(pub &'static str, pub Fit, pub fn(&T) -> String);

#[derive(Debug)]
pub(super) struct Table {
    /// The heading of each column, and how it fits.
    columns: Vec<(&'static str, Fit)>,
    rows: Vec<Vec<String>>,
}

/// The space between columns, in characters.
const GAP: u16 = 2;

impl Table {
    /// Creates a table with one line per row.
    pub(super) fn new<T>(rows: impl IntoIterator<Item = T>, columns: &[Column<T>]) -> Self {
        let cell = |text: String| printable_line(&text).into_owned();
        let cells = |row: T| columns.iter().map(|Column(_, _, text)| cell(text(&row))).collect();
        Self {
            rows: rows.into_iter().map(cells).collect(),
            columns: columns.iter().map(|Column(heading, fit, _)| (*heading, *fit)).collect(),
        }
    }

    /// Creates a table of names and values, without headings.
    pub(super) fn facts() -> Self {
        Self { columns: vec![("", Fit::Full), ("", Fit::Wrap)], rows: Vec::new() }
    }

    /// Adds a row of a name and a value, unless it is empty.
    pub(super) fn add(&mut self, name: &str, value: impl Into<Option<String>>) {
        if let Some(value) = value.into().filter(|value| !value.is_empty()) {
            let value = printable_line(&value).into_owned();
            self.rows.push(vec![name.to_owned(), value]);
        }
    }

    fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the lines, headings first if there are any. Empty columns are omitted. Without a
    /// width, all columns are shown in full.
    fn lines(&self, width: Option<usize>) -> Vec<String> {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_truncation_indicator("…");
        table.force_no_tty();
        if let Some(width) = width.and_then(|width| u16::try_from(width).ok()) {
            table.set_content_arrangement(ContentArrangement::Dynamic);
            // The gap after the last column is cut from each line.
            table.set_width(width.saturating_add(GAP));
        }
        let headings = self.columns.iter().map(|(heading, _)| *heading);
        if headings.clone().any(|heading| !heading.is_empty()) {
            table.set_header(one_line(headings));
        }
        if self.columns.iter().any(|(_, fit)| *fit == Fit::Wrap) {
            table.add_rows(&self.rows);
        } else {
            // Cells are cut inside words.
            table.set_delimiter('\0');
            table.add_rows(self.rows.iter().map(one_line));
        }
        for (index, (column, (_, fit))) in table.column_iter_mut().zip(&self.columns).enumerate() {
            column.set_padding((0, GAP));
            if *fit == Fit::Number {
                column.set_cell_alignment(CellAlignment::Right);
            }
            if matches!(fit, Fit::Full | Fit::Number) {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
            if self.rows.iter().all(|row| row[index].is_empty()) {
                column.set_constraint(ColumnConstraint::Hidden);
            }
        }
        table.lines().map(|line| line.trim_end().to_owned()).collect()
    }
}

/// Returns a row whose cells are not wrapped.
fn one_line(cells: impl IntoIterator<Item = impl ToString>) -> Row {
    let mut row = Row::from(cells);
    row.max_height(1);
    row
}

/// A progress bar, or a counter if the total is unknown. It is erased when dropped.
pub(super) struct Bar {
    bar: ProgressBar,
    stop: Option<watch::Receiver<bool>>,
}

/// The template of a bar without a total.
const COUNTER: &str = "{spinner} {prefix}: {human_pos}, {per_sec}, {elapsed}";
/// The template of a bar with a total.
const BAR: &str = "{spinner} {prefix}: {bar:30} {human_pos} of {human_len}, {per_sec}, {eta} left";

impl Bar {
    /// Lets the work end early once `stop` is true.
    pub(super) fn until(mut self, stop: watch::Receiver<bool>) -> Self {
        self.stop = Some(stop);
        self
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .expect("the templates above are valid; every bar is drawn with one")
        .progress_chars("━╸ ")
}

impl Progress for Bar {
    fn advance(&self, by: u64) {
        self.bar.inc(by);
    }

    fn set_total(&self, total: u64) {
        self.bar.set_length(total);
        self.bar.set_style(style(BAR));
    }

    fn should_stop(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| *stop.borrow())
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Returns whether a terminal would interpret the character, or display the text after it in
/// another order.
fn is_unsafe(c: char) -> bool {
    let is_format = matches!(c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}'
        | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fff9}'..='\u{fffb}');
    c.is_control() || is_format
}

/// Returns the visible symbol for an unsafe character.
fn symbol_for(c: char) -> char {
    match c {
        '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or(UNKNOWN_SYMBOL),
        '\u{7f}' => '\u{2421}',
        _ => UNKNOWN_SYMBOL,
    }
}

const UNKNOWN_SYMBOL: char = '\u{fffd}';

/// Makes text safe to print as a single line: it cannot move the cursor, turn the direction of the
/// line, or start a new one.
pub(super) fn printable_line(text: &str) -> Cow<'_, str> {
    replace_chars(text, is_unsafe)
}

/// Makes text safe to print, and keeps its line breaks.
pub(super) fn printable_lines(text: &str) -> Cow<'_, str> {
    replace_chars(text, |c| is_unsafe(c) && c != '\n')
}

/// Replaces these characters by symbols. Direction isolates have no width and are omitted.
fn replace_chars(text: &str, is_replaced: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_replaced) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().filter(|c| !matches!(c, '\u{2066}'..='\u{2069}'));
    Cow::Owned(shown.map(|c| if is_replaced(c) { symbol_for(c) } else { c }).collect())
}

/// Escapes the unsafe characters of compact JSON. Parsers read the same value.
fn printable_json(text: &str) -> Cow<'_, str> {
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
        self.0.write_all(printable_lines(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::*;

    fn table(width: Option<usize>) -> Vec<String> {
        let rows = [
            ["09:00", "Night Ferry", "7", "x1"],
            ["10:30", "夜の渡し船 in the Harbour", "12", "x2"],
        ];
        let table = Table::new(
            rows,
            &[
                Column("when", Fit::Full, |row| row[0].to_owned()),
                Column("title", Fit::Cut, |row| row[1].to_owned()),
                Column("n", Fit::Number, |row| row[2].to_owned()),
                Column("id", Fit::Full, |row| row[3].to_owned()),
                Column("none", Fit::Full, |_| String::new()),
            ],
        );
        table.lines(width)
    }

    fn one(text: &'static str, fit: Fit) -> Table {
        Table::new([text], &[Column("", fit, |text| (*text).to_owned())])
    }

    #[test]
    fn columns_are_as_wide_as_their_content() {
        assert_eq!(
            table(None),
            [
                "when   title                       n  id",
                "09:00  Night Ferry                 7  x1",
                "10:30  夜の渡し船 in the Harbour  12  x2",
            ]
        );
    }

    #[test]
    fn long_cells_wrap_between_words_at_the_terminal_width() {
        let table = one("one two three four", Fit::Wrap);

        assert_eq!(table.lines(None), ["one two three four"]);
        assert_eq!(table.lines(Some(9)), ["one two", "three", "four"]);
    }

    #[test]
    fn a_narrow_terminal_cuts_flexible_columns() {
        let lines = table(Some(28));
        assert_eq!(lines[2], "10:30  夜の渡し船 i…  12  x2");
        assert!(lines.iter().all(|line| line.width() <= 28), "{lines:?}");
    }

    #[test]
    fn a_cell_cannot_move_the_cursor() {
        let table = one("a\x1b[2Jb\nc", Fit::Full);
        assert_eq!(table.lines(None), ["a␛[2Jb␊c"]);
    }

    #[test]
    fn control_characters_are_shown_as_symbols() {
        assert_eq!(printable_line("Žižek, עברית 👩\u{200d}🎨"), "Žižek, עברית 👩\u{200d}🎨");
        assert_eq!(printable_line("a\u{1b}[2J\r\n\tb\u{9b}\u{7f}"), "a␛[2J␍␊␉b\u{fffd}␡");
        assert_eq!(printable_line("safe\u{202e}gpj.exe\u{2069}"), "safe\u{fffd}gpj.exe");
        assert_eq!(printable_lines("one\n\u{1b}two\n"), "one\n␛two\n");
    }

    #[test]
    fn direction_isolates_are_removed() {
        assert_eq!(
            printable_line(
                "3 أعمال من \u{2068}Ada \u{2067}أدا\u{2069}\u{2069}: \u{2066}Ferry\u{2069}"
            ),
            "3 أعمال من Ada أدا: Ferry"
        );
        assert_eq!(printable_lines("by \u{2068}Ada\nNoor\u{2069}"), "by Ada\nNoor");
        assert_eq!(printable_line("a\u{2068}b"), "ab");
    }

    #[test]
    fn json_escapes_control_characters() {
        let written = serde_json::to_string("a\u{1b}\u{9b}\u{7f}\u{202e}é").unwrap();

        let shown = printable_json(&written);

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
