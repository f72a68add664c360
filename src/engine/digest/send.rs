//! Opens the ledger row of each due digest, and sends chunks of rows while the run reads on.
//!
//! A period has one row (P2), which [`crate::domain::digest::Rows`] finds: a new one, or a failed
//! one of the same period. No user is in two chunks, so chunks do not depend on each other. A chunk
//! that was begun is finished, even if the scan fails. One chunk is built while another is sent.
//! Start with [`UnderWay::begin`].

use std::collections::HashMap;
use std::pin::pin;

use chrono::{DateTime, Utc};
use futures::future::{BoxFuture, Either, select};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use super::run::{Digests, DuePerson, Effect, Request, Row, Run, Timing};
use crate::domain::delivery::{Corrected, Correction, DeliveryAttempts, Reopening};
use crate::domain::digest::{Place, Rows, tried_again};
use crate::domain::{Delivery, DeliveryId, DeliveryState, Id, Lease, Occasion};
use crate::engine::delivery::{Sender, Spread};
use crate::engine::{Result, Watcher, came_to, crash};
use crate::wire::digest::Ended;

#[derive(Clone)]
pub(super) struct Opening {
    pub row: Delivery,
    /// Whether the row already exists, as failed.
    again: bool,
}

impl Run<'_> {
    /// Excludes users who have a row for this period, unless its retry is due. The run also waits
    /// for existing rows that are pending, as for its own.
    pub(super) async fn still_to_open<'p>(
        &mut self,
        due: Vec<DuePerson<'p>>,
    ) -> Result<Vec<DuePerson<'p>>> {
        let now = self.digests.context.clock.now();
        let rows_of =
            |person: &DuePerson<'_>| Rows::of(&person.user.id, person.cadence, &person.due);
        let rows: Vec<Rows> = due.iter().map(rows_of).collect();
        let ids: Vec<DeliveryId> = rows.iter().flat_map(Rows::ids).cloned().collect();
        let standing = self.digests.context.store.deliveries(&ids).await?;
        let standing = standing.into_iter().flatten();
        let standing: HashMap<DeliveryId, Delivery> =
            standing.map(|row| (row.id.clone(), row)).collect();
        let mut left = Vec::with_capacity(due.len());
        for (mut person, rows) in due.into_iter().zip(rows) {
            match rows.place(&person.due, |id| standing.get(id)) {
                Place::Free(id) => {
                    person.row = Row::New(id);
                    left.push(person);
                }
                Place::Existing(row) => match tried_again(row) {
                    Some(at) if at <= now || self.request.timing == Timing::Now => {
                        person.row = Row::Again(Box::new(row.clone()));
                        left.push(person);
                    }
                    again => self.stands(row, again),
                },
            }
        }
        Ok(left)
    }

    /// Counts a user who has a row for the period. `again` is the time of its retry, if it failed.
    fn stands(&mut self, row: &Delivery, again: Option<DateTime<Utc>>) {
        let (request, report) = (self.request, &mut self.report);
        let tally = &self.sender.ledger.tally;
        if row.state == DeliveryState::Failed {
            report.users.failed_already += 1;
            report.users.tried_again = report.users.tried_again.into_iter().chain(again).min();
        } else if row.state.settled() {
            report.users.mailed_already += 1;
        } else if request.effect == Effect::Send
            && (row.lease.is_none() || request.patience.is_some())
        {
            // The leaseholder may be dead, so a run that waits also finishes such rows.
            report.left_over += tally.take_up(std::slice::from_ref(row));
        } else {
            report.due.users += 1;
            report.due.busy += 1;
        }
    }

    /// Returns the row to open, without a lease. Other rows of the run may have the same marker.
    pub(super) fn opening(&self, person: &DuePerson<'_>, marker: Id) -> Opening {
        let now = self.digests.context.clock.now();
        let occasion = Occasion::Digest {
            cadence: person.cadence,
            period: person.due.period.to_string(),
        };
        let (id, user) = (person.row.id().clone(), person.stacks.user.clone());
        let new = Delivery {
            watermarks: person.stacks.covers(),
            due_on: Some(person.due.date),
            ..Delivery::new(id, user, occasion, marker, now)
        };
        match &person.row {
            Row::New(_) => Opening {
                row: new,
                again: false,
            },
            Row::Again(failed) => Opening {
                row: Delivery {
                    marker: failed.marker,
                    attempts: DeliveryAttempts {
                        made: failed.attempts.made,
                        reopened: match self.request.timing {
                            Timing::WhenDue => failed.attempts.reopened + 1,
                            // The operator asked for it, so the retries start over.
                            Timing::Now => 0,
                        },
                        ..DeliveryAttempts::default()
                    },
                    due_on: failed.due_on,
                    ..new
                },
                again: true,
            },
        }
    }
}

