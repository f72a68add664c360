//! Combines a user's events of one key into few emails.
//!
//! [`Accumulator`] decides each change, and the store applies it by compare-and-set. Therefore a
//! user has one open batch per key under any race, and an event joins once. Fan-outs use
//! [`Joiner`], workers use [`Closer`], and operators use [`BatchService`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::context::Context;
use crate::domain::batch::{Accumulator, AccumulatorId};
use crate::domain::{Batch, BatchState, Delivery, DeliveryId, Id, Lease, Occasion, User, UserId};
use crate::engine::{Watcher, crash};
use crate::store::{AccumulatorFilter, Result};
use crate::wire::digest::EndedBatches;

mod join;
mod service;

pub use crate::domain::batch::End;
/// Selects batches.
pub use crate::store::BatchFilter;
pub use join::{Join, Joiner};
pub use service::BatchService;
pub(crate) use service::leads;

/// Changes accumulators by compare-and-set. Those that another process has changed are read and
/// changed again. `apply` returns `None` for an accumulator that it leaves unchanged. Returns the
/// results for the accumulators that were changed.
async fn change<T>(
    context: &Context,
    mut accumulators: Vec<Accumulator>,
    mut apply: impl FnMut(&mut Accumulator) -> Option<T> + Send,
) -> Result<Vec<T>> {
    let mut all = Vec::new();
    loop {
        let (mut changed, mut results) = (Vec::new(), Vec::new());
        for mut accumulator in accumulators {
            if let Some(result) = apply(&mut accumulator) {
                changed.push(accumulator);
                results.push(result);
            }
        }
        if changed.is_empty() {
            return Ok(all);
        }
        let revision = context.ids.next(context.clock.now());
        let put = context.store.put_accumulators(&changed, revision).await?;
        let mut lost: Vec<AccumulatorId> = Vec::new();
        for ((accumulator, result), put) in changed.into_iter().zip(results).zip(put) {
            match put {
                true => all.push(result),
                false => lost.push(accumulator.id),
            }
        }
        if lost.is_empty() {
            return Ok(all);
        }
        let current = context.store.accumulators(&lost).await?;
        accumulators = current.into_iter().flatten().collect();
    }
}

/// The most accumulators that are processed in one step.
const AT_ONCE: usize = 500;

/// Ends due batches, files them and opens their deliveries. Several may run at once.
///
/// A batch ends by a compare-and-set of its accumulator. Then it is filed, and its delivery is
/// opened under a derived id (P2, P4). Only then does the accumulator forget it, compared by its
/// events. After a crash the accumulator is still due, and each step can be repeated. Workers share
/// the work by leases on accumulators.
pub struct Closer {
    /// The store, the clock and the other shared parts.
    pub context: Arc<Context>,
}

impl Closer {
    /// Ends batches that are due, the earliest first; `None` if none is due.
    pub async fn step(&self) -> Result<Option<EndedBatches>> {
        let Context {
            store,
            clock,
            ids,
            owner,
            config,
            ..
        } = &*self.context;
        let now = clock.now();
        let due = AccumulatorFilter::Due(now);
        let mut due = store.find_accumulators(&due, AT_ONCE).await?;
        if due.is_empty() {
            return Ok(None);
        }
        let closing = due.iter().filter_map(|one| one.closing(now)).cloned();
        let closing: Vec<Batch> = closing.collect();
        let quiet = quiet_until(&self.context, &closing, now).await?;
        let quiet = closing.iter().map(|batch| batch.id).zip(quiet);
        let quiet: HashMap<Id, Option<DateTime<Utc>>> = quiet.collect();
        for accumulator in &mut due {
            let closing = accumulator.closing(now).map(|batch| batch.id);
            if let Some(until) = closing.and_then(|batch| quiet[&batch]) {
                accumulator.defer(until);
            }
            accumulator.advance(now, || ids.next(now));
            // Without ended batches there is nothing to file, so no lease is needed.
            accumulator.lease = (!accumulator.ended.is_empty()).then(|| Lease {
                owner: owner.clone(),
                until: now + config.fanout.lease,
            });
        }
        crash::point("before-end");
        let put = store.put_accumulators(&due, ids.next(now)).await?;
        crash::point("after-end");
        let ours = due.into_iter().zip(put).filter(|(_, put)| *put);
        let ours = ours.map(|(accumulator, _)| accumulator).collect();
        self.file(ours, now).await.map(Some)
    }

    /// Steps until no batch is due, or until the watcher asks to stop.
    pub async fn drain(&self, progress: &dyn Watcher) -> Result<EndedBatches> {
        let mut all = EndedBatches::default();
        while !progress.stopping()
            && let Some(closed) = self.step().await?
        {
            all += closed;
        }
        Ok(all)
    }

