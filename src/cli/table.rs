//! The roles of colored text, and tables whose columns are as wide as their cells and shrink on a
//! narrow terminal.

use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Row,
};
use unicode_width::UnicodeWidthStr;

use super::harmless;

/// The role of a piece of text. It determines the color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    Plain,
    /// The most important part of a line.
    Strong,
    /// Secondary information.
    Faint,
    /// A state that needs no attention.
    Good,
    Warning,
    /// An error that must be fixed.
    Bad,
    /// A command to type or a URL to open.
    Accent,
}

impl Ink {
    pub(super) const ALL: [Self; 7] = [
        Self::Plain,
        Self::Strong,
        Self::Faint,
        Self::Good,
        Self::Warning,
        Self::Bad,
        Self::Accent,
    ];

    /// Returns the mark that begins the role in text until the screen writes it. It is a
    /// noncharacter, which text should not contain. If it does, the only effect is a color.
    pub(super) fn mark(self) -> char {
        char::from_u32(0xfdd0 + self as u32).unwrap_or_default()
    }

    /// Returns the escape sequence that begins the role (ECMA-48, SGR).
    pub(super) fn escape(self) -> &'static str {
        match self {
            Self::Plain => "\x1b[0m",
            Self::Strong => "\x1b[1m",
            Self::Faint => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Warning => "\x1b[33m",
            Self::Bad => "\x1b[31m",
            Self::Accent => "\x1b[36m",
        }
    }
}

/// The width of a column on a terminal that is too narrow for the table.
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
    /// The column is omitted before any is cut.
    Spare,
    /// The same, aligned to the right.
    SpareNumber,
}

/// The heading of a column, the role of its cells, and its width.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column(pub &'static str, pub Ink, pub Fit);

#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    /// Each row with the role of its first cell, if that is not the column's.
    rows: Vec<(Option<Ink>, Vec<String>)>,
}

/// The space between columns.
const GAP: u16 = 2;

impl Table {
    pub(super) fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// Creates a table of names and values, without headings.
    pub(super) fn facts() -> Self {
        Self::new([
            Column("", Ink::Faint, Fit::Full),
            Column("", Ink::Plain, Fit::Wrap),
        ])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a row with one cell per column. Control characters are replaced.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.add(None, cells);
    }

    /// Adds a row whose first cell has this role.
    pub(super) fn row_in(&mut self, ink: Ink, cells: impl IntoIterator<Item = String>) {
        self.add(Some(ink), cells);
    }

    fn add(&mut self, ink: Option<Ink>, cells: impl IntoIterator<Item = String>) {
        let cells = cells.into_iter();
        let cells = cells.map(|cell| harmless::line(&cell).into_owned());
        self.rows.push((ink, cells.collect()));
    }

    /// Adds a row of a name and a value, if there is one.
    pub(super) fn fact(&mut self, name: &str, value: impl Into<Option<String>>) {
        if let Some(value) = value.into() {
            self.row([name.to_owned(), value]);
        }
    }