impl Digests {
    /// Opens new rows and reopens failed ones. Returns the rows that this process leased.
    pub(super) async fn open(&self, rows: Vec<Opening>) -> Result<Vec<Delivery>> {
        let (again, new): (Vec<_>, Vec<_>) = rows.into_iter().partition(|opening| opening.again);
        let rows = |openings: Vec<Opening>| openings.into_iter().map(|opening| opening.row);
        let (again, new): (Vec<Delivery>, Vec<Delivery>) =
            (rows(again).collect(), rows(new).collect());
        let deliveries = &self.context.store;
        let opened = deliveries.open(&new).await?;
        let opened = new.into_iter().zip(opened);
        let mut ours: Vec<Delivery> = opened
            .filter_map(|(row, ours)| ours.then_some(row))
            .collect();
        if !again.is_empty() {
            let reopening = |row: &Delivery| {
                Correction::Reopen(Reopening {
                    id: row.id.clone(),
                    watermarks: Some(row.watermarks.clone()),
                    lease: row.lease.clone(),
                    reopened: row.attempts.reopened,
                })
            };
            let asked: Vec<Correction> = again.iter().map(reopening).collect();
            let reopened = deliveries.correct(self.context.clock.now(), &asked).await?;
            let reopened = again.into_iter().zip(reopened);
            let done = reopened.filter(|(_, reopened)| *reopened == Corrected::Done);
            ours.extend(done.map(|(row, _)| row));
            // A range of dense rows can be read at once only if their users are in order.
            ours.sort_unstable_by(|a, b| a.user.cmp(&b.user));
        }
        Ok(ours)
    }
}

/// The due digests of users that were read together.
pub(super) struct FoundDue {
    pub rows: Vec<Opening>,
    pub spread: Spread,
}

/// The rows that were not sent.
#[derive(Default)]
pub(super) struct NotMailed {
    /// Rows that another process has opened.
    pub busy: u64,
    /// Rows that were not begun.
    pub held: u64,
    /// The reason why no more rows are begun.
    pub ended: Option<Ended>,
}

/// The context in which a run sends its chunks.
pub(super) struct Mailing<'a> {
    pub digests: &'a Digests,
    pub request: &'a Request,
    pub progress: &'a dyn Watcher,
    pub sender: &'a Sender,
}

/// Chunks that are being sent.
pub(super) struct UnderWay<'a> {
    mailing: &'a Mailing<'a>,
    going: FuturesUnordered<BoxFuture<'a, Result<NotMailed>>>,
    done: Vec<Result<NotMailed>>,
}

/// The number of chunks at a time, unless the operator limits the emails per hour.
const AT_ONCE: usize = 2;

impl<'a> UnderWay<'a> {
    pub(super) fn new(mailing: &'a Mailing<'a>) -> Self {
        Self {
            mailing,
            going: FuturesUnordered::new(),
            done: Vec::new(),
        }
    }

    /// Begins to send these rows, a chunk whenever one fits. Begins none after a chunk has failed.
    pub(super) async fn begin(&mut self, found: FoundDue, ended: Option<&Ended>) {
        let gate = &self.mailing.sender.gate;
        let limited = gate.settings.mails_per_hour > 0;
        let most = if limited { 1 } else { AT_ONCE };
        for rows in found.rows.chunks(gate.chunk()) {
            while self.going.len() >= most
                && let Some(mailed) = self.going.next().await
            {
                self.done.push(mailed);
            }
            if self.done.iter().any(Result::is_err) {
                return;
            }
            let mut done = self.done.iter().flatten();
            let ended = ended.or_else(|| done.find_map(|rows| rows.ended.as_ref()));
            let mailing = self
                .mailing
                .mail(rows.to_vec(), found.spread, ended.cloned());
            self.going.push(mailing.boxed());
        }
    }

    /// Runs `work` while chunks are being sent.
    pub(super) async fn beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        while !self.going.is_empty() {
            match select(work.as_mut(), self.going.next()).await {
                Either::Left((done, _)) => return done,
                Either::Right((mailed, _)) => self.done.extend(mailed),
            }
        }
        work.await
    }

    /// Waits until all chunks are finished.
    pub(super) async fn finish(&mut self) {
        while let Some(mailed) = self.going.next().await {
            self.done.push(mailed);
        }
    }

    /// Returns the results of the chunks that have ended since the last call. If one failed, waits
    /// for the others first.
    pub(super) async fn done(&mut self) -> Result<Vec<NotMailed>> {
        if self.done.iter().any(Result::is_err) {
            self.finish().await;
        }
        self.done.drain(..).collect()
    }
}

impl Mailing<'_> {
    /// Opens the rows of a chunk and sends them. If the run has ended, only counts them.
    async fn mail(
        &self,
        mut rows: Vec<Opening>,
        spread: Spread,
        ended: Option<Ended>,
    ) -> Result<NotMailed> {
        let (sender, mut others) = (self.sender.clone(), NotMailed::default());
        others.ended = match (ended, self.request.patience) {
            (Some(ended), _) => Some(ended),
            (None, Some(patience)) => sender.wait_for_gate(patience, self.progress).await?,
            // Without an end, the rows are opened now and sent when the gate permits it.
            (None, None) => sender.ready().await?.ended(),
        };
        if others.ended.is_some() {
            others.held = rows.len() as u64;
            return Ok(others);
        }
        let lease = Lease {
            owner: sender.ledger.context.owner.clone(),
            until: self.digests.context.clock.now() + sender.ledger.lease(),
        };
        rows.iter_mut()
            .for_each(|opening| opening.row.lease = Some(lease.clone()));
        let all = rows.len();
        crash::point("before-open");
        let ours = self.digests.open(rows).await?;
        crash::point("after-open");
        others.busy = (all - ours.len()) as u64;
        // A task of its own lets two chunks be built on two cores.
        let finishing = async move { sender.finish(ours, spread, None).await };
        came_to(tokio::spawn(finishing.boxed()).await)?;
        Ok(others)
    }
}