    /// Files the ended batches of accumulators that were just stored. Opens their deliveries, and
    /// removes the batches from the accumulators.
    async fn file(
        &self,
        mut accumulators: Vec<Accumulator>,
        now: DateTime<Utc>,
    ) -> Result<EndedBatches> {
        let store = &self.context.store;
        let ended = accumulators.iter().flat_map(|of| of.ended.clone());
        let ended: Vec<Batch> = ended.collect();
        if ended.is_empty() {
            return Ok(EndedBatches::default());
        }
        let are_filed = store.file_batches(&ended).await?;
        crash::point("after-file");
        let (mut filed, mut others) = (HashSet::with_capacity(ended.len()), Vec::new());
        for (batch, is_filed) in ended.iter().zip(are_filed) {
            if is_filed {
                filed.insert(batch.id);
            } else {
                // Ended batches never change, so only a damaged store gets here.
                others.push(batch.id);
                tracing::error!(batch = %batch.id, "a batch is filed with other events; it stays in its accumulator");
            }
        }
        let mut rows: Vec<Delivery> = Vec::new();
        for accumulator in &mut accumulators {
            let closing = accumulator.ended.iter();
            let closing = closing
                .filter(|batch| batch.state == BatchState::Closing && filed.contains(&batch.id));
            let closing: Vec<Id> = closing.map(|batch| batch.id).collect();
            let row = |batch| self.row(batch, accumulator, now);
            rows.extend(closing.into_iter().map(row));
        }
        let closed = EndedBatches {
            ended: rows.len() as u64,
            canceled: (filed.len() - rows.len()) as u64,
        };
        if !others.is_empty() {
            // The filed events are emailed, even if the worker that filed them opened no delivery.
            let others = store.filed(&others).await?.into_iter().flatten();
            for batch in others.filter(|batch| batch.state == BatchState::Closing) {
                let (user, key) = (batch.user, batch.key);
                let mut accumulator = Accumulator::new(AccumulatorId { user, key });
                rows.push(self.row(batch.id, &mut accumulator, now));
            }
        }
        if !rows.is_empty() {
            store.open(&rows).await?;
        }
        crash::point("after-row");
        self.forget(accumulators, &filed, now).await?;
        crash::point("after-forget");
        Ok(closed)
    }

    /// Creates the delivery of a batch, with a queue position of its own.
    fn row(&self, batch: Id, accumulator: &mut Accumulator, now: DateTime<Utc>) -> Delivery {
        let turn = accumulator.next_turn(now);
        let (id, user) = (DeliveryId::batch(batch), accumulator.id.user.clone());
        let occasion = Occasion::Batch { batch, turn };
        Delivery::new(id, user, occasion, self.context.ids.next(now), now)
    }

    /// Removes filed batches from their accumulators, which may have changed meanwhile.
    async fn forget(
        &self,
        accumulators: Vec<Accumulator>,
        filed: &HashSet<Id>,
        now: DateTime<Utc>,
    ) -> Result<()> {
        let mut known: HashMap<AccumulatorId, (Option<DateTime<Utc>>, Vec<Batch>)> = HashMap::new();
        for mut accumulator in accumulators {
            accumulator.ended.retain(|batch| filed.contains(&batch.id));
            if !accumulator.ended.is_empty() {
                known.insert(accumulator.id, (accumulator.turn, accumulator.ended));
            }
        }
        let ids: Vec<AccumulatorId> = known.keys().cloned().collect();
        let current = self.context.store.accumulators(&ids).await?;
        let current = current.into_iter().flatten().collect();
        let forget = |accumulator: &mut Accumulator| {
            let (turn, filed) = &known[&accumulator.id];
            accumulator.forget_filed(filed, now).then(|| {
                accumulator.turn = accumulator.turn.max(*turn);
                accumulator.lease = None;
            })
        };
        change(&self.context, current, forget).await.map(drop)
    }
}

/// Returns when the quiet hours end in which these open batches would close, in the order of the
/// request. `None` for a batch that would close outside quiet hours (P7).
///
/// The user's record is read just before a batch closes, so changes made while it was open count. A
/// deferral that has ended is not repeated, even if the closer is late. Batches that an operator
/// closes are not deferred, nor are those whose kept events include a mandatory one.
pub(crate) async fn quiet_until(
    context: &Context,
    batches: &[Batch],
    now: DateTime<Utc>,
) -> Result<Vec<Option<DateTime<Utc>>>> {
    let is_open = |batch: &&Batch| batch.state == BatchState::Open;
    let open = batches.iter().filter(is_open);
    let users: HashSet<&UserId> = open.map(|batch| &batch.user).collect();
    let users: Vec<UserId> = users.into_iter().cloned().collect();
    if users.is_empty() {
        return Ok(vec![None; batches.len()]);
    }
    let users = context.store.users(&users).await?.into_iter().flatten();
    let quiet = users.filter(|user| user.quiet.is_some());
    let quiet: HashMap<UserId, User> = quiet.map(|user| (user.id.clone(), user)).collect();
    let until = |batch: &Batch| {
        let user = quiet.get(&batch.user).filter(|_| is_open(&batch))?;
        // A waiting lead is emailed at once, even if the rest is deferred.
        let kinds = batch.contents.items.iter().map(|item| &item.t);
        let (at, tz) = (
            batch.asks_quiet_hours_at(now),
            context.config.digest.schedule.tz,
        );
        let until = user.quiet_until(kinds, at, tz, &context.policies);
        let is_deferred = batch.deferred && batch.closes_at > now;
        let until = until.filter(|until| *until > now);
        until.or(is_deferred.then_some(batch.closes_at))
    };
    Ok(batches.iter().map(until).collect())
}
