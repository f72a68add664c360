//! Rows of a day that have no exact document: the id is invalid, or the text is malformed.
//!
//! They are exported and restored as their columns, byte for byte:
//! `{"$tidings_row":["text:<base64>", "integer:3", "text:<base64>"]}`. Only a SQLite store restores
//! them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Row, ToSql, Transaction};

use super::answer::{Answer, Statements as _};

/// Start and end of such a line.
const FORM: (&str, &str) = ("{\"$tidings_row\":", "}");

/// The value of a column.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Column {
    Integer(i64),
    Real(f64),
    /// Not necessarily UTF-8.
    Text(Vec<u8>),
    Blob(Vec<u8>),
}

impl Column {
    /// A value that sorts before every id.
    pub(super) const LEAST: Self = Self::Real(f64::NEG_INFINITY);

    pub(super) fn of(value: ValueRef<'_>) -> Self {
        match value {
            // Our columns are never NULL.
            ValueRef::Null => Self::Blob(Vec::new()),
            ValueRef::Integer(n) => Self::Integer(n),
            ValueRef::Real(n) => Self::Real(n),
            ValueRef::Text(text) => Self::Text(text.to_vec()),
            ValueRef::Blob(bytes) => Self::Blob(bytes.to_vec()),
        }
    }

    /// Returns the type and value as text.
    pub(super) fn spelled(&self) -> String {
        match self {
            Self::Integer(n) => format!("integer:{n}"),
            Self::Real(n) => format!("real:{:016x}", n.to_bits()),
            Self::Text(text) => format!("text:{}", STANDARD.encode(text)),
            Self::Blob(bytes) => format!("blob:{}", STANDARD.encode(bytes)),
        }
    }

    /// Parses the text that [`Self::spelled`] returns.
    pub(super) fn read(spelled: &str) -> Option<Self> {
        let (kind, value) = spelled.split_once(':')?;
        let bytes = || STANDARD.decode(value).ok();
        Some(match kind {
            "integer" => Self::Integer(value.parse().ok()?),
            "real" => Self::Real(f64::from_bits(u64::from_str_radix(value, 16).ok()?)),
            "text" => Self::Text(bytes()?),
            "blob" => Self::Blob(bytes()?),
            _ => return None,
        })
    }
}

impl ToSql for Column {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Integer(n) => ValueRef::Integer(*n),
            Self::Real(n) => ValueRef::Real(*n),
            Self::Text(text) => ValueRef::Text(text),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// The columns of a row: `id`, `n` and `events`.
#[derive(Debug, PartialEq)]
pub(super) struct OddRow([Column; 3]);

impl OddRow {
    pub(super) fn of(row: &Row<'_>) -> Answer<Self> {
        let column = |n: usize| row.get_ref(n).map(Column::of);
        Ok(Self([column(0)?, column(1)?, column(2)?]))
    }

    pub(super) fn line(&self) -> String {
        let [id, n, events] = &self.0;
        let columns = [id, n, events].map(|column| format!("\"{}\"", column.spelled()));
        format!("{}[{}]{}", FORM.0, columns.join(","), FORM.1)
    }

    /// Parses such a line; `None` if the line is a document.
    pub(super) fn read(line: &str) -> Option<Result<Self, &'static str>> {
        let columns = line.strip_prefix(FORM.0)?.strip_suffix(FORM.1)?;
        let columns: Option<[String; 3]> = serde_json::from_str(columns).ok();
        let row = columns.and_then(|[id, n, events]| {
            let [id, n, events] = [id, n, events].map(|column| Column::read(&column));
            Some(Self([id?, n?, events?]))
        });
        Some(row.ok_or("it has not the three columns of a row"))
    }

    /// Inserts the row. Returns whether exactly this row is now stored.
    pub(super) fn restore(&self, transaction: &Transaction<'_>, table: &str) -> Answer<bool> {
        let insert = format!("INSERT INTO {table} VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING");
        let [id, n, events] = &self.0;
        transaction.run(&insert, (id, n, events))?;
        let stored = format!("SELECT id, n, events FROM {table} WHERE id = ?1");
        let mut stored = transaction.prepare_cached(&stored)?;
        let mut rows = stored.query([id])?;
        Ok(match rows.next()? {
            Some(row) => Self::of(row)? == *self,
            None => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_all_types_round_trip() {
        let rows = [
            [
                Column::Text(b"a".to_vec()),
                Column::Integer(-3),
                Column::Text(vec![0xff]),
            ],
            [
                Column::Blob(vec![1, 2]),
                Column::Real(-0.0),
                Column::Blob(Vec::new()),
            ],
        ];
        for row in rows.map(OddRow) {
            let line = row.line();
            assert_eq!(OddRow::read(&line), Some(Ok(row)), "{line}");
        }
        assert_eq!(OddRow::read(r#"{"_id":"ada","events":[]}"#), None);
        assert!(
            OddRow::read(r#"{"$tidings_row":["text:%","integer:1","text:"]}"#)
                .unwrap()
                .is_err()
        );
    }
}
