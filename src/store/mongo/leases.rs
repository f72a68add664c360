//! Leases, small named texts, and the removal of old records.
//!
//! One conditional write takes a lease, so there is no gap between check and write. On fan-outs and
//! deliveries it leaves a revision, which shows whether it took effect even if the reply was lost.

use async_trait::async_trait;
use bson::oid::ObjectId as Oid;
use bson::{Bson, Document, RawDocumentBuf, doc};
use chrono::{DateTime, Utc};

use super::bulk::{Update, Verb, delete_one};
use super::grouped::Change;
use super::journal::{DONE, PENDING, part_id};
use super::{
    AUDIENCES, BATCHES, DELIVERIES, FANOUTS, INBOXES, LEASES, Mongo, NOTES, RETRACTIONS, date,
    lease, oid,
};
use crate::domain::coordination::furthest_lease_of;
use crate::domain::{DeliveryState, Id, Lease};
use crate::store::record::read_bson;
use crate::store::record::small::Note;
use crate::store::{Forgettable, Leases, NoteFilter, Notes, Release, Result, Retention};

#[async_trait]
impl Leases for Mongo {
    async fn lease(&self, name: &str, lease: &Lease, now: DateTime<Utc>) -> Result<bool> {
        let free = doc! {
            "_id": name,
            "$or": [
                {"owner": &lease.owner},
                {"until": {"$lte": date(now)}},
                {"until": {"$gt": date(furthest_lease_of(name, now))}},
            ],
        };
        let claim = doc! {"$set": {"owner": &lease.owner, "until": date(lease.until)}};
        let claimed = self.write(Verb::Update, LEASES, [Update::upsert(free, claim)]);
        // A duplicate shows that another owner has the lease.
        Ok(claimed.await?.duplicates()?.is_empty())
    }

    async fn release(&self, which: &Release<'_>) -> Result<()> {
        match *which {
            Release::Lease { name, owner } => {
                let own = doc! {"_id": name, "owner": owner};
                self.delete_matching(LEASES, own).await.map(drop)
            }
            Release::Fanouts(owner) => {
                let leased = doc! {"state": PENDING, "lease.owner": owner};
                let release = doc! {"$unset": {"lease": ""}};
                self.update_matching(FANOUTS, leased, release).await
            }
            Release::Deliveries(owner) => {
                // The first condition makes the sparse index usable, which has open rows only.
                let ever = date(DateTime::UNIX_EPOCH);
                let rows = doc! {"lease.until": {"$gte": ever}, "lease.owner": owner};
                self.release_deliveries(rows).await
            }
            Release::Deferred(now) => {
                let rows = doc! {
                    "lease.until": {"$gt": date(now)}, "lease.owner": {"$exists": false},
                    "state": DeliveryState::Pending.as_str(),
                };
                self.release_deliveries(rows).await
            }
        }
    }
}

/// How often to search again if other workers claimed all the free records first.
const ROUNDS: usize = 5;

impl Mongo {
    async fn release_deliveries(&self, rows: Document) -> Result<()> {
        let release = doc! {"$set": {"lease": lease(None)}};
        self.update_matching(DELIVERIES, rows, release).await
    }

    /// Leases the records that `find` returns, and returns them undecoded, even unreadable ones.
    pub(super) async fn claim_raw<F: Future<Output = Result<Vec<Bson>>>>(
        &self,
        collection: &str,
        free: &Document,
        order: Document,
        lease: Document,
        find: impl Fn() -> F,
    ) -> Result<Vec<RawDocumentBuf>> {
        for _ in 0..ROUNDS {
            let ids = find().await?;
            if ids.is_empty() {
                break;
            }
            let claim = |id: &Bson, revision: Oid| {
                let change = Change {
                    when: free.clone(),
                    set: doc! {"lease": lease.clone(), "stamp": revision},
                    ..Change::default()
                };
                (id.clone(), change)
            };
            let claimed = self.change_each(collection, &ids, claim).await?;
            let ours = ids.into_iter().zip(claimed).filter(|(_, is_ours)| *is_ours);
            let ours: Vec<Bson> = ours.map(|(id, _)| id).collect();
            if !ours.is_empty() {
                return self.find_by_id(collection, ours).sort(order).raw().await;
            }
        }
        Ok(Vec::new())
    }
}

