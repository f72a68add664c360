//! What became of old days.

use std::path::PathBuf;

use serde::Serialize;

use crate::domain::Day;

/// What became of a day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DayReport {
    /// The day, of UTC.
    pub day: Day,
    /// How many documents it held when the days were listed.
    pub stacks: u64,
    /// In JSON its fields stand beside the day's.
    #[serde(flatten)]
    pub fate: Fate,
}

/// Why a day stays, or that it is gone. In JSON, `fate` names it in snake case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "fate")]
pub enum Fate {
    /// In the window: it stays, whatever was asked.
    InWindow,
    /// Younger than what is dropped.
    Young,
    /// A fan-out still writes to it.
    Busy,
    /// So many people should have been mailed so many events.
    Unmailed {
        /// How many people are owed any of them.
        people: u64,
        /// How many events they are owed together.
        events: u64,
    },
    /// Another process archives or restores it.
    Held,
    /// Somebody wrote to it while it was archived: it stands, and goes the next time.
    Changed,
    /// It could not be dealt with; it stands.
    Failed {
        /// The error and its causes, on one line.
        why: String,
    },
    /// Dropped, or would be; with the file that holds it.
    Dropped {
        /// `None` if no export was asked for, or the day was empty. A rehearsal names the first
        /// part, whether that stands already or not.
        file: Option<PathBuf>,
    },
}
