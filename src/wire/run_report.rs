//! The reports of digest runs and of worker rounds.
//!
//! A run counts each user with pending events as due in [`DueDigests`], or under one reason in
//! [`DigestUsers`]. It does not count users of a cadence that was not requested, and users beyond
//! its limit. Unsettled digests of an earlier run count as left over. Start with [`DigestReport`].

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::delivery::WaitingEmails;
use super::event::{BadFanouts, BadStacks, UnknownNames, is_zero};
use crate::domain::{BrandName, Day, FanoutCounts, Pause, PendingCounts};

/// The report of a digest run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DigestReport {
    /// The users whose stacks were read, and those who get no digest now; flattened in JSON.
    #[serde(flatten)]
    pub users: DigestUsers,
    /// The digests that are due; flattened in JSON.
    #[serde(flatten)]
    pub due: DueDigests,
    /// The events of days before the window; flattened in JSON.
    #[serde(flatten)]
    pub backlog: BacklogReport,
    /// The emails of earlier runs that this run continued or waited for.
    pub left_over: u64,
    /// The outcomes of the emails of this run and of those left over. Their sum: sent + failed +
    /// canceled + unknown + deferred = due − busy − held + left over, unless the grace of a stop
    /// cut the run off.
    pub emails: Tally,
    /// The unknown types and objects of the events of due users, included or not.
    #[serde(skip_serializing_if = "UnknownNames::is_empty")]
    pub unknown_names: UnknownNames,
    /// The counts that only a dry run has; flattened in JSON.
    #[serde(flatten)]
    pub dry_run: DryRunReport,
    /// Whether the limit ended the run.
    #[serde(rename = "limited")]
    pub is_limited: bool,
    /// Why the run ended before all emails were settled; `None` if it did not.
    pub ended: Option<EarlyEnd>,
}

impl DigestReport {
    /// Returns the number of emails that a dry run would send.
    pub(crate) fn emails_to_send(&self) -> u64 {
        self.due.users - self.due.busy - self.dry_run.waits_for_brand
    }
}

/// The users whose stacks a digest run read, and why some get no digest now.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DigestUsers {
    /// The users with a stack in the window; `people` in JSON.
    #[serde(rename = "people")]
    pub scanned: u64,
    /// Users with pending events that a digest may include, mandatory types included.
    pub pending: u64,
    /// Users with pending events whose period has not come, or came before the events.
    pub waiting: u64,
    /// When the first of the waiting users is due.
    pub next_due: Option<DateTime<Utc>>,
    /// Users who already got this period's email.
    #[serde(rename = "mailed_already")]
    pub emailed_already: u64,
    /// Users whose digest of this period failed.
    pub failed_already: u64,
    /// When the first of the failed digests is retried; `None` if none is.
    #[serde(rename = "tried_again")]
    pub next_retry: Option<DateTime<Utc>>,
    /// Users whose pending events no longer apply.
    pub withdrawn: u64,
    /// Users with pending events who unsubscribed from everything.
    pub unsubscribed: u64,
    /// Users with pending events who want no digest.
    pub turned_off: u64,
    /// Users with pending events who may not be emailed, by reason.
    pub unmailable: BTreeMap<&'static str, u64>,
}

/// The digests that are due in a run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DueDigests {
    /// The users with a due digest and at least one event for it; `due` in JSON.
    #[serde(rename = "due")]
    pub users: u64,
    /// The events in these digests.
    pub events: u64,
    /// The due users with an open delivery, of this digest or an earlier one.
    pub busy: u64,
    /// The due users whose digest was not started, because the run ended.
    #[serde(rename = "held")]
    pub not_started: u64,
}

/// The events of days before the window that digests still include.
#[derive(Debug, Clone, Default, Serialize)]
pub struct BacklogReport {
    /// The backlog when the run read it.
    #[serde(rename = "older")]
    pub backlog: PendingCounts,
    /// Further events, whose users may not be emailed at the moment.
    pub blocked: PendingCounts,
    /// The events that expired in this run, older than `digest.max_age`, by day.
    pub expired: BTreeMap<Day, PendingCounts>,
    /// The part of `expired` whose users could not be emailed.
    pub expired_blocked: PendingCounts,
}

/// The counts that only a dry run has.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DryRunReport {
    /// Emails by brand, except those of the default brand.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub brands: BTreeMap<BrandName, u64>,
    /// Emails by brand that is not configured. They wait until it is.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown_brands: BTreeMap<BrandName, u64>,
    /// Due users whose digest waits, because its brand is not configured.
    #[serde(rename = "no_brand", skip_serializing_if = "is_zero")]
    pub waits_for_brand: u64,
}

impl DryRunReport {
    /// Returns a sentence for each brand with its number of emails, and whether they wait.
    pub fn warnings(&self) -> Vec<String> {
        let sent = self.brands.iter().map(|(brand, n)| format!("emails of the brand {brand}: {n}"));
        let waiting = self.unknown_brands.iter().map(|(brand, n)| {
            format!("emails of the brand {brand}, which wait until it is configured: {n}")
        });
        sent.chain(waiting).collect()
    }
}

/// The outcomes of deliveries.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Tally {
    /// Emails that the provider accepted.
    pub sent: u64,
    /// The events in the sent emails.
    pub events: u64,
    /// Emails that were rejected or could not be built. A later run may retry a failed digest.
    pub failed: u64,
    /// Emails without any event left, or whose user may no longer be emailed.
    pub canceled: u64,
    /// Emails that the provider may or may not have accepted.
    pub unknown: u64,
    /// Emails that were not settled when the run ended.
    pub deferred: u64,
    /// The first five reasons why emails failed, wait or are unknown, each with its number of
    /// emails.
    pub reasons: Vec<(String, u64)>,
    /// Documents that were skipped, or to which no marker could be appended.
    #[serde(skip_serializing_if = "BadStacks::is_empty")]
    pub bad_stacks: BadStacks,
}

