//! Tables whose columns are as wide as their cells, and shrink on a narrow terminal.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::harmless;
use super::ink::Ink;

/// The heading and the look of a column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    heading: &'static str,
    ink: Option<Ink>,
    /// Whether its cells are cut if the terminal is too narrow.
    gives_way: bool,
    right: bool,
    /// Whether it is omitted if the terminal is too narrow.
    spare: bool,
}

impl Column {
    pub(super) const fn new(heading: &'static str) -> Self {
        Self {
            heading,
            ink: None,
            gives_way: false,
            right: false,
            spare: false,
        }
    }

    pub(super) const fn ink(mut self, ink: Ink) -> Self {
        self.ink = Some(ink);
        self
    }

    /// Lets its cells be cut if the terminal is too narrow. The widest column is cut first.
    pub(super) const fn gives_way(mut self) -> Self {
        self.gives_way = true;
        self
    }

    /// Lets it be omitted before any column is cut.
    pub(super) const fn spare(mut self) -> Self {
        self.spare = true;
        self
    }

    /// Aligns its cells to the right.
    pub(super) const fn right(mut self) -> Self {
        self.right = true;
        self
    }
}

#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// The space between columns.
const GAP: &str = "  ";
/// The smallest width that a column is cut to.
const NARROWEST: usize = 8;

impl Table {
    pub(super) fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row with one cell per column. Control characters are replaced, so that widths are
    /// those of the output.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let shown = |cell: String| harmless::line(&cell).into_owned();
        self.rows.push(cells.into_iter().map(shown).collect());
    }

    /// Returns the lines, headings first if there are any. Empty columns are omitted.
    pub(super) fn lines(
        &self,
        width: Option<usize>,
        paint: impl Fn(Ink, &str) -> String,
    ) -> Vec<String> {
        let widths = self.widths(width);
        let headings = self.columns.iter().any(|column| !column.heading.is_empty());
        let heading = headings.then(|| {
            let cells = self.columns.iter().map(|column| column.heading);
            self.put(cells, &widths, |_, text| paint(Ink::Faint, text))
        });
        let rows = self.rows.iter().map(|row| {
            self.put(row.iter().map(String::as_str), &widths, |column, text| {
                column.ink.map_or(text.to_owned(), |ink| paint(ink, text))
            })
        });
        heading.into_iter().chain(rows).collect()
    }

    fn widths(&self, room: Option<usize>) -> Vec<usize> {
        let widest = |index: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(index));
            match cells.map(|cell| cell.width()).max().unwrap_or(0) {
                0 => 0,
                width => width.max(self.columns[index].heading.width()),
            }
        };
        let mut widths: Vec<usize> = (0..self.columns.len()).map(widest).collect();
        let taken = |widths: &[usize]| {
            let shown = widths.iter().filter(|width| **width > 0).count();
            widths.iter().sum::<usize>() + GAP.len() * shown.saturating_sub(1)
        };
        for index in 0..widths.len() {
            if self.columns[index].spare && room.is_some_and(|room| taken(&widths) > room) {
                widths[index] = 0;
            }
        }
        while room.is_some_and(|room| taken(&widths) > room) {
            let giving = (0..widths.len())
                .filter(|index| self.columns[*index].gives_way && widths[*index] > NARROWEST)
                .max_by_key(|index| widths[*index]);
            match giving {
                Some(index) => widths[index] -= 1,
                None => break,
            }
        }
        widths
    }

    fn put<'a>(
        &self,
        cells: impl Iterator<Item = &'a str>,
        widths: &[usize],
        paint: impl Fn(&Column, &str) -> String,
    ) -> String {
        let mut line = String::new();
        for ((cell, width), column) in cells.zip(widths).zip(&self.columns) {
            if *width == 0 {
                continue;
            }
            if !line.is_empty() {
                line.push_str(GAP);
            }
            let cell = cut(cell, *width);
            let room = " ".repeat(width - cell.width());
            let painted = if cell.is_empty() {
                String::new()
            } else {
                paint(column, &cell)
            };
            line.push_str(&if column.right {
                room + &painted
            } else {
                painted + &room
            });
        }
        line.trim_end().to_owned()
    }
}

/// Cuts a text to at most `width` columns; a cut text ends in `…`.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut left = width.saturating_sub(1);
    for c in text.chars() {
        let columns = c.width().unwrap_or(0);
        if columns > left {
            break;
        }
        left -= columns;
        kept.push(c);
    }
    kept.truncate(kept.trim_end().len());
    kept + "…"
}

/// Wraps a text into lines of at most `room` columns; a longer word gets a line of its own.
pub(super) fn wrapped(text: &str, room: Option<usize>) -> Vec<String> {
    let Some(room) = room else {
        return vec![text.to_owned()];
    };
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always one");
        if line.is_empty() {
            line.push_str(word);
        } else if line.width() + 1 + word.width() <= room {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(width: Option<usize>) -> Vec<String> {
        let mut table = Table::new([
            Column::new("when"),
            Column::new("title").gives_way(),
            Column::new("n").right(),
            Column::new("id").spare(),
        ]);
        let row = |cells: [&str; 4]| cells.map(str::to_owned);
        table.row(row(["09:00", "Night Ferry", "7", "x1"]));
        table.row(row(["10:30", "夜の渡し船 in the Harbour", "12", "x2"]));
        table.lines(width, |_, text| text.to_owned())
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
    fn lines_wrap_between_words_at_the_terminal_width() {
        let text = "one two three four";

        assert_eq!(wrapped(text, None), [text]);
        assert_eq!(wrapped(text, Some(9)), ["one two", "three", "four"]);
        assert_eq!(wrapped(text, Some(3)), ["one", "two", "three", "four"]);
    }

    #[test]
    fn a_narrow_terminal_drops_optional_columns_and_cuts_flexible_ones() {
        let lines = table(Some(24));
        assert_eq!(lines[2], "10:30  夜の渡し船 i…  12");
        assert!(lines.iter().all(|line| line.width() <= 24), "{lines:?}");
    }

    #[test]
    fn a_cell_cannot_move_the_cursor() {
        let mut table = Table::new([Column::new("")]);
        table.row(["a\x1b[2Jb\nc".to_owned()]);
        assert_eq!(table.lines(None, |_, text| text.to_owned()), ["a␛[2Jb␊c"]);
    }
}
