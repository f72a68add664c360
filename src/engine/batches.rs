//! Combines a user's events of one key into few emails.
//!
//! [`Accumulator`] decides each change, and the store applies it by compare-and-set. Therefore a
//! user has one open batch per key under any race, and an event joins once. Fan-outs call
//! [`BatchService::join`], workers [`BatchService::step`], and operators the other methods.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::{FutureExt, StreamExt, TryStreamExt};

use crate::context::Context;
use crate::domain::batch::{
    Accumulator, AccumulatorId, Addition, BatchItem, MOST_ENDED, RemovedEvents,
};
use crate::domain::fanout::check_objects;
use crate::domain::{
    Batch, BatchPolicy, BatchState, Delivery, DeliveryId, Event, EventType, Id, ObjectId, Occasion,
    User, UserId, distinct,
};
use crate::engine::eligibility::event_facts::Catalog;
use crate::engine::{Error, Result, Watcher, crash};
use crate::store::{self, AccumulatorFilter};
use crate::wire::batch::BatchView;
use crate::wire::run_report::EndedBatches;

pub use crate::domain::batch::End;
/// Selects batches.
pub use crate::store::BatchFilter;

/// Adds events to batches, ends and files batches, and shows them.
pub struct BatchService {
    /// The store, the clock and the other shared parts.
    pub context: Arc<Context>,
}

/// The events of one fan-out for one accumulator.
#[derive(Debug, Clone)]
pub struct Join {
    /// The user and the key.
    pub accumulator: AccumulatorId,
    /// The events, all from one fan-out.
    pub items: Arc<[BatchItem]>,
    /// The policy of the batch that the events join or open.
    pub policy: BatchPolicy,
}

/// The most accumulators that are added to at once.
const JOINED_AT_ONCE: usize = 1_000;
/// The number of such parts in progress: one is read while the other is stored.
const IN_FLIGHT: usize = 2;
/// The most accumulators that are ended or changed at once.
const AT_ONCE: usize = 500;

impl BatchService {
    /// Adds all these events.
    pub async fn join(&self, mut joins: Vec<Join>) -> store::Result<()> {
        // The sort is stable, so the events of an accumulator stay in order.
        joins.sort_by(|a, b| a.accumulator.cmp(&b.accumulator));
        let all = joins.chunk_by(|a, b| a.accumulator == b.accumulator);
        let all: Vec<&[Join]> = all.collect();
        let parts = all.chunks(JOINED_AT_ONCE);
        let parts: Vec<_> = parts.map(|part| self.join_part(part.to_vec()).boxed()).collect();
        let parts = futures::stream::iter(parts).buffer_unordered(IN_FLIGHT);
        parts.try_collect::<()>().await
    }

    /// Adds the events of these accumulators. The joins of each are adjacent.
    async fn join_part(&self, mut left: Vec<&[Join]>) -> store::Result<()> {
        let (store, ids) = (&self.context.store, &self.context.ids);
        // A failed compare-and-set means that another process made progress, so the loop ends.
        while !left.is_empty() && !self.add(&left).await? {
            let found = left.iter().map(|joins| joins[0].accumulator.clone());
            let found = store.accumulators(&found.collect::<Vec<_>>()).await?;
            let at = self.context.clock.now();
            let (mut changed, mut whose) = (Vec::new(), Vec::new());
            for (joins, accumulator) in left.into_iter().zip(found) {
                let new = || Accumulator::new(joins[0].accumulator.clone());
                let mut accumulator = accumulator.unwrap_or_else(new);
                let mut added = 0;
                for join in joins {
                    added += accumulator.join(&join.items, at, &join.policy, || ids.next(at));
                }
                if added > 0 {
                    if accumulator.ended.len() > MOST_ENDED {
                        accumulator.advance(at);
                    }
                    changed.push(accumulator);
                    whose.push(joins);
                }
            }
            if changed.is_empty() {
                break;
            }
            let put = store.put_accumulators(&changed, ids.next(at)).await?;
            let lost = whose.into_iter().zip(&put).filter(|(_, put)| !**put);
            left = lost.map(|(joins, _)| joins).collect();
            let is_full = |(accumulator, put): &(Accumulator, bool)| {
                *put && accumulator.ended.len() > MOST_ENDED
            };
            let full = changed.into_iter().zip(put).filter(is_full);
            let full: Vec<Accumulator> = full.map(|(accumulator, _)| accumulator).collect();
            self.file(full, at).await?;
        }
        Ok(())
    }

