//! Deletes expired records.

use bson::{Bson, Document, doc};
use chrono::{DateTime, Utc};

use super::journal::{DONE, part_id};
use super::{AUDIENCES, BATCHES, DELIVERIES, FANOUTS, INBOXES, Mongo, RETRACTIONS, date, oid};
use crate::domain::{DeliveryState, Id};
use crate::store::{ExpiringRecords, Result};

impl Mongo {
    /// Deletes at most `limit` records from before this time, the oldest first. Returns their
    /// number.
    pub(super) async fn delete_expired(
        &self,
        what: ExpiringRecords,
        before: DateTime<Utc>,
        limit: usize,
    ) -> Result<u64> {
        let (end_id, end_date) = (oid(Id::at(before, [0; 8])), date(before));
        let is_settled = doc! {
            "state": {"$ne": DeliveryState::Unknown.as_str()}, "slot": {"$exists": false},
        };
        let (collection, time_field, end, mut is_old) = match what {
            ExpiringRecords::Events => (FANOUTS, "_id", end_id, doc! {"state": DONE}),
            ExpiringRecords::Retractions => (RETRACTIONS, "at", end_id, doc! {}),
            ExpiringRecords::Batches => (BATCHES, "settled", end_date, doc! {}),
            ExpiringRecords::Deliveries => (DELIVERIES, "settled", end_date, is_settled),
            ExpiringRecords::Inboxes => (INBOXES, "changed", end_date, doc! {}),
        };
        is_old.insert(time_field, doc! {"$lt": &end});
        let oldest = self.find(collection, is_old.clone()).sort(doc! {time_field: 1}).limit(limit);
        let ids = oldest.ids().await?;
        if !ids.is_empty() {
            // A record that was found to be old is deleted only if it is still old.
            let still_old = doc! {"$and": [{"_id": {"$in": &ids}}, is_old]};
            self.delete_matching(collection, still_old).await?;
        }
        if what == ExpiringRecords::Events {
            let is_last = ids.len() < limit;
            self.delete_audience_parts(&ids, is_last.then_some(&end)).await?;
        }
        Ok(ids.len() as u64)
    }

    /// Removes the parts of the audiences of these removed fan-outs. With an `end`, also removes
    /// the parts before `end` that are older than all fan-outs: a process that crashed left them.
    async fn delete_audience_parts(&self, removed: &[Bson], end: Option<&Bson>) -> Result<()> {
        let parts_of =
            |id: &Bson| doc! {"_id": {"$gte": part_id(id, 0), "$lte": part_id(id, i32::MAX)}};
        let mut parts: Vec<Document> = removed.iter().map(parts_of).collect();
        if let Some(end) = end {
            let remaining = self.find(FANOUTS, doc! {"_id": {"$lt": end}});
            let ids = remaining.sort(doc! {"_id": 1}).limit(1).ids().await?;
            let oldest = ids.first().unwrap_or(end);
            parts.push(doc! {"_id": {"$lt": part_id(oldest, 0)}});
        }
        if !parts.is_empty() {
            self.delete_matching(AUDIENCES, doc! {"$or": parts}).await?;
        }
        Ok(())
    }
}
