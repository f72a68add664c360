//! Maps rows to records and back, and runs cached statements.
//!
//! A column has the name of its field, or gives the path of the field after `=`. `:json` marks JSON
//! text, `:flag` a boolean stored as a number, and `:rest` the JSON of all other fields. Missing
//! fields are `NULL`. If a column has no field in the record, the caller sets it. Start with
//! [`RowTable`].

use chrono::{DateTime, Utc};
use rusqlite::Error::{FromSqlConversionFailure, InvalidColumnType, Utf8Error};
use rusqlite::types::{Value as SqlValue, ValueRef};
use rusqlite::{Connection, OptionalExtension, Params, Row, Transaction, params_from_iter};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::store::record::user::StoredFields;
use crate::store::record::{Record, format_text_id, read_json};
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
    /// JSON of all fields without a column. A table's last column may have this form.
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
    pub(super) fn insert_new(
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
        command: &str,
        record: &impl Serialize,
        on_conflict: &str,
    ) -> Result<usize> {
        let mut fields = to_fields(record)?;
        let (names, values): (Vec<&str>, Vec<SqlValue>) =
            (self.columns()).map(|column| (column.name, column.take_value(&mut fields))).unzip();
        let (table, names) = (self.name, names.join(", "));
        let placeholders = vec!["?"; values.len()].join(", ");
        let sql = format!("{command} INTO {table} ({names}) VALUES ({placeholders}) {on_conflict}");
        transaction.run(&sql, params_from_iter(values))
    }

    /// Adds the fields of a row to these fields.
    pub(super) fn read_fields(&self, row: &Row<'_>, mut fields: Fields) -> Result<StoredFields> {
        let mut broken = Vec::new();
        for column in self.columns() {
            let Some(value) = column.read_value(row.get_ref(column.name)?) else {
                continue;
            };
            match (value, column.path.split_once('.')) {
                (Value::Object(rest), _) if column.form == ColumnForm::Rest => fields.extend(rest),
                _ if column.form == ColumnForm::Rest => {
                    broken.push((column.name.to_owned(), "it is not a JSON object".to_owned()));
                }
                (value, None) => drop(fields.insert(column.path.to_owned(), value)),
                (value, Some((outer, inner))) => {
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
        let StoredFields { fields, broken, .. } = self.read_fields(row, rest)?;
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
        let (mut rows, mut records) = (statement.query(values)?, Vec::new());
        while let Some(row) = rows.next()? {
            records.push(self.read::<R>(row, Fields::new())?);
        }
        Ok(records)
    }

    /// Returns the record that matches a condition on a unique key.
    pub(super) fn find_one<R: Record>(
        &self,
        transaction: &Transaction<'_>,
        condition: &str,
        values: impl Params,
    ) -> Result<Option<R::Value>> {
        Ok(self.find::<R>(transaction, condition, values)?.pop())
    }
}

/// Serializes a record to fields.
pub(super) fn to_fields(record: &impl Serialize) -> Result<Fields> {
    let error = |cause| Error::database("writing a row", cause);
    match serde_json::to_value(record).map_err(error)? {
        Value::Object(fields) => Ok(fields),
        other => Err(Error::database("writing a row", format!("{other} has no fields"))),
    }
}

impl RowColumn {
    /// Removes the column's value from the fields of a record.
    fn take_value(&self, fields: &mut Fields) -> SqlValue {
        let value = match self.path.split_once('.') {
            _ if self.form == ColumnForm::Rest => {
                // Objects are empty if all their parts have columns.
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
            None | Some(Value::Null) => SqlValue::Null,
            Some(value) if self.form == ColumnForm::Json => SqlValue::Text(value.to_string()),
            Some(Value::Bool(flag)) => SqlValue::Integer(flag.into()),
            Some(Value::String(text)) => SqlValue::Text(text),
            Some(Value::Number(number)) => match number.as_i64() {
                Some(number) => SqlValue::Integer(number),
                None => number.as_f64().map_or(SqlValue::Null, SqlValue::Real),
            },
            Some(other) => SqlValue::Text(other.to_string()),
        }
    }

    /// Converts a column to a field. Invalid JSON becomes text, and text that is not UTF-8 becomes
    /// a list of bytes. No field of such a column accepts these.
    fn read_value(&self, value: ValueRef<'_>) -> Option<Value> {
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
    fn query_all<T>(
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
    fn query_first<T>(
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
    let sqlite_error = cause.downcast_ref::<rusqlite::Error>();
    let code = sqlite_error.and_then(rusqlite::Error::sqlite_error_code);
    code == Some(rusqlite::ErrorCode::DatabaseBusy)
}

/// Returns `None` for an unreadable record: one bad row must not block the emails of other users.
pub(super) fn skip_unreadable<T>(result: Result<Option<T>>) -> Result<Option<T>> {
    match result {
        Err(error) if !error.is_outage() => {
            tracing::warn!(%error, "a row cannot be read, and is skipped");
            Ok(None)
        }
        result => result,
    }
}

/// Returns the stored form of a time: whole milliseconds.
pub(super) fn millis(time: DateTime<Utc>) -> i64 {
    time.timestamp_millis()
}

/// Returns a JSON list, for `json_each`.
pub(super) fn json_list<T: Into<Value>>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().collect::<Value>().to_string()
}

/// Deserializes a column of JSON text. In errors, `what` names the record.
pub(super) fn read_json_column<T: DeserializeOwned>(
    row: &Row<'_>,
    column: &'static str,
    what: &str,
) -> Result<T> {
    let id: String = row.get(0).unwrap_or_default();
    let corrupt = |why: String| Error::corrupt(format!("{column} of {what} {id}"), why);
    let text = row.get_ref(column)?.as_bytes().map_err(|why| corrupt(why.to_string()))?;
    serde_json::from_slice(text).map_err(|why| corrupt(why.to_string()))
}

/// Returns the first column, if it is text in UTF-8.
pub(super) fn first_as_text(row: &Row<'_>) -> rusqlite::Result<Option<String>> {
    Ok(row.get_ref(0)?.as_str().ok().map(str::to_owned))
}

/// Returns the operator that compares an id with `after`, or with the empty text if it is `None`.
/// The empty id may exist.
pub(super) fn lower_bound_operator(after: &Option<String>) -> &'static str {
    if after.is_some() { ">" } else { ">=" }
}
