//! Maps rows to records and back, and runs cached statements.
//!
//! A column has the name of its field, or gives the path of the field after `=`. `:json` marks JSON
//! text, `:flag` a number that is a boolean, and `:rest` the JSON of all other fields. Missing
//! fields are `NULL`. If a column has no field in the record, the caller sets it. Start with
//! [`RowTable`].

use chrono::{DateTime, Utc};
use rusqlite::Error::{FromSqlConversionFailure, InvalidColumnType, Utf8Error};
use rusqlite::types::{Value as Sql, ValueRef};
use rusqlite::{Connection, OptionalExtension, Params, Row, Transaction, params_from_iter};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::store::record::user::StoredFields;
use crate::store::record::{Record, read_json, format_text_id};
use crate::store::{Error, Result};

/// A table whose rows are records.
pub(super) struct RowTable {
    pub name: &'static str,
    /// Specifications of the columns. The first column is the record's id.
    pub columns: &'static str,
}

/// A column, and the path of its value in the record.
struct RowColumn {
    name: &'static str,
    path: &'static str,
    form: ColumnForm,
}

#[derive(PartialEq)]
enum ColumnForm {
    Plain,
    Json,
    Flag,
    /// JSON of all fields without a column. Such a column is the last one.
    Rest,
}

/// The fields of a record, by name.
pub(super) type Fields = Map<String, Value>;

impl RowTable {
    fn columns(&self) -> impl Iterator<Item = RowColumn> {
        self.columns.split_whitespace().map(|column| {
            let (name, path) = column.split_once('=').unwrap_or((column, column));
            let (name, form) = match name.split_once(':') {
                Some((name, "json")) => (name, ColumnForm::Json),
                Some((name, "rest")) => (name, ColumnForm::Rest),
                Some((name, _)) => (name, ColumnForm::Flag),
                None => (name, ColumnForm::Plain),
            };
            let path = if form == ColumnForm::Plain { path } else { name };
            RowColumn { name, path, form }
        })
    }

    /// Returns the names of the columns.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.columns().map(|column| column.name)
    }

    /// Inserts a row in place of one with the same key.
    pub(super) fn replace(
        &self,
        transaction: &Transaction<'_>,
        record: &impl Serialize,
    ) -> Result<()> {
        self.insert(transaction, "INSERT OR REPLACE", record, "").map(drop)
    }

    /// Inserts a row, unless it conflicts with an existing one. Returns whether it was inserted.
    pub(super) fn add(
        &self,
        transaction: &Transaction<'_>,
        record: &impl Serialize,
    ) -> Result<bool> {
        let inserted = self.insert(transaction, "INSERT", record, "ON CONFLICT DO NOTHING");
        Ok(inserted? == 1)
    }

    fn insert(
        &self,
        transaction: &Transaction<'_>,
        verb: &str,
        record: &impl Serialize,
        on_conflict: &str,
    ) -> Result<usize> {
        let mut fields = fields(record)?;
        let columns = self.columns();
        let columns = columns.map(|column| (column.name, column.take(&mut fields)));
        let (names, values): (Vec<&str>, Vec<Sql>) = columns.unzip();
        let (table, names) = (self.name, names.join(", "));
        let marks = vec!["?"; values.len()].join(", ");
        let sql = format!("{verb} INTO {table} ({names}) VALUES ({marks}) {on_conflict}");
        let mut insert = transaction.prepare_cached(&sql)?;
        Ok(insert.execute(params_from_iter(values))?)
    }

    /// Reads the fields of a row, besides these.
    pub(super) fn fields(&self, row: &Row<'_>, mut fields: Fields) -> Result<StoredFields> {
        let mut broken = Vec::new();
        for column in self.columns() {
            let value = column.value(row.get_ref(column.name)?);
            match (value, column.path.split_once('.')) {
                (None, _) => {}
                (Some(Value::Object(rest)), _) if column.form == ColumnForm::Rest => {
                    fields.extend(rest)
                }
                (Some(_), _) if column.form == ColumnForm::Rest => {
                    broken.push((column.name.to_owned(), "it is no JSON object".to_owned()));
                }
                (Some(value), None) => drop(fields.insert(column.path.to_owned(), value)),
                (Some(value), Some((outer, inner))) => {
                    fields.entry(outer).or_insert_with(|| json!({}))[inner] = value;
                }
            }
        }
        Ok(StoredFields { fields: fields.into(), broken, extended: false })
    }

    /// Reads the record of a row. `rest` holds the fields that are not in columns.
    pub(super) fn read<R: Record>(&self, row: &Row<'_>, rest: Fields) -> Result<R::Value> {
        let id: String = row.get(0).unwrap_or_default();
        let what = || format!("{} {}", R::WHAT, format_text_id(&id));
        let StoredFields { fields, broken, .. } = self.fields(row, rest)?;
        match broken.first() {
            Some((field, why)) => Err(Error::corrupt(format!("{field} of {}", what()), why)),
            None => read_json::<R>(fields, what),
        }
    }

    /// Returns the records of the rows that match a condition.
    pub(super) fn find<R: Record>(
        &self,
        transaction: &Transaction<'_>,
        condition: &str,
        values: impl Params,
    ) -> Result<Vec<R::Value>> {
        let sql = format!("SELECT * FROM {} WHERE {condition}", self.name);
        let mut statement = transaction.prepare_cached(&sql)?;
        let (mut rows, mut found) = (statement.query(values)?, Vec::new());
        while let Some(row) = rows.next()? {
            found.push(self.read::<R>(row, Fields::new())?);
        }
        Ok(found)
    }
}

