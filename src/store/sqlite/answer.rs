//! The results of work on a connection, and why it stops.

use crate::store::Error;

/// Why a piece of work on a connection stopped.
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
    /// Whether another process was in the way.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Sqlite(cause) if cause.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy))
    }

    /// Whether something stands there that cannot be read, rather than that nothing could be asked.
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

    /// What it is, for people.
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

/// What was found, or nothing where it cannot be read: one bad row must not keep everybody else's
/// mail.
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

/// What a piece of work on a connection gives.
pub(super) type Answer<T> = std::result::Result<T, Failure>;
