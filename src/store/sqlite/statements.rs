//! Short forms of cached statements, and the errors of SQLite.

use rusqlite::Error::{FromSqlConversionFailure, InvalidColumnType, Utf8Error};
use rusqlite::{Connection, OptionalExtension, Params, Row};

use crate::store::{Error, Result};

/// Short forms of cached statements.
pub(super) trait Statements {
    /// Runs a statement. Returns the number of changed rows.
    fn run(&self, sql: &str, values: impl Params) -> Result<usize>;

    /// Returns all rows of a query.
    fn all<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>>;

    /// Returns the first row of a query, if there is one.
    fn first<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>>;
}

impl Statements for Connection {
    fn run(&self, sql: &str, values: impl Params) -> Result<usize> {
        Ok(self.prepare_cached(sql)?.execute(values)?)
    }

    fn all<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let mut statement = self.prepare_cached(sql)?;
        Ok(statement
            .query_map(values, read)?
            .collect::<rusqlite::Result<_>>()?)
    }

    fn first<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>> {
        let mut statement = self.prepare_cached(sql)?;
        Ok(statement.query_row(values, read).optional()?)
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
