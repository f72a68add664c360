//! The result of work on a connection, its errors, and short forms of cached statements.

use rusqlite::{Connection, OptionalExtension, Params, Row};

use crate::store::Error;

/// The result of work on a connection.
pub(super) type Answer<T> = std::result::Result<T, Failure>;

/// Short forms of cached statements.
pub(super) trait Statements {
    /// Runs a statement. Returns the number of changed rows.
    fn run(&self, sql: &str, values: impl Params) -> Answer<usize>;

    /// Returns all rows of a query.
    fn all<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Answer<Vec<T>>;

    /// Returns the first row of a query, if there is one.
    fn first<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Answer<Option<T>>;
}

impl Statements for Connection {
    fn run(&self, sql: &str, values: impl Params) -> Answer<usize> {
        Ok(self.prepare_cached(sql)?.execute(values)?)
    }

    fn all<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Answer<Vec<T>> {
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
    ) -> Answer<Option<T>> {
        let mut statement = self.prepare_cached(sql)?;
        Ok(statement.query_row(values, read).optional()?)
    }
}

/// Why work on a connection failed.
#[derive(Debug)]
pub(super) enum Failure {
    Sqlite(rusqlite::Error),
    Store(Error),
}

impl From<rusqlite::Error> for Failure {
    fn from(cause: rusqlite::Error) -> Self {
        Self::Sqlite(cause)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl Failure {
    /// Returns whether the database was locked by another process.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Sqlite(cause) if cause.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy))
    }

    /// Returns whether stored data cannot be read, as opposed to a failed query.
    pub(super) fn is_unreadable(&self) -> bool {
        use rusqlite::Error::{FromSqlConversionFailure, InvalidColumnType, Utf8Error};
        match self {
            Self::Store(error) => matches!(error, Error::Corrupt { .. }),
            Self::Sqlite(cause) => matches!(
                cause,
                FromSqlConversionFailure(..) | InvalidColumnType(..) | Utf8Error(..)
            ),
        }
    }

    /// Returns the message of the error.
    pub(super) fn message(&self) -> String {
        match self {
            Self::Store(error) => error.to_string(),
            Self::Sqlite(cause) => cause.to_string(),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Sqlite(cause) => Self::database("using the SQLite file", cause),
            Failure::Store(error) => error,
        }
    }
}

/// Returns `None` for an unreadable record: one bad row must not block the emails of other users.
pub(super) fn readable<T>(found: Answer<Option<T>>) -> Answer<Option<T>> {
    found.or_else(|failure| {
        if !failure.is_unreadable() {
            return Err(failure);
        }
        let error = failure.message();
        tracing::warn!(error, "a row cannot be read, and is skipped");
        Ok(None)
    })
}
