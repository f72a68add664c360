//! Looks into batches, and changes them by hand: close now, cancel, take out what is withdrawn.
//!
//! The rule: only an open batch can be changed; one that closes may be on its way already, and says so.

use std::sync::Arc;

use crate::clock::{Clock, Ids};
use crate::domain::batch::{Seat, SeatId, TakenOut};
use crate::domain::{Batch, BatchState, EventType, Id, ObjectId};
use crate::services::{Error, Result};
use crate::store::{BatchCounts, BatchFilter, Batches};

/// Seats changed at once.
const AT_ONCE: usize = 500;

pub struct BatchBook {
    pub batches: Arc<dyn Batches>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<Ids>,
}

/// What is done to an open batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// It is mailed now.
    Closed,
    /// It is not mailed.
    Canceled,
}

impl BatchBook {
    /// Batches, newest first; `before` goes on after an earlier answer.
    pub async fn list(
        &self,
        filter: &BatchFilter,
        before: Option<Id>,
        limit: usize,
    ) -> Result<Vec<Batch>> {
        Ok(self.batches.find_batches(filter, before, limit).await?)
    }

    pub async fn batch(&self, id: Id) -> Result<Option<Batch>> {
        if let Some(seat) = self.batches.seat_of(id).await? {
            let mut here = seat.open.into_iter().chain(seat.ended);
            if let Some(batch) = here.find(|batch| batch.id == id) {
                return Ok(Some(batch));
            }
        }
        Ok(self.batches.filed(&[id]).await?.pop().flatten())
    }

    pub async fn counts(&self) -> Result<BatchCounts> {
        Ok(self.batches.batch_counts().await?)
    }

    /// Ends an open batch; nothing if there is none of that id. One that has ended is a conflict.
    pub async fn end(&self, id: Id, how: Done) -> Result<Option<Batch>> {
        loop {
            let Some(mut seat) = self.batches.seat_of(id).await? else {
                return match self.batches.filed(&[id]).await?.pop().flatten() {
                    Some(batch) => Err(ended(id, batch.state)),
                    None => Ok(None),
                };
            };
            let now = self.clock.now();
            let ended_so = match how {
                Done::Closed => seat.close_now(id, now),
                Done::Canceled => seat.cancel(id, now),
            };
            match ended_so {
                Ok(()) => {}
                Err(Some(state)) => return Err(ended(id, state)),
                // It left between the two looks.
                Err(None) => continue,
            }
            let batch = seat.ended.iter().find(|batch| batch.id == id).cloned();
            let stamp = self.ids.next(now);
            let put = self.batches.put_seats(std::slice::from_ref(&seat), stamp);
            if put.await? == [true] {
                return Ok(batch);
            }
        }
    }

    /// Takes events of this type about these objects out of all open batches.
    pub async fn withdraw(&self, kind: &EventType, objects: &[ObjectId]) -> Result<TakenOut> {
        let (mut all, mut after) = (TakenOut::default(), None);
        loop {
            let found = self
                .batches
                .seats_holding(kind, objects, after.as_ref(), AT_ONCE)
                .await?;
            let Some(last) = found.last() else {
                return Ok(all);
            };
            after = Some(last.id.clone());
            let out = self.take_out(found, kind, objects).await?;
            all.taken += out.taken;
            all.unseen += out.unseen;
        }
    }

    async fn take_out(
        &self,
        mut seats: Vec<Seat>,
        kind: &EventType,
        objects: &[ObjectId],
    ) -> Result<TakenOut> {
        let mut all = TakenOut::default();
        loop {
            let now = self.clock.now();
            let (mut outs, mut changed) = (Vec::new(), Vec::new());
            for mut seat in seats {
                let out = seat.take_out(kind, objects, now);
                if out.taken > 0 {
                    outs.push(out);
                    changed.push(seat);
                }
            }
            if changed.is_empty() {
                return Ok(all);
            }
            let put = self.batches.put_seats(&changed, self.ids.next(now)).await?;
            let mut lost: Vec<SeatId> = Vec::new();
            for ((seat, out), put) in changed.into_iter().zip(outs).zip(put) {
                if put {
                    all.taken += out.taken;
                    all.unseen += out.unseen;
                } else {
                    lost.push(seat.id);
                }
            }
            if lost.is_empty() {
                return Ok(all);
            }
            let again = self.batches.seats(&lost).await?;
            seats = again.into_iter().flatten().collect();
        }
    }
}

fn ended(id: Id, state: BatchState) -> Error {
    let why = match state {
        BatchState::Open => "is open",
        BatchState::Closing => "is closing: its mail may be on its way",
        BatchState::Closed => "is closed",
        BatchState::Canceled => "is canceled",
    };
    Error::Conflict(format!("batch {id} {why}"))
}
