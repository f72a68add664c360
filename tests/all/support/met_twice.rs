//! A store whose walk over what is due meets seats twice, as a walk over an index does while what
//! it finds moves on in it.
//!
//! The rule: only [`Batches::due_seats`] differs, and only once: it gives what the test wants to be
//! met before what is due.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use tidings::domain::batch::{Addition, Seat, SeatId};
use tidings::domain::{Batch, BatchState, EventType, Id, ObjectId};
use tidings::store::{BatchCounts, BatchFilter, Batches, Result, Store};

pub struct MetTwice {
    inner: Arc<dyn Store>,
    before: Mutex<Vec<Seat>>,
}

impl MetTwice {
    /// These are met first, as they are here.
    pub fn new(inner: Arc<dyn Store>, before: Vec<Seat>) -> Self {
        let before = Mutex::new(before);
        Self { inner, before }
    }
}

/// Hands each verb on.
macro_rules! hand_on {
    ($($verb:ident($($name:ident: $kind:ty),*) -> $answer:ty;)*) => {
        #[async_trait]
        impl Batches for MetTwice {
            async fn due_seats(&self, now: DateTime<Utc>, limit: usize) -> Result<Vec<Seat>> {
                let mut met = std::mem::take(&mut *self.before.lock().unwrap());
                met.extend(self.inner.due_seats(now, limit).await?);
                Ok(met)
            }

            $(
                async fn $verb(&self, $($name: $kind),*) -> Result<$answer> {
                    self.inner.$verb($($name),*).await
                }
            )*
        }
    };
}

hand_on! {
    seats(ids: &[SeatId]) -> Vec<Option<Seat>>;
    put_seats(seats: &[Seat], stamp: Id) -> Vec<bool>;
    add_to_open(seats: &[(SeatId, usize)], additions: &[Addition], stamp: Id) -> bool;
    seat_of(batch: Id) -> Option<Seat>;
    seats_holding(kind: &EventType, objects: &[ObjectId], after: Option<&SeatId>, limit: usize) -> Vec<Seat>;
    file_batches(batches: &[Batch]) -> Vec<bool>;
    filed(ids: &[Id]) -> Vec<Option<Batch>>;
    settle_batches(settled: &[(Id, BatchState)], now: DateTime<Utc>) -> ();
    find_batches(filter: &BatchFilter, before: Option<Id>, limit: usize) -> Vec<Batch>;
    batch_counts() -> BatchCounts;
    forget_batches(before: DateTime<Utc>, limit: usize) -> u64;
}
