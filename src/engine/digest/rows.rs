//! Chooses the ledger row of each due digest: a new one, or a failed one of the same period.
//!
//! A period has one row (P2), which [`crate::domain::digest`] finds. Users who have one are
//! excluded, unless it failed and its retry is due.

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use super::run::Row;
use super::{Digests, DuePerson, Effect, Run, Timing};
use crate::domain::delivery::{Corrected, Correction, DeliveryAttempts, Reopening};
use crate::domain::digest::{Place, Rows, tried_again};
use crate::domain::{Delivery, DeliveryId, DeliveryState, Id, Occasion};
use crate::engine::Result;

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
