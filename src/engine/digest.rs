//! Finds the users whose digest is due and sends it, chunk by chunk.
//!
//! A user is due if an event was pending when their hour came, and the period has no row yet or a
//! failed one to retry. So a second run sends nothing (P2). The row is written first, and
//! [`super::delivery`] sends it. Days before the window are read while they have a backlog
//! ([`backlog`]). Start with [`DigestService::run`]; [`due_users`] checks the users of a chunk.

pub mod backlog;
pub mod due_scan;
mod due_users;

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use tokio::task::JoinSet;

use super::eligibility::{self, event_facts::EventFacts};
use super::{Progress, Result, crash, task_output};
use crate::context::Context;
use crate::domain::day_stack::{DefectiveStack, StackEvent};
use crate::domain::delivery::{Corrected, Correction, Reopening};
use crate::domain::{
    Backlog, Cadence, Day, Delivery, DeliveryId, DeliverySource, DigestDays, EmailContent, Id,
    User, UserId, UserStacks, distinct,
};
use crate::engine::delivery::Sender;
use crate::render::EmailDraft;
use crate::store;
use crate::wire::run_report::DigestReport;
use backlog::{BacklogService, BacklogTotals, OldDays, SCAN_CHUNK};

/// The options of a digest run.
#[derive(Debug, Clone, Default)]
pub struct DigestRequest {
    /// The time of the run, now by default.
    pub at: Option<DateTime<Utc>>,
    /// Only users with this cadence.
    pub cadence: Option<Cadence>,
    /// Only these users.
    pub users: Option<Vec<UserId>>,
    /// The most emails.
    pub limit: Option<u64>,
    /// How long the run waits for deferred emails while none of them makes progress. Without it,
    /// the next run sends them.
    pub patience: Option<TimeDelta>,
    /// Whether a run ignores the users' hours: every user with pending events is due who got no
    /// digest in the current period.
    pub ignore_hours: bool,
    /// Whether the run only reports what it would send, and writes nothing.
    pub dry_run: bool,
}

/// Receives the digests that a dry run finds, in the order of user ids.
pub type OnDigest<'a> = dyn FnMut(EmailDraft) + Send + 'a;

/// Runs digests: finds the due ones and sends or only shows them. Start with
/// [`DigestService::run`].
pub struct DigestService {
    /// Sends the due digests.
    pub sender: Sender,
    pub(crate) context: Arc<Context>,
    /// Knows which days before the window have a backlog, and stores its counts.
    pub backlog: BacklogService,
}

struct DueUser<'a> {
    user: User,
    stacks: &'a UserStacks,
    cadence: Cadence,
    period: String,
    /// The id of the digest's row.
    id: DeliveryId,
    /// The failed row that is retried, if the digest has one.
    failed: Option<Delivery>,
    wanted: Vec<StackEvent<'a>>,
}

impl DueUser<'_> {
    fn occasion(&self) -> DeliverySource {
        DeliverySource::Digest(self.cadence, self.period.clone())
    }
}

/// A run, with its options and its results so far.
struct Run<'a> {
    digests: &'a DigestService,
    request: &'a DigestRequest,
    /// The receiver of a dry run's digests; `None` if only counts are needed, or if the run sends.
    on_digest: Option<&'a mut OnDigest<'a>>,
    progress: &'a dyn Progress,
    /// The time of the run.
    at: DateTime<Utc>,
    /// Its tally counts the outcomes of the run's emails.
    sender: Sender,
    /// The caller's, so that it also describes a run that is dropped.
    report: &'a mut DigestReport,
    /// Whether a due user was skipped because of an open email. It is an earlier digest, or this
    /// one, opened by another process.
    skipped_open: bool,
    event_facts: EventFacts,
    backlog_totals: BacklogTotals,
}

/// The row of a due digest, to be opened.
#[derive(Clone)]
struct RowToOpen {
    row: Delivery,
    /// Whether the row exists and has failed.
    is_retry: bool,
}

/// The chunks that are being sent, each by a task of its own: one is built while another is sent.
/// A run that is dropped aborts them and their calls, and can then release its leases.
type Sending = JoinSet<Result<()>>;

