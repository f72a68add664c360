//! The errors of stores.

use crate::domain::Day;

/// The result of a store method.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a store method failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database could not be reached or rejected the operation. A write may have been applied;
    /// all methods may be repeated.
    #[error("{doing}")]
    Database {
        /// The operation, such as `reading deliveries`.
        doing: String,
        /// Error of the database or its driver.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A record is not one that tidings or an older writer could have written.
    #[error("{what} in the store cannot be read: {why}")]
    Corrupt {
        /// The unreadable record or field, with its id if it has one.
        what: String,
        /// The defect.
        why: String,
    },
    /// A different record is stored in the same place.
    #[error("{what} exists already and differs")]
    Conflict {
        /// The existing record, such as a document of a day.
        what: String,
    },
    /// The stack holds pending events of another writer, which an exported marker would cover.
    #[error(
        "the stack of {user} on {day} has pending events, which exported markers would cover; \
         restore {day} again after their next digest, or after `tidings flush {user}`"
    )]
    Pending {
        /// Owner of the stack.
        user: String,
        /// Day of the stack.
        day: Day,
    },
    /// The store does not support the operation.
    #[error("{0}")]
    Unsupported(String),
}

impl Error {
    /// Returns a database error; `doing` is such as "pushing onto stacks of 20140422".
    pub fn database(
        doing: impl Into<String>,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Database {
            doing: doing.into(),
            cause: cause.into(),
        }
    }

    /// Returns whether the database failed or was unreachable, as opposed to holding invalid data.
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Database { .. })
    }

    /// Returns the error for a record that cannot be read.
    pub fn corrupt(what: impl Into<String>, why: impl ToString) -> Self {
        Self::Corrupt {
            what: what.into(),
            why: why.to_string(),
        }
    }
}
