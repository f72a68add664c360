//! Finds the people whose digest is due and mails it, chunk by chunk.
//!
//! The rule (P2, P6): somebody is due when their period has come, it has no ledger row, and something was pending when it came; so a person
//! with nothing new waits for their next period, and a second run of the same period sends nothing. The row is written first;
//! [`super::deliver`] takes it from there. Memory is bounded by the chunk, not by the number of people.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use futures::StreamExt;

use super::catalogue::Catalogue;
use super::deliver::{Account, Deliver, Ended, Road, Spread, Step, Tally};
use super::suppressions::Suppressed;
use super::{Progress, Result, crash};
use crate::clock::Ids;
use crate::domain::digest::{assemble, wanted};
use crate::domain::stack::Pending;
use crate::domain::user::Unmailable;
use crate::domain::{
    Cadence, Day, Delivery, DeliveryId, DeliveryState, Due, Lease, PersonStacks, Policies, Share,
    User, UserId, Window,
};
use crate::store::{Objects, People};

/// Whose digests, and when.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// As if this were now.
    pub at: Option<DateTime<Utc>>,
    /// Only people on this cadence.
    pub cadence: Option<Cadence>,
    /// Only these people.
    pub users: Option<Vec<UserId>>,
    /// At most so many mails.
    pub limit: Option<u64>,
    /// Only so many of all people, the same each time.
    pub sample: Option<Share>,
    /// How long mails are waited for that wait, when nothing moves; without it they are left to the next run.
    pub patience: Option<TimeDelta>,
    pub timing: Timing,
    pub effect: Effect,
}

/// Whether people's hours are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Timing {
    /// Only who had something pending when their hour came.
    #[default]
    WhenDue,
    /// Everybody who has something pending and got no mail in the period they are in.
    Now,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Effect {
    #[default]
    Send,
    /// Says what would be sent and writes nothing.
    Rehearse,
}

/// What a run came to.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Report {
    /// People with a stack in the window.
    pub people: u64,
    /// Of these, people with something pending that they want in their digest.
    pub pending: u64,
    /// People whose digest was due and had something to tell.
    pub due: u64,
    /// Events these digests tell of.
    pub events: u64,
    /// People with something pending whose period has not come, or came before it was there.
    pub waiting: u64,
    /// When the first of these is due.
    pub next_due: Option<DateTime<Utc>>,
    /// People who have had this period's mail already.
    pub mailed_already: u64,
    /// People of whose pending events none applies any more.
    pub withdrawn: u64,
    /// People with something pending who may not be mailed, by reason.
    pub unmailable: BTreeMap<&'static str, u64>,
    /// People who are due and whose delivery, this one or an earlier one, is in the ledger already.
    pub busy: u64,
    /// People who are due and were not begun with, as the run was ended.
    pub held: u64,
    /// People who are due and not in the sample.
    pub outside_sample: u64,
    /// Mails that an earlier run left, and this one took up or waited for.
    pub left_over: u64,
    /// What became of the mails, these and those that an earlier run left:
    /// sent + failed + canceled + unknown + deferred = due − busy − held + left over.
    pub mails: Tally,
    /// Whether the limit ended the run.
    pub limited: bool,
    /// What ended the run before everything was settled, if anything did.
    pub ended: Option<Ended>,
}

pub struct Digests {
    pub deliver: Arc<Deliver>,
    pub objects: Arc<dyn Objects>,
    pub policies: Arc<Policies>,
    pub ids: Arc<Ids>,
    pub window_back: u32,
}

/// Somebody whose digest is due.
struct DuePerson<'a> {
    stacks: &'a PersonStacks,
    cadence: Cadence,
    due: Due,
    id: DeliveryId,
    wanted: Vec<Pending<'a>>,
}

/// People read from the stacks at once.
const SCAN_CHUNK: usize = 1_000;
/// Where fewer than one in so many people between the first and the last is due, they are looked up one by one.
const SPARSE: usize = 20;

