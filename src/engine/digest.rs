//! Finds the users whose digest is due and sends it, chunk by chunk.
//!
//! A user is due if an event was pending when their hour came, and the period has no row yet or a
//! failed one to retry. So a second run sends nothing (P2). The row is written first, and
//! [`super::delivery`] sends it. Days before the window are read while they have a backlog
//! ([`backlog`]). Start with [`Digests::run`].

pub mod backlog;
pub mod due;
pub mod flush;
mod run;
mod send;

use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::eligibility;
use super::feedback::suppressions::Suppressed;
use super::{Result, Watcher, came_to};
use crate::domain::digest::{assemble, showable, wanted};
use crate::domain::stack::BadStack;
use crate::domain::user::Unmailable;
use crate::domain::{
    Backlog, Cadence, Content, Day, DeliveryId, EmailScope, Event, PersonStacks, User, UserId,
    Window,
};
use crate::store;
use crate::wire::digest::{Ended, Report};
use backlog::Older;
use run::{DuePerson, Run};
use send::{Opening, Sending};

pub(crate) use run::count_email;
pub use run::{Digests, Effect, Found, Onlooker, Request, Timing};

/// The number of users in one read of the stacks.
const SCAN_CHUNK: usize = 1_000;
/// The number of such reads at a time, if a request names its users.
const READ_AHEAD: usize = 2;

impl Digests {
    /// Sends the due digests, after the deliveries that an earlier run left unfinished. Memory is
    /// bounded by the chunk, plus the id and the reason of each deferred email.
    pub async fn run(&self, request: &Request, progress: &dyn Watcher) -> Result<Report> {
        Ok(Run::new(self, request, None, progress).scan().await?.report)
    }

    /// Passes the digests that a run would send to `onlooker`, such as the command line, and writes
    /// nothing. Ignores the effect of the request.
    pub async fn rehearse(
        &self,
        request: &Request,
        onlooker: &mut dyn Onlooker,
        progress: &dyn Watcher,
    ) -> Result<Report> {
        let request = Request {
            effect: Effect::Rehearse,
            ..request.clone()
        };
        let run = Run::new(self, &request, Some(onlooker), progress);
        Ok(run.scan().await?.report)
    }
}

impl Digests {
    /// Reads the stacks of these users in the window, chunk by chunk.
    fn windows_of(
        &self,
        window: Window,
        users: Vec<UserId>,
    ) -> BoxStream<'_, store::Result<Vec<PersonStacks>>> {
        let chunks: Vec<Vec<UserId>> = users.chunks(SCAN_CHUNK).map(<[UserId]>::to_vec).collect();
        let read = move |chunk: Vec<UserId>| {
            let window = window.clone();
            async move { self.context.store.windows(window, &chunk).await }
        };
        stream::iter(chunks).map(read).buffered(READ_AHEAD).boxed()
    }
}