    /// Adds the events in one update, if all batches are open and nothing else changes. Returns
    /// whether that succeeded for all. Adjacent accumulators with the same events share an
    /// addition.
    async fn add(&self, all: &[&[Join]]) -> store::Result<bool> {
        let (store, ids) = (&self.context.store, &self.context.ids);
        let at = self.context.clock.now();
        let (mut accumulators, mut additions) = (Vec::with_capacity(all.len()), Vec::new());
        let have_same_events = |a: &&[Join], b: &&[Join]| {
            let mut pairs = a.iter().zip(*b);
            a.len() == b.len()
                && pairs.all(|(a, b)| Arc::ptr_eq(&a.items, &b.items) && a.policy == b.policy)
        };
        for part in all.chunk_by(have_same_events) {
            let (policy, joins) = (part[0][0].policy, part[0]);
            let items = joins.iter().flat_map(|join| join.items.iter().cloned());
            let is_one_policy = joins.iter().all(|join| join.policy == policy);
            let addition = Addition::new(items.collect(), at, &policy);
            let Some(addition) = addition.filter(|_| is_one_policy) else {
                return Ok(false);
            };
            let place = additions.len();
            accumulators.extend(part.iter().map(|joins| (joins[0].accumulator.clone(), place)));
            additions.push(addition);
        }
        store.add_to_open(&accumulators, &additions, ids.next(at)).await
    }

    /// Ends batches that are due, files them and opens their deliveries, the earliest first.
    /// Returns `None` if none is due. Several workers may do so at once.
    ///
    /// A batch ends by a compare-and-set of its accumulator. Then it is filed, and its delivery is
    /// opened under a derived id (P2, P4). Only then does the accumulator forget it, compared by
    /// its events. After a crash the accumulator is still due, and each step can be repeated.
    /// Workers share the work by leases on accumulators.
    pub async fn step(&self) -> store::Result<Option<EndedBatches>> {
        let (store, ids) = (&self.context.store, &self.context.ids);
        let (now, lease) = (self.context.clock.now(), self.context.config.fanout.lease);
        let due = AccumulatorFilter::Due(now);
        let mut due = store.find_accumulators(&due, AT_ONCE).await?;
        if due.is_empty() {
            return Ok(None);
        }
        let closing = due.iter().filter_map(|one| one.closing(now));
        let quiet = quiet_until(&self.context, closing.cloned(), now).await?;
        for accumulator in &mut due {
            if let Some(until) = accumulator.closing(now).and_then(|of| quiet.get(&of.id)) {
                accumulator.defer(*until);
            }
            accumulator.advance(now);
            // Without ended batches there is nothing to file, so no lease is needed.
            let has_ended = !accumulator.ended.is_empty();
            accumulator.lease = has_ended.then(|| self.context.lease_until(now + lease));
        }
        crash::point("before-end");
        let put = store.put_accumulators(&due, ids.next(now)).await?;
        crash::point("after-end");
        let ours = due.into_iter().zip(put).filter(|(_, put)| *put);
        let ours = ours.map(|(accumulator, _)| accumulator).collect();
        self.file(ours, now).await.map(Some)
    }

    /// Steps until no batch is due, or until the watcher asks to stop.
    pub async fn drain(&self, progress: &dyn Watcher) -> store::Result<EndedBatches> {
        let mut all = EndedBatches::default();
        while !progress.stopping()
            && let Some(closed) = self.step().await?
        {
            all += closed;
        }
        Ok(all)
    }

