//! How things stand: what is waiting, what was mailed, which days there are.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::delivery::{DeliveryRow, Waiting};
use super::digest::Report;
use super::unknown::Unknown;
use crate::domain::user::UnreadableField;
use crate::domain::{Day, DeliveryState, LastLook, Owed, Pause, Reason, ReportCounts, UserId};
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
    /// Events of batches whose email failed within the last seven days: only feeds show them.
    pub not_emailed: u64,
    /// The newest emails that failed within the last seven days, at most ten.
    pub failed: Vec<DeliveryRow>,
    /// The newest of the mails of which nobody knows whether they were taken.
    pub unknown: Vec<DeliveryRow>,
    /// Why no mail leaves, if none may.
    pub paused: Option<Pause>,
    /// The latest activity of workers; `None` if none ever ran.
    pub worker: Option<WorkerActivity>,
    /// The latest run of digests; `None` if there was none.
    pub digest: Option<DigestActivity>,
    /// How long the provider took lately; `None` if no email was sent within the last day.
    pub provider_latency: Option<Latency>,
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
    /// Users whose records have fields that this version cannot read.
    #[serde(skip_serializing_if = "UnreadableUsers::is_empty")]
    pub unreadable: UnreadableUsers,
    /// Oldest first.
    pub days: Vec<DayView>,
}

/// The workers of all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct WorkerActivity {
    /// Whether one runs: it wrote a heartbeat within the last minute and has not stopped since.
    pub running: bool,
    /// The time of the latest heartbeat.
    pub seen: DateTime<Utc>,
}

/// A run of digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestActivity {
    /// When it ended.
    pub at: DateTime<Utc>,
    /// Users whose digest was due.
    pub due: u64,
    /// Emails that it sent.
    pub sent: u64,
    /// Emails that failed, or whose outcome is unknown.
    pub failed: u64,
}

impl DigestActivity {
    /// What this run did, which ended then.
    pub fn of(report: &Report, at: DateTime<Utc>) -> Self {
        let mails = &report.mails;
        Self {
            at,
            due: report.due,
            sent: mails.sent,
            failed: mails.failed + mails.unknown,
        }
    }
}

/// Time between handing an email over and the provider's answer, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// Emails it is taken from: the newest of the last day, at most 200.
    pub emails: u64,
    /// Half of them took longer.
    pub median_ms: u64,
    /// One in twenty took longer.
    pub p95_ms: u64,
}

/// Users whose stored records have fields that this version cannot read. Defaults replace them.
#[derive(Debug, Default, Serialize)]
pub struct UnreadableUsers {
    /// The number of users whose records were read.
    pub read: u64,
    /// The number of users with at least one such field.
    pub users: u64,
    /// The first of these users.
    pub first: Vec<UnreadableUser>,
}

/// A user, and the unreadable fields of their record.
#[derive(Debug, Serialize)]
pub struct UnreadableUser {
    /// Whose record it is.
    pub user: UserId,
    /// Each with the reason.
    pub fields: Vec<UnreadableField>,
}

impl UnreadableUsers {
    /// Whether all records that were read are readable.
    pub fn is_empty(&self) -> bool {
        self.users == 0
    }

    /// `2 users have fields that this version cannot read, and defaults are used: ada (tz), ben
    /// (digest.cadence, locale)`.
    pub(crate) fn sentence(&self) -> String {
        let mut named: Vec<String> = Vec::new();
        for UnreadableUser { user, fields } in &self.first {
            let fields: Vec<&str> = fields.iter().map(|of| of.field.as_str()).collect();
            named.push(format!("{user} ({})", fields.join(", ")));
        }
        let more = self.users - self.first.len() as u64;
        named.extend((more > 0).then(|| format!("and {more} more")));
        let users = match self.users {
            1 => "1 user has".to_owned(),
            users => format!("{users} users have"),
        };
        let named = named.join(", ");
        format!("{users} fields that this version cannot read, and defaults are used: {named}")
    }
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
    /// The part of `given_up` whose users could not be emailed.
    pub given_up_blocked: Owed,
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

impl Status {
    /// Whether an operator has to act: sending is paused, emails failed, or outcomes are unknown.
    pub fn has_failures(&self) -> bool {
        self.paused.is_some() || !self.failed.is_empty() || !self.unknown.is_empty()
    }
}

/// All there is to say of a store that is not opened, as that would upgrade it.
#[derive(Debug, Serialize)]
pub(crate) struct Unopened<'a> {
    pub(crate) store: String,
    pub(crate) schema: &'a Schema,
}
