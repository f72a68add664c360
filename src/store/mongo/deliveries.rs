//! The ledger of every mail.
//!
//! The rule: two unique keys carry P2: the row's id, and the slot, which a row has only while it is
//! open. Every change of state is a conditional write that leaves its token ([`super::leases`]), so
//! a change that was done is never done or denied a second time.

use std::collections::HashMap;

use async_trait::async_trait;
use bson::oid::ObjectId as Oid;
use bson::{Bson, Document, doc};
use chrono::{DateTime, Utc};
use mongodb::options::FindOptions;

use super::bulk::{DUPLICATE, Verb};
use super::delivery_record::{delivery_of, record_of, watermarks};
use super::journal::encode;
use super::patience::Failure;
use super::record::{date, lease, put};
use super::{DELIVERIES, Mongo, at_once};
use crate::domain::delivery::{
    Deferral, Handover, Judged, Reopened, Reopening, Settlement, Verdict, digest_slot,
};
use crate::domain::lease::{furthest, furthest_wait};
use crate::domain::{Delivery, DeliveryId, DeliveryState, UserId};
use crate::store::{Deliveries, Result};

/// Rows that are reopened at the same time.
const REOPENED: usize = 8;

#[async_trait]
impl Deliveries for Mongo {
    async fn open(&self, rows: &[Delivery]) -> Result<Vec<bool>> {
        let doing = "opening deliveries";
        let encoded = encode(doing, rows.iter().map(record_of))?;
        let targets = vec![(DELIVERIES.to_owned(), (0..rows.len()).collect())];
        let inserted = self.bulk(doing, Verb::Insert, targets, |writer, item| {
            writer.fields(encoded[item].as_bytes());
        });
        let refused = inserted.await?.duplicates(doing)?;
        let mut opened = vec![true; rows.len()];
        for refused in &refused {
            opened[refused.item] = false;
        }
        // Refused when it was sent again: it may be our own row that is in the way.
        let doubtful: Vec<usize> = refused
            .iter()
            .filter(|refused| refused.resent)
            .map(|refused| refused.item)
            .collect();
        if !doubtful.is_empty() {
            let ids = doubtful.iter().map(|item| &rows[*item].id);
            let standing = self.rows(doing, ids).await?;
            for item in doubtful {
                let row = &rows[item];
                let ours = |standing: &Delivery| {
                    standing.marker == row.marker && standing.lease == row.lease
                };
                opened[item] = standing.get(&row.id).is_some_and(ours);
            }
        }
        Ok(opened)
    }

    async fn claim(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        limit: usize,
    ) -> Result<Vec<Delivery>> {
        // Every open row has a lease, if only one that is over; no closed row has.
        let over = doc! {"lease.until": {"$lte": date(now)}};
        // Nobody holds on for so long, and nothing waits for so long.
        let unbelieved = doc! {"lease.until": {"$gt": date(furthest(now))}, "$or": [
            {"lease.owner": {"$exists": true}},
            {"lease.until": {"$gt": date(furthest_wait(now))}},
        ]};
        let free = doc! {"$or": [over, unbelieved], "slot": {"$exists": true}};
        let lease = doc! {"owner": owner, "until": date(until)};
        let order = doc! {"slot": 1};
        let doing = "claiming deliveries";
        let claimed = self
            .claim_records(doing, DELIVERIES, &free, order, lease, limit)
            .await?;
        claimed.iter().map(delivery_of).collect()
    }

    async fn sending(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        handovers: &[Handover],
    ) -> Result<Vec<bool>> {
        let statement = |Handover { id, call, items }: &Handover, token: Oid| {
            let mut query = held(id, owner);
            // What was counted is not counted again when the command is.
            query.insert("stamp", doc! {"$ne": token});
            let update = doc! {
                "$set": {
                    "state": DeliveryState::Sending.as_str(),
                    "lease.until": date(until),
                    "call": call,
                    "items": i64::from(*items),
                    "tried": date(now),
                    "stamp": token,
                },
                "$inc": {"attempts": 1},
            };
            (Bson::from(id.as_str()), query, update)
        };
        let doing = "noting that mails are sent";
        self.stamped(doing, DELIVERIES, handovers, statement).await
    }

    async fn recall(&self, owner: &str, ids: &[DeliveryId]) -> Result<Vec<bool>> {
        let statement = |id: &DeliveryId, token: Oid| {
            let mut query = held(id, owner);
            let sending = DeliveryState::Sending.as_str();
            query.insert("$or", vec![doc! {"state": sending}, doc! {"stamp": token}]);
            let update = doc! {
                "$set": {"state": DeliveryState::Pending.as_str(), "stamp": token},
                "$unset": {"call": ""},
            };
            (Bson::from(id.as_str()), query, update)
        };
        self.stamped("taking mails back", DELIVERIES, ids, statement)
            .await
    }

