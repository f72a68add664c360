//! The results of archiving, one for each day.

use std::path::PathBuf;

use serde::Serialize;

use crate::domain::Day;

/// The outcome for one day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DayReport {
    /// The day, in UTC.
    pub day: Day,
    /// The number of documents when the days were listed.
    pub stacks: u64,
    /// The outcome; flattened in JSON.
    #[serde(flatten)]
    pub fate: DayFate,
}

/// Why a day was kept, or that it was dropped. In JSON, `fate` names the variant in snake case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "fate")]
pub enum DayFate {
    /// The day is in the window, so it is kept even with `--force`.
    InWindow,
    /// The day is younger than the requested age.
    #[serde(rename = "young")]
    TooYoung,
    /// A fan-out still writes to the day.
    Busy,
    /// The day has events that may still be emailed.
    #[serde(rename = "unmailed")]
    NotEmailed {
        /// The number of users with such events.
        #[serde(rename = "people")]
        users: u64,
        /// The number of such events.
        events: u64,
    },
    /// Another process archives or restores the day, or has just archived it.
    #[serde(rename = "held")]
    Leased,
    /// The day changed while it was archived. It is kept, and the next run archives it.
    Changed,
    /// An error occurred, and the day is kept.
    Failed {
        /// The error and its causes, on one line.
        why: String,
    },
    /// The day was dropped. In a dry run, it would be dropped.
    Dropped {
        /// The exported file; `None` without an export or if the day was empty. A dry run names the
        /// first part, even if that file already exists.
        file: Option<PathBuf>,
    },
}