#[async_trait]
impl Notes for Mongo {
    async fn swap_note(&self, name: &str, read: Option<&str>, text: Option<&str>) -> Result<bool> {
        let current = doc! {"_id": name, "text": read};
        let swapped = match (read, text) {
            (None, None) => return Ok(false),
            (None, Some(text)) => {
                let note = doc! {"_id": name, "text": text};
                let inserted = self.write(Verb::Insert, NOTES, [note]).await?;
                return Ok(inserted.duplicates()?.is_empty());
            }
            (Some(_), Some(text)) => {
                let change = Update::new(current, doc! {"$set": {"text": text}});
                self.write(Verb::Update, NOTES, [change]).await?
            }
            (Some(_), None) => {
                self.write(Verb::Delete, NOTES, [delete_one(current)])
                    .await?
            }
        };
        Ok(swapped.complete()? == 1)
    }

    async fn notes(&self, which: NoteFilter<'_>) -> Result<Vec<(String, String)>> {
        let which = match which {
            NoteFilter::Named(names) => doc! {"$in": names},
            NoteFilter::Prefix(prefix) => {
                doc! {"$gte": prefix, "$lt": format!("{prefix}{}", char::MAX)}
            }
        };
        let found = self.find(NOTES, doc! {"_id": which}).sort(doc! {"_id": 1});
        let note = |raw: &RawDocumentBuf| {
            let note: Note = read_bson::<Note>(raw)?;
            Ok((note.name, note.text))
        };
        found.raw().await?.iter().map(note).collect()
    }
}

#[async_trait]
impl Retention for Mongo {
    async fn forget(&self, what: Forgettable, before: DateTime<Utc>, limit: usize) -> Result<u64> {
        let (first_id, date) = (oid(Id::at(before, [0; 8])), date(before));
        let is_settled = doc! {
            "state": {"$ne": DeliveryState::Unknown.as_str()}, "slot": {"$exists": false},
        };
        let (collection, time, end, mut old) = match what {
            Forgettable::Events => (FANOUTS, "_id", first_id, doc! {"state": DONE}),
            Forgettable::Retractions => (RETRACTIONS, "at", first_id, doc! {}),
            Forgettable::Batches => (BATCHES, "settled", date, doc! {}),
            Forgettable::Deliveries => (DELIVERIES, "settled", date, is_settled),
            Forgettable::Inboxes => (INBOXES, "changed", date, doc! {}),
        };
        old.insert(time, doc! {"$lt": &end});
        let earliest = self.find(collection, old.clone()).sort(doc! {time: 1});
        let ids = earliest.limit(limit).ids().await?;
        if !ids.is_empty() {
            // A record that was found to be old is deleted only if it is still old.
            let these = doc! {"$and": [{"_id": {"$in": &ids}}, old]};
            self.delete_matching(collection, these).await?;
        }
        if what == Forgettable::Events {
            let is_last = ids.len() < limit;
            self.forget_parts(&ids, is_last.then_some(&end)).await?;
        }
        Ok(ids.len() as u64)
    }
}

impl Mongo {
    /// Removes the parts of the audiences of these removed fan-outs. With an `end`, also removes
    /// the parts before `end` that are older than all fan-outs: a process that crashed left them.
    async fn forget_parts(&self, removed: &[Bson], end: Option<&Bson>) -> Result<()> {
        let of_removed = removed
            .iter()
            .map(|id| doc! {"_id": {"$gte": part_id(id, 0), "$lte": part_id(id, i32::MAX)}});
        let mut parts: Vec<Document> = of_removed.collect();
        if let Some(end) = end {
            let remaining = self.find(FANOUTS, doc! {"_id": {"$lt": end}});
            let oldest = remaining.sort(doc! {"_id": 1}).limit(1).ids().await?;
            let oldest = oldest.first().unwrap_or(end);
            parts.push(doc! {"_id": {"$lt": part_id(oldest, 0)}});
        }
        if !parts.is_empty() {
            self.delete_matching(AUDIENCES, doc! {"$or": parts}).await?;
        }
        Ok(())
    }
}