    /// Returns the lines, headings first if there are any. Empty columns are omitted. Without a
    /// width, all columns are shown in full.
    pub(super) fn lines(&self, width: Option<usize>, color: bool) -> Vec<String> {
        let hidden = self.hidden(width);
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.style_text_only();
        table.set_truncation_indicator("…");
        match color {
            true => table.enforce_styling(),
            false => table.force_no_tty(),
        };
        if let Some(width) = width.and_then(|width| u16::try_from(width).ok()) {
            table.set_content_arrangement(ContentArrangement::Dynamic);
            // The gap after the last column is cut from each line.
            table.set_width(width.saturating_add(GAP));
        }
        let wraps = self.columns.iter().any(|column| column.2 == Fit::Wrap);
        if self.columns.iter().any(|column| !column.0.is_empty()) {
            let headings = self.columns.iter();
            let mut head = Row::from(headings.map(|column| styled(column.0, Ink::Faint)));
            head.max_height(1);
            table.set_header(head);
        }
        for (first, cells) in &self.rows {
            let inks = self.columns.iter().skip(usize::from(first.is_some()));
            let inks = first.iter().copied().chain(inks.map(|column| column.1));
            let mut row = Row::from(cells.iter().zip(inks).map(|(cell, ink)| styled(cell, ink)));
            if !wraps {
                row.max_height(1);
            }
            table.add_row(row);
        }
        if !wraps {
            // Cells are cut inside words.
            table.set_delimiter('\0');
        }
        for ((column, Column(_, _, fit)), hidden) in
            table.column_iter_mut().zip(&self.columns).zip(hidden)
        {
            column.set_padding((0, GAP));
            match fit {
                _ if hidden => column.set_constraint(ColumnConstraint::Hidden),
                Fit::Cut | Fit::Wrap => column,
                _ => column.set_constraint(ColumnConstraint::ContentWidth),
            };
            if matches!(fit, Fit::Number | Fit::SpareNumber) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let lines = table.lines();
        lines.map(|line| line.trim_end().to_owned()).collect()
    }

    /// Returns for each column whether it is omitted: it is empty, or the width lacks room for it.
    fn hidden(&self, width: Option<usize>) -> Vec<bool> {
        let widest = |index: usize| {
            let cells = self.rows.iter().filter_map(|(_, row)| row.get(index));
            match cells.map(|cell| cell.width()).max().unwrap_or(0) {
                0 => None,
                width => Some(width.max(self.columns[index].0.width()) + usize::from(GAP)),
            }
        };
        let mut widths: Vec<Option<usize>> = (0..self.columns.len()).map(widest).collect();
        let room = width.map_or(usize::MAX, |width| width + usize::from(GAP));
        for index in 0..widths.len() {
            let is_spare = matches!(self.columns[index].2, Fit::Spare | Fit::SpareNumber);
            if is_spare && widths.iter().flatten().sum::<usize>() > room {
                widths[index] = None;
            }
        }
        widths.iter().map(Option::is_none).collect()
    }
}

fn styled(text: &str, ink: Ink) -> Cell {
    let cell = Cell::new(text);
    match ink {
        _ if text.is_empty() => cell,
        Ink::Plain => cell,
        Ink::Strong => cell.add_attribute(Attribute::Bold),
        Ink::Faint => cell.add_attribute(Attribute::Dim),
        Ink::Good => cell.fg(Color::DarkGreen),
        Ink::Warning => cell.fg(Color::DarkYellow),
        Ink::Bad => cell.fg(Color::DarkRed),
        Ink::Accent => cell.fg(Color::DarkCyan),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(width: Option<usize>) -> Vec<String> {
        let mut table = Table::new([
            Column("when", Ink::Plain, Fit::Full),
            Column("title", Ink::Plain, Fit::Cut),
            Column("n", Ink::Plain, Fit::Number),
            Column("id", Ink::Plain, Fit::Spare),
        ]);
        let row = |cells: [&str; 4]| cells.map(str::to_owned);
        table.row(row(["09:00", "Night Ferry", "7", "x1"]));
        table.row(row(["10:30", "夜の渡し船 in the Harbour", "12", "x2"]));
        table.lines(width, false)
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
        let mut table = Table::new([Column("", Ink::Plain, Fit::Wrap)]);
        table.row(["one two three four".to_owned()]);

        assert_eq!(table.lines(None, false), ["one two three four"]);
        assert_eq!(table.lines(Some(9), false), ["one two", "three", "four"]);
    }

    #[test]
    fn a_narrow_terminal_drops_optional_columns_and_cuts_flexible_ones() {
        let lines = table(Some(24));
        assert_eq!(lines[2], "10:30  夜の渡し船 i…  12");
        assert!(lines.iter().all(|line| line.width() <= 24), "{lines:?}");
    }

    #[test]
    fn a_cell_cannot_move_the_cursor() {
        let mut table = Table::new([Column("", Ink::Plain, Fit::Full)]);
        table.row(["a\x1b[2Jb\nc".to_owned()]);
        assert_eq!(table.lines(None, false), ["a␛[2Jb␊c"]);
    }

    #[test]
    fn cells_have_the_color_of_their_column() {
        let mut table = Table::facts();
        table.fact("store", "x".to_owned());
        assert_eq!(table.lines(None, true), ["\u{1b}[2mstore\u{1b}[0m  x"]);
    }
}
