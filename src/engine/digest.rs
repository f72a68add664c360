//! Finds the users whose digest is due and sends it, chunk by chunk.
//!
//! A user is due if an event was pending when their hour came, and the period has no row yet or a
//! failed one to retry. So a second run sends nothing (P2). The row is written first, and
//! [`super::delivery`] sends it. Days before the window are read while they have a backlog
//! ([`old_days`]). Start with [`Digests::run`].
//! Long because the options, the checks and the counts of a run are read together.

pub mod due;
pub mod old_days;

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use tokio::task::JoinSet;

use super::eligibility::{self, event_facts::Catalog};
use super::feedback::suppressions::Suppressed;
use super::{Result, Watcher, came_to, crash};
use crate::context::Context;
use crate::domain::day_stack::{BadStack, EventAt};
use crate::domain::delivery::{Corrected, Correction, Reopening};
use crate::domain::digest_content::{assemble, retry_at, showable, wanted};
use crate::domain::user::Unmailable;
use crate::domain::{
    Backlog, Cadence, Day, Delivery, DeliveryId, DeliveryState, EmailContent, EmailScope, Event,
    Id, Occasion, User, UserId, UserStacks, distinct,
};
use crate::engine::delivery::Sender;
use crate::render::EmailDraft;
use crate::store;
use crate::wire::run_report::{DigestReport, Ended};
use old_days::{BacklogDays, Older, SCAN_CHUNK};

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
    pub now: bool,
    /// Whether the run only reports what it would send, and writes nothing.
    pub dry_run: bool,
}

/// Receives the digests that a dry run finds, in the order of user ids.
pub type Onlooker<'a> = dyn FnMut(EmailDraft) + Send + 'a;

/// Runs digests: finds the due ones and sends or only shows them. Start with [`Digests::run`].
pub struct Digests {
    /// Sends the due digests.
    pub sender: Sender,
    pub(crate) context: Arc<Context>,
    /// Knows which days before the window have a backlog, and stores its counts.
    pub backlog: BacklogDays,
}

struct DuePerson<'a> {
    user: User,
    stacks: &'a UserStacks,
    cadence: Cadence,
    period: String,
    /// The id of the digest's row.
    id: DeliveryId,
    /// The failed row that is retried, if the digest has one.
    failed: Option<Delivery>,
    wanted: Vec<EventAt<'a>>,
}

impl DuePerson<'_> {
    fn occasion(&self) -> Occasion {
        Occasion::Digest(self.cadence, self.period.clone())
    }
}

/// A run, with its options and its results so far.
struct Run<'a> {
    digests: &'a Digests,
    request: &'a DigestRequest,
    /// The caller's receiver of the digests of a dry run; `None` for a run that sends.
    onlooker: Option<&'a mut Onlooker<'a>>,
    progress: &'a dyn Watcher,
    /// The time of the run.
    at: DateTime<Utc>,
    /// Its tally counts the outcomes of the run's emails.
    sender: Sender,
    /// The caller's, so that it also describes a run that is dropped.
    report: &'a mut DigestReport,
    /// Whether a due user was skipped because of an open email. It is an earlier digest, or this
    /// one, opened by another process.
    passed_over: bool,
    catalog: Catalog,
    older: Older,
}

/// The row of a due digest, and whether it already exists, as failed.
type Opening = (Delivery, bool);

/// The chunks that are being sent, each by a task of its own: one is built while another is sent.
/// A run that is dropped aborts them and their calls, and can then release its leases.
type Sending = JoinSet<Result<()>>;

/// The number of chunks at a time.
const AT_ONCE: usize = 2;

impl Digests {
    /// Sends the due digests, after the deliveries that an earlier run left unfinished. Memory is
    /// bounded by the chunk, plus the id and the reason of each deferred email.
    pub async fn run(
        &self,
        request: &DigestRequest,
        progress: &dyn Watcher,
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
        progress: &dyn Watcher,
    ) -> Result<()> {
        let run = Run::new(self, request, report, None, progress);
        run.scan().await?;
        Ok(())
    }

