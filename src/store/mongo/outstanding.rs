//! Counts outstanding work, and finds how long it has been waiting.
//!
//! Each query uses an index alone and counts up to a limit, so monitoring stays cheap while a
//! backlog grows.

use bson::{Bson, Document, doc};
use chrono::{DateTime, Utc};

use super::journal::PENDING;
use super::values::{date, in_order};
use super::{ACCUMULATORS, DELIVERIES, FANOUTS, LEASES, Mongo, patience};
use crate::domain::DeliveryState;
use crate::store::{Outstanding, Pile, Result};

const DOING: &str = "looking what is to be done";

impl Mongo {
    pub(super) async fn all_outstanding(
        &self,
        now: DateTime<Utc>,
        most: u64,
    ) -> Result<Outstanding> {
        let rows = |state: DeliveryState| {
            let state = doc! {"state": state.as_str()};
            self.pile(DELIVERIES, state, "created", most)
        };
        let fanouts = self.pile(FANOUTS, doc! {"state": PENDING}, "_id", most);
        let due = doc! {"due": {"$lte": date(now)}};
        let due = self.pile(ACCUMULATORS, due, "due", most);
        let open = self.at_most(ACCUMULATORS, doc! {"open.id": {"$exists": true}}, most);
        let held = doc! {"until": {"$gt": date(now)}};
        let held = self.at_most(LEASES, held, most);
        let (fanouts, batches_open, batches_due, leases) =
            futures::try_join!(fanouts, open, due, held)?;
        let (pending, sending, unknown) = futures::try_join!(
            rows(DeliveryState::Pending),
            rows(DeliveryState::Sending),
            rows(DeliveryState::Unknown)
        )?;
        Ok(Outstanding {
            fanouts,
            batches_open,
            batches_due,
            pending,
            sending,
            unknown,
            leases,
        })
    }

    /// Returns the number of matches, and the lowest time in this field.
    async fn pile(
        &self,
        collection: &str,
        filter: Document,
        since: &str,
        most: u64,
    ) -> Result<Pile> {
        let mut first = in_order(doc! {since: 1}, 1);
        first.projection = Some(doc! {since: 1, "_id": i32::from(since == "_id")});
        let first = self.find_all(DOING, collection, &filter, first);
        let (first, count) =
            futures::try_join!(first, self.at_most(collection, filter.clone(), most))?;
        let since = first.first().and_then(|first| moment(first.get(since)?));
        Ok(Pile { count, since })
    }

    async fn at_most(&self, collection: &str, filter: Document, most: u64) -> Result<u64> {
        let limit = patience::limit(self.0.options.attempt);
        self.patiently(DOING, || {
            let (collection, filter) = (self.collection(collection), filter.clone());
            async move {
                let count = collection.count_documents(filter).max_time(limit);
                self.count_of(count.limit(most)).await
            }
        })
        .await
    }
}

/// Returns the time in a value. The id of a fan-out contains the time of its event.
fn moment(value: &Bson) -> Option<DateTime<Utc>> {
    let at = match value {
        Bson::ObjectId(id) => id.timestamp(),
        Bson::DateTime(at) => *at,
        _ => return None,
    };
    DateTime::from_timestamp_millis(at.timestamp_millis())
}