/// The most chunks that are sent at a time.
const MAX_CHUNKS_IN_FLIGHT: usize = 2;

impl DigestService {
    /// Sends the due digests, after the deliveries that an earlier run left unfinished. Memory is
    /// bounded by the chunk, plus the id and the reason of each deferred email.
    pub async fn run(
        &self,
        request: &DigestRequest,
        progress: &dyn Progress,
    ) -> Result<DigestReport> {
        let mut report = DigestReport::default();
        self.run_into(&mut report, request, progress).await?;
        Ok(report)
    }

    /// Does the same, and reports into `report`, which also has the counts so far if the run fails
    /// or is dropped.
    pub async fn run_into(
        &self,
        report: &mut DigestReport,
        request: &DigestRequest,
        progress: &dyn Progress,
    ) -> Result<()> {
        let run = Run::new(self, request, report, None, progress);
        run.execute().await?;
        Ok(())
    }

    /// Passes the digests that a run would send to `on_digest`, and writes nothing. Every request
    /// is a dry run here.
    pub async fn dry_run(
        &self,
        request: &DigestRequest,
        on_digest: &mut OnDigest<'_>,
        progress: &dyn Progress,
    ) -> Result<DigestReport> {
        let request = DigestRequest { dry_run: true, ..request.clone() };
        let mut report = DigestReport::default();
        let run = Run::new(self, &request, &mut report, Some(on_digest), progress);
        run.execute().await?;
        Ok(report)
    }

    /// Opens new rows and reopens failed ones. Returns the rows that this process leased.
    async fn open(&self, rows: Vec<RowToOpen>) -> Result<Vec<Delivery>> {
        let (mut new_rows, mut failed_rows) = (Vec::new(), Vec::new());
        for RowToOpen { row, is_retry } in rows {
            if is_retry {
                failed_rows.push(row);
            } else {
                new_rows.push(row);
            }
        }
        let (store, now) = (&self.context.store, self.context.clock.now());
        let mut are_ours = store.open(&new_rows).await?;
        if !failed_rows.is_empty() {
            let reopening = |row: &Delivery| {
                Correction::Reopen(Reopening {
                    id: row.id.clone(),
                    watermarks: Some(row.watermarks.clone()),
                    lease: row.lease.clone(),
                    reopened: row.attempts.reopened,
                })
            };
            let corrections: Vec<Correction> = failed_rows.iter().map(reopening).collect();
            let corrected = store.correct(now, &corrections).await?.into_iter();
            are_ours.extend(corrected.map(|corrected| corrected == Corrected::Done));
        }
        let rows = new_rows.into_iter().chain(failed_rows).zip(are_ours);
        Ok(rows.filter_map(|(row, is_ours)| is_ours.then_some(row)).collect())
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.report.emails = self.sender.ledger.tally.snapshot();
    }
}

impl<'a> Run<'a> {
    fn new(
        digests: &'a DigestService,
        request: &'a DigestRequest,
        report: &'a mut DigestReport,
        on_digest: Option<&'a mut OnDigest<'a>>,
        progress: &'a dyn Progress,
    ) -> Self {
        let at = request.at.unwrap_or_else(|| digests.context.clock.now());
        Self {
            digests,
            request,
            on_digest,
            progress,
            at,
            sender: digests.sender.with_new_tally(),
            report,
            skipped_open: false,
            event_facts: EventFacts::for_emails(&digests.context),
            backlog_totals: BacklogTotals::new(&digests.backlog.days_to_read(at)),
        }
    }

    fn sends(&self) -> bool {
        !self.request.dry_run
    }

