//! The answer of `tidings status`.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::delivery::{DeliveryRow, WaitingEmails};
use super::event::UnknownNames;
use super::run_report::DigestReport;
use crate::domain::name::join_names;
use crate::domain::user::UnreadableField;
use crate::domain::{
    BatchState, Day, DeliveryState, FanoutState, Pause, PendingCounts, ReportCounts,
    SuppressionReason, UserId,
};
use crate::store::Schema;

/// The overview for an operator.
#[derive(Debug, Serialize)]
pub struct Status {
    /// The location of the store, without secrets.
    pub store: String,
    /// The schema of the store.
    pub schema: Schema,
    /// The number of fan-outs in each state. The journal keeps completed ones for some time.
    pub fanouts: BTreeMap<FanoutState, u64>,
    /// The oldest day that a pending fan-out writes to.
    pub oldest_pending_day: Option<Day>,
    /// The numbers of open and closing batches.
    pub batches: BTreeMap<BatchState, u64>,
    /// The number of deliveries in each state.
    pub deliveries: BTreeMap<DeliveryState, u64>,
    /// Events of batches whose email failed within the last seven days: only feeds show them.
    pub not_emailed: u64,
    /// The newest emails that failed within the last seven days, at most ten.
    pub failed: Vec<DeliveryRow>,
    /// The newest deliveries whose outcome is unknown, at most ten.
    pub unknown: Vec<DeliveryRow>,
    /// Why sending is paused, if it is.
    pub paused: Option<Pause>,
    /// The latest activity of workers; `None` if none has ever run.
    pub worker: Option<WorkerActivity>,
    /// The latest digest run; `None` if there was none.
    pub digest: Option<DigestActivity>,
    /// The unsettled deliveries, by reason.
    pub waiting: WaitingEmails,
    /// The outcomes of the emails of the last seven days, as far as providers reported them.
    #[serde(rename = "heard")]
    pub reports: ReportCounts,
    /// Emails that were sent more than a day ago, if no recent email has a report although reports
    /// are expected; otherwise 0.
    pub unreported: u64,
    /// The number of suppressed addresses, by reason.
    pub suppressed: BTreeMap<SuppressionReason, u64>,
    /// Unknown types and objects of recently accepted events.
    #[serde(skip_serializing_if = "UnknownNames::is_empty")]
    pub unknown_names: UnknownNames,
    /// The backlog of days before the window, and the events that expired.
    #[serde(rename = "older")]
    pub backlog: BacklogStatus,
    /// The users whose records have fields that this version cannot read.
    #[serde(skip_serializing_if = "UnreadableUsers::is_empty")]
    pub unreadable: UnreadableUsers,
    /// The stored days, oldest first.
    pub days: Vec<DayView>,
}

/// The activity of the workers of all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct WorkerActivity {
    /// Whether one runs: it wrote a heartbeat within the last minute and has not stopped since.
    #[serde(rename = "running")]
    pub is_running: bool,
    /// The time of the latest heartbeat.
    #[serde(rename = "seen")]
    pub last_heartbeat: DateTime<Utc>,
}

/// A completed digest run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestActivity {
    /// When the run ended.
    pub at: DateTime<Utc>,
    /// The number of users whose digest was due.
    pub due: u64,
    /// The number of emails that were sent.
    pub sent: u64,
    /// The number of emails that failed or whose outcome is unknown.
    pub failed: u64,
}

impl DigestActivity {
    /// Summarizes a run that ended at `at`.
    pub fn from_report(report: &DigestReport, at: DateTime<Utc>) -> Self {
        let emails = &report.emails;
        Self {
            at,
            due: report.due.users,
            sent: emails.sent,
            failed: emails.failed + emails.unknown,
        }
    }
}

/// Users whose stored records have fields that this version cannot read. Defaults replace them.
#[derive(Debug, Default, Serialize)]
pub struct UnreadableUsers {
    /// The number of users whose records were read.
    #[serde(rename = "read")]
    pub records_read: u64,
    /// The number of users with at least one such field.
    pub users: u64,
    /// The first of these users.
    pub first: Vec<UnreadableUser>,
}

/// A user, and the unreadable fields of their record.
#[derive(Debug, Serialize)]
pub struct UnreadableUser {
    /// The id of the user.
    pub user: UserId,
    /// The fields, each with the reason.
    pub fields: Vec<UnreadableField>,
}

impl UnreadableUsers {
    /// Returns whether all records that were read are readable.
    pub fn is_empty(&self) -> bool {
        self.users == 0
    }

    /// Returns `users with fields …: 2, such as ada (tz), ben (digest.cadence, locale); …`.
    pub(crate) fn sentence(&self) -> String {
        let examples = self.first.iter().map(|UnreadableUser { user, fields }| {
            let names: Vec<&str> = fields.iter().map(|field| field.field.as_str()).collect();
            format!("{user} ({})", names.join(", "))
        });
        format!(
            "users with fields that this version cannot read: {}, such as {}; defaults are used",
            self.users,
            join_names(examples, usize::MAX)
        )
    }
}

/// The backlog and the expired events of days before the window.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct BacklogStatus {
    /// The events of the backlog, as the last full run found them.
    pub events: u64,
    /// Further events, whose users may not be emailed at the moment.
    pub blocked_events: u64,
    /// The expired events, by day.
    pub expired: BTreeMap<Day, PendingCounts>,
    /// The part of `expired` whose users could not be emailed.
    pub expired_blocked: PendingCounts,
}

/// A stored day.
#[derive(Debug, Serialize)]
pub struct DayView {
    /// The day, in UTC.
    pub day: Day,
    /// The number of documents, usually one per user.
    pub stacks: u64,
    /// Whether the day is in the window of feeds and digests.
    pub in_window: bool,
}

impl Status {
    /// Returns whether an operator has to act: sending is paused, emails failed, or outcomes are
    /// unknown.
    pub fn has_failures(&self) -> bool {
        self.paused.is_some() || !self.failed.is_empty() || !self.unknown.is_empty()
    }
}

/// The status of a store that was not opened, because opening it would upgrade it.
#[derive(Debug, Serialize)]
pub(crate) struct UnopenedStore<'a> {
    pub(crate) store: &'a str,
    pub(crate) schema: &'a Schema,
}
