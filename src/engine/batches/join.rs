//! Adds events to batches, for many users at once.
//!
//! Events that only join open batches are added in one update ([`Addition`]). Otherwise
//! accumulators are read, changed and stored in bulk. Those that another process has changed
//! meanwhile are read again. An event that has joined before changes nothing. Start with
//! [`Joiner::join`].

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    closer: Closer,
    /// Whether most of the accumulators that were last read had an open batch. This is a hint:
    /// without open batches, the single update is wasted work.
    mostly_open: AtomicBool,
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
struct Arrivals {
    accumulator: AccumulatorId,
    joins: Vec<(Arc<[Item]>, BatchPolicy)>,
}

impl Arrivals {
    /// Returns whether both contain the same events and policies.
    fn brings_as(&self, other: &Self) -> bool {
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
    /// Creates a joiner with the store and the clock of the closer.
    pub fn new(closer: Closer) -> Self {
        Self {
            closer,
            mostly_open: AtomicBool::new(true),
        }
    }

    /// Adds all these events.
    pub async fn join(&self, joins: Vec<Join>) -> Result<()> {
        let mut places: HashMap<AccumulatorId, usize> = HashMap::with_capacity(joins.len());
        let mut arrivals: Vec<Arrivals> = Vec::new();
        for join in joins {
            let place = *places
                .entry(join.accumulator)
                .or_insert_with_key(|accumulator| {
                    let accumulator = accumulator.clone();
                    let joins = Vec::new();
                    arrivals.push(Arrivals { accumulator, joins });
                    arrivals.len() - 1
                });
            arrivals[place].joins.push((join.items, join.policy));
        }
        let parts: Vec<_> = arrivals
            .chunks(AT_ONCE)
            .map(|part| self.join_part(part).boxed())
            .collect();
        let mut parts = futures::stream::iter(parts).buffer_unordered(IN_FLIGHT);
        while parts.try_next().await?.is_some() {}
        Ok(())
    }

    async fn join_part(&self, arrivals: &[Arrivals]) -> Result<()> {
        let mut left: Vec<&Arrivals> = arrivals.iter().collect();
        // A failed compare-and-set means that another process made progress, so the loop ends.
        while !left.is_empty() && !self.add(&left).await? {
            let ids: Vec<AccumulatorId> = left
                .iter()
                .map(|arrivals| arrivals.accumulator.clone())
                .collect();
            let standing = self.closer.context.store.accumulators(&ids).await?;
            let open = |accumulator: &&Option<Accumulator>| {
                accumulator
                    .as_ref()
                    .is_some_and(|accumulator| accumulator.open.is_some())
            };
            let mostly_open = 2 * standing.iter().filter(open).count() >= standing.len();
            self.mostly_open.store(mostly_open, Ordering::Relaxed);
            let at = self.closer.context.clock.now();
            let (mut changed, mut whose) = (Vec::new(), Vec::new());
            for (arrivals, accumulator) in left.into_iter().zip(standing) {
                let mut accumulator =
                    accumulator.unwrap_or_else(|| Accumulator::new(arrivals.accumulator.clone()));
                if self.fill(&mut accumulator, arrivals, at) > 0 {
                    if accumulator.ended.len() > MOST_ENDED {
                        accumulator.advance(at, || self.closer.context.ids.next(at));
                    }
                    changed.push(accumulator);
                    whose.push(arrivals);
                }
            }
            if changed.is_empty() {
                break;
            }
            let Context { store, ids, .. } = &*self.closer.context;
            let put = store.put_accumulators(&changed, ids.next(at)).await?;
            let full = changed.into_iter().zip(&put);
            let full =
                full.filter(|(accumulator, put)| **put && accumulator.ended.len() > MOST_ENDED);
            let full: Vec<Accumulator> = full.map(|(accumulator, _)| accumulator).collect();
            if !full.is_empty() {
                self.closer.file(full, at).await?;
            }
            let lost = whose.into_iter().zip(put).filter(|(_, put)| !put);
            left = lost.map(|(arrivals, _)| arrivals).collect();
        }
        Ok(())
    }

    /// Adds the events in one update, if all batches are open and nothing else changes. Returns
    /// whether that succeeded for all. Adjacent accumulators with the same events share an
    /// addition.
    async fn add(&self, arrivals: &[&Arrivals]) -> Result<bool> {
        if !self.mostly_open.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let at = self.closer.context.clock.now();
        let (mut accumulators, mut additions) = (Vec::with_capacity(arrivals.len()), Vec::new());
        let mut same: Option<&Arrivals> = None;
        for arrivals in arrivals {
            if !same.is_some_and(|same| same.brings_as(arrivals)) {
                let Some(addition) = arrivals.addition(at) else {
                    return Ok(false);
                };
                additions.push(addition);
                same = Some(arrivals);
            }
            accumulators.push((arrivals.accumulator.clone(), additions.len() - 1));
        }
        let Context { store, ids, .. } = &*self.closer.context;
        let revision = ids.next(at);
        store.add_to_open(&accumulators, &additions, revision).await
    }

    fn fill(&self, accumulator: &mut Accumulator, arrivals: &Arrivals, at: DateTime<Utc>) -> u64 {
        let joins = arrivals.joins.iter();
        joins
            .map(|(items, policy)| {
                accumulator.join(items, at, policy, || self.closer.context.ids.next(at))
            })
            .sum()
    }
}
