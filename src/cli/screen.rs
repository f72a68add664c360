//! What a command writes to: lines on standard output, notes on standard error, in colour where that can be seen.
//!
//! The rule: colour only on a terminal, and never with `NO_COLOR` (no-color.org). A reader who has gone away (`tidings feed … |
//! head`) ends the writing, not the work. The demo hands in its own screen, so that its commands print what they always print.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use super::progress::Bar;
use super::table::Table;

/// How a piece of text looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    /// What a reader looks for first.
    Strong,
    /// What can be passed over.
    Faint,
    /// As it should be.
    Good,
    Warning,
    /// What has to be mended.
    Bad,
    /// What can be typed or opened.
    Accent,
}

impl Ink {
    fn code(self) -> &'static str {
        match self {
            Self::Strong => "1",
            Self::Faint => "2",
            Self::Good => "32",
            Self::Warning => "33",
            Self::Bad => "31",
            Self::Accent => "36",
        }
    }
}

pub struct Screen {
    out: Box<dyn Write + Send>,
    notes: Box<dyn Write + Send>,
    colour: bool,
    note_colour: bool,
    /// Columns of a terminal; lines go on for ever where none is.
    width: Option<usize>,
    indent: String,
    /// Whether bars are drawn beside it.
    bars: bool,
    /// Whether the reader of standard output has gone.
    closed: bool,
}

/// Whether colour can be seen there.
pub fn colourful(stream: &impl IsTerminal) -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !unwanted
}

impl Screen {
    /// This process's own output.
    pub fn standard() -> Self {
        let out = io::stdout();
        let width = terminal_size::terminal_size_of(&out)
            .map(|(terminal_size::Width(columns), _)| usize::from(columns));
        Self {
            colour: colourful(&out),
            note_colour: colourful(&io::stderr()),
            out: Box::new(out),
            notes: Box::new(io::stderr()),
            width,
            indent: String::new(),
            bars: true,
            closed: false,
        }
    }

    /// A screen nobody sees.
    pub fn nowhere() -> Self {
        Self {
            out: Box::new(io::sink()),
            notes: Box::new(io::sink()),
            colour: false,
            note_colour: false,
            width: None,
            indent: String::new(),
            bars: false,
            closed: false,
        }
    }

    /// A bar for long work; `what` says what is counted.
    pub fn bar(&self, what: &'static str) -> Bar {
        if self.bars {
            Bar::new(what)
        } else {
            Bar::hidden(what)
        }
    }

    /// From now on no bars are drawn: a story is told that they would disturb.
    pub fn without_bars(&mut self) {
        self.bars = false;
    }

    /// From now on lines begin so far in; answers how far they did.
    pub fn indent(&mut self, indent: String) -> String {
        std::mem::replace(&mut self.indent, indent)
    }

    /// Columns a line may take.
    pub fn width(&self) -> Option<usize> {
        self.width
            .map(|width| width.saturating_sub(self.indent.len()).max(40))
    }

    pub fn ink(&self, ink: Ink, text: impl Display) -> String {
        paint(self.colour, ink, text)
    }

    /// A line on standard output.
    pub fn line(&mut self, text: impl Display) -> io::Result<()> {
        if self.closed {
            return Ok(());
        }
        let text = text.to_string();
        let indent = if text.is_empty() { "" } else { &self.indent };
        match writeln!(self.out, "{indent}{text}") {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            written => written,
        }
    }

    pub fn table(&mut self, table: &Table) -> io::Result<()> {
        let lines = table.lines(self.width(), |ink, text| paint(self.colour, ink, text));
        lines.iter().try_for_each(|line| self.line(line))
    }

    /// One value on one line, for scripts.
    pub fn json(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        Ok(self.line(serde_json::to_string(value)?)?)
    }

    /// A line on standard error: what a person should notice beside the answer.
    pub fn note(&mut self, text: impl Display) -> io::Result<()> {
        writeln!(self.notes, "{}{text}", self.indent)
    }

    /// The same, where something went wrong or may.
    pub fn warning(&mut self, text: impl Display) -> io::Result<()> {
        let mark = paint(self.note_colour, Ink::Warning, "note:");
        self.note(format!("{mark} {text}"))
    }
}

fn paint(colour: bool, ink: Ink, text: impl Display) -> String {
    if colour {
        format!("\x1b[{}m{text}\x1b[0m", ink.code())
    } else {
        text.to_string()
    }
}
