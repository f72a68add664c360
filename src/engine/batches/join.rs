//! Adds events to batches, for many users at once.
//!
//! Events that only join open batches are added in one update ([`Addition`]). Otherwise
//! accumulators are read, changed and stored in bulk. Those that another process has changed
//! meanwhile are read again. An event that has joined before changes nothing. Start with
//! [`Joiner::join`].

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::{FutureExt, StreamExt, TryStreamExt};

use super::Closer;
use crate::context::Context;
use crate::domain::BatchPolicy;
use crate::domain::batch::{Accumulator, AccumulatorId, Addition, Item, MOST_ENDED};
use crate::store::Result;

/// The most accumulators that are stored at once.
const AT_ONCE: usize = 1_000;
/// The number of parts in progress: one is read while the other is stored.
const IN_FLIGHT: usize = 2;

/// Adds the events of fan-outs to the batches of their users.
pub struct Joiner {
    /// Files ended batches of accumulators that have too many.
    pub closer: Closer,
}

/// The events of one fan-out for one accumulator.
#[derive(Debug, Clone)]
pub struct Join {
    /// The user and the key.
    pub accumulator: AccumulatorId,
    /// The events, all from one fan-out.
    pub items: Arc<[Item]>,
    /// The policy of the batch that the events join or open.
    pub policy: BatchPolicy,
}

/// All events that are to join one accumulator.
struct Joining {
    accumulator: AccumulatorId,
    joins: Vec<(Arc<[Item]>, BatchPolicy)>,
}

impl Joining {
    /// Returns whether both contain the same events and policies.
    fn is_same(&self, other: &Self) -> bool {
        let mut pairs = self.joins.iter().zip(&other.joins);
        self.joins.len() == other.joins.len()
            && pairs.all(|((a, by), (b, policy))| Arc::ptr_eq(a, b) && by == policy)
    }

    fn addition(&self, at: DateTime<Utc>) -> Option<Addition> {
        let (_, policy) = self.joins.first()?;
        if self.joins.iter().any(|(_, other)| other != policy) {
            return None;
        }
        let items = self.joins.iter().flat_map(|(items, _)| items.iter());
        Addition::new(items.cloned().collect(), at, policy)
    }
}

impl Joiner {
    /// Adds all these events.
    pub async fn join(&self, joins: Vec<Join>) -> Result<()> {
        let mut places: HashMap<AccumulatorId, usize> = HashMap::with_capacity(joins.len());
        let mut all: Vec<Joining> = Vec::new();
        for join in joins {
            let place = places.entry(join.accumulator);
            let place = *place.or_insert_with_key(|accumulator| {
                let (accumulator, joins) = (accumulator.clone(), Vec::new());
                all.push(Joining { accumulator, joins });
                all.len() - 1
            });
            all[place].joins.push((join.items, join.policy));
        }
        let parts = all.chunks(AT_ONCE).map(|part| self.join_part(part).boxed());
        let parts: Vec<_> = parts.collect();
        let parts = futures::stream::iter(parts).buffer_unordered(IN_FLIGHT);
        parts.try_collect::<()>().await
    }

    async fn join_part(&self, all: &[Joining]) -> Result<()> {
        let Context {
            store, clock, ids, ..
        } = &*self.closer.context;
        let mut left: Vec<&Joining> = all.iter().collect();
        // A failed compare-and-set means that another process made progress, so the loop ends.
        while !left.is_empty() && !self.add(&left).await? {
            let found = left.iter().map(|joining| joining.accumulator.clone());
            let found = store.accumulators(&found.collect::<Vec<_>>()).await?;
            let at = clock.now();
            let (mut changed, mut whose) = (Vec::new(), Vec::new());
            for (joining, accumulator) in left.into_iter().zip(found) {
                let new = || Accumulator::new(joining.accumulator.clone());
                let mut accumulator = accumulator.unwrap_or_else(new);
                let mut added = 0;
                for (items, policy) in &joining.joins {
                    added += accumulator.join(items, at, policy, || ids.next(at));
                }
                if added > 0 {
                    if accumulator.ended.len() > MOST_ENDED {
                        accumulator.advance(at, || ids.next(at));
                    }
                    changed.push(accumulator);
                    whose.push(joining);
                }
            }
            if changed.is_empty() {
                break;
            }
            let put = store.put_accumulators(&changed, ids.next(at)).await?;
            let lost = whose.into_iter().zip(&put).filter(|(_, put)| !**put);
            left = lost.map(|(joining, _)| joining).collect();
            let is_full = |(accumulator, put): &(Accumulator, bool)| {
                *put && accumulator.ended.len() > MOST_ENDED
            };
            let full = changed.into_iter().zip(put).filter(is_full);
            let full: Vec<Accumulator> = full.map(|(accumulator, _)| accumulator).collect();
            self.closer.file(full, at).await?;
        }
        Ok(())
    }

    /// Adds the events in one update, if all batches are open and nothing else changes. Returns
    /// whether that succeeded for all. Adjacent accumulators with the same events share an
    /// addition.
    async fn add(&self, all: &[&Joining]) -> Result<bool> {
        let Context {
            store, clock, ids, ..
        } = &*self.closer.context;
        let at = clock.now();
        let (mut accumulators, mut additions) = (Vec::with_capacity(all.len()), Vec::new());
        for part in all.chunk_by(|a, b| a.is_same(b)) {
            let Some(addition) = part[0].addition(at) else {
                return Ok(false);
            };
            let place = additions.len();
            accumulators.extend(part.iter().map(|of| (of.accumulator.clone(), place)));
            additions.push(addition);
        }
        store
            .add_to_open(&accumulators, &additions, ids.next(at))
            .await
    }
}
