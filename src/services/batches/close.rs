//! Ends batches that are due, and hands them on to the ledger.
//!
//! The rule (P2, P4): a batch ends by a compare-and-set of its seat; then it is filed, then its delivery is opened, under ids that are its own, and
//! only then does its seat forget it. Whoever dies in between leaves a seat that is due, and all of it can be done again. Workers share the
//! work by leases on seats; what they find depends on what is due.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use crate::clock::{Clock, Ids};
use crate::domain::batch::{Seat, SeatId};
use crate::domain::{Batch, BatchState, Delivery, DeliveryId, Id, Lease, Occasion};
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
        let closing = seat.ended.iter();
        let closing = closing.filter(|batch| batch.state == BatchState::Closing);
        let closing: Vec<Id> = closing.map(|batch| batch.id).collect();
        let row = |batch| {
            let turn = seat.next_turn(now);
            let (id, user) = (DeliveryId::batch(batch), seat.id.user.clone());
            let occasion = Occasion::Batch { batch, turn };
            Delivery::new(id, user, occasion, self.ids.next(now), now)
        };
        closing.into_iter().map(row).collect()
    }

    /// Takes what was handed on out of its seats, whatever else happened to them meanwhile.
    async fn forget(&self, seats: Vec<Seat>, now: DateTime<Utc>) -> Result<()> {
        let mut left: Vec<Handed> = seats.into_iter().map(Handed::of).collect();
        while !left.is_empty() {
            let ids: Vec<SeatId> = left.iter().map(|handed| handed.seat.clone()).collect();
            let standing = self.batches.seats(&ids).await?;
            let (mut changed, mut whose) = (Vec::new(), Vec::new());
            for (handed, seat) in left.into_iter().zip(standing) {
                let holds = |seat: &Seat| {
                    let mut ended = seat.ended.iter();
                    ended.any(|batch| handed.batches.contains(&batch.id))
                };
                let Some(mut seat) = seat.filter(holds) else {
                    continue;
                };
                seat.hand_on(&handed.batches, now);
                seat.turn = seat.turn.max(handed.turn);
                seat.lease = None;
                changed.push(seat);
                whose.push(handed);
            }
            if changed.is_empty() {
                return Ok(());
            }
            let put = self.batches.put_seats(&changed, self.ids.next(now)).await?;
            let lost = whose.into_iter().zip(put).filter(|(_, put)| !put);
            left = lost.map(|(handed, _)| handed).collect();
        }
        Ok(())
    }
}

/// What was handed on of a seat.
struct Handed {
    seat: SeatId,
    batches: Vec<Id>,
    /// The last turn that was given.
    turn: Option<DateTime<Utc>>,
}

impl Handed {
    fn of(seat: Seat) -> Self {
        Self {
            batches: seat.ended.iter().map(|batch| batch.id).collect(),
            turn: seat.turn,
            seat: seat.id,
        }
    }
}
