//! Why no mail leaves any process, until somebody resumes.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// Why nothing leaves, since when, and who stopped it. It is kept as a note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// When it was stopped; 1970 if the note cannot be read.
    pub at: DateTime<Utc>,
    /// Why, for people to read; the whole note if it cannot be read.
    pub reason: String,
    /// The process, as its leases name it.
    pub by: String,
}
