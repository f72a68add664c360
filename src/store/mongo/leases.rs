//! Leases, small named texts, and the removal of old records.
//!
//! One conditional write takes a lease, so there is no gap between check and write. On fan-outs and
//! deliveries it leaves a revision, which shows whether it took effect even if the reply was lost.

use async_trait::async_trait;
use bson::oid::ObjectId as Oid;
use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use chrono::{DateTime, Utc};

use super::grouped::Change;
use super::journal::{DONE, PENDING};
use super::patience::{DUPLICATE, Failure};
use super::{
    BATCHES, DELIVERIES, FANOUTS, INBOXES, LEASES, Mongo, NOTES, RETRACTIONS, date, in_order,
    lease, oid, put,
};
use crate::domain::coordination::furthest_lease_of;
use crate::domain::{DeliveryState, Id, Lease};
use crate::store::{Error, Forgettable, Leases, NoteFilter, Notes, Release, Result, Retention};

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
        let claimed = self.update_one("taking a lease", LEASES, &free, &claim, true);
        // A duplicate shows that another owner has the lease.
        Ok(claimed.await?.is_some())
    }

    async fn release(&self, which: &Release<'_>) -> Result<()> {
        match *which {
            Release::Lease { name, owner } => {
                let own = doc! {"_id": name, "owner": owner};
                let deleted = self.delete_matching("releasing a lease", LEASES, &own);
                deleted.await.map(drop)
            }
            Release::Fanouts(owner) => {
                let leased = doc! {"state": PENDING, "lease.owner": owner};
                let release = doc! {"$unset": {"lease": ""}};
                self.update_matching("releasing fan-outs", FANOUTS, &leased, &release)
                    .await
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
        self.update_matching("releasing deliveries", DELIVERIES, &rows, &release)
            .await
    }

    /// Leases the records that `find` returns, and returns them undecoded, even unreadable ones.
    pub(super) async fn claim_raw<F: Future<Output = Result<Vec<Bson>>>>(
        &self,
        doing: &str,
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
            let claimed = self.change_each(doing, collection, &ids, claim).await?;
            let ours = ids.into_iter().zip(claimed).filter(|(_, is_ours)| *is_ours);
            let ours: Vec<Bson> = ours.map(|(id, _)| id).collect();
            if !ours.is_empty() {
                let filter = doc! {"_id": {"$in": ours}};
                let options = in_order(order, usize::MAX);
                return self.find_raw(doing, collection, &filter, options).await;
            }
        }
        Ok(Vec::new())
    }
}

#[async_trait]
impl Notes for Mongo {
    async fn swap_note(&self, name: &str, read: Option<&str>, text: Option<&str>) -> Result<bool> {
        let notes = self.collection(NOTES);
        let current = doc! {"_id": name, "text": read};
        self.patiently("changing a note", || async {
            match (read, text) {
                (None, None) => Ok(false),
                (None, Some(text)) => {
                    let inserted = notes.insert_one(doc! {"_id": name, "text": text}).await;
                    match inserted.map_err(Failure::from) {
                        Err(failure) if failure.code == Some(DUPLICATE) => Ok(false),
                        inserted => inserted.map(|_| true),
                    }
                }
                (Some(_), Some(text)) => {
                    let set = doc! {"$set": {"text": text}};
                    let updated = notes.update_one(current.clone(), set).await?;
                    Ok(updated.matched_count == 1)
                }
                (Some(_), None) => {
                    let deleted = notes.delete_one(current.clone()).await?;
                    Ok(deleted.deleted_count == 1)
                }
            }
        })
        .await
    }

    async fn notes(&self, which: NoteFilter<'_>) -> Result<Vec<(String, String)>> {
        let doing = "reading notes";
        let which = match which {
            NoteFilter::Named([]) => return Ok(Vec::new()),
            NoteFilter::Named(names) => doc! {"$in": names},
            NoteFilter::Prefix(prefix) => {
                doc! {"$gte": prefix, "$lt": format!("{prefix}{}", char::MAX)}
            }
        };
        let by_name = in_order(doc! {"_id": 1}, usize::MAX);
        let found = self
            .find_raw(doing, NOTES, &doc! {"_id": which}, by_name)
            .await?;
        found.iter().map(|raw| note(doing, raw)).collect()
    }
}

/// Returns a note's name and text.
fn note(doing: &str, note: &RawDocument) -> Result<(String, String)> {
    let name = note.get_str("_id").map_err(|error| {
        Error::database(doing, format!("a note's name cannot be read: {error}"))
    })?;
    let text = note.get_str("text").map_err(|error| {
        Error::database(doing, format!("the note {name} cannot be read: {error}"))
    })?;
    Ok((name.to_owned(), text.to_owned()))
}

#[async_trait]
impl Retention for Mongo {
    async fn forget(&self, what: Forgettable, before: DateTime<Utc>, limit: usize) -> Result<u64> {
        let (collection, time) = match what {
            Forgettable::Unaccepted => return self.forget_audiences(before, limit).await,
            Forgettable::Events => (FANOUTS, "_id"),
            Forgettable::Retractions => (RETRACTIONS, "at"),
            Forgettable::Batches => (BATCHES, "settled"),
            Forgettable::Deliveries => (DELIVERIES, "settled"),
            Forgettable::Inboxes => (INBOXES, "changed"),
        };
        let end = match what {
            Forgettable::Events | Forgettable::Retractions => oid(Id::at(before, [0; 8])),
            _ => date(before),
        };
        let mut old = doc! {time: {"$lt": end}};
        match what {
            Forgettable::Events => put(&mut old, "state", Some(DONE)),
            Forgettable::Deliveries => {
                old.insert("state", doc! {"$ne": DeliveryState::Unknown.as_str()});
                old.insert("slot", doc! {"$exists": false});
            }
            _ => {}
        }
        let doing = format!("forgetting {collection}");
        let earliest = doc! {time: 1};
        let ids = self
            .find_ids(&doing, collection, &old, earliest, limit)
            .await?;
        if !ids.is_empty() {
            // A record that was found to be old is deleted only if it is still old.
            let these = doc! {"$and": [{"_id": {"$in": &ids}}, old]};
            self.delete_matching(&doing, collection, &these).await?;
        }
        Ok(ids.len() as u64)
    }
}