    /// Returns whether it skipped a due user because of an open email.
    async fn execute(mut self) -> Result<bool> {
        let (digests, at) = (self.digests, self.at);
        if self.sends() {
            self.report.ended = self.sender.drain().await?.end_reason();
            self.report.left_over = self.sender.ledger.tally.started_count();
            digests.context.store.catch_up().await?;
        }
        let days = digests.backlog.days_to_read(at);
        let old_days = digests.backlog.old_days(&days).await?;
        let chunks = self.chunks(&days, &old_days);
        let mut sending = Sending::new();
        let scanned = self.send_due(chunks, &mut sending).await;
        // Chunks that were begun are finished, even if the scan failed.
        let sent = sending.join_all().await;
        scanned?;
        sent.into_iter().collect::<Result<()>>()?;
        let Backlog { mailable, blocked } = self.backlog_totals.total;
        (self.report.backlog.backlog, self.report.backlog.blocked) = (mailable, blocked);
        // Only a run that reads all users may store their backlog.
        if self.sends() && self.request.users.is_none() && !self.backlog_totals.is_partial {
            self.settle_backlog(&old_days).await?;
        }
        if let Some(patience) = self.request.patience.filter(|_| self.sends())
            && let Some(ended) = self.sender.process_until_settled(patience, self.progress).await?
        {
            self.report.ended.get_or_insert(ended);
        }
        let dry_run = &mut self.report.dry_run;
        dry_run.waits_for_brand = dry_run.unknown_brands.values().sum();
        Ok(self.skipped_open)
    }

