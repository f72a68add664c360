//! Removes records whose retention period has passed.
//!
//! A record that was found to be old is deleted only if it is still old.

use async_trait::async_trait;
use bson::{Document, doc};
use chrono::{DateTime, Utc};

use super::journal::DONE;
use super::values::{date, oid};
use super::{BATCHES, DELIVERIES, FANOUTS, INBOXES, Mongo, RETRACTIONS};
use crate::domain::{DeliveryState, Id};
use crate::store::{Forgettable, Result, Retention};

#[async_trait]
impl Retention for Mongo {
    async fn forget(&self, what: Forgettable, before: DateTime<Utc>, limit: usize) -> Result<u64> {
        let before_id = || doc! {"$lt": oid(Id::at(before, [0; 8]))};
        let (collection, time) = match what {
            Forgettable::Unaccepted => return self.forget_audiences(before, limit).await,
            Forgettable::Events => {
                let old = doc! {"state": DONE, "_id": before_id()};
                return self.forget_oldest(FANOUTS, "_id", &old, limit).await;
            }
            Forgettable::Retractions => {
                let old = doc! {"at": before_id()};
                return self.forget_oldest(RETRACTIONS, "at", &old, limit).await;
            }
            Forgettable::Batches => (BATCHES, "settled"),
            Forgettable::Deliveries => (DELIVERIES, "settled"),
            Forgettable::Inboxes => (INBOXES, "changed"),
        };
        let mut old = doc! {time: {"$lt": date(before)}};
        if what == Forgettable::Deliveries {
            old.insert("state", doc! {"$ne": DeliveryState::Unknown.as_str()});
            old.insert("slot", doc! {"$exists": false});
        }
        self.forget_oldest(collection, time, &old, limit).await
    }
}

impl Mongo {
    /// Removes up to `limit` of these records, earliest first. Returns how many.
    async fn forget_oldest(
        &self,
        collection: &str,
        time: &str,
        old: &Document,
        limit: usize,
    ) -> Result<u64> {
        let doing = format!("forgetting {collection}");
        let oldest = doc! {time: 1};
        let ids = self
            .find_ids(&doing, collection, old, oldest, limit)
            .await?;
        if !ids.is_empty() {
            self.patiently(&doing, || {
                let these = doc! {"$and": [{"_id": {"$in": &ids}}, old.clone()]};
                let records = self.collection(collection);
                async move { Ok(records.delete_many(these).await.map(drop)?) }
            })
            .await?;
        }
        Ok(ids.len() as u64)
    }
}
