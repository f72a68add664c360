//! Tables whose columns are as wide as their cells and shrink on a narrow terminal.

use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Row,
};

use super::harmless;

/// The role of a cell. It determines the color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    Plain,
    /// A heading, or the name of a value.
    Faint,
    /// A state that needs no attention.
    Good,
    Warning,
    /// An error that must be fixed.
    Bad,
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
}

/// A column: its heading, its width, and the text of a cell.
pub(super) struct Column<T>(pub &'static str, pub Fit, pub fn(&T) -> String);

#[derive(Debug)]
pub(super) struct Table {
    /// The heading and the width of each column.
    columns: Vec<(&'static str, Fit)>,
    rows: Vec<Vec<(String, Ink)>>,
}

/// The space between columns.
const GAP: u16 = 2;

impl Table {
    /// Creates a table with one line per row.
    pub(super) fn new<T>(rows: impl IntoIterator<Item = T>, columns: &[Column<T>]) -> Self {
        let cells = |row: T| {
            let cells = columns.iter();
            let cells = cells.map(|Column(_, _, text)| cell(&text(&row), Ink::Plain));
            cells.collect()
        };
        Self {
            rows: rows.into_iter().map(cells).collect(),
            columns: columns.iter().map(|column| (column.0, column.1)).collect(),
        }
    }

    /// Creates a table of names and values, without headings.
    pub(super) fn facts() -> Self {
        Self {
            columns: vec![("", Fit::Full), ("", Fit::Wrap)],
            rows: Vec::new(),
        }
    }

    /// Adds a row of a name and a value, if there is one.
    pub(super) fn fact(&mut self, name: &str, value: impl Into<Option<String>>) {
        if let Some(value) = value.into() {
            let row = vec![cell(name, Ink::Faint), cell(&value, Ink::Plain)];
            self.rows.push(row);
        }
    }

    /// Sets the role of the first cell of each row.
    pub(super) fn with_inks(mut self, inks: impl IntoIterator<Item = Ink>) -> Self {
        for (row, ink) in self.rows.iter_mut().zip(inks) {
            row[0].1 = ink;
        }
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the lines, headings first if there are any. Empty columns are omitted. Without a
    /// width, all columns are shown in full.
    pub(super) fn lines(&self, width: Option<usize>, color: bool) -> Vec<String> {
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
        let wraps = self.columns.iter().any(|(_, fit)| *fit == Fit::Wrap);
        if self.columns.iter().any(|(heading, _)| !heading.is_empty()) {
            let headings = self.columns.iter();
            let mut head = Row::from(headings.map(|(heading, _)| styled(heading, Ink::Faint)));
            head.max_height(1);
            table.set_header(head);
        }
        for cells in &self.rows {
            let mut row = Row::from(cells.iter().map(|(text, ink)| styled(text, *ink)));
            if !wraps {
                row.max_height(1);
            }
            table.add_row(row);
        }
        if !wraps {
            // Cells are cut inside words.
            table.set_delimiter('\0');
        }
        for (index, (column, (_, fit))) in table.column_iter_mut().zip(&self.columns).enumerate() {
            column.set_padding((0, GAP));
            match fit {
                _ if self.rows.iter().all(|row| row[index].0.is_empty()) => {
                    column.set_constraint(ColumnConstraint::Hidden)
                }
                Fit::Cut | Fit::Wrap => column,
                Fit::Full | Fit::Number => column.set_constraint(ColumnConstraint::ContentWidth),
            };
            if *fit == Fit::Number {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let lines = table.lines();
        lines.map(|line| line.trim_end().to_owned()).collect()
    }
}

/// Creates a cell without control characters.
fn cell(text: &str, ink: Ink) -> (String, Ink) {
    (harmless::line(text).into_owned(), ink)
}

fn styled(text: &str, ink: Ink) -> Cell {
    let cell = Cell::new(text);
    match ink {
        _ if text.is_empty() => cell,
        Ink::Plain => cell,
        Ink::Faint => cell.add_attribute(Attribute::Dim),
        Ink::Good => cell.fg(Color::DarkGreen),
        Ink::Warning => cell.fg(Color::DarkYellow),
        Ink::Bad => cell.fg(Color::DarkRed),
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
        table.lines(width, false)
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

        assert_eq!(table.lines(None, false), ["one two three four"]);
        assert_eq!(table.lines(Some(9), false), ["one two", "three", "four"]);
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
        assert_eq!(table.lines(None, false), ["a␛[2Jb␊c"]);
    }

    #[test]
    fn cells_have_the_color_of_their_role() {
        let mut table = Table::facts();
        table.fact("store", "x".to_owned());
        assert_eq!(table.lines(None, true), ["\u{1b}[2mstore\u{1b}[0m  x"]);
    }
}