/// Serializes a record to fields.
pub(super) fn fields(record: &impl Serialize) -> Result<Fields> {
    let error = |cause| Error::database("writing a row", cause);
    match serde_json::to_value(record).map_err(error)? {
        Value::Object(fields) => Ok(fields),
        other => Err(Error::database("writing a row", format!("{other} has no fields"))),
    }
}

impl RowColumn {
    /// Removes the column's value from the fields of a record.
    fn take(&self, fields: &mut Fields) -> Sql {
        let value = match self.path.split_once('.') {
            _ if self.form == ColumnForm::Rest => {
                // Objects whose parts have columns are empty by now.
                fields.retain(|_, value| *value != json!({}));
                (!fields.is_empty()).then(|| std::mem::take(fields).into())
            }
            Some((outer, inner)) => {
                let outer = fields.get_mut(outer).and_then(Value::as_object_mut);
                outer.and_then(|outer| outer.remove(inner))
            }
            None => fields.remove(self.path),
        };
        match value {
            None | Some(Value::Null) => Sql::Null,
            Some(value) if self.form == ColumnForm::Json => Sql::Text(value.to_string()),
            Some(Value::Bool(yes)) => Sql::Integer(yes.into()),
            Some(Value::String(text)) => Sql::Text(text),
            Some(Value::Number(number)) => match number.as_i64() {
                Some(number) => Sql::Integer(number),
                None => number.as_f64().map_or(Sql::Null, Sql::Real),
            },
            Some(other) => Sql::Text(other.to_string()),
        }
    }

    /// Converts a column to a field. What is not JSON or not UTF-8 becomes text or a list of bytes,
    /// which no field of such a column accepts.
    fn value(&self, value: ValueRef<'_>) -> Option<Value> {
        let text = |bytes: &[u8]| match std::str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => json!(bytes),
        };
        Some(match (value, &self.form) {
            (ValueRef::Null, _) => return None,
            (ValueRef::Integer(n), ColumnForm::Flag) => Value::Bool(n != 0),
            (ValueRef::Integer(n), _) => n.into(),
            (ValueRef::Real(n), _) => n.into(),
            (ValueRef::Text(json), ColumnForm::Json | ColumnForm::Rest) => {
                serde_json::from_slice(json).unwrap_or_else(|_| text(json))
            }
            (ValueRef::Text(bytes), _) => text(bytes),
            (ValueRef::Blob(bytes), _) => json!(bytes),
        })
    }
}

/// Short forms of cached statements.
pub(super) trait Statements {
    fn connection(&self) -> &Connection;

    /// Runs a statement. Returns the number of changed rows.
    fn run(&self, sql: &str, values: impl Params) -> Result<usize> {
        Ok(self.connection().prepare_cached(sql)?.execute(values)?)
    }

    /// Returns all rows of a query.
    fn all<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let mut statement = self.connection().prepare_cached(sql)?;
        let rows = statement.query_map(values, read)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Returns the first row of a query, if there is one.
    fn first<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>> {
        let mut statement = self.connection().prepare_cached(sql)?;
        Ok(statement.query_row(values, read).optional()?)
    }
}

impl Statements for Connection {
    fn connection(&self) -> &Connection {
        self
    }
}

impl From<rusqlite::Error> for Error {
    fn from(cause: rusqlite::Error) -> Self {
        match cause {
            FromSqlConversionFailure(..) | InvalidColumnType(..) | Utf8Error(..) => {
                Self::corrupt("a row", cause)
            }
            cause => Self::database("using SQLite", cause),
        }
    }
}

/// Returns whether the database was locked by another process.
pub(super) fn is_busy(error: &Error) -> bool {
    let Error::Database { cause, .. } = error else {
        return false;
    };
    let cause = cause.downcast_ref::<rusqlite::Error>();
    let code = cause.and_then(rusqlite::Error::sqlite_error_code);
    code == Some(rusqlite::ErrorCode::DatabaseBusy)
}

/// Returns `None` for an unreadable record: one bad row must not block the emails of other users.
pub(super) fn readable<T>(found: Result<Option<T>>) -> Result<Option<T>> {
    found.or_else(|error| match error.is_outage() {
        true => Err(error),
        false => {
            tracing::warn!(%error, "a row cannot be read, and is skipped");
            Ok(None)
        }
    })
}

/// Returns the stored form of a time: whole milliseconds.
pub(super) fn millis(time: DateTime<Utc>) -> i64 {
    time.timestamp_millis()
}

/// Returns a JSON list, for `json_each`.
pub(super) fn list<T: Into<Value>>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().collect::<Value>().to_string()
}

/// Deserializes a column of JSON text; `what` names the record in errors.
pub(super) fn json<T: DeserializeOwned>(
    row: &Row<'_>,
    column: &'static str,
    what: &str,
) -> Result<T> {
    let id: String = row.get(0).unwrap_or_default();
    let corrupt = |why: String| Error::corrupt(format!("{column} of {what} {id}"), why);
    let text = row.get_ref(column)?.as_bytes();
    let text = text.map_err(|why| corrupt(why.to_string()))?;
    serde_json::from_slice(text).map_err(|why| corrupt(why.to_string()))
}

/// The comparison with the first name of a page. An empty name may exist.
pub(super) fn bound(after: &Option<String>) -> &'static str {
    if after.is_some() { ">" } else { ">=" }
}