    /// Files the ended batches of accumulators that were just stored. Opens their deliveries, and
    /// removes the batches from the accumulators, which may have changed meanwhile.
    async fn file(
        &self,
        accumulators: Vec<Accumulator>,
        now: DateTime<Utc>,
    ) -> store::Result<EndedBatches> {
        let Context { store, ids, .. } = &*self.context;
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
        let row = |batch: Id, user: UserId, queue_position: DateTime<Utc>| {
            let occasion = Occasion::Batch(batch, queue_position);
            Delivery::new(DeliveryId::batch(batch), user, occasion, ids.next(now), now)
        };
        let (mut rows, mut leaving) = (Vec::new(), HashMap::with_capacity(accumulators.len()));
        for mut accumulator in accumulators {
            let mut ended = std::mem::take(&mut accumulator.ended);
            ended.retain(|batch| filed.contains(&batch.id));
            let closing = |batch: &&Batch| batch.state == BatchState::Closing;
            for batch in ended.iter().filter(closing) {
                let queue_position = accumulator.next_queue_position(now);
                rows.push(row(batch.id, batch.user.clone(), queue_position));
            }
            leaving.insert(accumulator.id, (accumulator.queue_position, ended));
        }
        let closed =
            EndedBatches { ended: rows.len() as u64, canceled: (filed.len() - rows.len()) as u64 };
        if !others.is_empty() {
            // The filed events are emailed, even if the worker that filed them opened no delivery.
            let others = store.filed(&others).await?.into_iter().flatten();
            let others = others.filter(|batch| batch.state == BatchState::Closing);
            rows.extend(others.map(|batch| row(batch.id, batch.user, now)));
        }
        if !rows.is_empty() {
            store.open(&rows).await?;
        }
        crash::point("after-row");
        let current: Vec<AccumulatorId> = leaving.keys().cloned().collect();
        let current = store.accumulators(&current).await?;
        let current = current.into_iter().flatten().collect();
        let forget = |accumulator: &mut Accumulator| {
            let (queue_position, ended) = &leaving[&accumulator.id];
            accumulator.forget_filed(ended, now).then(|| {
                accumulator.queue_position = accumulator.queue_position.max(*queue_position);
                accumulator.lease = None;
            })
        };
        change(&self.context, current, forget).await?;
        crash::point("after-forget");
        Ok(closed)
    }

    /// Returns batches, newest first.
    pub async fn list(&self, filter: &BatchFilter, limit: usize) -> Result<Vec<Batch>> {
        Ok(self.context.store.find_batches(filter, limit).await?)
    }

    /// Returns the batch with this id, whether open, ended or filed; `None` if there is none.
    pub async fn batch(&self, id: Id) -> Result<Option<Batch>> {
        if let Some(accumulator) = self.accumulator_of(id).await? {
            let mut here = accumulator.open.into_iter().chain(accumulator.ended);
            if let Some(batch) = here.find(|batch| batch.id == id) {
                return Ok(Some(batch));
            }
        }
        Ok(self.context.store.filed(&[id]).await?.pop().flatten())
    }

    /// Returns batches for display, with object titles and the outcomes of their emails.
    pub async fn views(&self, batches: Vec<Batch>) -> Result<Vec<BatchView>> {
        let mut catalog = Catalog::of_emails(&self.context);
        let kept = batches.iter().flat_map(|batch| &batch.contents.items);
        let kept: Vec<Event> = kept.cloned().map(Event::from).collect();
        catalog.load(kept.iter()).await?;
        let ids: Vec<DeliveryId> = batches.iter().map(|b| DeliveryId::batch(b.id)).collect();
        let deliveries = self.context.store.deliveries(&ids).await?;
        let now = self.context.clock.now();
        let held = quiet_until(&self.context, batches.iter().cloned(), now).await?;
        let title = |event: &Event| catalog.record(event)?.title.clone();
        let view = |(batch, delivery): (Batch, _)| {
            let held = held.get(&batch.id).copied();
            BatchView::of(batch, delivery, held, title)
        };
        Ok(batches.into_iter().zip(deliveries).map(view).collect())
    }

    /// Returns one batch for display: see [`Self::views`].
    pub async fn view(&self, batch: Batch) -> Result<BatchView> {
        let mut views = self.views(vec![batch]).await?;
        Ok(views.remove(0))
    }

    /// Returns the accumulator that contains this batch, as open or as ended but not filed.
    async fn accumulator_of(&self, id: Id) -> Result<Option<Accumulator>> {
        let of = AccumulatorFilter::Of(id);
        Ok(self.context.store.find_accumulators(&of, 1).await?.pop())
    }