    /// Passes the digests that a run would send to `onlooker`, such as the command line, and writes
    /// nothing. Every request is a dry run here.
    pub async fn dry_run(
        &self,
        request: &DigestRequest,
        onlooker: &mut Onlooker<'_>,
        progress: &dyn Watcher,
    ) -> Result<DigestReport> {
        let request = DigestRequest { dry_run: true, ..request.clone() };
        let mut report = DigestReport::default();
        let run = Run::new(self, &request, &mut report, Some(onlooker), progress);
        run.scan().await?;
        Ok(report)
    }

    /// Opens new rows and reopens failed ones. Returns the rows that this process leased.
    async fn open(&self, rows: Vec<Opening>) -> Result<Vec<Delivery>> {
        let (again, new): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(_, again)| *again);
        let [again, new] = [again, new].map(|rows: Vec<Opening>| -> Vec<Delivery> {
            rows.into_iter().map(|(row, _)| row).collect()
        });
        let (deliveries, now) = (&self.context.store, self.context.clock.now());
        let mut are_ours = deliveries.open(&new).await?;
        if !again.is_empty() {
            let reopening = |row: &Delivery| {
                Correction::Reopen(Reopening {
                    id: row.id.clone(),
                    watermarks: Some(row.watermarks.clone()),
                    lease: row.lease.clone(),
                    reopened: row.attempts.reopened,
                })
            };
            let corrections: Vec<Correction> = again.iter().map(reopening).collect();
            let reopened = deliveries.correct(now, &corrections).await?.into_iter();
            are_ours.extend(reopened.map(|of| of == Corrected::Done));
        }
        let ours = new.into_iter().chain(again).zip(are_ours);
        Ok(ours.filter_map(|(row, ours)| ours.then_some(row)).collect())
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.report.emails = self.sender.ledger.tally.snapshot();
    }
}

impl<'a> Run<'a> {
    fn new(
        digests: &'a Digests,
        request: &'a DigestRequest,
        report: &'a mut DigestReport,
        onlooker: Option<&'a mut Onlooker<'a>>,
        progress: &'a dyn Watcher,
    ) -> Self {
        let at = request.at.unwrap_or_else(|| digests.context.clock.now());
        Self {
            digests,
            request,
            onlooker,
            progress,
            at,
            sender: digests.sender.with_new_tally(),
            report,
            passed_over: false,
            catalog: Catalog::of_emails(&digests.context),
            older: Older::new(&digests.backlog.days_read(at)),
        }
    }

    fn sends(&self) -> bool {
        !self.request.dry_run
    }

    /// Returns whether it skipped a due user because of an open email.
    async fn scan(mut self) -> Result<bool> {
        let (digests, at) = (self.digests, self.at);
        if self.sends() {
            self.report.ended = self.sender.drain().await?.why_ended();
            self.report.left_over = self.sender.ledger.tally.begun();
            digests.context.store.catch_up().await?;
        }
        let days = digests.backlog.days_read(at);
        let old = digests.backlog.old_days(&days).await?;
        let few = |users: &Vec<UserId>| users.len() <= SCAN_CHUNK;
        let read: Vec<Day> = match self.request.users.as_ref().is_none_or(few) {
            true => old.with_blocked().map(|old| old.day).collect(),
            // A long list is not worth reading more days. The next full run finds users who can be
            // emailed again.
            false => old.older.iter().map(|old| old.day).collect(),
        };
        let window = days.window.with(read);
        let chunks = match &self.request.users {
            Some(users) => {
                let chunks: Vec<Vec<UserId>> =
                    distinct(users.clone()).chunks(SCAN_CHUNK).map(<[UserId]>::to_vec).collect();
                let read = move |chunk: Vec<UserId>| {
                    let window = window.clone();
                    async move { digests.context.store.windows(window, &chunk).await }
                };
                stream::iter(chunks).then(read).boxed()
            }
            None => digests.context.store.scan(window, None, SCAN_CHUNK),
        };
        let mut sending = Sending::new();
        let scanned = self.send_due(chunks, &mut sending).await;
        // Chunks that were begun are finished, even if the scan failed.
        let sent = sending.join_all().await;
        scanned?;
        sent.into_iter().collect::<Result<()>>()?;
        let Backlog { mailable, blocked } = self.older.all;
        (self.report.backlog.older, self.report.backlog.blocked) = (mailable, blocked);
        // Only a run that reads all users may store their backlog.
        if self.sends() && self.request.users.is_none() && !self.older.partly {
            self.older.note(&digests.backlog, &old, at).await?;
            for old in &old.too_old {
                let Some(expired) = digests.backlog.expire(old, at).await? else {
                    continue;
                };
                if !expired.all.is_nothing() {
                    let backlog = &mut self.report.backlog;
                    *backlog.expired.entry(old.day).or_default() += expired.all;
                    backlog.expired_blocked += expired.blocked;
                }
            }
        }
        if let Some(patience) = self.request.patience.filter(|_| self.sends()) {
            match self.sender.see_through(patience, self.progress).await? {
                Ended::Settled => {}
                ended => {
                    self.report.ended.get_or_insert(ended);
                }
            }
        }
        let dry_run = &mut self.report.dry_run;
        dry_run.no_brand = dry_run.unknown_brands.values().sum();
        Ok(self.passed_over)
    }