impl<'a> Run<'a> {
    fn new(
        digests: &'a Digests,
        request: &'a Request,
        onlooker: Option<&'a mut dyn Onlooker>,
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
            report: Report::default(),
            passed_over: false,
            catalog: digests.sender.compose.catalog.of_mails(),
            older: Older::new(&digests.backlog.days_read(at)),
        }
    }

    fn sends(&self) -> bool {
        self.request.effect == Effect::Send
    }

    async fn scan(mut self) -> Result<Self> {
        let (digests, at) = (self.digests, self.at);
        if self.sends() {
            self.report.ended = self.sender.drain().await?.ended();
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
                let mut users = users.clone();
                users.sort_unstable();
                users.dedup();
                digests.windows_of(window, users)
            }
            None => digests.context.store.scan(window, None, SCAN_CHUNK),
        };
        let mut sending = Sending::new();
        let scanned = self.send_due(chunks, &mut sending).await;
        // Chunks that were begun are finished, even if the scan failed.
        let sent: Vec<_> = sending.collect().await;
        scanned?;
        sent.into_iter().try_for_each(came_to)?;
        let Backlog { mailable, blocked } = self.older.all;
        (self.report.backlog.older, self.report.backlog.blocked) = (mailable, blocked);
        if self.request.reads_all() && !self.older.partly {
            self.older.note(&digests.backlog, &old, at).await?;
            for old in &old.too_old {
                let Some(expired) = digests.backlog.expire(old, at).await? else {
                    continue;
                };
                if !expired.all.is_nothing() {
                    let backlog = &mut self.report.backlog;
                    *backlog.given_up.entry(old.day).or_default() += expired.all;
                    backlog.given_up_blocked += expired.blocked;
                }
            }
        }
        if let Some(patience) = self.request.patience.filter(|_| self.sends()) {
            match self.sender.see_through(patience, self.progress).await? {
                Ended::Settled => {}
                ended => self.report.ended = self.report.ended.or(Some(ended)),
            }
        }
        let dry_run = &mut self.report.dry_run;
        dry_run.no_brand = dry_run.unknown_brands.values().sum();
        self.report.mails = self.sender.ledger.tally.so_far();
        Ok(self)
    }

    /// Finds the due digests and begins to send them, chunk by chunk.
    async fn send_due(
        &mut self,
        mut chunks: BoxStream<'_, store::Result<Vec<PersonStacks>>>,
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
    async fn find_rows(&mut self, mut people: Vec<PersonStacks>) -> Result<Vec<Opening>> {
        let bad: Vec<BadStack> = people
            .iter_mut()
            .flat_map(PersonStacks::remove_defective)
            .collect();
        self.older.pass_over(&bad);
        self.sender.ledger.tally.passed_over(bad);
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
            let compose = &self.sender.compose;
            count_email(dry_run, compose, user, user.brand.as_ref());
            if let Some(onlooker) = self.onlooker.as_deref_mut() {
                onlooker.mail(&person.found(content));
            }
        }
        Ok(Vec::new())
    }

    /// Returns the users whose digest is due and not empty, with its content.
    async fn find<'p>(
        &mut self,
        people: &'p [PersonStacks],
        users: Vec<Option<User>>,
    ) -> Result<Vec<(DuePerson<'p>, Content)>> {
        let suppressions = &*self.digests.context.store;
        let suppressed = Suppressed::among(suppressions, users.iter().flatten()).await?;
        let (backlog, from) = (&self.digests.backlog, self.older.from);
        let older = backlog
            .backlogs(people, &users, &suppressed, &mut self.catalog, |day| {
                day < from
            })
            .await?;
        older.iter().for_each(|user| self.older.add(user));
        let mut due = Vec::new();
        for (stacks, user) in people.iter().zip(users) {
            due.extend(self.due(stacks, user, &suppressed));
        }
        let due = self.without_existing(due).await?;
        let due = self.applicable(due).await?;
        let report = &mut self.report;
        let room = self.request.limit.map_or(usize::MAX, |limit| {
            limit.saturating_sub(report.due.users - report.due.busy) as usize
        });
        report.limited = due.len() > room;
        let due: Vec<_> = due.into_iter().take(room).collect();
        for (person, _) in &due {
            let older = person.wanted.iter().filter(|pending| {
                let day = pending.position.stack.day;
                day < self.older.from && self.catalog.applies(pending.event).is_some()
            });
            report.backlog.older_due.add(older.count() as u64);
        }
        report.due.users += due.len() as u64;
        report.due.events += due.iter().map(|(_, content)| content.total).sum::<u64>();
        Ok(due)
    }

    /// Returns the user if their digest is due. Otherwise counts the reason.
    fn due<'p>(
        &mut self,
        stacks: &'p PersonStacks,
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
        let due = schedule
            .last_due(self.at)
            .filter(|due| request.timing == Timing::Now || oldest < due.at);
        let Some(due) = due else {
            counts.waiting += 1;
            let next = schedule.next_due(self.at).map(|due| due.at);
            counts.next_due = [counts.next_due, next].into_iter().flatten().min();
            return None;
        };
        if request
            .sample
            .is_some_and(|sample| !sample.includes(&user.id))
        {
            counts.outside_sample += 1;
            return None;
        }
        Some(DuePerson {
            id: DeliveryId::digest(&user.id, schedule.cadence, due.period),
            failed: None,
            user,
            stacks,
            cadence: schedule.cadence,
            due,
            wanted,
        })
    }

    /// Returns the users who have an event that still applies, with the content of their digests.
    async fn applicable<'p>(
        &mut self,
        due: Vec<DuePerson<'p>>,
    ) -> Result<Vec<(DuePerson<'p>, Content)>> {
        let (catalog, report) = (&mut self.catalog, &mut self.report);
        let context = &self.digests.context;
        let (policies, caps) = (&context.policies, context.config.digest.caps);
        let pending = || due.iter().flat_map(|person| &person.wanted);
        catalog.load(pending().map(|pending| pending.event)).await?;
        for pending in pending() {
            report.not_known.note(pending.event, catalog, policies);
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
}