    async fn hold(
        &self,
        owner: &str,
        until: DateTime<Utc>,
        ids: &[DeliveryId],
    ) -> Result<Vec<bool>> {
        let statement = |id: &DeliveryId, token: Oid| {
            let query = doc! {"_id": id.as_str(), "slot": {"$exists": true}, "lease.owner": owner};
            let update = doc! {"$set": {"lease.until": date(until), "stamp": token}};
            (Bson::from(id.as_str()), query, update)
        };
        self.stamped("holding deliveries", DELIVERIES, ids, statement)
            .await
    }

    async fn defer(&self, owner: &str, deferrals: &[Deferral]) -> Result<Vec<bool>> {
        let statement = |deferral: &Deferral, token: Oid| {
            // A lease of nobody's: it keeps everybody off until then, and no release ends it early.
            let mut set = doc! {
                "state": deferral.state.as_str(),
                "lease": {"until": date(deferral.not_before)},
                "stamp": token,
            };
            put(&mut set, "reason", deferral.reason.as_deref());
            // Who let go holds it no more, so nothing is counted twice.
            let query = held(&deferral.id, owner);
            let mut update = doc! {"$set": set};
            if deferral.refused {
                update.insert("$inc", doc! {"refusals": 1});
            }
            (Bson::from(deferral.id.as_str()), query, update)
        };
        self.stamped("deferring deliveries", DELIVERIES, deferrals, statement)
            .await
    }

    async fn take_call(
        &self,
        owner: &str,
        until: DateTime<Utc>,
        call: &str,
    ) -> Result<Vec<Delivery>> {
        let of_call = doc! {
            "call": call, "slot": {"$exists": true}, "state": DeliveryState::Sending.as_str()
        };
        let lease = doc! {"owner": owner, "until": date(until)};
        let order = doc! {"slot": 1};
        let doing = "taking over a call";
        let taken = self
            .claim_records(doing, DELIVERIES, &of_call, order, lease, usize::MAX)
            .await?;
        taken.iter().map(delivery_of).collect()
    }

    async fn settle(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        settlements: &[Settlement],
    ) -> Result<Vec<bool>> {
        let statement = |settlement: &Settlement, token: Oid| {
            let mut set = doc! {
                "state": settlement.state.as_str(),
                "items": i64::from(settlement.items),
                "settled": date(now),
                "stamp": token,
            };
            put(&mut set, "provider_id", settlement.provider_id.as_deref());
            put(&mut set, "reason", settlement.reason.as_deref());
            let mut update = doc! {"$set": set};
            // Why it waited is no reason any more.
            if settlement.reason.is_none() {
                update.insert("$unset", doc! {"reason": ""});
            }
            let query = held(&settlement.id, owner);
            (Bson::from(settlement.id.as_str()), query, update)
        };
        self.stamped("settling deliveries", DELIVERIES, settlements, statement)
            .await
    }

    async fn close(&self, ids: &[DeliveryId]) -> Result<()> {
        let doing = "closing deliveries";
        let settled = DeliveryState::ALL
            .into_iter()
            .filter(|state| state.settled());
        let settled: Vec<&str> = settled.map(DeliveryState::as_str).collect();
        let query = |id: &DeliveryId| doc! {"_id": id.as_str(), "state": {"$in": &settled}};
        let queries = encode(doing, ids.iter().map(query))?;
        let update = encode(
            doing,
            [doc! {"$unset": {"slot": "", "lease": ""}}].into_iter(),
        )?;
        let targets = vec![(DELIVERIES.to_owned(), (0..ids.len()).collect())];
        let closed = self.bulk(doing, Verb::Update, targets, |writer, item| {
            writer.encoded("q", queries[item].as_bytes());
            writer.encoded("u", update[0].as_bytes());
        });
        closed.await?.complete(doing).map(drop)
    }

    async fn release(&self, owner: &str) -> Result<()> {
        self.patiently("releasing deliveries", || {
            let deliveries = self.collection(DELIVERIES);
            // The first condition is for the index: it holds open rows only.
            let ever = date(DateTime::UNIX_EPOCH);
            let held = doc! {"lease.until": {"$gte": ever}, "lease.owner": owner};
            let release = doc! {"$set": {"lease": lease(None)}};
            async move { Ok(deliveries.update_many(held, release).await.map(drop)?) }
        })
        .await
    }