    /// Finds the due digests and begins to send them, chunk by chunk.
    async fn send_due(
        &mut self,
        mut chunks: BoxStream<'_, store::Result<Vec<UserStacks>>>,
        sending: &mut Sending,
    ) -> Result<()> {
        while let Some(people) = chunks.next().await {
            let rows = self.find_rows(people?).await?;
            self.begin(&rows, sending).await?;
            if self.report.limited || self.progress.stopping() {
                self.older.partly = true;
                break;
            }
        }
        Ok(())
    }

    /// Returns the rows of the due digests of these users. A dry run has none: it passes the
    /// digests to the caller's [`Onlooker`].
    async fn find_rows(&mut self, mut people: Vec<UserStacks>) -> Result<Vec<Opening>> {
        let bad: Vec<BadStack> = people.iter_mut().flat_map(UserStacks::remove_defective).collect();
        self.older.pass_over(&bad);
        self.sender.ledger.tally.note_bad_stacks(bad);
        if self.sends() {
            // A user who is skipped here waits for the next run, so reads must be current.
            self.digests.context.store.catch_up().await?;
        }
        let scanned = people.len() as u64;
        self.report.users.scanned += scanned;
        let users = eligibility::exclude_ineligible(&mut people, &mut self.catalog).await?;
        let due = self.find(&people, users).await?;
        self.progress.advance(scanned);
        if self.sends() {
            // The rows share a marker id, so stacks of the same length get their markers in one
            // write.
            let marker = self.digests.context.ids.next(self.at);
            let rows = due.iter().map(|(person, _)| self.opening(person, marker));
            return Ok(rows.collect());
        }
        for (person, content) in &due {
            let (user, dry_run) = (&person.user, &mut self.report.dry_run);
            if let Some(brand) = &user.brand {
                let brands = &self.sender.compose.identities.brands;
                let counts = match brands.contains_key(brand) {
                    true => &mut dry_run.brands,
                    false => &mut dry_run.unknown_brands,
                };
                *counts.entry(brand.clone()).or_default() += 1;
            }
            if let Some(onlooker) = self.onlooker.as_deref_mut() {
                onlooker(EmailDraft {
                    name: format!("{} {}", person.cadence, person.period),
                    user: user.clone(),
                    content: content.clone(),
                    occasion: person.occasion(),
                });
            }
        }
        Ok(Vec::new())
    }

