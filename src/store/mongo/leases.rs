//! Leases: named ones, and those on fan-outs and deliveries.
//!
//! One conditional write takes a lease, so there is no gap between check and write. On fan-outs and
//! deliveries it leaves a revision, which shows whether it took effect even if the reply was lost.

use async_trait::async_trait;
use bson::oid::ObjectId as Oid;
use bson::{Bson, Document, RawDocumentBuf, doc};
use chrono::{DateTime, Utc};

use super::alike::Change;
use super::bulk::DUPLICATE;
use super::patience::Failure;
use super::values::{date, in_order};
use super::{LEASES, Mongo, records};
use crate::domain::Lease;
use crate::domain::coordination::furthest_lease_of;
use crate::store::record::Record;
use crate::store::{Leases, Result};

#[async_trait]
impl Leases for Mongo {
    async fn lease(&self, name: &str, lease: &Lease, now: DateTime<Utc>) -> Result<bool> {
        self.patiently("taking a lease", || {
            let leases = self.collection(LEASES);
            let free = doc! {
                "_id": name,
                "$or": [
                    {"owner": &lease.owner},
                    {"until": {"$lte": date(now)}},
                    {"until": {"$gt": date(furthest_lease_of(name, now))}},
                ],
            };
            let take = doc! {"$set": {"owner": &lease.owner, "until": date(lease.until)}};
            async move {
                match leases.update_one(free, take).upsert(true).await {
                    Ok(_) => Ok(true),
                    // Another owner has the lease.
                    Err(error) => match Failure::from(error) {
                        failure if failure.code == Some(DUPLICATE) => Ok(false),
                        failure => Err(failure),
                    },
                }
            }
        })
        .await
    }

    async fn unlease(&self, name: &str, owner: &str) -> Result<()> {
        self.patiently("giving up a lease", || {
            let leases = self.collection(LEASES);
            let own = doc! {"_id": name, "owner": owner};
            async move { Ok(leases.delete_one(own).await.map(drop)?) }
        })
        .await
    }
}

/// How often to search again if other workers claimed all the free records first.
const ROUNDS: usize = 5;

impl Mongo {
    /// Leases up to `limit` free records in this order: finds some, takes those that are still
    /// free, and reads them.
    pub(super) async fn claim_records<R: Record>(
        &self,
        doing: &str,
        collection: &str,
        free: &Document,
        order: Document,
        lease: Document,
        limit: usize,
    ) -> Result<Vec<R::Value>> {
        let claimed = self.claim_raw(doing, collection, free, order.clone(), lease, || {
            self.find_ids(doing, collection, free, order.clone(), limit)
        });
        records::<R>(doing, &claimed.await?).collect()
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
            let take = |id: &Bson, revision: Oid| {
                let change = Change {
                    when: free.clone(),
                    set: doc! {"lease": lease.clone(), "stamp": revision},
                    ..Change::default()
                };
                (id.clone(), change)
            };
            let taken = self.change_each(doing, collection, &ids, take).await?;
            let ours: Vec<Bson> = ids
                .into_iter()
                .zip(taken)
                .filter(|(_, taken)| *taken)
                .map(|(id, _)| id)
                .collect();
            if !ours.is_empty() {
                let filter = doc! {"_id": {"$in": ours}};
                let options = in_order(order, usize::MAX);
                return self.find_raw(doing, collection, &filter, options).await;
            }
        }
        Ok(Vec::new())
    }
}
