//! A batch as it is shown, by the API and by `--json` alike: what it has gathered, when it closes,
//! what became of it.
//!
//! The rule: what is shown is what the record holds. Events that are counted and no longer kept are
//! a number, as nobody knows what they are about.

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::domain::batch::{Contents, Item, Lead};
use crate::domain::{
    Batch, BatchState, Delivery, DeliveryId, DeliveryState, Event, EventType, Id, ObjectId, UserId,
};
use crate::services::catalogue::Catalogue;

#[derive(Debug, Clone, Serialize)]
pub struct BatchView {
    pub id: Id,
    pub user: UserId,
    /// As it is written: `type:Comment`, `key:acme`.
    pub key: String,
    pub state: BatchState,
    #[serde(flatten)]
    pub gathered: ContentsView,
    /// What opened a leading batch and is mailed on its own.
    pub lead: Option<LeadView>,
    pub opened_at: DateTime<Utc>,
    pub last_event_at: DateTime<Utc>,
    pub closes_at: DateTime<Utc>,
    pub settled_at: Option<DateTime<Utc>>,
    /// Its mail, once there is one in the ledger.
    pub delivery: Option<DeliveryView>,
}

#[derive(Debug, Clone, Serialize)]
pub struct ContentsView {
    /// How many events there are, also of those that are no longer kept.
    pub count: u64,
    /// Those that are kept, in the order in which they joined.
    pub items: Vec<ItemView>,
    /// How many are counted and not kept.
    pub more: u64,
}

#[derive(Debug, Clone, Serialize)]
pub struct ItemView {
    #[serde(rename = "type")]
    pub kind: EventType,
    pub object: ObjectId,
    /// The object's, if it has one.
    pub title: Option<String>,
    /// When it happened.
    pub at: DateTime<Utc>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum LeadView {
    /// A worker is to mail it.
    Waiting(ContentsView),
    /// It is a batch of its own.
    Mailed,
}

#[derive(Debug, Clone, Serialize)]
pub struct DeliveryView {
    pub id: DeliveryId,
    pub state: DeliveryState,
    /// Why it ended so.
    pub reason: Option<String>,
}

impl BatchView {
    /// `catalogue` knows what the batch keeps.
    pub(super) fn of(batch: Batch, delivery: Option<Delivery>, catalogue: &Catalogue) -> Self {
        let lead = match batch.lead {
            Lead::None => None,
            Lead::Waiting { contents, .. } => {
                Some(LeadView::Waiting(ContentsView::of(contents, catalogue)))
            }
            Lead::Mailed { .. } => Some(LeadView::Mailed),
        };
        Self {
            id: batch.id,
            user: batch.user,
            key: batch.key.to_string(),
            state: batch.state,
            gathered: ContentsView::of(batch.contents, catalogue),
            lead,
            opened_at: batch.opened_at,
            last_event_at: batch.last_event_at,
            closes_at: batch.closes_at,
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
    fn of(contents: Contents, catalogue: &Catalogue) -> Self {
        let (count, more) = (contents.count, contents.more());
        let item = |item: Item| {
            let (event, at) = (Event::from(item.clone()), item.i.time());
            ItemView {
                kind: item.t,
                object: item.o,
                title: catalogue
                    .record(&event)
                    .and_then(|object| object.title.clone()),
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
