//! Finds the people whose digest is due and mails it, chunk by chunk.
//!
//! The rule (P2, P6): somebody is due when their period has come, it has no ledger row, and something was pending when it came; so a person
//! with nothing new waits for their next period, and a second run of the same period sends nothing. The row is written first;
//! [`super::deliver`] takes it from there. Memory is bounded by the chunk, not by the number of people.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::StreamExt;

use super::catalogue::Catalogue;
use super::deliver::{Deliver, Spread, Tally};
use super::{Progress, Result};
use crate::clock::Ids;
use crate::domain::digest::{Caps, assemble, wanted};
use crate::domain::stack::Pending;
use crate::domain::user::Unmailable;
use crate::domain::{
    Cadence, Day, Delivery, DeliveryId, DeliveryState, Due, Lease, PersonStacks, Policies,
    Schedule, User, UserId, Window,
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
    /// People whose delivery another worker holds at this moment.
    pub busy: u64,
    /// What became of the mails, these and those that an earlier run left.
    pub mails: Tally,
    /// Whether the limit ended the run.
    pub limited: bool,
}

pub struct Digests {
    pub deliver: Arc<Deliver>,
    pub objects: Arc<dyn Objects>,
    pub policies: Arc<Policies>,
    pub ids: Arc<Ids>,
    pub schedule: Schedule,
    pub caps: Caps,
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
        let mut report = Report::default();
        if request.effect == Effect::Send {
            report.mails += self.deliver.drain().await?;
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
            self.chunk(request, at, &people, &mut catalogue, &mut report)
                .await?;
            progress.advance(people.len() as u64);
            if report.limited || progress.stopping() {
                break;
            }
        }
        Ok(report)
    }

    async fn chunk(
        &self,
        request: &Request,
        at: DateTime<Utc>,
        people: &[PersonStacks],
        catalogue: &mut Catalogue,
        report: &mut Report,
    ) -> Result<()> {
        report.people += people.len() as u64;
        let open: Vec<&PersonStacks> = people
            .iter()
            .filter(|person| !person.reach().is_empty())
            .collect();
        let ids: Vec<UserId> = open.iter().map(|person| person.user.clone()).collect();
        let users = self.deliver.directory.users(&ids).await?;
        let mut due = Vec::new();
        for (stacks, user) in open.iter().zip(&users) {
            due.extend(self.due(request, at, stacks, user.as_ref(), report));
        }
        let due = self.unmailed(due, report).await?;
        let due = self.applicable(due, catalogue, report).await?;
        let room = request.limit.map_or(usize::MAX, |limit| {
            limit.saturating_sub(report.due) as usize
        });
        report.limited = due.len() > room;
        let due: Vec<_> = due.into_iter().take(room).collect();
        report.due += due.len() as u64;
        report.events += due.iter().map(|(_, total)| *total as u64).sum::<u64>();
        if request.effect == Effect::Rehearse || due.is_empty() {
            return Ok(());
        }
        let spread = if people.len() > due.len() * SPARSE || request.users.is_some() {
            Spread::Sparse
        } else {
            Spread::Dense
        };
        let rows: Vec<Delivery> = due.iter().map(|(person, _)| self.row(person, at)).collect();
        for rows in rows.chunks(self.deliver.settings.chunk) {
            let opened = self.deliver.deliveries.open(rows).await?;
            let ours: Vec<Delivery> = rows
                .iter()
                .zip(opened)
                .filter(|(_, opened)| *opened)
                .map(|(row, _)| row.clone())
                .collect();
            report.busy += (rows.len() - ours.len()) as u64;
            report.mails += self.deliver.finish(ours, spread).await?;
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
        if schedule.cadence == Cadence::Never
            || request.cadence.is_some_and(|only| only != schedule.cadence)
        {
            return None;
        }
        let wanted = wanted(&stacks.pending(), user, &self.policies);
        let oldest = wanted.iter().map(|pending| pending.at).min()?;
        report.pending += 1;
        if let Err(why) = user.mailable() {
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
        let id = DeliveryId::digest(&user.id, schedule.cadence, due.period);
        Some(DuePerson {
            stacks,
            cadence: schedule.cadence,
            due,
            id,
            wanted,
        })
    }

    /// Leaves out whoever has a row for this period.
    async fn unmailed<'a>(
        &self,
        due: Vec<DuePerson<'a>>,
        report: &mut Report,
    ) -> Result<Vec<DuePerson<'a>>> {
        let ids: Vec<_> = due.iter().map(|person| person.id.clone()).collect();
        let known = self.deliver.deliveries.known(&ids).await?;
        report.mailed_already += known.iter().filter(|known| **known).count() as u64;
        Ok(due
            .into_iter()
            .zip(known)
            .filter_map(|(person, known)| (!known).then_some(person))
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
            match assemble(&person.wanted, &self.policies, self.caps, |event| {
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
            attempts: 0,
            items: 0,
            created: at,
            settled: None,
            provider_id: None,
            reason: None,
        }
    }
}