    /// Ends an open batch and returns it; `None` if there is no batch with this id.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if the batch is not open any more.
    pub async fn end(&self, id: Id, how: End) -> Result<Option<Batch>> {
        let now = self.context.clock.now();
        let (mut refused, mut done) = (None, Vec::new());
        if let Some(accumulator) = self.accumulator_of(id).await? {
            let end = |accumulator: &mut Accumulator| {
                let end = accumulator.end(id, how, now);
                refused = end.err().flatten();
                end.ok()?;
                let mut ended = accumulator.ended.iter();
                ended.find(|batch| batch.id == id).cloned()
            };
            done = change(&self.context, vec![accumulator], end).await?;
        }
        if let Some(batch) = done.pop() {
            return Ok(Some(batch));
        }
        // If it is not in its accumulator, it was filed, perhaps between two reads.
        let filed = match refused {
            Some(state) => return Err(ended(id, state)),
            None => self.context.store.filed(&[id]).await?.pop().flatten(),
        };
        match filed {
            Some(batch) => Err(ended(id, batch.state)),
            None => Ok(None),
        }
    }

    /// Removes events of this type and these objects from all open batches. `up_to` limits them to
    /// events that happened no later.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if there are no objects, or more than an event can have.
    pub async fn remove_events(
        &self,
        kind: &EventType,
        objects: &[ObjectId],
        up_to: Option<Id>,
    ) -> Result<RemovedEvents> {
        check_objects(objects.len())?;
        let (mut all, mut after) = (RemovedEvents::default(), None);
        loop {
            let holding = AccumulatorFilter::Holding(kind, objects, after.as_ref());
            let store = &self.context.store;
            let found = store.find_accumulators(&holding, AT_ONCE).await?;
            let Some(last) = found.last() else {
                return Ok(all);
            };
            after = Some(last.id.clone());
            let now = self.context.clock.now();
            let remove_events = |accumulator: &mut Accumulator| {
                let out = accumulator.remove_events(kind, objects, now, up_to);
                (out.removed > 0).then_some(out)
            };
            for out in change(&self.context, found, remove_events).await? {
                all.removed += out.removed;
                all.omitted += out.omitted;
            }
        }
    }
}

/// Changes accumulators by compare-and-set. Those that another process has changed are read and
/// changed again. `apply` returns `None` for an accumulator that it leaves unchanged. Returns the
/// results for the accumulators that were changed.
async fn change<T>(
    context: &Context,
    mut accumulators: Vec<Accumulator>,
    mut apply: impl FnMut(&mut Accumulator) -> Option<T> + Send,
) -> store::Result<Vec<T>> {
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

/// Returns when the quiet hours end in which these open batches would close, by batch id. Batches
/// that would close outside quiet hours are missing (P7).
///
/// The user's record is read just before a batch closes, so changes made while it was open count. A
/// deferral that has ended is not repeated, even if the closer is late. Batches that an operator
/// closes are not deferred, nor are those whose kept events include a mandatory one.
pub(crate) async fn quiet_until(
    context: &Context,
    batches: impl Iterator<Item = Batch>,
    now: DateTime<Utc>,
) -> store::Result<HashMap<Id, DateTime<Utc>>> {
    let open: Vec<Batch> = batches.filter(|batch| batch.state == BatchState::Open).collect();
    if open.is_empty() {
        return Ok(HashMap::new());
    }
    let users = distinct(open.iter().map(|batch| batch.user.clone()));
    let users = context.store.users(&users).await?.into_iter().flatten();
    let quiet = users.filter(|user| user.quiet.is_some());
    let quiet: HashMap<UserId, User> = quiet.map(|user| (user.id.clone(), user)).collect();
    let until = |batch: &Batch| {
        let kinds = batch.contents.items.iter().map(|item| &item.t);
        let tz = context.config.digest.schedule.tz;
        let at = batch.asks_quiet_hours_at(now);
        let user = quiet.get(&batch.user)?;
        let until = user.quiet_until(kinds, at, tz, &context.policies);
        let is_deferred = batch.deferred && batch.closes_at > now;
        let until = until.filter(|until| *until > now);
        until.or(is_deferred.then_some(batch.closes_at))
    };
    let until = |batch: &Batch| Some((batch.id, until(batch)?));
    Ok(open.iter().filter_map(until).collect())
}

fn ended(id: Id, state: BatchState) -> Error {
    let why = match state {
        BatchState::Open => "is open",
        BatchState::Closing => "is closing: its email may be on its way",
        BatchState::Closed => "is closed",
        BatchState::Canceled => "is canceled",
    };
    Error::Conflict(format!("batch {id} {why}"))
}
