//! Combines a user's events of one key into few emails.
//!
//! [`Accumulator`] decides each change, and the store applies it by compare-and-set. Therefore a
//! user has one open batch per key under any race, and an event joins once. Fan-outs call
//! [`BatchService::join`], workers [`BatchService::end_due_batches`], and operators the other
//! methods.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::{FutureExt, StreamExt, TryStreamExt};

use crate::context::Context;
use crate::domain::batch::{
    Accumulator, AccumulatorId, BatchAppend, BatchItem, MAX_ENDED, RemovedEvents,
};
use crate::domain::fanout::check_objects;
use crate::domain::{
    Batch, BatchPolicy, BatchState, DeliveryId, Event, EventType, Id, ObjectId, User, UserId,
    distinct,
};
use crate::engine::eligibility::event_facts::EventFacts;
use crate::engine::{Error, Progress, Result, crash};
use crate::store::{self, AccumulatorFilter};
use crate::wire::batch::BatchView;
use crate::wire::run_report::EndedBatches;

mod filing;

pub use crate::domain::batch::EndAction;
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

/// The most accumulators in a chunk of joins.
const ACCUMULATORS_PER_CHUNK: usize = 1_000;
/// The number of chunks in progress: one is read while the other is stored.
const IN_FLIGHT: usize = 2;
/// The most accumulators that are read to be ended or changed.
const ACCUMULATORS_PER_READ: usize = 500;

impl BatchService {
    /// Adds all these events.
    pub async fn join(&self, mut joins: Vec<Join>) -> store::Result<()> {
        // The sort is stable, so the events of an accumulator stay in order.
        joins.sort_by(|a, b| a.accumulator.cmp(&b.accumulator));
        let by_accumulator: Vec<&[Join]> =
            joins.chunk_by(|a, b| a.accumulator == b.accumulator).collect();
        let chunks = by_accumulator.chunks(ACCUMULATORS_PER_CHUNK);
        let calls: Vec<_> = chunks.map(|chunk| self.join_chunk(chunk.to_vec()).boxed()).collect();
        futures::stream::iter(calls).buffer_unordered(IN_FLIGHT).try_collect::<()>().await
    }

    /// Adds the events of these accumulators. Each element has all joins of one accumulator.
    async fn join_chunk(&self, mut remaining: Vec<&[Join]>) -> store::Result<()> {
        let (store, ids) = (&self.context.store, &self.context.ids);
        // Each repetition means that another process changed an accumulator, or that a reply was
        // lost. A repeated event joins only once.
        while !remaining.is_empty() && !self.append_to_open(&remaining).await? {
            let accumulator_ids: Vec<AccumulatorId> =
                remaining.iter().map(|joins| joins[0].accumulator.clone()).collect();
            let accumulators = store.accumulators(&accumulator_ids).await?;
            let at = self.context.clock.now();
            let (mut changed, mut joins_of_changed) = (Vec::new(), Vec::new());
            for (joins, accumulator) in remaining.into_iter().zip(accumulators) {
                if let Some(accumulator) = self.join_events(joins, accumulator, at) {
                    changed.push(accumulator);
                    joins_of_changed.push(joins);
                }
            }
            if changed.is_empty() {
                break;
            }
            let are_stored = store.put_accumulators(&changed, ids.next(at)).await?;
            remaining = Vec::new();
            let mut to_file = Vec::new();
            let with_joins = changed.into_iter().zip(joins_of_changed);
            for ((accumulator, joins), is_stored) in with_joins.zip(are_stored) {
                if !is_stored {
                    remaining.push(joins);
                } else if accumulator.ended.len() > MAX_ENDED {
                    to_file.push(accumulator);
                }
            }
            self.file_ended_batches(to_file, at).await?;
        }
        Ok(())
    }

