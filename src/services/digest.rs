//! Finds the people whose digest is due and mails it, chunk by chunk.
//!
//! The rule (P2, P6): somebody is due when their period has come, it has no ledger row, and
//! something was pending when it came; so a person with nothing new waits for their next period,
//! and a second run of the same period sends nothing. The row is written first; [`super::mailing`]
//! takes it from there. Days that have left the window are read as well while somebody is owed
//! something of them ([`super::owed`]). Memory is bounded by the chunk, and by what waits: of a
//! mail that is held up, its id and its reason are kept.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::StreamExt;

use super::catalogue::Catalogue;
use super::mailing::{Account, GateState, Sender, Spread, Step};
use super::owed::OwedDays;
use super::suppressions::Suppressed;
use super::{Progress, Result, crash};
use crate::clock::{Clock, Ids};
use crate::domain::content::Caps;
use crate::domain::digest::{assemble, wanted};
use crate::domain::stack::{BadStack, Pending};
use crate::domain::user::Unmailable;
use crate::domain::{
    Cadence, Content, DeliveryId, Due, Period, PersonStacks, Policies, Schedule, User, UserId,
};
use crate::store::{Deliveries, Directory, Objects, People, Stacks, Suppressions};
use crate::wire::digest::{Ended, Report};

mod older;
mod request;
mod rows;

pub use request::{Effect, Request, Timing};

use older::Older;
use rows::{Opening, Row};

/// Looks on while digests are rehearsed.
pub trait Onlooker: Send {
    /// This would be mailed. People come in the order of their ids.
    fn mail(&mut self, mail: &Found<'_>);

    /// Those who came since the last time would be mailed together.
    fn together(&mut self);
}

/// A digest that is due.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// The row of the ledger that the mail would be of.
    pub id: &'a DeliveryId,
    /// Whom it would go to.
    pub user: &'a User,
    /// The person's cadence, which is not `never`.
    pub cadence: Cadence,
    /// The local date or ISO week that it is for.
    pub period: Period,
    /// What it would tell: what is wanted and still applies.
    pub content: &'a Content,
}

/// Runs of digests: who is due is found, and mailed or only shown.
pub struct Digests {
    /// Takes the rows of due digests to their end.
    pub sender: Sender,
    pub(crate) stacks: Arc<dyn Stacks>,
    pub(crate) directory: Arc<dyn Directory>,
    pub(crate) objects: Arc<dyn Objects>,
    pub(crate) suppressions: Arc<dyn Suppressions>,
    pub(crate) deliveries: Arc<dyn Deliveries>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<Ids>,
    /// Says which days before the window are read, and notes what is owed of them.
    pub owed: OwedDays,
    /// What holds for people who did not choose cadence, weekday, hour or time zone.
    pub schedule: Schedule,
    /// How many items a section and a mail show.
    pub caps: Caps,
}

/// Somebody whose digest is due.
struct DuePerson<'a> {
    user: User,
    stacks: &'a PersonStacks,
    cadence: Cadence,
    due: Due,
    row: Row,
    wanted: Vec<Pending<'a>>,
}

impl DuePerson<'_> {
    fn found<'a>(&'a self, content: &'a Content) -> Found<'a> {
        Found {
            id: self.row.id(),
            user: &self.user,
            cadence: self.cadence,
            period: self.due.period,
            content,
        }
    }
}

/// What a run has learned of objects, and of what is owed of days before the window.
struct Learned {
    catalogue: Catalogue,
    older: Older,
}

/// People read from the stacks at once.
const SCAN_CHUNK: usize = 1_000;
/// Where fewer than one in so many people between the first and the last is due, they are looked up
/// one by one.
const SPARSE: usize = 20;

impl Digests {
    /// Mails what is due; finishes first what an earlier run left.
    pub async fn run(&self, request: &Request, progress: &dyn Progress) -> Result<Report> {
        self.walk(request, None, progress).await
    }

    /// Shows what a run would mail to an onlooker, and writes nothing, whatever effect is asked
    /// for.
    pub async fn rehearse(
        &self,
        request: &Request,
        onlooker: &mut dyn Onlooker,
        progress: &dyn Progress,
    ) -> Result<Report> {
        let request = Request {
            effect: Effect::Rehearse,
            ..request.clone()
        };
        self.walk(&request, Some(onlooker), progress).await
    }

