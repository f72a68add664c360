//! The output of a command: lines on standard output, notes and progress on standard error.
//!
//! It makes text of users [`harmless`]. Colors appear only on a terminal, and never with `NO_COLOR`
//! (no-color.org). A closed pipe (`tidings feed … | head`) ends the output, not the work. With
//! `--json`, every line of standard output is JSON ([`Screen::answer`], [`Screen::line`]).

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use tokio::sync::watch;
use unicode_width::UnicodeWidthStr;

use super::harmless;
use super::table::Fit::Wrap;
use super::table::{Column, Table};
use crate::engine::Watcher;

pub(super) struct Screen {
    out: Box<dyn Write + Send>,
    notes: Box<dyn Write + Send>,
    color: bool,
    note_color: bool,
    /// The columns of the terminal; `None` for no limit.
    width: Option<usize>,
    /// Whether the command answers in JSON.
    pub is_json: bool,
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
    pub(super) fn standard(is_json: bool) -> Self {
        let out = io::stdout();
        let width = terminal_size::terminal_size_of(&out)
            .map(|(terminal_size::Width(columns), _)| usize::from(columns));
        Self {
            color: colorful(&out) && !is_json,
            note_color: colorful(&io::stderr()),
            out: Box::new(out),
            notes: Box::new(io::stderr()),
            width,
            is_json,
            bars: true,
            ..Self::nowhere()
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
            is_json: false,
            bars: false,
            closed: false,
        }
    }

    /// Returns a progress bar that counts `what`.
    pub(super) fn bar(&self, what: &'static str) -> Bar {
        Bar::new(self.bars, what)
    }

    /// Writes a line for people to standard output; with `--json`, as `{"message": …}`.
    pub(super) fn line(&mut self, text: impl Display) -> io::Result<()> {
        self.write_text(&harmless::line(&text.to_string()))
    }

    /// Writes a harmless line, perhaps with colors.
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
        if self.closed {
            return Ok(());
        }
        match writeln!(self.out, "{text}") {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            written => written,
        }
    }

    /// Writes a table, at most as wide as the terminal.
    pub(super) fn table(&mut self, table: &Table) -> io::Result<()> {
        self.table_within(self.width, "", table)
    }

    /// Writes a table, at most as wide as the terminal, or 80 columns.
    pub(super) fn page(&mut self, table: &Table) -> io::Result<()> {
        self.table_within(Some(self.width.unwrap_or(80)), "", table)
    }

    /// Writes a table within this width. Its first line follows the head, and the others are
    /// indented below it.
    fn table_within(&mut self, width: Option<usize>, head: &str, table: &Table) -> io::Result<()> {
        let room = width.map(|width| width.saturating_sub(head.width()));
        let mut head = head.to_owned();
        for line in table.lines(room, self.color) {
            self.write_text(&format!("{head}{line}"))?;
            head = " ".repeat(head.width());
        }
        Ok(())
    }

    /// Writes a list, or `none` if it is empty, and a note about further rows.
    pub(super) fn list(&mut self, table: &Table, more: Option<String>) -> io::Result<()> {
        if table.is_empty() {
            return self.line("none");
        }
        self.table(table)?;
        more.map_or(Ok(()), |more| self.note(more))
    }

    /// Writes a text after a head, wrapped and indented below its first line, at most as wide as
    /// the terminal, or 80 columns.
    pub(super) fn paragraph(&mut self, head: &str, text: &str) -> io::Result<()> {
        let column = Column("", Wrap, |text: &&str| (*text).to_owned());
        let width = Some(self.width.unwrap_or(80));
        self.table_within(width, head, &Table::new([text], &[column]))
    }

    /// Writes a value as one line of JSON.
    pub(super) fn json(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_string(value)?;
        Ok(self.write_line(&harmless::json(&text))?)
    }

    /// With `--json`, writes the answer of a command as one line of JSON. Returns whether it did.
    pub(super) fn answer(&mut self, value: &impl Serialize) -> anyhow::Result<bool> {
        if self.is_json {
            self.json(value)?;
        }
        Ok(self.is_json)
    }

    /// Writes a value as JSON on several lines; with `--json`, on one.
    pub(super) fn pretty(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        match self.answer(value)? {
            true => Ok(()),
            false => Ok(self.text(&serde_json::to_string_pretty(value)?)?),
        }
    }

    /// Writes a line to standard error.
    pub(super) fn note(&mut self, text: impl Display) -> io::Result<()> {
        self.write_note("", &text.to_string())
    }

    /// Writes a warning to standard error.
    pub(super) fn warning(&mut self, text: impl Display) -> io::Result<()> {
        let mark = match self.note_color {
            true => "\x1b[33mnote:\x1b[0m ",
            false => "note: ",
        };
        self.write_note(mark, &text.to_string())
    }

    fn write_note(&mut self, mark: &str, text: &str) -> io::Result<()> {
        let text = harmless::line(text);
        writeln!(self.notes, "{mark}{text}")
    }

    /// Writes several warnings.
    pub(super) fn warnings<T: Display>(
        &mut self,
        warnings: impl IntoIterator<Item = T>,
    ) -> io::Result<()> {
        let mut warnings = warnings.into_iter();
        warnings.try_for_each(|warning| self.warning(warning))
    }
}

/// A progress bar, or a counter if the total is unknown. It is erased when dropped.
pub(super) struct Bar {
    bar: ProgressBar,
    stop: Option<watch::Receiver<bool>>,
}

const COUNT: &str = "{spinner} {prefix}: {human_pos}, {per_sec}, {elapsed}";
const OF_TOTAL: &str =
    "{spinner} {prefix}: {bar:30} {human_pos} of {human_len}, {per_sec}, {eta} left";

impl Bar {
    /// `what` names the counted things, such as "people looked at". Draws nothing if standard error
    /// is no terminal.
    fn new(is_drawn: bool, what: &'static str) -> Self {
        let target = match is_drawn {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(style(COUNT));
        bar.set_prefix(what);
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        Self { bar, stop: None }
    }

    /// Lets the work end early once `stop` is true.
    pub(super) fn until(mut self, stop: watch::Receiver<bool>) -> Self {
        self.stop = Some(stop);
        self
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template);
    style
        .expect("the templates above are valid; every bar is drawn with one")
        .progress_chars("━╸ ")
}

impl Watcher for Bar {
    fn advance(&self, by: u64) {
        self.bar.inc(by);
    }

    fn total(&self, total: u64) {
        self.bar.set_length(total);
        self.bar.set_style(style(OF_TOTAL));
    }

    fn stopping(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| *stop.borrow())
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