impl Digests {
    /// Mails what is due; finishes first what an earlier run left.
    pub async fn run(&self, request: &Request, progress: &dyn Progress) -> Result<Report> {
        let at = request.at.unwrap_or_else(|| self.deliver.clock.now());
        let (mut report, mut account) = (Report::default(), Account::default());
        if request.effect == Effect::Send {
            if let Step::Held(Road::Paused(pause)) = self.deliver.drain(&mut account).await? {
                report.ended = Some(Ended::Paused(pause));
            }
            report.left_over = account.begun();
        }
        let window = Window::ending(Day::of(at), self.window_back);
        let mut catalogue = Catalogue::new(Arc::clone(&self.objects), Arc::clone(&self.policies));
        let stacks = Arc::clone(&self.deliver.stacks);
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
            let people = people?;
            let due = self
                .find(
                    request,
                    at,
                    &people,
                    &mut catalogue,
                    &mut report,
                    &mut account,
                )
                .await?;
            if request.effect == Effect::Send && !due.is_empty() {
                let spread = if people.len() > due.len() * SPARSE || request.users.is_some() {
                    Spread::Sparse
                } else {
                    Spread::Dense
                };
                let rows: Vec<Delivery> = due.iter().map(|person| self.row(person, at)).collect();
                self.mail(request, rows, spread, &mut report, &mut account, progress)
                    .await?;
            }
            progress.advance(people.len() as u64);
            if report.limited || progress.stopping() {
                break;
            }
        }
        if let Some(patience) = request.patience.filter(|_| request.effect == Effect::Send) {
            match self
                .deliver
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
        catalogue: &mut Catalogue,
        report: &mut Report,
        account: &mut Account,
    ) -> Result<Vec<DuePerson<'a>>> {
        report.people += people.len() as u64;
        let open: Vec<&PersonStacks> = people
            .iter()
            .filter(|person| !person.reach().is_empty())
            .collect();
        let ids: Vec<UserId> = open.iter().map(|person| person.user.clone()).collect();
        let users = self.deliver.directory.users(&ids).await?;
        let suppressed =
            Suppressed::among(&*self.deliver.suppressions, users.iter().flatten()).await?;
        let mut due = Vec::new();
        for (stacks, user) in open.iter().zip(&users) {
            due.extend(self.due(request, at, stacks, user.as_ref(), &suppressed, report));
        }
        let due = self.unmailed(request, due, report, account).await?;
        let due = self.applicable(due, catalogue, report).await?;
        let room = request.limit.map_or(usize::MAX, |limit| {
            limit.saturating_sub(report.due - report.busy) as usize
        });
        report.limited = due.len() > room;
        let due: Vec<_> = due.into_iter().take(room).collect();
        report.due += due.len() as u64;
        report.events += due.iter().map(|(_, total)| *total as u64).sum::<u64>();
        Ok(due.into_iter().map(|(person, _)| person).collect())
    }

    /// Opens these rows and takes them as far as they go, unless the run has ended: then it only says how many there would be.
    async fn mail(
        &self,
        request: &Request,
        rows: Vec<Delivery>,
        spread: Spread,
        report: &mut Report,
        account: &mut Account,
        progress: &dyn Progress,
    ) -> Result<()> {
        for rows in rows.chunks(self.deliver.chunk()) {
            if report.ended.is_none() {
                report.ended = match request.patience {
                    Some(patience) => self.deliver.wait_for_road(patience, progress).await?,
                    None => match self.deliver.road().await? {
                        Road::Paused(pause) => Some(Ended::Paused(pause)),
                        // They are opened, and leave when they may.
                        Road::Free | Road::Closed(_) => None,
                    },
                };
            }
            if report.ended.is_some() {
                report.held += rows.len() as u64;
                continue;
            }
            // They may have waited: the lease begins now.
            let until = self.deliver.clock.now() + self.deliver.settings.lease;
            let mut rows = rows.to_vec();
            for lease in rows.iter_mut().filter_map(|row| row.lease.as_mut()) {
                lease.until = until;
            }
            crash::point("before-open");
            let opened = self.deliver.deliveries.open(&rows).await?;
            crash::point("after-open");
            let ours: Vec<Delivery> = rows
                .iter()
                .zip(opened)
                .filter(|(_, opened)| *opened)
                .map(|(row, _)| row.clone())
                .collect();
            report.busy += (rows.len() - ours.len()) as u64;
            self.deliver.finish(ours, spread, account).await?;
        }
        Ok(())
    }

    /// Whether this person's digest is due and what it could tell; counts why not.
    fn due<'a>(
        &self,
        request: &Request,
        at: DateTime<Utc>,
        stacks: &'a PersonStacks,
        user: Option<&User>,
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
        let schedule = user.schedule(&self.deliver.schedule);
        if schedule.cadence == Cadence::Never
            || request.cadence.is_some_and(|only| only != schedule.cadence)
        {
            return None;
        }
        let wanted = wanted(&stacks.pending(), user, &self.policies);
        let oldest = wanted.iter().map(|pending| pending.at).min()?;
        report.pending += 1;
        if let Err(why) = suppressed.mailable(user) {
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
        let id = DeliveryId::digest(&user.id, schedule.cadence, due.period);
        Some(DuePerson {
            stacks,
            cadence: schedule.cadence,
            due,
            id,
            wanted,
        })
    }

    /// Leaves out whoever has a row for this period. A mail that only waits is waited for, as if this run had begun it.
    async fn unmailed<'a>(
        &self,
        request: &Request,
        due: Vec<DuePerson<'a>>,
        report: &mut Report,
        account: &mut Account,
    ) -> Result<Vec<DuePerson<'a>>> {
        let ids: Vec<_> = due.iter().map(|person| person.id.clone()).collect();
        let rows = self.deliver.deliveries.deliveries(&ids).await?;
        for row in rows.iter().flatten() {
            if row.state.settled() {
                report.mailed_already += 1;
            } else if row.lease.is_none() && request.effect == Effect::Send {
                let begun = account.begun();
                account.take_up(std::slice::from_ref(row));
                report.left_over += account.begun() - begun;
            } else {
                report.due += 1;
                report.busy += 1;
            }
        }
        Ok(due
            .into_iter()
            .zip(rows)
            .filter_map(|(person, row)| row.is_none().then_some(person))
            .collect())
    }

    /// Leaves out whoever has nothing left that applies; says how many events each would be told of.
    async fn applicable<'a>(
        &self,
        due: Vec<DuePerson<'a>>,
        catalogue: &mut Catalogue,
        report: &mut Report,
    ) -> Result<Vec<(DuePerson<'a>, usize)>> {
        catalogue
            .load(
                due.iter()
                    .flat_map(|person| &person.wanted)
                    .map(|pending| pending.event),
            )
            .await?;
        let mut left = Vec::with_capacity(due.len());
        for person in due {
            match assemble(&person.wanted, &self.policies, self.deliver.caps, |event| {
                catalogue.applies(event)
            }) {
                Some(digest) => left.push((person, digest.total)),
                None => report.withdrawn += 1,
            }
        }
        Ok(left)
    }

    fn row(&self, person: &DuePerson<'_>, at: DateTime<Utc>) -> Delivery {
        let now = self.deliver.clock.now();
        Delivery {
            id: person.id.clone(),
            user: person.stacks.user.clone(),
            cadence: person.cadence,
            period: person.due.period.to_string(),
            state: DeliveryState::Pending,
            open: true,
            covers: person.stacks.reach(),
            marker: self.ids.next(at),
            lease: Some(Lease {
                owner: self.deliver.owner.clone(),
                until: now + self.deliver.settings.lease,
            }),
            not_before: None,
            attempts: 0,
            call: None,
            tried: None,
            items: 0,
            created: now,
            settled: None,
            provider_id: None,
            reason: None,
            feedback: None,
        }
    }
}