    /// Reads the stacks of the requested users, or of all users, in the window and on older days
    /// with a backlog.
    fn chunks(
        &self,
        days: &DigestDays,
        old_days: &OldDays,
    ) -> BoxStream<'a, store::Result<Vec<UserStacks>>> {
        let digests = self.digests;
        let is_long_list =
            self.request.users.as_ref().is_some_and(|users| users.len() > SCAN_CHUNK);
        let extra_days: Vec<Day> = if is_long_list {
            // For a long list, skip days with only blocked users. The next full run reads them.
            old_days.mailable.iter().map(|old| old.day).collect()
        } else {
            old_days.with_blocked().map(|old| old.day).collect()
        };
        let window = days.window.extended_by(extra_days);
        let Some(users) = &self.request.users else {
            return digests.context.store.scan(window, None, SCAN_CHUNK);
        };
        let chunks: Vec<Vec<UserId>> =
            distinct(users.clone()).chunks(SCAN_CHUNK).map(<[UserId]>::to_vec).collect();
        let read_chunk = move |chunk: Vec<UserId>| {
            let window = window.clone();
            async move { digests.context.store.windows(window, &chunk).await }
        };
        stream::iter(chunks).then(read_chunk).boxed()
    }

    /// Stores the backlog of the days that were read, and expires that of days that are too old.
    async fn settle_backlog(&mut self, old_days: &OldDays) -> Result<()> {
        let (backlog, report) = (&self.digests.backlog, &mut self.report.backlog);
        self.backlog_totals.store(backlog, old_days, self.at).await?;
        for old in &old_days.too_old {
            let expired = backlog.expire(old, self.at).await?.unwrap_or_default();
            if !expired.all.is_zero() {
                *report.expired.entry(old.day).or_default() += expired.all;
                report.expired_blocked += expired.blocked;
            }
        }
        Ok(())
    }

    /// Finds the due digests and begins to send them, chunk by chunk.
    async fn send_due(
        &mut self,
        mut chunks: BoxStream<'_, store::Result<Vec<UserStacks>>>,
        sending: &mut Sending,
    ) -> Result<()> {
        while let Some(stacks) = chunks.next().await {
            let rows = self.find_rows(stacks?).await?;
            self.begin_sending(&rows, sending).await?;
            if self.report.is_limited || self.progress.should_stop() {
                self.backlog_totals.is_partial = true;
                break;
            }
        }
        Ok(())
    }

    /// Returns the rows of the due digests of these users. A dry run returns none. It counts the
    /// digests and passes them to the receiver, if there is one.
    async fn find_rows(&mut self, mut stacks: Vec<UserStacks>) -> Result<Vec<RowToOpen>> {
        let bad: Vec<DefectiveStack> =
            stacks.iter_mut().flat_map(UserStacks::remove_defective).collect();
        self.backlog_totals.skip_days_of(&bad);
        self.sender.ledger.tally.count_bad_stacks(bad);
        if self.sends() {
            // A user who is skipped here waits for the next run, so reads must be current.
            self.digests.context.store.catch_up().await?;
        }
        let scanned = stacks.len() as u64;
        self.report.users.scanned += scanned;
        let users = eligibility::exclude_ineligible(&mut stacks, &mut self.event_facts).await?;
        let due = self.find_due(&stacks, users).await?;
        self.progress.advance(scanned);
        if !self.sends() {
            self.show(&due);
            return Ok(Vec::new());
        }
        // The rows share a marker id, so stacks of the same length get their markers in one write.
        let marker = self.digests.context.ids.next(self.at);
        Ok(due.iter().map(|(due_user, _)| self.row_to_open(due_user, marker)).collect())
    }

    /// Counts the brands of the due digests, and passes the digests to the caller.
    fn show(&mut self, due: &[(DueUser<'_>, EmailContent)]) {
        for (due_user, content) in due {
            let (user, dry_run) = (&due_user.user, &mut self.report.dry_run);
            if let Some(brand) = &user.brand {
                let is_known = self.sender.compose.identities.brands.contains_key(brand);
                let counts =
                    if is_known { &mut dry_run.brands } else { &mut dry_run.unknown_brands };
                *counts.entry(brand.clone()).or_default() += 1;
            }
            if let Some(on_digest) = self.on_digest.as_deref_mut() {
                on_digest(EmailDraft {
                    name: format!("{} {}", due_user.cadence, due_user.period),
                    user: user.clone(),
                    content: content.clone(),
                    occasion: due_user.occasion(),
                });
            }
        }
    }

    /// Returns the row to open, without a lease. Other rows of the run may have the same marker.
    fn row_to_open(&self, due_user: &DueUser<'_>, marker: Id) -> RowToOpen {
        let now = self.digests.context.clock.now();
        let (id, user) = (due_user.id.clone(), due_user.stacks.user.clone());
        let mut row = Delivery {
            watermarks: due_user.stacks.watermarks(),
            ..Delivery::new(id, user, due_user.occasion(), marker, now)
        };
        if let Some(failed) = &due_user.failed {
            row.marker = failed.marker;
            row.attempts.made = failed.attempts.made;
            // A run with `--now` resets the number of retries.
            row.attempts.reopened =
                if self.request.ignore_hours { 0 } else { failed.attempts.reopened + 1 };
        }
        RowToOpen { row, is_retry: due_user.failed.is_some() }
    }

    /// Opens these rows and begins to send them, a chunk whenever one fits. Once the run has ended,
    /// only counts them.
    async fn begin_sending(&mut self, rows: &[RowToOpen], sending: &mut Sending) -> Result<()> {
        let chunk = self.digests.context.config.delivery.chunk;
        // After a failure, no further chunk begins.
        while let Some(sent) = sending.try_join_next() {
            task_output(sent)?;
        }
        for rows in rows.chunks(chunk) {
            while sending.len() >= MAX_CHUNKS_IN_FLIGHT
                && let Some(sent) = sending.join_next().await
            {
                task_output(sent)?;
            }
            if self.report.ended.is_none() {
                self.report.ended = match self.request.patience {
                    Some(patience) => self.sender.wait_until_open(patience, self.progress).await?,
                    // If sending is only delayed, open the rows now. They are sent once the
                    // throttle permits.
                    None => self.sender.throttle_state().await?.end_reason(),
                };
            }
            if self.report.ended.is_some() {
                self.report.due.not_started += rows.len() as u64;
                continue;
            }
            let context = &self.digests.context;
            let lease =
                context.lease_until(context.clock.now() + self.sender.ledger.lease_duration());
            let mut leased = rows.to_vec();
            for RowToOpen { row, .. } in &mut leased {
                row.lease = Some(lease.clone());
            }
            crash::point("before-open");
            let ours = self.digests.open(leased).await?;
            crash::point("after-open");
            let busy = (rows.len() - ours.len()) as u64;
            self.report.due.busy += busy;
            self.skipped_open |= busy > 0;
            let sender = self.sender.clone();
            let finishing = async move { sender.process_leased(ours).await };
            sending.spawn(finishing.boxed());
        }
        Ok(())
    }
}