    async fn walk(
        &self,
        request: &Request,
        mut onlooker: Option<&mut dyn Onlooker>,
        progress: &dyn Progress,
    ) -> Result<Report> {
        let at = request.at.unwrap_or_else(|| self.clock.now());
        let (mut report, mut account) = (Report::default(), Account::default());
        if request.effect == Effect::Send {
            report.ended = match self.sender.drain(&mut account).await? {
                Step::Held(GateState::Paused(pause)) => Some(Ended::Paused(pause)),
                Step::Held(GateState::Stopping) => Some(Ended::Stopped),
                _ => None,
            };
            report.left_over = account.begun();
        }
        if request.effect == Effect::Send {
            self.stacks.catch_up().await?;
        }
        let reach = self.owed.reach(at);
        let old = self.owed.look(&reach).await?;
        let window = reach.window.with(old.older.iter().map(|old| old.day));
        let mut learned = Learned {
            catalogue: Catalogue::new(Arc::clone(&self.objects), Arc::clone(&self.policies)),
            older: Older::new(&reach),
        };
        let stacks = Arc::clone(&self.stacks);
        let mut chunks = match &request.users {
            Some(users) => {
                let mut users = users.clone();
                users.sort_unstable();
                users.dedup();
                let found = stacks.windows(window, People::Each(&users)).await?;
                futures::stream::iter([Ok(found)]).boxed()
            }
            None => stacks.scan(window, None, SCAN_CHUNK),
        };
        while let Some(people) = chunks.next().await {
            let mut people = people?;
            let bad: Vec<BadStack> = people
                .iter_mut()
                .flat_map(PersonStacks::set_aside_bad)
                .collect();
            learned.older.pass_over(&bad);
            account.passed_over(bad);
            if request.effect == Effect::Send {
                // Who is passed over here is passed over until the next run.
                self.stacks.catch_up().await?;
            }
            let due = self
                .find(
                    request,
                    at,
                    &people,
                    &mut learned,
                    &mut report,
                    &mut account,
                )
                .await?;
            if let Some(onlooker) = onlooker.as_deref_mut()
                && !due.is_empty()
            {
                for (person, content) in &due {
                    onlooker.mail(&person.found(content));
                }
                onlooker.together();
            }
            if request.effect == Effect::Send && !due.is_empty() {
                let spread = if people.len() > due.len() * SPARSE || request.users.is_some() {
                    Spread::Sparse
                } else {
                    Spread::Dense
                };
                let rows: Vec<Opening> = due
                    .iter()
                    .map(|(person, _)| self.opening(request, person, at))
                    .collect();
                self.mail(request, rows, spread, &mut report, &mut account, progress)
                    .await?;
            }
            progress.advance(people.len() as u64);
            if report.limited || progress.stopping() {
                learned.older.partly = true;
                break;
            }
        }
        let older = &learned.older;
        report.older = older.all;
        if request.reads_all() && !older.partly {
            self.note_older(&old.older, older, at).await?;
            for old in &old.too_old {
                if let Some(given_up) = self.owed.give_up(old, at).await? {
                    report.give_up(old.day, given_up);
                }
            }
        }
        if let Some(patience) = request.patience.filter(|_| request.effect == Effect::Send) {
            match self
                .sender
                .see_through(&mut account, patience, progress)
                .await?
            {
                Ended::Settled => {}
                ended => report.ended = report.ended.or(Some(ended)),
            }
        }
        report.mails = account.tally();
        Ok(report)
    }

