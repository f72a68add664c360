//! The use cases, one folder for each capability.
//!
//! Start with [`ingest`], then [`fanout`], [`digest`] and [`delivery`]. The HTTP API, the pages and
//! the command line call these and use no store themselves.

pub mod access;
pub mod archive;
pub mod batches;
mod byte_cache;
pub mod crash;
pub mod delivery;
pub mod digest;
pub mod directory;
pub mod eligibility;
pub mod fanout;
pub mod feed;
pub mod feedback;
pub mod ingest;
pub mod joint;
mod watcher;
pub mod worker;

pub use watcher::{Silent, Watcher};

/// Why a use case failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked cannot be; nothing was changed.
    #[error(transparent)]
    Invalid(#[from] crate::domain::Invalid),
    /// The request contradicts what stands already; nothing was changed.
    #[error("{0}")]
    Conflict(String),
    /// The store could not be asked, or cannot do or hold what was wanted.
    #[error(transparent)]
    Store(#[from] crate::store::Error),
    /// A file or folder could not be opened, read or written.
    #[error("{doing}")]
    File {
        /// What was being done, and with which file, such as `opening users.ndjson`.
        doing: String,
        /// Why that failed.
        #[source]
        cause: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{file}: {why}")]
    Damaged {
        /// Its path.
        file: String,
        /// What is wrong with it, for people to read.
        why: String,
    },
}

impl Error {
    /// A failure at a file, with what was being done, such as `opening users.ndjson`.
    pub fn file(doing: impl Into<String>, cause: std::io::Error) -> Self {
        Self::File {
            doing: doing.into(),
            cause,
        }
    }
}

/// Returns a task's result, or resumes its panic.
fn came_to<T>(ended: std::result::Result<T, tokio::task::JoinError>) -> T {
    match ended.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(value) => value,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(stopped)) => unreachable!("a task was stopped: {stopped}"),
    }
}

/// The result of a use case.
pub type Result<T> = std::result::Result<T, Error>;
