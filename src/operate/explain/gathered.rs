//! Which batch an event joined, and what became of it there.
//!
//! The rule: what the stack says (it was mailed) comes before what a batch's record says, and a
//! batch that keeps the event before one that only remembers its fan-out, as a lead's fan-outs are
//! remembered by the batch it opened as well.

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use crate::domain::batch::Item;
use crate::domain::{Batch, BatchState, Delivery, DeliveryId, DeliveryState, Event, Id};
use crate::engine::Result;
use crate::engine::batches::{BatchFilter, BatchService};
use crate::wire::explanation::Why;

/// How many of a person's batches are looked at, newest first.
const MOST: usize = 200;

/// A person's batches, newest first, and their mails.
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

    /// Those that are still to be mailed.
    pub(super) fn unsettled(&self) -> Vec<Batch> {
        let unsettled =
            |batch: &&Batch| matches!(batch.state, BatchState::Open | BatchState::Closing);
        self.all.iter().filter(unsettled).cloned().collect()
    }

    /// When the quiet hours end that these wait for, by their ids.
    pub(super) async fn held(
        &self,
        book: &BatchService,
        now: DateTime<Utc>,
    ) -> Result<HashMap<Id, DateTime<Utc>>> {
        let held = book.quiet.held(&self.all, now).await?;
        let pairs = self.all.iter().zip(held);
        Ok(pairs
            .filter_map(|(batch, until)| Some((batch.id, until?)))
            .collect())
    }

    /// The batch that the event is in, if one is known.
    pub(super) fn holding(&self, event: &Event) -> Option<&Batch> {
        let i = event.i?;
        let is_it = |item: &Item| item.i == i && item.t == event.t && item.o == event.o;
        let keeps = |batch: &&Batch| batch.kept().chain(&batch.taken).any(is_it);
        let own = |batch: &&Batch| batch.own_fanouts().any(|own| own == i);
        let of_lead = |batch: &&Batch| batch.has_joined(i);
        let all = || self.all.iter();
        let found = all().find(keeps).or_else(|| all().find(own));
        found.or_else(|| all().find(of_lead))
    }

    /// What these batches keep.
    pub(super) fn kept(&self) -> Vec<Event> {
        let kept = self.all.iter().flat_map(Batch::kept);
        kept.cloned().map(Event::from).collect()
    }

    /// The batch's mail, if it left or may have.
    pub(super) fn mail(&self, batch: &Batch) -> Option<&Delivery> {
        let mail = self.mails.get(&DeliveryId::batch(batch.id));
        mail.filter(|mail| mail.state.flushes())
    }

    /// The batch's delivery, if it is not settled.
    pub(super) fn waiting(&self, batch: &Batch) -> Option<&Delivery> {
        let mail = self.mails.get(&DeliveryId::batch(batch.id));
        mail.filter(|mail| !mail.state.settled())
    }

    /// What becomes, or became, of the event in the batch that holds it: nothing, if batches are
    /// not what decides. `mailed` is what the stack says of it; `waits`, whether it is mailed on
    /// this way as things stand.
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
        if batch.taken.iter().any(is_it) {
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

    /// Why the batch's mail was not sent, if that is known.
    pub(super) fn reason(&self, batch: Id) -> Option<String> {
        let row = self.mails.get(&DeliveryId::batch(batch))?;
        row.outcome.reason.clone()
    }
}