    async fn free_waiting(&self, now: DateTime<Utc>) -> Result<()> {
        self.patiently("letting deliveries leave that wait", || {
            let deliveries = self.collection(DELIVERIES);
            let waiting = doc! {
                "lease.until": {"$gt": date(now)}, "lease.owner": {"$exists": false},
                "state": DeliveryState::Pending.as_str(),
            };
            let free = doc! {"$set": {"lease": lease(None)}};
            async move { Ok(deliveries.update_many(waiting, free).await.map(drop)?) }
        })
        .await
    }

    async fn judge(
        &self,
        id: &DeliveryId,
        now: DateTime<Utc>,
        verdict: Verdict,
        reason: &str,
    ) -> Result<Judged> {
        let Some(row) = self.delivery(id).await? else {
            return Ok(Judged::NotUnknown);
        };
        let token = Oid::new();
        let unknown = doc! {
            "state": DeliveryState::Unknown.as_str(), "slot": {"$exists": false}
        };
        self.patiently("judging a delivery", || {
            let deliveries = self.collection(DELIVERIES);
            // With its own token it was judged by an attempt whose answer was lost.
            let judged = doc! {"_id": id.as_str(), "$or": [unknown.clone(), {"stamp": token}]};
            let update = match verdict {
                Verdict::Sent => doc! {"$set": {
                    "state": DeliveryState::Sent.as_str(), "settled": date(now), "reason": reason, "stamp": token,
                }},
                Verdict::NotSent => doc! {
                    "$set": {
                        "state": DeliveryState::Pending.as_str(),
                        "slot": row.slot(),
                        "lease": lease(None),
                        "reason": reason,
                        "stamp": token,
                    },
                    "$unset": {"settled": ""},
                },
            };
            async move {
                match deliveries.update_one(judged, update).await {
                    Ok(done) if done.matched_count == 1 => Ok(Judged::Done),
                    Ok(_) => Ok(Judged::NotUnknown),
                    Err(error) => match Failure::from(error) {
                        failure if failure.code == Some(DUPLICATE) => Ok(Judged::Busy),
                        failure => Err(failure),
                    },
                }
            }
        })
        .await
    }

    async fn reopen(&self, now: DateTime<Utc>, rows: &[Reopening]) -> Result<Vec<Reopened>> {
        let ids: Vec<DeliveryId> = rows.iter().map(|row| row.id.clone()).collect();
        let standing = self.deliveries(&ids).await?;
        let mut answers = vec![Reopened::NotFailed; rows.len()];
        let reopen = |place: usize| {
            let (row, standing) = (&rows[place], standing[place].as_ref());
            async move {
                let slot = standing.map(Delivery::slot);
                let answer = match slot {
                    Some(slot) => self.reopen_one(now, row, slot).await?,
                    None => Reopened::NotFailed,
                };
                Ok((place, answer))
            }
        };
        let answer = |(place, answer): (usize, Reopened)| answers[place] = answer;
        at_once(REOPENED, 0..rows.len(), reopen, answer).await?;
        if answers.contains(&Reopened::Done) {
            // Mails are built of what is read now, as after a claim.
            self.caught_up().await?;
        }
        Ok(answers)
    }

    async fn open_digests(&self, users: &[UserId]) -> Result<Vec<Option<Delivery>>> {
        let slots: Vec<String> = users.iter().map(digest_slot).collect();
        let filter = doc! {"slot": {"$in": &slots}};
        let doing = "reading open digests";
        let options = FindOptions::default();
        let found = self.find_all(doing, DELIVERIES, &filter, options).await?;
        let keyed = |row| {
            let delivery = delivery_of(row)?;
            Ok((delivery.slot(), delivery))
        };
        let found: HashMap<String, Delivery> = found.iter().map(keyed).collect::<Result<_>>()?;
        Ok(slots.iter().map(|slot| found.get(slot).cloned()).collect())
    }

    async fn delivery(&self, id: &DeliveryId) -> Result<Option<Delivery>> {
        let mut rows = self.rows("reading a delivery", [id].into_iter()).await?;
        Ok(rows.remove(id))
    }

    async fn deliveries(&self, ids: &[DeliveryId]) -> Result<Vec<Option<Delivery>>> {
        let rows = self.rows("reading deliveries", ids.iter()).await?;
        Ok(ids.iter().map(|id| rows.get(id).cloned()).collect())
    }

    async fn deliveries_in(&self, state: DeliveryState, limit: usize) -> Result<Vec<Delivery>> {
        let filter = doc! {"state": state.as_str()};
        self.newest("listing deliveries", filter, limit).await
    }

    async fn deliveries_of(&self, user: &UserId, limit: usize) -> Result<Vec<Delivery>> {
        let filter = doc! {"user": user.as_str()};
        self.newest("reading a person's deliveries", filter, limit)
            .await
    }

