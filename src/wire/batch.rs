//! Batches as the API and `--json` show them, and the figures of simulated batch policies.
//!
//! Events beyond the kept ones are only a number, because the record does not contain them.

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::domain::batch::BatchItem;
use crate::domain::{
    Batch, BatchState, Delivery, DeliveryId, DeliveryState, Event, EventType, Id, ObjectId, UserId,
};

/// A batch, with the titles of its objects.
#[derive(Debug, Clone, Serialize)]
pub struct BatchView {
    /// The id, which never changes. The batch's delivery has the id `batch:<id>`.
    pub id: Id,
    /// The recipient.
    pub user: UserId,
    /// The key in text form: `type:Comment`, `key:acme`.
    pub key: String,
    /// Whether the batch is open, closing, closed or canceled.
    pub state: BatchState,
    /// The number of events, including those that are not kept.
    pub count: u64,
    /// The kept events, in the order of joining.
    pub items: Vec<BatchItemView>,
    /// The number of events that are counted but not kept.
    pub more: u64,
    /// Whether the events that opened it became a separate batch, which was emailed at once.
    pub lead_sent: bool,
    /// When the first event joined.
    pub opened_at: DateTime<Utc>,
    /// The latest time at which an event joined. Removing events does not change it.
    pub last_event_at: DateTime<Utc>,
    /// When the batch is due. Once it closes, the time at which closing began, if that is earlier.
    pub closes_at: DateTime<Utc>,
    /// The end of the quiet hours that defer the batch, if any do. Then `closes_at` is the same.
    #[serde(rename = "held_until")]
    pub deferred_until: Option<DateTime<Utc>>,
    /// When it was closed or canceled; `None` before.
    pub settled_at: Option<DateTime<Utc>>,
    /// The batch's delivery, once it exists.
    pub delivery: Option<BatchDeliveryView>,
}

/// An event that a batch keeps.
#[derive(Debug, Clone, Serialize)]
pub struct BatchItemView {
    /// The event's type; `type` in JSON.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// The id of the object.
    pub object: ObjectId,
    /// The object's title, if it has one.
    pub title: Option<String>,
    /// The time of the event.
    pub at: DateTime<Utc>,
}

/// The delivery of a batch.
#[derive(Debug, Clone, Serialize)]
pub struct BatchDeliveryView {
    /// The id: `batch:` and the batch's id.
    pub id: DeliveryId,
    /// The state of the delivery.
    pub state: DeliveryState,
    /// Why the delivery failed, was canceled, is unknown or waits.
    pub reason: Option<String>,
}

/// A page of batches, newest first.
#[derive(Debug, Serialize)]
pub(crate) struct BatchPage {
    pub(crate) batches: Vec<BatchView>,
    /// The value of `before` for the next page, if there may be one.
    pub(crate) next: Option<Id>,
}

impl BatchView {
    /// Creates the view. `title` returns the title of an event's object. `held_until` is the end of
    /// the quiet hours that defer the batch.
    pub(crate) fn from_batch(
        batch: Batch,
        delivery: Option<Delivery>,
        held_until: Option<DateTime<Utc>>,
        title: impl Fn(&Event) -> Option<String>,
    ) -> Self {
        let (count, more) = (batch.events.count, batch.events.omitted_count());
        let item_view = |item: BatchItem| {
            let at = item.fanout_id.time();
            let event = Event::from(item);
            BatchItemView { title: title(&event), kind: event.kind, object: event.object, at }
        };
        Self {
            id: batch.id,
            user: batch.user,
            key: batch.key.to_string(),
            state: batch.state,
            count,
            items: batch.events.items.into_iter().map(item_view).collect(),
            more,
            lead_sent: !batch.lead_fanouts.is_empty(),
            opened_at: batch.opened_at,
            last_event_at: batch.last_event_at,
            closes_at: held_until.unwrap_or(batch.closes_at),
            deferred_until: held_until,
            settled_at: batch.settled,
            delivery: delivery.map(|row| BatchDeliveryView {
                id: row.id,
                state: row.state,
                reason: row.outcome.reason,
            }),
        }
    }
}

/// A comparison of policies over the same events.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyComparison {
    /// The number of events; an event for several users counts once for each.
    pub events: u64,
    /// The number of users with any event.
    pub users: u64,
    /// The time of the first event; `None` if there is none.
    pub from: Option<DateTime<Utc>>,
    /// The time of the last event; `None` if there is none.
    pub to: Option<DateTime<Utc>>,
    /// The figures of each policy, in the order of the request.
    pub policies: Vec<PolicyFigures>,
}

/// The emails of one policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyFigures {
    /// The name of the policy.
    pub policy: String,
    /// The number of emails to all users.
    pub emails: u64,
    /// Emails per day, from the first event to the last, over at least one day.
    pub emails_per_day: f64,
    /// Emails per user, over all users with any event.
    pub emails_per_user: Spread,
    /// The time from an event to its email, in seconds.
    pub delay_seconds: Spread,
    /// The largest number of events in one email.
    pub largest: u64,
}

/// How a number is distributed. All fields are 0 if there are no values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The arithmetic mean.
    pub mean: f64,
    /// Half of the values are at most this.
    pub p50: u64,
    /// 95% of the values are at most this.
    pub p95: u64,
    /// The largest value.
    pub max: u64,
}
