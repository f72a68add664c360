//! Ends batches that are due, and hands them on to the ledger.
//!
//! The rule (P2, P4): a batch ends by a compare-and-set of its seat; then it is filed, then its delivery is opened, under ids that are its own, and
//! only then does its seat forget it. Whoever dies in between leaves a seat that is due, and all of it can be done again. Workers share the
//! work by leases on seats; what they find depends on what is due.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use crate::clock::{Clock, Ids};
use crate::domain::batch::{Seat, SeatId};
use crate::domain::{Batch, BatchState, Delivery, DeliveryId, DeliveryState, Id, Lease, Occasion};
use crate::services::crash;
use crate::store::{Batches, Deliveries, Result};

/// Seats looked at in one step.
const AT_ONCE: usize = 500;

pub struct Closer {
    pub batches: Arc<dyn Batches>,
    pub deliveries: Arc<dyn Deliveries>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<Ids>,
    pub owner: String,
    pub lease: TimeDelta,
}

/// What became of batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Closed {
    /// Handed on to be mailed.
    pub closed: u64,
    /// There was nothing to mail, or nobody wanted it mailed.
    pub canceled: u64,
}

impl std::ops::AddAssign for Closed {
    fn add_assign(&mut self, other: Self) {
        self.closed += other.closed;
        self.canceled += other.canceled;
    }
}

impl Closer {
    /// Ends what is due, in the order in which it fell due; `None` if there was nothing.
    pub async fn step(&self) -> Result<Option<Closed>> {
        let now = self.clock.now();
        let due = self.batches.due_seats(now, AT_ONCE).await?;
        if due.is_empty() {
            return Ok(None);
        }
        let mut held = Vec::with_capacity(due.len());
        for mut seat in due {
            seat.advance(now, || self.ids.next(now));
            // One that is empty by now is removed, and an empty hand needs no lease.
            seat.lease = (!seat.ended.is_empty()).then(|| Lease {
                owner: self.owner.clone(),
                until: now + self.lease,
            });
            held.push(seat);
        }
        crash::point("before-end");
        let put = self.batches.put_seats(&held, self.ids.next(now)).await?;
        crash::point("after-end");
        let mut put = put.into_iter();
        held.retain(|_| put.next().unwrap_or(false));
        held.retain(|seat| !seat.ended.is_empty());
        self.hand_on(held, now).await.map(Some)
    }

    /// Steps until nothing is due, or until somebody wants it to stop.
    pub async fn drain(&self, progress: &dyn crate::services::Progress) -> Result<Closed> {
        let mut all = Closed::default();
        while !progress.stopping()
            && let Some(closed) = self.step().await?
        {
            all += closed;
        }
        Ok(all)
    }

    /// Hands on what has ended on these seats, as they were put.
    pub(super) async fn hand_on(&self, mut seats: Vec<Seat>, now: DateTime<Utc>) -> Result<Closed> {
        let ended: Vec<Batch> = seats.iter().flat_map(|seat| seat.ended.clone()).collect();
        if ended.is_empty() {
            return Ok(Closed::default());
        }
        self.batches.file_batches(&ended).await?;
        crash::point("after-file");
        let rows: Vec<Delivery> = seats
            .iter_mut()
            .flat_map(|seat| self.rows(seat, now))
            .collect();
        if !rows.is_empty() {
            self.deliveries.open(&rows).await?;
        }
        crash::point("after-row");
        self.forget(seats, now).await?;
        crash::point("after-forget");
        Ok(Closed {
            closed: rows.len() as u64,
            canceled: (ended.len() - rows.len()) as u64,
        })
    }

    /// A delivery for each batch that has something to mail, each in its turn.
    fn rows(&self, seat: &mut Seat, now: DateTime<Utc>) -> Vec<Delivery> {
        let closing = |batch: &&Batch| batch.state == BatchState::Closing;
        let closing: Vec<Id> = seat
            .ended
            .iter()
            .filter(closing)
            .map(|batch| batch.id)
            .collect();
        let user = seat.id.user.clone();
        closing
            .into_iter()
            .map(|batch| Delivery {
                id: DeliveryId::batch(batch),
                user: user.clone(),
                occasion: Occasion::Batch {
                    batch,
                    turn: seat.next_turn(now),
                },
                state: DeliveryState::Pending,
                open: true,
                covers: Vec::new(),
                marker: self.ids.next(now),
                lease: None,
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
            })
            .collect()
    }

    /// Takes what was handed on out of its seats, whatever else happened to them meanwhile.
    async fn forget(&self, seats: Vec<Seat>, now: DateTime<Utc>) -> Result<()> {
        let handed: Vec<(SeatId, Vec<Id>, Option<DateTime<Utc>>)> = seats
            .iter()
            .map(|seat| {
                let ids = seat.ended.iter().map(|batch| batch.id).collect();
                (seat.id.clone(), ids, seat.turn)
            })
            .collect();
        let mut left: Vec<usize> = (0..handed.len()).collect();
        while !left.is_empty() {
            let ids: Vec<SeatId> = left.iter().map(|place| handed[*place].0.clone()).collect();
            let standing = self.batches.seats(&ids).await?;
            let (mut changed, mut places) = (Vec::new(), Vec::new());
            for (place, seat) in left.into_iter().zip(standing) {
                let (_, ids, turn) = &handed[place];
                let Some(mut seat) = seat else { continue };
                if !seat.ended.iter().any(|batch| ids.contains(&batch.id)) {
                    continue;
                }
                seat.hand_on(ids, now);
                seat.turn = seat.turn.max(*turn);
                seat.lease = None;
                changed.push(seat);
                places.push(place);
            }
            if changed.is_empty() {
                return Ok(());
            }
            let put = self.batches.put_seats(&changed, self.ids.next(now)).await?;
            let lost = places.into_iter().zip(put).filter(|(_, put)| !put);
            left = lost.map(|(place, _)| place).collect();
        }
        Ok(())
    }
}
