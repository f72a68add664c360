//! The output of a command: lines on standard output, notes and progress on standard error.
//!
//! It makes text of users [`harmless`]; a color is a mark in the text until the line is written.
//! Colors appear only on a terminal, and never with `NO_COLOR` (no-color.org). A closed pipe
//! (`tidings feed … | head`) ends the output, not the work.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use serde::Serialize;
use tokio::sync::watch;
use unicode_width::UnicodeWidthStr;

use super::harmless;
use super::table::{Column, Fit, Ink, Table};
use crate::engine::Watcher;

fn paint(color: bool, ink: Ink, text: impl Display) -> String {
    match color {
        true => format!("{}{text}{}", ink.mark(), Ink::Plain.mark()),
        false => text.to_string(),
    }
}

/// Replaces the marks in a text by escape sequences, or removes them if no color is shown.
fn colored(text: &str, color: bool) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match Ink::ALL.into_iter().find(|ink| ink.mark() == c) {
            Some(ink) if color => out.push_str(ink.escape()),
            Some(_) => {}
            None => out.push(c),
        }
    }
    out
}

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
            indent: String::new(),
            bars: false,
            closed: false,
        }
    }

    /// Returns a progress bar that counts `what`.
    pub(super) fn bar(&self, what: &'static str) -> Bar {
        Bar::new(self.bars, what)
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
    fn width(&self) -> Option<usize> {
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

    /// Writes a table, at most as wide as the terminal.
    pub(super) fn table(&mut self, table: &Table) -> io::Result<()> {
        let mut lines = table.lines(self.width(), self.color).into_iter();
        lines.try_for_each(|line| self.write_line(&line))
    }

    /// Writes a table, at most as wide as the terminal, or 80 columns.
    pub(super) fn page(&mut self, table: &Table) -> io::Result<()> {
        let width = Some(self.width().unwrap_or(80));
        let mut lines = table.lines(width, self.color).into_iter();
        lines.try_for_each(|line| self.write_line(&line))
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
    pub(super) fn paragraph(&mut self, head: &str, ink: Ink, text: &str) -> io::Result<()> {
        let mut table = Table::new([Column("", ink, Fit::Wrap)]);
        table.row([text.to_owned()]);
        let room = self.width().unwrap_or(80).saturating_sub(head.width());
        let lines = table.lines(Some(room), self.color);
        let below = " ".repeat(head.width());
        let heads = std::iter::once(head).chain(std::iter::repeat(below.as_str()));
        let mut lines = heads.zip(&lines);
        lines.try_for_each(|(head, line)| self.write_line(&format!("{head}{line}")))
    }

    /// Writes a value as one line of JSON.
    pub(super) fn json(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_string(value)?;
        Ok(self.write_line(&harmless::json(&text))?)
    }

    /// Writes a value as JSON on several lines.
    pub(super) fn pretty(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        Ok(self.text(&serde_json::to_string_pretty(value)?)?)
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

const COUNT: &str = "{spinner} {prefix}: {human_pos}, {rate}, {elapsed}";
const OF_TOTAL: &str =
    "{spinner} {prefix}: {bar:30} {human_pos} of {human_len}, {rate}, {eta} left";

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
    ProgressStyle::with_template(template)
        .expect("the templates above are valid; every bar is drawn with one")
        .with_key(
            "rate",
            |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                // A failed write only loses the rate.
                let _ = write!(out, "{}/s", HumanCount(state.per_sec() as u64));
            },
        )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_color_marks_become_colors() {
        let painted = paint(true, Ink::Bad, "late\u{1b}[2J");
        let line = harmless::line(&painted).into_owned();

        assert_eq!(colored(&line, true), "\u{1b}[31mlate␛[2J\u{1b}[0m");
        assert_eq!(paint(false, Ink::Bad, "late"), "late");
        let posing = "\u{fdd1}x\u{fdd0}\u{fdd2}";
        assert_eq!(colored(posing, false), "x");
    }
}
