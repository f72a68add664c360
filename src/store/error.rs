//! What can go wrong in a store: what it was doing, and the cause.

use crate::domain::Day;

/// A store's answer.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database could not be asked, or refused. Whether a write was applied is not known; all
    /// verbs may be repeated.
    #[error("{doing}")]
    Database {
        /// What it was doing, such as `reading deliveries`.
        doing: String,
        /// What the database or its driver said.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What stands in the store is not what tidings or an older writer could have written.
    #[error("{what} in the store cannot be read: {why}")]
    Corrupt {
        /// What cannot be read, with its id where it has one.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// Something else stands where this should go.
    #[error("{what} exists already and differs")]
    Conflict {
        /// What exists already, such as a document of a day.
        what: String,
    },
    /// The stack holds pending events of another writer, and exported entries have no ids.
    #[error(
        "the stack of {user} on {day} has pending events, and exported entries without ids; restore \
         {day} again after their next digest, or after `tidings flush {user}`"
    )]
    Pending {
        /// Whose stack it is.
        user: String,
        /// Of which day.
        day: Day,
    },
    /// This store cannot do that.
    #[error("{0}")]
    Unsupported(String),
}

impl Error {
    /// A database error, with what was being done ("pushing onto stacks of 20140422").
    pub fn database(
        doing: impl Into<String>,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Database {
            doing: doing.into(),
            cause: cause.into(),
        }
    }

    /// Whether the database could not be asked or refused, rather than having something in it that
    /// cannot be.
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Database { .. })
    }

    /// What stands in the store and cannot be read, and why.
    pub fn corrupt(what: impl Into<String>, why: impl ToString) -> Self {
        Self::Corrupt {
            what: what.into(),
            why: why.to_string(),
        }
    }
}