    /// Adds these events to an accumulator, which is new if `stored` is `None`. Returns `None` if
    /// all of them have joined before.
    fn join_events(
        &self,
        joins: &[Join],
        stored: Option<Accumulator>,
        at: DateTime<Utc>,
    ) -> Option<Accumulator> {
        let new = || Accumulator::new(joins[0].accumulator.clone());
        let mut accumulator = stored.unwrap_or_else(new);
        let mut added = 0;
        for join in joins {
            let new_id = || self.context.ids.next(at);
            added += accumulator.join(&join.items, at, &join.policy, new_id);
        }
        if accumulator.ended.len() > MAX_ENDED {
            accumulator.advance(at);
        }
        (added > 0).then_some(accumulator)
    }

    /// Adds the events in one update, if that changes only open batches. Returns whether that
    /// succeeded for all. Adjacent accumulators with the same events share an addition.
    async fn append_to_open(&self, by_accumulator: &[&[Join]]) -> store::Result<bool> {
        let at = self.context.clock.now();
        let mut accumulators = Vec::with_capacity(by_accumulator.len());
        let mut additions = Vec::new();
        for same_events in by_accumulator.chunk_by(|a, b| have_same_events(a, b)) {
            let joins = same_events[0];
            let policy = joins[0].policy;
            if joins.iter().any(|join| join.policy != policy) {
                return Ok(false);
            }
            let items = joins.iter().flat_map(|join| join.items.iter().cloned()).collect();
            let Some(addition) = BatchAppend::new(items, at, &policy) else {
                return Ok(false);
            };
            let index = additions.len();
            let ids = same_events.iter().map(|joins| joins[0].accumulator.clone());
            accumulators.extend(ids.map(|id| (id, index)));
            additions.push(addition);
        }
        let revision = self.context.ids.next(at);
        self.context.store.add_to_open(&accumulators, &additions, revision).await
    }

    /// Ends batches that are due, files them and opens their deliveries, the earliest first.
    /// Returns `None` if none is due. Several workers may do so at once.
    ///
    /// A batch ends by a compare-and-set of its accumulator. Then it is filed, and its delivery is
    /// opened under a derived id (P2, P4). Only then is it removed from the accumulator, compared
    /// by its events. After a crash the accumulator is still due, and each step can be repeated.
    /// Workers share the work by leases on accumulators.
    pub async fn end_due_batches(&self) -> store::Result<Option<EndedBatches>> {
        let (store, ids) = (&self.context.store, &self.context.ids);
        let (now, lease) = (self.context.clock.now(), self.context.config.fanout.lease);
        let filter = AccumulatorFilter::Due(now);
        let mut due = store.find_accumulators(&filter, ACCUMULATORS_PER_READ).await?;
        if due.is_empty() {
            return Ok(None);
        }
        let due_batches = due.iter().filter_map(|accumulator| accumulator.due_batch(now));
        let quiet_until =
            quiet_hours_end_by_batch(&self.context, due_batches.cloned(), now).await?;
        for accumulator in &mut due {
            let due_batch = accumulator.due_batch(now);
            if let Some(until) = due_batch.and_then(|batch| quiet_until.get(&batch.id)) {
                accumulator.defer(*until);
            }
            accumulator.advance(now);
            // Without ended batches there is nothing to file, so no lease is needed.
            let has_ended = !accumulator.ended.is_empty();
            accumulator.lease = has_ended.then(|| self.context.lease_until(now + lease));
        }
        crash::point("before-end");
        let are_stored = store.put_accumulators(&due, ids.next(now)).await?;
        crash::point("after-end");
        let stored = due.into_iter().zip(are_stored).filter(|(_, is_stored)| *is_stored);
        let stored = stored.map(|(accumulator, _)| accumulator).collect();
        self.file_ended_batches(stored, now).await.map(Some)
    }

    /// Ends due batches until none is left, or until `progress` asks to stop.
    pub async fn drain(&self, progress: &dyn Progress) -> store::Result<EndedBatches> {
        let mut total = EndedBatches::default();
        while !progress.should_stop()
            && let Some(ended) = self.end_due_batches().await?
        {
            total += ended;
        }
        Ok(total)
    }

