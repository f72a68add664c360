//! Opens the ledger row of each due digest, and sends chunks of rows while the run reads on.
//!
//! A period has one row (P2), which [`crate::domain::digest::Rows`] finds: a new one, or a failed
//! one of the same period. No user is in two chunks, so chunks do not depend on each other. Start
//! with [`Run::begin`].

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::task::JoinHandle;

use super::run::{Digests, DuePerson, Effect, Run, Timing};
use crate::domain::delivery::{Corrected, Correction, Reopening};
use crate::domain::digest::{Place, Rows, tried_again};
use crate::domain::{Delivery, DeliveryId, DeliveryState, Id, Lease, Occasion};
use crate::engine::{Result, came_to, crash};
use crate::store::Deliveries;

#[derive(Clone)]
pub(super) struct Opening {
    pub row: Delivery,
    /// Whether the row already exists, as failed.
    again: bool,
}

impl Run<'_> {
    /// Excludes users who have a row for this period, unless its retry is due. The run also waits
    /// for existing rows that are pending, as for its own.
    pub(super) async fn without_existing<'p>(
        &mut self,
        due: Vec<DuePerson<'p>>,
    ) -> Result<Vec<DuePerson<'p>>> {
        let now = self.digests.context.clock.now();
        let of = |person: &DuePerson<'_>| Rows::of(&person.user.id, person.cadence, &person.due);
        let rows: Vec<Rows> = due.iter().map(of).collect();
        let existing = existing(&*self.digests.context.store, &rows).await?;
        let mut left = Vec::with_capacity(due.len());
        for (mut person, rows) in due.into_iter().zip(rows) {
            match rows.place(&person.due, |id| existing.get(id)) {
                Place::Free(id) => {
                    person.id = id;
                    left.push(person);
                }
                Place::Existing(row) => match tried_again(row) {
                    Some(at) if at <= now || self.request.timing == Timing::Now => {
                        person.id = row.id.clone();
                        person.failed = Some(row.clone());
                        left.push(person);
                    }
                    again => self.count_existing(row, again),
                },
            }
        }
        Ok(left)
    }

    /// Counts a user who has a row for the period. `again` is the time of its retry, if it failed.
    fn count_existing(&mut self, row: &Delivery, again: Option<DateTime<Utc>>) {
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
        let (id, user) = (person.id.clone(), person.stacks.user.clone());
        let mut row = Delivery {
            watermarks: person.stacks.covers(),
            due_on: Some(person.due.date),
            ..Delivery::new(id, user, occasion, marker, now)
        };
        if let Some(failed) = &person.failed {
            row.marker = failed.marker;
            row.due_on = failed.due_on;
            row.attempts.made = failed.attempts.made;
            row.attempts.reopened = match self.request.timing {
                Timing::WhenDue => failed.attempts.reopened + 1,
                // The operator asked for it, so the retries start over.
                Timing::Now => 0,
            };
        }
        Opening {
            again: person.failed.is_some(),
            row,
        }
    }
}

/// Loads the existing rows of these digests.
pub(super) async fn existing(
    deliveries: &dyn Deliveries,
    rows: &[Rows],
) -> Result<HashMap<DeliveryId, Delivery>> {
    let ids: Vec<DeliveryId> = rows.iter().flat_map(Rows::ids).cloned().collect();
    let found = deliveries.deliveries(&ids).await?.into_iter().flatten();
    Ok(found.map(|row| (row.id.clone(), row)).collect())
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
            let corrections: Vec<Correction> = again.iter().map(reopening).collect();
            let now = self.context.clock.now();
            let reopened = deliveries.correct(now, &corrections).await?;
            let reopened = again.into_iter().zip(reopened);
            let done = reopened.filter(|(_, reopened)| *reopened == Corrected::Done);
            ours.extend(done.map(|(row, _)| row));
        }
        Ok(ours)
    }
}

/// The chunks that are being sent, each by a task of its own: one is built while another is sent.
pub(super) type Sending = FuturesUnordered<JoinHandle<Result<()>>>;

/// The number of chunks at a time, unless the operator limits the emails per hour.
const AT_ONCE: usize = 2;

impl Run<'_> {
    /// Opens these rows and begins to send them, a chunk whenever one fits. Once the run has ended,
    /// only counts them.
    pub(super) async fn begin(&mut self, rows: &[Opening], sending: &mut Sending) -> Result<()> {
        let gate = &self.sender.gate;
        let is_limited = gate.settings.mails_per_hour > 0;
        let most = if is_limited { 1 } else { AT_ONCE };
        // After a failure, no further chunk begins.
        while let Some(Some(sent)) = sending.next().now_or_never() {
            came_to(sent)?;
        }
        for rows in rows.chunks(gate.chunk()) {
            while sending.len() >= most
                && let Some(sent) = sending.next().await
            {
                came_to(sent)?;
            }
            if self.report.ended.is_none() {
                self.report.ended = match self.request.patience {
                    Some(patience) => self.sender.wait_for_gate(patience, self.progress).await?,
                    // Without an end, the rows are opened now and sent when the gate permits it.
                    None => self.sender.ready().await?.ended(),
                };
            }
            if self.report.ended.is_some() {
                self.report.due.held += rows.len() as u64;
                continue;
            }
            let ledger = &self.sender.ledger;
            let lease = Lease {
                owner: ledger.context.owner.clone(),
                until: self.digests.context.clock.now() + ledger.lease(),
            };
            let mut leased = rows.to_vec();
            for opening in &mut leased {
                opening.row.lease = Some(lease.clone());
            }
            crash::point("before-open");
            let ours = self.digests.open(leased).await?;
            crash::point("after-open");
            let busy = (rows.len() - ours.len()) as u64;
            self.report.due.busy += busy;
            self.passed_over |= busy > 0;
            let sender = self.sender.clone();
            let finishing = async move { sender.finish(ours).await };
            sending.push(tokio::spawn(finishing.boxed()));
        }
        Ok(())
    }
}