/// Why a run stopped waiting for its emails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EarlyEnd {
    /// No email was settled within the caller's time limit.
    Patience,
    /// Sending is paused until an operator resumes it.
    Paused(Pause),
    /// The process is stopping.
    Stopped,
}

/// The JSON output of a digest run: its report, and the state of the store after it.
#[derive(Debug, Serialize)]
pub(crate) struct DigestRun<'a> {
    pub(crate) at: DateTime<Utc>,
    pub(crate) dry_run: bool,
    /// The page of a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) page: Option<&'a Path>,
    /// The unsettled emails of all runs; `null` if they were not read.
    #[serde(skip_serializing_if = "none_wait")]
    pub(crate) emails_waiting: Option<&'a WaitingEmails>,
    #[serde(skip_serializing_if = "BadFanouts::is_empty")]
    pub(crate) bad_fanouts: &'a BadFanouts,
    #[serde(flatten)]
    pub(crate) report: &'a DigestReport,
}

fn none_wait(waiting: &Option<&WaitingEmails>) -> bool {
    waiting.is_some_and(WaitingEmails::is_empty)
}

/// The result of a round, or of a part of it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Round {
    /// The result of fanning out events.
    pub fanouts: FannedOut,
    /// The batches that ended.
    pub batches: EndedBatches,
    /// The outcomes of waiting deliveries, including those of batches.
    pub emails: Tally,
    /// The digest run; `None` if this worker did not start one.
    pub digests: Option<DigestReport>,
    /// The old records that were removed.
    #[serde(rename = "forgotten")]
    pub deleted: DeletedRecords,
    /// Why sending is paused, if it is.
    pub paused: Option<Pause>,
    /// The error that ended the fan-out, if any. The rest of the round was done.
    #[serde(skip)]
    pub fan_out_error: Option<Arc<dyn Error + Send + Sync>>,
}

impl Round {
    /// Returns whether nothing was done, so that the worker can rest.
    pub fn is_idle(&self) -> bool {
        self.fanouts.completed == 0
            && self.batches == EndedBatches::default()
            && self.deleted == DeletedRecords::default()
            && self.emails.settled() == 0
            && self.digests.is_none()
    }
}

/// The result of fanning out events.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct FannedOut {
    /// The number of fan-outs that were completed.
    #[serde(rename = "done")]
    pub completed: u64,
    /// The numbers of users and entries of all fan-outs, completed or not.
    pub counts: FanoutCounts,
    /// Documents that accept no entries. Their entries count as dropped, but still join batches.
    #[serde(skip_serializing_if = "BadStacks::is_empty")]
    pub bad_stacks: BadStacks,
    /// Unreadable fan-outs, which stay pending until they are repaired.
    #[serde(skip_serializing_if = "BadFanouts::is_empty")]
    pub bad_fanouts: BadFanouts,
}

impl FannedOut {
    /// Returns whether no document and no fan-out was skipped.
    pub fn is_complete(&self) -> bool {
        self.bad_stacks.is_empty() && self.bad_fanouts.is_empty()
    }
}

impl std::ops::AddAssign for FannedOut {
    fn add_assign(&mut self, other: Self) {
        self.completed += other.completed;
        self.counts += other.counts;
        self.bad_stacks += other.bad_stacks;
        self.bad_fanouts += other.bad_fanouts;
    }
}

/// The batches that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct EndedBatches {
    /// Batches for which a delivery was created.
    pub ended: u64,
    /// Batches that were not emailed: no event was left, or the user wanted no email.
    pub canceled: u64,
}

impl std::ops::AddAssign for EndedBatches {
    fn add_assign(&mut self, other: Self) {
        self.ended += other.ended;
        self.canceled += other.canceled;
    }
}

/// The old records that were removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct DeletedRecords {
    /// The number of deliveries.
    pub deliveries: u64,
    /// The number of filed batches.
    pub batches: u64,
}

impl Tally {
    /// Returns the number of settled deliveries.
    pub fn settled(&self) -> u64 {
        self.sent + self.failed + self.canceled + self.unknown
    }

    /// Counts a reason, if it is among the first five.
    pub(crate) fn add_reason(&mut self, reason: &str, count: u64) {
        const MAX_REASONS: usize = 5;
        if let Some((_, known)) = self.reasons.iter_mut().find(|(known, _)| known == reason) {
            *known += count;
        } else if self.reasons.len() < MAX_REASONS {
            self.reasons.push((reason.to_owned(), count));
        }
    }

    /// Counts a delivery that ended in this state, and its events if it was sent.
    pub(crate) fn add_outcome(
        &mut self,
        state: crate::domain::DeliveryState,
        events: u32,
        reason: Option<&str>,
    ) {
        use crate::domain::DeliveryState::{Canceled, Failed, Pending, Sending, Sent, Unknown};
        match state {
            Sent => {
                self.sent += 1;
                self.events += u64::from(events);
            }
            Failed => self.failed += 1,
            Canceled => self.canceled += 1,
            Unknown => self.unknown += 1,
            Pending | Sending => {}
        }
        if let (Failed | Unknown, Some(reason)) = (state, reason) {
            self.add_reason(reason, 1);
        }
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.events += other.events;
        self.failed += other.failed;
        self.canceled += other.canceled;
        self.unknown += other.unknown;
        self.deferred += other.deferred;
        for (reason, count) in other.reasons {
            self.add_reason(&reason, count);
        }
        self.bad_stacks += other.bad_stacks;
    }
}
