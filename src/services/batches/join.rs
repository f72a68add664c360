//! Lets events join batches, many people at once.
//!
//! The rule: seats are read, changed and put in bulk; those that somebody else changed meanwhile are read again. An event that joined
//! before, whoever let it, changes nothing.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::{FutureExt, StreamExt, TryStreamExt};

use crate::clock::{Clock, Ids};
use crate::domain::BatchPolicy;
use crate::domain::batch::{Item, Seat, SeatId};
use crate::store::{Batches, Result};

/// Seats put at once.
const AT_ONCE: usize = 1_000;
/// One part is read while the other is put.
const IN_FLIGHT: usize = 2;

pub struct Joiner {
    pub batches: Arc<dyn Batches>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<Ids>,
}

/// What one fan-out brings for one seat.
#[derive(Debug, Clone)]
pub struct Join {
    pub seat: SeatId,
    /// All of one fan-out.
    pub items: Arc<[Item]>,
    pub policy: BatchPolicy,
}

/// All that is to join one seat.
struct Arrivals {
    seat: SeatId,
    joins: Vec<(Arc<[Item]>, BatchPolicy)>,
}

impl Joiner {
    /// Lets all of these join; answers how many events are new in batches.
    pub async fn join(&self, joins: Vec<Join>) -> Result<u64> {
        let mut places: HashMap<SeatId, usize> = HashMap::with_capacity(joins.len());
        let mut arrivals: Vec<Arrivals> = Vec::new();
        for join in joins {
            let place = *places.entry(join.seat).or_insert_with_key(|seat| {
                let seat = seat.clone();
                let joins = Vec::new();
                arrivals.push(Arrivals { seat, joins });
                arrivals.len() - 1
            });
            arrivals[place].joins.push((join.items, join.policy));
        }
        let parts: Vec<_> = arrivals
            .chunks(AT_ONCE)
            .map(|part| self.join_part(part).boxed())
            .collect();
        let mut parts = futures::stream::iter(parts).buffer_unordered(IN_FLIGHT);
        let mut added = 0;
        while let Some(part) = parts.try_next().await? {
            added += part;
        }
        Ok(added)
    }

    async fn join_part(&self, arrivals: &[Arrivals]) -> Result<u64> {
        let mut left: Vec<&Arrivals> = arrivals.iter().collect();
        let mut added = 0;
        // Whoever is told no lost to somebody who was told yes, so it ends.
        while !left.is_empty() {
            let ids: Vec<SeatId> = left.iter().map(|arrivals| arrivals.seat.clone()).collect();
            let standing = self.batches.seats(&ids).await?;
            let at = self.clock.now();
            let (mut changed, mut counts, mut whose) = (Vec::new(), Vec::new(), Vec::new());
            for (arrivals, seat) in left.into_iter().zip(standing) {
                let mut seat = seat.unwrap_or_else(|| Seat::new(arrivals.seat.clone()));
                let new = self.seat_down(&mut seat, arrivals, at);
                if new > 0 {
                    changed.push(seat);
                    counts.push(new);
                    whose.push(arrivals);
                }
            }
            if changed.is_empty() {
                break;
            }
            let put = self.batches.put_seats(&changed, self.ids.next(at)).await?;
            added += counts
                .iter()
                .zip(&put)
                .filter_map(|(count, put)| put.then_some(count))
                .sum::<u64>();
            let lost = whose.into_iter().zip(put).filter(|(_, put)| !put);
            left = lost.map(|(arrivals, _)| arrivals).collect();
        }
        Ok(added)
    }

    fn seat_down(&self, seat: &mut Seat, arrivals: &Arrivals, at: DateTime<Utc>) -> u64 {
        let joins = arrivals.joins.iter();
        joins
            .map(|(items, policy)| seat.join(items, at, policy, || self.ids.next(at)))
            .sum()
    }
}