    /// Returns batches, newest first.
    pub async fn list(&self, filter: &BatchFilter, limit: usize) -> Result<Vec<Batch>> {
        Ok(self.context.store.find_batches(filter, limit).await?)
    }

    /// Returns the batch with this id, whether open, ended or filed; `None` if there is none.
    pub async fn batch(&self, id: Id) -> Result<Option<Batch>> {
        if let Some(accumulator) = self.accumulator_of(id).await? {
            let mut unfiled = accumulator.open.into_iter().chain(accumulator.ended);
            if let Some(batch) = unfiled.find(|batch| batch.id == id) {
                return Ok(Some(batch));
            }
        }
        Ok(self.context.store.filed_batches(&[id]).await?.pop().flatten())
    }

    /// Returns batches for display, with object titles and the outcomes of their emails.
    pub async fn views(&self, batches: Vec<Batch>) -> Result<Vec<BatchView>> {
        let mut event_facts = EventFacts::for_emails(&self.context);
        let items = batches.iter().flat_map(|batch| &batch.events.items);
        let events: Vec<Event> = items.cloned().map(Event::from).collect();
        event_facts.load_objects_and_retractions(events.iter()).await?;
        let ids: Vec<DeliveryId> =
            batches.iter().map(|batch| DeliveryId::batch(batch.id)).collect();
        let deliveries = self.context.store.deliveries(&ids).await?;
        let now = self.context.clock.now();
        let quiet_until =
            quiet_hours_end_by_batch(&self.context, batches.iter().cloned(), now).await?;
        let title = |event: &Event| event_facts.object(event)?.title.clone();
        let view = |(batch, delivery): (Batch, _)| {
            let quiet_until = quiet_until.get(&batch.id).copied();
            BatchView::from_batch(batch, delivery, quiet_until, title)
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
        let filter = AccumulatorFilter::WithBatch(id);
        Ok(self.context.store.find_accumulators(&filter, 1).await?.pop())
    }

    /// Ends an open batch and returns it; `None` if there is no batch with this id.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if the batch is not open any more.
    pub async fn end(&self, id: Id, how: EndAction) -> Result<Option<Batch>> {
        let now = self.context.clock.now();
        let (mut earlier_state, mut ended) = (None, Vec::new());
        if let Some(accumulator) = self.accumulator_of(id).await? {
            let end = |accumulator: &mut Accumulator| match accumulator.end(id, how, now) {
                Ok(()) => accumulator.ended.iter().find(|batch| batch.id == id).cloned(),
                Err(state) => {
                    earlier_state = state;
                    None
                }
            };
            ended = change_accumulators(&self.context, vec![accumulator], end).await?;
        }
        if let Some(batch) = ended.pop() {
            return Ok(Some(batch));
        }
        if let Some(state) = earlier_state {
            return Err(not_open(id, state));
        }
        // If it is not in its accumulator, it was filed, perhaps between two reads.
        match self.context.store.filed_batches(&[id]).await?.pop().flatten() {
            Some(batch) => Err(not_open(id, batch.state)),
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
        let (mut total, mut after) = (RemovedEvents::default(), None);
        loop {
            let filter = AccumulatorFilter::WithEvent(kind, objects, after.as_ref());
            let store = &self.context.store;
            let accumulators = store.find_accumulators(&filter, ACCUMULATORS_PER_READ).await?;
            let Some(last) = accumulators.last() else {
                return Ok(total);
            };
            after = Some(last.id.clone());
            let now = self.context.clock.now();
            let remove_events = |accumulator: &mut Accumulator| {
                let events = accumulator.remove_events(kind, objects, now, up_to);
                (events.removed > 0).then_some(events)
            };
            for events in change_accumulators(&self.context, accumulators, remove_events).await? {
                total.removed += events.removed;
                total.omitted += events.omitted;
            }
        }
    }
}

/// Returns whether the joins of two accumulators add the same events under the same policies.
fn have_same_events(a: &[Join], b: &[Join]) -> bool {
    let is_same = |(a, b): (&Join, &Join)| Arc::ptr_eq(&a.items, &b.items) && a.policy == b.policy;
    a.len() == b.len() && a.iter().zip(b).all(is_same)
}

/// Changes accumulators by compare-and-set. Those that another process has changed are read and
/// changed again. `apply` returns `None` for an accumulator that it leaves unchanged. Returns the
/// results for the accumulators that were changed.
async fn change_accumulators<T>(
    context: &Context,
    mut accumulators: Vec<Accumulator>,
    mut apply: impl FnMut(&mut Accumulator) -> Option<T> + Send,
) -> store::Result<Vec<T>> {
    let mut stored_results = Vec::new();
    loop {
        let (mut changed, mut results) = (Vec::new(), Vec::new());
        for mut accumulator in accumulators {
            if let Some(result) = apply(&mut accumulator) {
                changed.push(accumulator);
                results.push(result);
            }
        }
        if changed.is_empty() {
            return Ok(stored_results);
        }
        let revision = context.ids.next(context.clock.now());
        let are_stored = context.store.put_accumulators(&changed, revision).await?;
        let mut lost: Vec<AccumulatorId> = Vec::new();
        for ((accumulator, result), is_stored) in changed.into_iter().zip(results).zip(are_stored) {
            if is_stored {
                stored_results.push(result);
            } else {
                lost.push(accumulator.id);
            }
        }
        if lost.is_empty() {
            return Ok(stored_results);
        }
        let current = context.store.accumulators(&lost).await?;
        accumulators = current.into_iter().flatten().collect();
    }
}

/// Returns, by batch id, the end of the quiet hours that delay the closing of these open batches.
/// Omits batches that no quiet hours delay (P7).
///
/// The user's record is read just before a batch closes, so changes made while it was open count. A
/// deferral that has ended is not repeated, even if the worker closes the batch late. Batches that
/// an operator closes are not deferred, nor are those whose kept events include a mandatory one.
pub(crate) async fn quiet_hours_end_by_batch(
    context: &Context,
    batches: impl Iterator<Item = Batch>,
    now: DateTime<Utc>,
) -> store::Result<HashMap<Id, DateTime<Utc>>> {
    let open: Vec<Batch> = batches.filter(|batch| batch.state == BatchState::Open).collect();
    if open.is_empty() {
        return Ok(HashMap::new());
    }
    let user_ids = distinct(open.iter().map(|batch| batch.user.clone()));
    let users = context.store.users(&user_ids).await?.into_iter().flatten();
    let users_with_quiet_hours: HashMap<UserId, User> =
        users.filter(|user| user.quiet.is_some()).map(|user| (user.id.clone(), user)).collect();
    let deferral = |batch: &Batch| {
        let user = users_with_quiet_hours.get(&batch.user)?;
        let kinds = batch.events.items.iter().map(|item| &item.kind);
        let at = batch.quiet_hours_check_time(now);
        let default_tz = context.config.digest.schedule.tz;
        let quiet_until = user.quiet_until(kinds, at, default_tz, &context.policies);
        let is_deferred = batch.deferred && batch.closes_at > now;
        let deferred_until = is_deferred.then_some(batch.closes_at);
        Some((batch.id, quiet_until.filter(|until| *until > now).or(deferred_until)?))
    };
    Ok(open.iter().filter_map(deferral).collect())
}

fn not_open(id: Id, state: BatchState) -> Error {
    let why = match state {
        BatchState::Open => "is open",
        BatchState::Closing => "is closing: its email may be on its way",
        BatchState::Closed => "is closed",
        BatchState::Canceled => "is canceled",
    };
    Error::Conflict(format!("batch {id} {why}"))
}
