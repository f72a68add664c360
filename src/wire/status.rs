//! How things stand: what is waiting, what was mailed, which days there are.

use std::collections::BTreeMap;

use serde::Serialize;

use super::delivery::{DeliveryRow, Waiting};
use super::unknown::Unknown;
use crate::domain::{Day, DeliveryState, LastLook, Owed, Pause, Reason, ReportCounts};
use crate::store::Schema;

/// What an operator looks at first.
#[derive(Debug, Serialize)]
pub struct Status {
    /// Where the store is, without its secrets.
    pub store: String,
    /// How it is laid out.
    pub schema: Schema,
    /// How many are pending, and how many are done.
    pub fanouts: Backlog,
    /// The oldest day that a pending fan-out writes to.
    pub oldest_pending_day: Option<Day>,
    /// How many gather, and how many are being mailed.
    pub batches: BatchCounts,
    /// How many mails there are in each state.
    pub deliveries: BTreeMap<DeliveryState, u64>,
    /// The newest of the mails of which nobody knows whether they were taken.
    pub unknown: Vec<DeliveryRow>,
    /// Why no mail leaves, if none may.
    pub paused: Option<Pause>,
    /// Mails that are not settled, by why.
    pub waiting: Waiting,
    /// Of the last seven days.
    pub heard: ReportCounts,
    /// Emails that left more than a day ago without a report of any email since, where reports are
    /// expected.
    pub unreported: u64,
    /// How many addresses no mail goes to, by reason.
    pub suppressed: BTreeMap<Reason, u64>,
    /// What is not known of the events that were accepted lately.
    #[serde(skip_serializing_if = "Unknown::is_empty")]
    pub not_known: Unknown,
    /// What is owed of days that have left the window, and what was given up.
    pub older: OlderDays,
    /// Oldest first.
    pub days: Vec<DayView>,
}

/// How much the journal holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Backlog {
    /// Accepted events that are to be fanned out, or are being.
    pub pending: u64,
    /// Those that everybody has; they stay in the journal.
    pub done: u64,
}

/// How many batches are not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BatchCounts {
    /// They gather.
    pub open: u64,
    /// They have ended, and are being mailed.
    pub closing: u64,
}

/// What is known of days before the window.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct OlderDays {
    /// What people were owed of them when a run last looked, if they were owed anything.
    pub owed: Option<LastLook>,
    /// What was given up, by day.
    pub given_up: BTreeMap<Day, Owed>,
}

/// A day that there is a collection of.
#[derive(Debug, Serialize)]
pub struct DayView {
    /// The day, of UTC.
    pub day: Day,
    /// How many people something happened to.
    pub stacks: u64,
    /// Whether feeds and digests read it.
    pub in_window: bool,
}

/// All there is to say of a store that is not opened, as that would upgrade it.
#[derive(Debug, Serialize)]
pub(crate) struct Unopened<'a> {
    pub(crate) store: String,
    pub(crate) schema: &'a Schema,
}
