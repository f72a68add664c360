//! The result of work on a connection, and its errors.

use crate::store::Error;

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
    pub(super) fn told(&self) -> String {
        match self {
            Self::Store(error) => error.to_string(),
            Self::Sqlite(cause) => cause.to_string(),
        }
    }

    pub(super) fn while_doing(self, doing: impl Into<String>) -> Error {
        match self {
            Self::Sqlite(cause) => Error::database(doing, cause),
            Self::Store(error) => error,
        }
    }
}

/// Returns `None` for an unreadable record: one bad row must not block the emails of other users.
pub(super) fn readable<T>(found: Answer<Option<T>>) -> Answer<Option<T>> {
    found.or_else(|failure| {
        if !failure.is_unreadable() {
            return Err(failure);
        }
        let error = failure.while_doing("reading a row");
        tracing::warn!(%error, "a row cannot be read, and is passed over");
        Ok(None)
    })
}

/// The result of work on a connection.
pub(super) type Answer<T> = std::result::Result<T, Failure>;