    async fn forget_deliveries(&self, before: DateTime<Utc>, limit: usize) -> Result<u64> {
        let unknown = DeliveryState::Unknown.as_str();
        let old = doc! {
            "settled": {"$lt": date(before)}, "state": {"$ne": unknown}, "slot": {"$exists": false},
        };
        self.forget_oldest("forgetting deliveries", DELIVERIES, &old, limit)
            .await
    }

    async fn delivery_counts(&self, states: &[DeliveryState]) -> Result<Vec<(DeliveryState, u64)>> {
        let mut counts = Vec::with_capacity(states.len());
        for state in states {
            let count = self.patiently("counting deliveries", || {
                let deliveries = self.collection(DELIVERIES);
                let found = doc! {"state": state.as_str()};
                async move { self.count_of(deliveries.count_documents(found)).await }
            });
            counts.push((*state, count.await?));
        }
        Ok(counts)
    }
}

/// Rows that are not settled and that this owner holds.
fn held(id: &DeliveryId, owner: &str) -> Document {
    let open = [
        DeliveryState::Pending.as_str(),
        DeliveryState::Sending.as_str(),
    ];
    doc! {
        "_id": id.as_str(), "slot": {"$exists": true}, "state": {"$in": open.as_slice()}, "lease.owner": owner
    }
}

impl Mongo {
    async fn reopen_one(
        &self,
        now: DateTime<Utc>,
        row: &Reopening,
        slot: String,
    ) -> Result<Reopened> {
        let token = Oid::new();
        let failed = doc! {
            "state": DeliveryState::Failed.as_str(), "slot": {"$exists": false}
        };
        let mut set = doc! {
            "state": DeliveryState::Pending.as_str(),
            "slot": slot,
            "lease": lease(row.lease.as_ref()),
            "created": date(now),
            "refusals": 0,
            "reopened": i64::from(row.reopened),
            "stamp": token,
        };
        if let Some(reach) = &row.watermarks {
            set.insert("covers", watermarks(reach));
        }
        let unset = doc! {"settled": "", "call": "", "tried": "", "provider_id": ""};
        self.patiently("trying a delivery again", || {
            let deliveries = self.collection(DELIVERIES);
            // With its own token it was reopened by an attempt whose answer was lost.
            let which = [failed.clone(), doc! {"stamp": token}];
            let which = doc! {"_id": row.id.as_str(), "$or": which.as_slice()};
            let update = doc! {"$set": set.clone(), "$unset": unset.clone()};
            async move {
                match deliveries.update_one(which, update).await {
                    Ok(done) if done.matched_count == 1 => Ok(Reopened::Done),
                    Ok(_) => Ok(Reopened::NotFailed),
                    Err(error) => match Failure::from(error) {
                        failure if failure.code == Some(DUPLICATE) => Ok(Reopened::Busy),
                        failure => Err(failure),
                    },
                }
            }
        })
        .await
    }

    /// Removes `limit` of these records, those settled first before others; says how many went.
    pub(super) async fn forget_oldest(
        &self,
        doing: &str,
        collection: &str,
        old: &Document,
        limit: usize,
    ) -> Result<u64> {
        let oldest = FindOptions::builder()
            .sort(doc! {"settled": 1})
            .limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .projection(doc! {"_id": 1})
            .build();
        let found = self.find_all(doing, collection, old, oldest).await?;
        let ids: Vec<&Bson> = found
            .iter()
            .filter_map(|record| record.get("_id"))
            .collect();
        if !ids.is_empty() {
            self.patiently(doing, || {
                let mut these = doc! {"_id": {"$in": &ids}};
                these.extend(old.clone());
                let records = self.collection(collection);
                async move { Ok(records.delete_many(these).await.map(drop)?) }
            })
            .await?;
        }
        Ok(ids.len() as u64)
    }

    async fn newest(&self, doing: &str, filter: Document, limit: usize) -> Result<Vec<Delivery>> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let options = FindOptions::builder()
            .sort(doc! {"created": -1, "_id": -1})
            .limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .build();
        let found = self.find_all(doing, DELIVERIES, &filter, options).await?;
        found.iter().map(delivery_of).collect()
    }

    async fn rows(
        &self,
        doing: &str,
        ids: impl Iterator<Item = &DeliveryId>,
    ) -> Result<HashMap<DeliveryId, Delivery>> {
        let names: Vec<&str> = ids.map(DeliveryId::as_str).collect();
        let filter = doc! {"_id": {"$in": names}};
        let found = self
            .find_all(doing, DELIVERIES, &filter, FindOptions::default())
            .await?;
        let keyed = |row| {
            let delivery = delivery_of(row)?;
            Ok((delivery.id.clone(), delivery))
        };
        found.iter().map(keyed).collect()
    }
}
