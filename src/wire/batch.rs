//! A batch as it is shown: what it has gathered, when it closes, what became of it.
//!
//! The rule: what is shown is what the record holds. Events that are counted and no longer kept are
//! a number, as nobody knows what they are about.

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::domain::batch::{Contents, Item, Lead};
use crate::domain::{
    Batch, BatchState, Delivery, DeliveryId, DeliveryState, Event, EventType, Id, ObjectId, UserId,
};

/// A batch.
#[derive(Debug, Clone, Serialize)]
pub struct BatchView {
    /// Stays the same from opening to the end; the batch's delivery is `batch:<id>`.
    pub id: Id,
    /// Whose batch it is.
    pub user: UserId,
    /// As it is written: `type:Comment`, `key:acme`.
    pub key: String,
    /// Whether it gathers, is being mailed, or is settled.
    pub state: BatchState,
    /// What it has gathered, without its lead. In JSON these fields stand beside the others.
    #[serde(flatten)]
    pub gathered: ContentsView,
    /// What opened a leading batch and is mailed on its own.
    pub lead: Option<LeadView>,
    /// When the event joined that opened it.
    pub opened_at: DateTime<Utc>,
    /// The latest moment at which an event joined; taking events out does not move it.
    pub last_event_at: DateTime<Utc>,
    /// When it is due; or when it began to close, if that was earlier.
    pub closes_at: DateTime<Utc>,
    /// When the quiet hours end that it waits for, if it does: `closes_at` then.
    pub held_until: Option<DateTime<Utc>>,
    /// When it was closed or canceled; `None` before.
    pub settled_at: Option<DateTime<Utc>>,
    /// Its mail, once there is one in the ledger.
    pub delivery: Option<DeliveryView>,
}

/// The events of a batch, or of its lead.
#[derive(Debug, Clone, Serialize)]
pub struct ContentsView {
    /// How many events there are, also of those that are no longer kept.
    pub count: u64,
    /// Those that are kept, in the order in which they joined.
    pub items: Vec<ItemView>,
    /// How many are counted and not kept.
    pub more: u64,
}

/// An event that a batch keeps.
#[derive(Debug, Clone, Serialize)]
pub struct ItemView {
    /// The event's type; `type` in JSON.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// What the event is about.
    pub object: ObjectId,
    /// The object's, if it has one.
    pub title: Option<String>,
    /// When it happened.
    pub at: DateTime<Utc>,
}

/// Where the lead of a batch is. In JSON, `state` is `waiting` or `mailed`.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum LeadView {
    /// A worker is to mail it.
    Waiting(ContentsView),
    /// It is a batch of its own.
    Mailed,
}

/// A batch's mail, as the ledger knows it.
#[derive(Debug, Clone, Serialize)]
pub struct DeliveryView {
    /// `batch:` and the batch's id.
    pub id: DeliveryId,
    /// How far the mail has come, or how it ended.
    pub state: DeliveryState,
    /// Why it ended so.
    pub reason: Option<String>,
}

/// A page of them, newest first.
#[derive(Debug, Serialize)]
pub(crate) struct BatchPage {
    pub(crate) batches: Vec<BatchView>,
    /// Ask `before` this for the next page, if there may be one.
    pub(crate) next: Option<Id>,
}

impl BatchView {
    /// `title` says what the objects of events are called; `held_until`, when the quiet hours end
    /// in which it would close.
    pub(crate) fn of(
        batch: Batch,
        delivery: Option<Delivery>,
        held_until: Option<DateTime<Utc>>,
        title: impl Fn(&Event) -> Option<String>,
    ) -> Self {
        let lead = match batch.lead {
            Lead::None => None,
            Lead::Waiting { contents, .. } => {
                Some(LeadView::Waiting(ContentsView::of(contents, &title)))
            }
            Lead::Mailed { .. } => Some(LeadView::Mailed),
        };
        Self {
            id: batch.id,
            user: batch.user,
            key: batch.key.to_string(),
            state: batch.state,
            gathered: ContentsView::of(batch.contents, &title),
            lead,
            opened_at: batch.opened_at,
            last_event_at: batch.last_event_at,
            closes_at: held_until.unwrap_or(batch.closes_at),
            held_until,
            settled_at: batch.settled,
            delivery: delivery.map(|row| DeliveryView {
                id: row.id,
                state: row.state,
                reason: row.reason,
            }),
        }
    }

    /// How many events are in it, those of a waiting lead as well.
    pub fn events(&self) -> u64 {
        let lead = match &self.lead {
            Some(LeadView::Waiting(lead)) => lead.count,
            Some(LeadView::Mailed) | None => 0,
        };
        lead + self.gathered.count
    }
}

impl ContentsView {
    fn of(contents: Contents, title: impl Fn(&Event) -> Option<String>) -> Self {
        let (count, more) = (contents.count, contents.more());
        let item = |item: Item| {
            let at = item.i.time();
            let event = Event::from(item);
            ItemView {
                title: title(&event),
                kind: event.t,
                object: event.o,
                at,
            }
        };
        Self {
            count,
            items: contents.items.into_iter().map(item).collect(),
            more,
        }
    }
}
