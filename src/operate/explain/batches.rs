//! Finds the batch that an event joined, and the event's outcome there.
//!
//! A marker on the stack outranks the batch's record. A batch that keeps the event outranks one
//! that only remembers its id: a lead's ids are also remembered by the batch that it opened.

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use crate::domain::batch::Item;
use crate::domain::{Batch, BatchState, Delivery, DeliveryId, DeliveryState, Event, Id};
use crate::engine::Result;
use crate::engine::batches::{BatchFilter, BatchService, quiet_until};
use crate::wire::explanation::Why;

/// The most batches of a user that are read, newest first.
const MOST: usize = 200;

/// A user's batches, newest first, and their deliveries.
pub(super) struct Batches {
    all: Vec<Batch>,
    mails: HashMap<DeliveryId, Delivery>,
}

impl Batches {
    pub(super) async fn of(book: &BatchService, filter: &BatchFilter) -> Result<Self> {
        let all = book.list(filter, None, MOST).await?;
        let ids: Vec<DeliveryId> = all.iter().map(|b| DeliveryId::batch(b.id)).collect();
        let mails = book.context.store.deliveries(&ids).await?;
        let mails = mails.into_iter().flatten();
        let mails = mails.map(|mail| (mail.id.clone(), mail)).collect();
        Ok(Self { all, mails })
    }

    /// Returns the batches whose emails are not settled yet.
    pub(super) fn unsettled(&self) -> Vec<Batch> {
        let unsettled =
            |batch: &&Batch| matches!(batch.state, BatchState::Open | BatchState::Closing);
        self.all.iter().filter(unsettled).cloned().collect()
    }

    /// Returns when quiet hours end, by batch id, for the batches that they defer.
    pub(super) async fn held(
        &self,
        book: &BatchService,
        now: DateTime<Utc>,
    ) -> Result<HashMap<Id, DateTime<Utc>>> {
        let held = quiet_until(&book.context, &self.all, now).await?;
        let pairs = self.all.iter().zip(held);
        Ok(pairs
            .filter_map(|(batch, until)| Some((batch.id, until?)))
            .collect())
    }

    /// Returns the batch that the event joined, if it is known.
    pub(super) fn holding(&self, event: &Event) -> Option<&Batch> {
        let i = event.i?;
        let is_it = |item: &Item| item.i == i && item.t == event.t && item.o == event.o;
        let keeps = |batch: &&Batch| batch.kept().chain(&batch.removed).any(is_it);
        let own = |batch: &&Batch| batch.own_fanouts().any(|own| own == i);
        let of_lead = |batch: &&Batch| batch.has_joined(i);
        let all = || self.all.iter();
        let found = all().find(keeps).or_else(|| all().find(own));
        found.or_else(|| all().find(of_lead))
    }

    /// Returns the events that these batches keep.
    pub(super) fn kept(&self) -> Vec<Event> {
        let kept = self.all.iter().flat_map(Batch::kept);
        kept.cloned().map(Event::from).collect()
    }

    /// Returns whether this is the delivery of one of these batches.
    pub(super) fn includes(&self, delivery: &DeliveryId) -> bool {
        self.mails.contains_key(delivery)
    }

    /// Returns the batch's delivery, if its email was sent or may have been.
    pub(super) fn mail(&self, batch: &Batch) -> Option<&Delivery> {
        let mail = self.mails.get(&DeliveryId::batch(batch.id));
        mail.filter(|mail| mail.state.flushes())
    }

    /// Returns the batch's delivery, if it is not settled.
    pub(super) fn waiting(&self, batch: &Batch) -> Option<&Delivery> {
        let mail = self.mails.get(&DeliveryId::batch(batch.id));
        mail.filter(|mail| !mail.state.settled())
    }

    /// Returns the outcome of the event in the batch that holds it; `None` if batches do not decide
    /// it. `mailed` is whether the stack has its marker. `waits` is whether an open batch would
    /// include it.
    pub(super) fn why(
        &self,
        event: &Event,
        holding: Option<&Batch>,
        mailed: bool,
        waits: bool,
    ) -> Option<Why> {
        let Some(batch) = holding else {
            return mailed.then_some(Why::Mailed);
        };
        let is_it = |item: &Item| Some(item.i) == event.i && item.t == event.t && item.o == event.o;
        if batch.removed.iter().any(is_it) {
            return Some(Why::TakenOut);
        }
        let mail = self.mails.get(&DeliveryId::batch(batch.id));
        let doubtful = mail.is_some_and(|mail| mail.state == DeliveryState::Unknown);
        match batch.state {
            _ if mailed && doubtful => Some(Why::MayBeMailed),
            _ if mailed => Some(Why::Mailed),
            BatchState::Open => waits.then_some(Why::Gathering),
            BatchState::Closing => waits.then_some(Why::Closing),
            BatchState::Closed | BatchState::Canceled => Some(Why::NotMailed),
        }
    }

    /// Returns why the batch's email was not sent, if that is recorded.
    pub(super) fn reason(&self, batch: Id) -> Option<String> {
        let row = self.mails.get(&DeliveryId::batch(batch))?;
        row.outcome.reason.clone()
    }
}
