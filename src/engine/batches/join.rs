//! Lets events join batches, many people at once.
//!
//! The rule: what joins open batches and changes nothing else is added in one step ([`Addition`]);
//! where that cannot be, accumulators are read, changed and put in bulk, and those that somebody
//! else changed meanwhile are read again. An event that joined before, whoever let it, changes
//! nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chrono::{DateTime, Utc};
use futures::{FutureExt, StreamExt, TryStreamExt};

use super::Closer;
use crate::domain::BatchPolicy;
use crate::domain::batch::{Accumulator, AccumulatorId, Addition, Item, MOST_ENDED};
use crate::store::Result;

/// Accumulators put at once.
const AT_ONCE: usize = 1_000;
/// One part is read while the other is put.
const IN_FLIGHT: usize = 2;

/// Lets what fan-outs bring join the batches of their people.
pub struct Joiner {
    /// Asked where more has ended on an accumulator than it should hold.
    closer: Closer,
    /// Whether most accumulators had an open batch, when some were last read. Only a hint: where
    /// they have none, trying to add is in vain.
    mostly_open: AtomicBool,
}

/// What one fan-out brings for one accumulator.
#[derive(Debug, Clone)]
pub struct Join {
    /// Whose batch it is, and of which key.
    pub accumulator: AccumulatorId,
    /// All of one fan-out.
    pub items: Arc<[Item]>,
    /// How a batch gathers that the items join or open.
    pub policy: BatchPolicy,
}

/// All that is to join one accumulator.
struct Arrivals {
    accumulator: AccumulatorId,
    joins: Vec<(Arc<[Item]>, BatchPolicy)>,
}

impl Arrivals {
    /// Whether both bring the very same.
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
    /// It joins on the closer's store, by its clock.
    pub fn new(closer: Closer) -> Self {
        Self {
            closer,
            mostly_open: AtomicBool::new(true),
        }
    }

    /// Lets all of these join.
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
        // Where one is refused another was let through, so it ends.
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
            let put = self
                .closer
                .context
                .store
                .put_accumulators(&changed, self.closer.context.ids.next(at))
                .await?;
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

    /// Adds where batches are open and nothing else follows; whether that was so for all of them.
    /// Those who bring the same share what is to be added.
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
        let revision = self.closer.context.ids.next(at);
        self.closer
            .context
            .store
            .add_to_open(&accumulators, &additions, revision)
            .await
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