    /// Returns the users whose digest is due and not empty, with its content.
    async fn find<'p>(
        &mut self,
        people: &'p [UserStacks],
        users: Vec<Option<User>>,
    ) -> Result<Vec<(DuePerson<'p>, EmailContent)>> {
        let suppressions = &*self.digests.context.store;
        let suppressed = Suppressed::among(suppressions, users.iter().flatten()).await?;
        let (backlog, from) = (&self.digests.backlog, self.older.from);
        let older = backlog
            .backlogs(people, &users, &suppressed, &mut self.catalog, |day| day < from)
            .await?;
        older.iter().for_each(|user| self.older.add(user));
        let mut due = Vec::new();
        for (stacks, user) in people.iter().zip(users) {
            due.extend(self.due(stacks, user, &suppressed));
        }
        let due = self.without_existing(due).await?;
        let due = self.applicable(due).await?;
        let report = &mut *self.report;
        let room = self.request.limit.map_or(usize::MAX, |limit| {
            limit.saturating_sub(report.due.users - report.due.busy) as usize
        });
        report.limited = due.len() > room;
        let due: Vec<_> = due.into_iter().take(room).collect();
        report.due.users += due.len() as u64;
        report.due.events += due.iter().map(|(_, content)| content.total).sum::<u64>();
        Ok(due)
    }

    /// Returns the user if their digest is due. Otherwise counts the reason.
    fn due<'p>(
        &mut self,
        stacks: &'p UserStacks,
        user: Option<User>,
        suppressed: &Suppressed,
    ) -> Option<DuePerson<'p>> {
        let (digests, request) = (self.digests, self.request);
        let counts = &mut self.report.users;
        let Some(user) = user else {
            let unknown = Unmailable::Unknown.as_str();
            *counts.unmailable.entry(unknown).or_default() += 1;
            return None;
        };
        let default = &digests.context.config.digest.schedule;
        let own = user.schedule(default).cadence;
        let other = |cadence| request.cadence.is_some_and(|only| only != cadence);
        if own != Cadence::Never && other(own) {
            return None;
        }
        let wanted_in = |scope| wanted(stacks, &user, scope, &digests.context.policies);
        let (schedule, _) = user.digests(default);
        let mandatory = match suppressed.digests(&user, default) {
            Some((_, EmailScope::MandatoryOnly)) => wanted_in(EmailScope::MandatoryOnly),
            _ => Vec::new(),
        };
        let is_mandatory_only = !mandatory.is_empty();
        if is_mandatory_only && other(schedule.cadence) {
            return None;
        }
        let wanted = match is_mandatory_only {
            true => mandatory,
            false => wanted_in(EmailScope::All),
        };
        let oldest = wanted.iter().map(|pending| pending.at).min()?;
        if own == Cadence::Never && !is_mandatory_only {
            let count = match user.unsubscribed {
                Some(_) => &mut counts.unsubscribed,
                None => &mut counts.turned_off,
            };
            *count += 1;
            return None;
        }
        counts.pending += 1;
        if let Err(why) = suppressed.mailable(&user)
            && !is_mandatory_only
        {
            *counts.unmailable.entry(why.as_str()).or_default() += 1;
            return None;
        }
        let due = schedule.last_due(self.at).filter(|due| request.now || oldest < due.at);
        let Some(due) = due else {
            counts.waiting += 1;
            let next = schedule.next_due(self.at).map(|due| due.at);
            counts.next_due = [counts.next_due, next].into_iter().flatten().min();
            return None;
        };
        Some(DuePerson {
            id: DeliveryId::digest(&user.id, schedule.cadence, &due.period),
            failed: None,
            user,
            stacks,
            cadence: schedule.cadence,
            period: due.period,
            wanted,
        })
    }

    /// Returns the users who have an event that still applies, with the content of their digests.
    async fn applicable<'p>(
        &mut self,
        due: Vec<DuePerson<'p>>,
    ) -> Result<Vec<(DuePerson<'p>, EmailContent)>> {
        let (catalog, report) = (&mut self.catalog, &mut *self.report);
        let context = &self.digests.context;
        let (policies, caps) = (&context.policies, context.config.digest.caps);
        let pending = || due.iter().flat_map(|person| &person.wanted);
        catalog.load(pending().map(|pending| pending.event)).await?;
        for pending in pending() {
            report.unknown_names.note(pending.event, catalog, policies);
        }
        // Sending builds the email again and loads the details then.
        let reasons = match self.onlooker.is_some() {
            true => {
                let applies = |event: &Event| catalog.applies(event).is_some();
                let shown = |person: &'_ DuePerson<'p>| showable(&person.wanted, caps, applies);
                let shown: Vec<_> = due.iter().map(|of| (&of.user.id, shown(of))).collect();
                Some(self.sender.compose.reasons(&shown, catalog).await?)
            }
            false => None,
        };
        let mut left = Vec::with_capacity(due.len());
        for person in due {
            let shown = |event: &Event| catalog.event_data(event);
            let Some(mut content) = assemble(&person.wanted, policies, caps, shown) else {
                report.users.withdrawn += 1;
                continue;
            };
            if let Some(reasons) = &reasons {
                content.because = reasons.because(&person.user.id, &content);
            }
            left.push((person, content));
        }
        Ok(left)
    }

    /// Excludes users who have a row for this period, unless its retry is due. The run also waits
    /// for existing rows that are pending, as for its own.
    async fn without_existing<'p>(
        &mut self,
        due: Vec<DuePerson<'p>>,
    ) -> Result<Vec<DuePerson<'p>>> {
        let now = self.digests.context.clock.now();
        let ids: Vec<DeliveryId> = due.iter().map(|person| person.id.clone()).collect();
        let existing = self.digests.context.store.deliveries(&ids).await?;
        let mut left = Vec::with_capacity(due.len());
        for (mut person, row) in due.into_iter().zip(existing) {
            if let Some(row) = &row {
                let again = retry_at(row);
                let is_due = |at: DateTime<Utc>| at <= now || self.request.now;
                if !again.is_some_and(is_due) {
                    self.count_existing(row, again);
                    continue;
                }
            }
            person.failed = row;
            left.push(person);
        }
        Ok(left)
    }

    /// Counts a user who has a row for the period. `again` is the time of its retry, if it failed.
    fn count_existing(&mut self, row: &Delivery, again: Option<DateTime<Utc>>) {
        let (request, report) = (self.request, &mut *self.report);
        let tally = &self.sender.ledger.tally;
        if row.state == DeliveryState::Failed {
            report.users.failed_already += 1;
            report.users.tried_again = report.users.tried_again.into_iter().chain(again).min();
        } else if row.state.settled() {
            report.users.mailed_already += 1;
        } else if !request.dry_run && (row.lease.is_none() || request.patience.is_some()) {
            // The leaseholder may be dead, so a run that waits also finishes such rows.
            report.left_over += tally.record_started(std::slice::from_ref(row));
        } else {
            report.due.users += 1;
            report.due.busy += 1;
        }
    }

    /// Returns the row to open, without a lease. Other rows of the run may have the same marker.
    fn opening(&self, person: &DuePerson<'_>, marker: Id) -> Opening {
        let now = self.digests.context.clock.now();
        let (id, user) = (person.id.clone(), person.stacks.user.clone());
        let mut row = Delivery {
            watermarks: person.stacks.watermarks(),
            ..Delivery::new(id, user, person.occasion(), marker, now)
        };
        if let Some(failed) = &person.failed {
            row.marker = failed.marker;
            row.attempts.made = failed.attempts.made;
            row.attempts.reopened = match self.request.now {
                // The operator asked for it, so the retries start over.
                true => 0,
                false => failed.attempts.reopened + 1,
            };
        }
        (row, person.failed.is_some())
    }

    /// Opens these rows and begins to send them, a chunk whenever one fits. Once the run has ended,
    /// only counts them.
    async fn begin(&mut self, rows: &[Opening], sending: &mut Sending) -> Result<()> {
        let chunk = self.digests.context.config.delivery.chunk;
        // After a failure, no further chunk begins.
        while let Some(sent) = sending.try_join_next() {
            came_to(sent)?;
        }
        for rows in rows.chunks(chunk) {
            while sending.len() >= AT_ONCE
                && let Some(sent) = sending.join_next().await
            {
                came_to(sent)?;
            }
            if self.report.ended.is_none() {
                self.report.ended = match self.request.patience {
                    Some(patience) => self.sender.wait_for_gate(patience, self.progress).await?,
                    // Without an end, the rows are opened now and sent once the throttle permits.
                    None => self.sender.ready().await?.why_ended(),
                };
            }
            if self.report.ended.is_some() {
                self.report.due.held += rows.len() as u64;
                continue;
            }
            let context = &self.digests.context;
            let lease = context.lease_until(context.clock.now() + self.sender.ledger.lease());
            let mut leased = rows.to_vec();
            for (row, _) in &mut leased {
                row.lease = Some(lease.clone());
            }
            crash::point("before-open");
            let ours = self.digests.open(leased).await?;
            crash::point("after-open");
            let busy = (rows.len() - ours.len()) as u64;
            self.report.due.busy += busy;
            self.passed_over |= busy > 0;
            let sender = self.sender.clone();
            let finishing = async move { sender.finish(ours).await };
            sending.spawn(finishing.boxed());
        }
        Ok(())
    }
}
