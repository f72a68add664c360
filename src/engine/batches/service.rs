//! Shows batches, and changes open ones by hand: close, cancel, remove events.
//!
//! Only an open batch can be changed. A closing one may already be on its way, so changing it is a
//! conflict. Start with [`BatchService`].

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::{change, quiet_until};
use crate::context::Context;
use crate::domain::batch::{Accumulator, End, RemovedEvents};
use crate::domain::fanout::check_objects;
use crate::domain::{Batch, BatchState, DeliveryId, Event, EventType, Id, ObjectId};
use crate::engine::eligibility::catalog::CatalogSource;
use crate::engine::{Error, Result};
use crate::store::{AccumulatorFilter, BatchFilter};
use crate::wire::batch::BatchView;

/// The most accumulators that are changed at once.
const AT_ONCE: usize = 500;

/// Operations on batches for operators and applications.
pub struct BatchService {
    /// The store, the clock and the other shared parts.
    pub context: Arc<Context>,
    /// Source of object titles.
    pub catalog: CatalogSource,
}

impl BatchService {
    /// Returns batches, newest first. `before` continues after the last batch of an earlier page.
    pub async fn list(
        &self,
        filter: &BatchFilter,
        before: Option<Id>,
        limit: usize,
    ) -> Result<Vec<Batch>> {
        let store = &self.context.store;
        Ok(store.find_batches(filter, before, limit).await?)
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
        let mut catalog = self.catalog.of_mails();
        let kept = batches.iter().flat_map(Batch::kept).cloned();
        let kept: Vec<Event> = kept.map(Event::from).collect();
        catalog.load(kept.iter()).await?;
        let ids: Vec<DeliveryId> = batches.iter().map(|b| DeliveryId::batch(b.id)).collect();
        let mails = self.context.store.deliveries(&ids).await?;
        let held = quiet_until(&self.context, &batches, self.context.clock.now()).await?;
        let pairs = batches.into_iter().zip(mails).zip(held);
        let title = |event: &Event| catalog.record(event)?.title.clone();
        Ok(pairs
            .map(|((batch, mail), held)| BatchView::of(batch, mail, held, title))
            .collect())
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
            let holding = AccumulatorFilter::Holding {
                kind,
                objects,
                after: after.as_ref(),
            };
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
                all.not_kept += out.not_kept;
            }
        }
    }
}

/// Splits the waiting leads off these batches. Each becomes a batch of its own, with the id of the
/// batch that it opened.
pub(crate) fn leads(batches: &mut [Batch], now: DateTime<Utc>) -> Vec<Batch> {
    let lead = |batch: &mut Batch| {
        let id = batch.id;
        batch.split_lead(|| id, now)
    };
    batches.iter_mut().filter_map(lead).collect()
}

fn ended(id: Id, state: BatchState) -> Error {
    let why = match state {
        BatchState::Open => "is open",
        BatchState::Closing => "is closing: its mail may be on its way",
        BatchState::Closed => "is closed",
        BatchState::Canceled => "is canceled",
    };
    Error::Conflict(format!("batch {id} {why}"))
}
