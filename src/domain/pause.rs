//! The pause that stops all processes from sending email until an operator resumes.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// The reason for a pause, stored as a note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// When sending was paused; 1970 if the note cannot be read.
    pub at: DateTime<Utc>,
    /// The reason, in words; the whole note if it cannot be read.
    pub reason: String,
    /// The name of the process that paused sending, as in its leases.
    pub by: String,
}