    /// Whose digest is due of these people, and tells something.
    async fn find<'a>(
        &self,
        request: &Request,
        at: DateTime<Utc>,
        people: &'a [PersonStacks],
        learned: &mut Learned,
        report: &mut Report,
        account: &mut Account,
    ) -> Result<Vec<(DuePerson<'a>, Content)>> {
        report.people += people.len() as u64;
        let open: Vec<&PersonStacks> = people
            .iter()
            .filter(|person| !person.reach().is_empty())
            .collect();
        let ids: Vec<UserId> = open.iter().map(|person| person.user.clone()).collect();
        let users = self.directory.users(&ids).await?;
        let suppressed = Suppressed::among(&*self.suppressions, users.iter().flatten()).await?;
        self.count_older(&open, &users, &suppressed, learned)
            .await?;
        let mut due = Vec::new();
        for (stacks, user) in open.iter().zip(users) {
            due.extend(self.due(request, at, stacks, user, &suppressed, report));
        }
        let due = self.unmailed(request, due, report, account).await?;
        let due = self.applicable(due, &mut learned.catalogue, report).await?;
        let room = request.limit.map_or(usize::MAX, |limit| {
            limit.saturating_sub(report.due - report.busy) as usize
        });
        report.limited = due.len() > room;
        let due: Vec<_> = due.into_iter().take(room).collect();
        report.due += due.len() as u64;
        report.events += due.iter().map(|(_, told)| told.total).sum::<u64>();
        Ok(due)
    }

    /// Opens these rows and takes them as far as they go, unless the run has ended: then it only
    /// says how many there would be.
    async fn mail(
        &self,
        request: &Request,
        rows: Vec<Opening>,
        spread: Spread,
        report: &mut Report,
        account: &mut Account,
        progress: &dyn Progress,
    ) -> Result<()> {
        for rows in rows.chunks(self.sender.gate.chunk()) {
            if report.ended.is_none() {
                report.ended = match request.patience {
                    Some(patience) => self.sender.wait_for_gate(patience, progress).await?,
                    None => match self.sender.gate.before_chunk().await? {
                        GateState::Paused(pause) => Some(Ended::Paused(pause)),
                        GateState::Stopping => Some(Ended::Stopped),
                        // They are opened, and leave when they may.
                        GateState::Open | GateState::ClosedUntil(_) => None,
                    },
                };
            }
            if report.ended.is_some() {
                report.held += rows.len() as u64;
                continue;
            }
            let _turn = self.sender.gate.turn().await;
            // They may have waited: the lease begins now.
            let until = self.clock.now() + self.sender.settings.lease;
            let mut rows = rows.to_vec();
            let leases = rows
                .iter_mut()
                .filter_map(|opening| opening.row.lease.as_mut());
            leases.for_each(|lease| lease.until = until);
            crash::point("before-open");
            let ours = self.open(rows.clone()).await?;
            crash::point("after-open");
            report.busy += (rows.len() - ours.len()) as u64;
            self.sender.finish(ours, spread, account).await?;
        }
        Ok(())
    }

    /// Whether this person's digest is due and what it could tell; counts why not.
    fn due<'a>(
        &self,
        request: &Request,
        at: DateTime<Utc>,
        stacks: &'a PersonStacks,
        user: Option<User>,
        suppressed: &Suppressed,
        report: &mut Report,
    ) -> Option<DuePerson<'a>> {
        let Some(user) = user else {
            *report
                .unmailable
                .entry(Unmailable::Unknown.as_str())
                .or_default() += 1;
            return None;
        };
        let schedule = user.schedule(&self.schedule);
        let never = schedule.cadence == Cadence::Never;
        if !never && request.cadence.is_some_and(|only| only != schedule.cadence) {
            return None;
        }
        let wanted = wanted(stacks, &user, &self.policies);
        let oldest = wanted.iter().map(|pending| pending.at).min()?;
        if never {
            let count = match user.unsubscribed {
                Some(_) => &mut report.unsubscribed,
                None => &mut report.turned_off,
            };
            *count += 1;
            return None;
        }
        report.pending += 1;
        if let Err(why) = suppressed.mailable(&user) {
            *report.unmailable.entry(why.as_str()).or_default() += 1;
            return None;
        }
        let due = schedule
            .last_due(at)
            .filter(|due| request.timing == Timing::Now || oldest < due.at);
        let Some(due) = due else {
            report.waiting += 1;
            let next = schedule.next_due(at).map(|due| due.at);
            report.next_due = [report.next_due, next].into_iter().flatten().min();
            return None;
        };
        if request
            .sample
            .is_some_and(|sample| !sample.includes(&user.id))
        {
            report.outside_sample += 1;
            return None;
        }
        let row = Row::New(DeliveryId::digest(&user.id, schedule.cadence, due.period));
        Some(DuePerson {
            user,
            stacks,
            cadence: schedule.cadence,
            due,
            row,
            wanted,
        })
    }

    /// Leaves out whoever has nothing left that applies; says what each would be told.
    async fn applicable<'a>(
        &self,
        due: Vec<DuePerson<'a>>,
        catalogue: &mut Catalogue,
        report: &mut Report,
    ) -> Result<Vec<(DuePerson<'a>, Content)>> {
        catalogue
            .load(
                due.iter()
                    .flat_map(|person| &person.wanted)
                    .map(|pending| pending.event),
            )
            .await?;
        let mut left = Vec::with_capacity(due.len());
        for pending in due.iter().flat_map(|person| &person.wanted) {
            report
                .unknown
                .note(pending.event, catalogue, &self.policies);
        }
        for person in due {
            match assemble(&person.wanted, &self.policies, self.caps, |event| {
                catalogue.applies(event)
            }) {
                Some(content) => left.push((person, content)),
                None => report.withdrawn += 1,
            }
        }
        Ok(left)
    }
}
