//! The use cases, one folder for each capability.
//!
//! Only this layer uses the store: the HTTP API, the pages and the command line call it. Start with
//! [`ingest`], then [`fanout`], [`digest`] and [`delivery`].

pub mod access;
pub mod archive;
pub mod batches;
pub mod coalescer;
pub mod crash;
pub mod delivery;
pub mod digest;
pub mod eligibility;
pub mod fanout;
pub mod feed;
pub mod feedback;
pub mod import;
pub mod ingest;
pub(crate) mod json_fields;
pub mod users;
pub mod worker;

use std::fmt::Display;
use std::path::Path;

/// The error of a use case.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The input is invalid. Nothing was changed.
    #[error(transparent)]
    Invalid(#[from] crate::domain::InvalidValue),
    /// The request conflicts with the current state. Nothing was changed.
    #[error("{0}")]
    Conflict(String),
    /// The store is unavailable, or it rejected the operation.
    #[error(transparent)]
    Store(#[from] crate::store::Error),
    /// A file or folder could not be opened, read or written.
    #[error("{0}")]
    File(String, #[source] std::io::Error),
    /// A file is damaged or has the wrong format.
    #[error("{0}")]
    Damaged(String),
}

impl Error {
    /// Creates an error for a failed file operation, such as `opening users.ndjson`.
    pub fn file(doing: impl Into<String>, cause: std::io::Error) -> Self {
        Self::File(doing.into(), cause)
    }

    /// Creates an error for a damaged file.
    pub fn damaged(file: &Path, why: impl Display) -> Self {
        Self::Damaged(format!("{}: {why}", file.display()))
    }
}

/// Returns the result of a task, or resumes its panic. The task must not have been aborted.
fn task_output<T>(result: Result<T, tokio::task::JoinError>) -> T {
    match result.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(value) => value,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(aborted)) => unreachable!("a task was aborted: {aborted}"),
    }
}

/// The result of a use case.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Receives the progress of a long operation, and can stop it.
pub trait Progress: Send + Sync {
    /// Adds to the work done.
    fn advance(&self, _by: u64) {}
    /// Sets the total amount of work, once it is known.
    fn set_total(&self, _total: u64) {}
    /// Returns whether to stop. The operation then stops at a point from which it can resume.
    fn should_stop(&self) -> bool {
        false
    }
}

/// Ignores progress and never stops.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {}
