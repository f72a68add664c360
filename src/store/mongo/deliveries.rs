//! The ledger of every mail.
//!
//! The rule: two unique keys carry P2: the row's id, and the slot, which a row has only while it is
//! open. Every change of state is a conditional write that leaves its token ([`super::leases`]), so
//! a change that was done is never done or denied a second time.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use bson::oid::ObjectId as Oid;
use bson::{Bson, Document, doc};
use chrono::{DateTime, Utc};
use mongodb::options::FindOptions;

use super::bulk::Verb;
use super::journal::encode;
use super::record::{Record, date, lease, oid, put};
use super::{DELIVERIES, Mongo};
use crate::domain::delivery::Settlement;
use crate::domain::{Covers, Delivery, DeliveryId, DeliveryState, StackId, UserId};
use crate::store::{Deliveries, Result};

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
        let free = doc! {"lease.until": {"$lte": date(now)}, "slot": {"$exists": true}};
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
        until: DateTime<Utc>,
        ids: &[DeliveryId],
    ) -> Result<Vec<bool>> {
        let statement = |id: &DeliveryId, token: Oid| {
            let mut query = held(id, owner);
            // What was counted is not counted again when the command is.
            query.insert("stamp", doc! {"$ne": token});
            let update = doc! {
                "$set": {"state": DeliveryState::Sending.as_str(), "lease.until": date(until), "stamp": token},
                "$inc": {"attempts": 1},
            };
            (Bson::from(id.as_str()), query, update)
        };
        self.stamped("noting that mails are sent", DELIVERIES, ids, statement)
            .await
    }

    async fn defer(
        &self,
        owner: &str,
        not_before: DateTime<Utc>,
        ids: &[DeliveryId],
    ) -> Result<Vec<bool>> {
        let statement = |id: &DeliveryId, token: Oid| {
            let mut query = held(id, owner);
            query.insert("state", DeliveryState::Sending.as_str());
            // A lease of nobody's: it keeps everybody off until then, and no release ends it early.
            let update = doc! {"$set": {
                "state": DeliveryState::Pending.as_str(),
                "lease": {"until": date(not_before)},
                "stamp": token,
            }};
            (Bson::from(id.as_str()), query, update)
        };
        self.stamped("deferring deliveries", DELIVERIES, ids, statement)
            .await
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
            let query = held(&settlement.id, owner);
            (
                Bson::from(settlement.id.as_str()),
                query,
                doc! {"$set": set},
            )
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

    async fn delivery(&self, id: &DeliveryId) -> Result<Option<Delivery>> {
        let mut rows = self.rows("reading a delivery", [id].into_iter()).await?;
        Ok(rows.remove(id))
    }

    async fn deliveries_of(&self, user: &UserId, limit: usize) -> Result<Vec<Delivery>> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let options = FindOptions::builder()
            .sort(doc! {"created": -1, "_id": -1})
            .limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .build();
        let doing = "reading a person's deliveries";
        let filter = doc! {"user": user.as_str()};
        let found = self.find_all(doing, DELIVERIES, &filter, options).await?;
        found.iter().map(delivery_of).collect()
    }

    async fn known(&self, ids: &[DeliveryId]) -> Result<Vec<bool>> {
        let names: Vec<&str> = ids.iter().map(DeliveryId::as_str).collect();
        let filter = doc! {"_id": {"$in": names}};
        let options = FindOptions::builder().projection(doc! {"_id": 1}).build();
        let found = self
            .find_all("looking deliveries up", DELIVERIES, &filter, options)
            .await?;
        let known: HashSet<&str> = found
            .iter()
            .filter_map(|row| row.get_str("_id").ok())
            .collect();
        Ok(ids.iter().map(|id| known.contains(id.as_str())).collect())
    }

    async fn delivery_counts(&self) -> Result<Vec<(DeliveryState, u64)>> {
        let mut counts = Vec::with_capacity(DeliveryState::ALL.len());
        for state in DeliveryState::ALL {
            let count = self.patiently("counting deliveries", || {
                let deliveries = self.collection(DELIVERIES);
                async move {
                    Ok(deliveries
                        .count_documents(doc! {"state": state.as_str()})
                        .await?)
                }
            });
            counts.push((state, count.await?));
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

fn record_of(delivery: &Delivery) -> Document {
    let cover =
        |(stack, n): &(StackId, u32)| Bson::from(doc! {"s": stack.to_string(), "n": i64::from(*n)});
    let mut row = doc! {
        "_id": delivery.id.as_str(),
        "user": delivery.user.as_str(),
        "cadence": delivery.cadence.as_str(),
        "period": &delivery.period,
        "state": delivery.state.as_str(),
        "covers": delivery.covers.iter().map(cover).collect::<Vec<_>>(),
        "marker": oid(delivery.marker),
        "attempts": i64::from(delivery.attempts),
        "items": i64::from(delivery.items),
        "created": date(delivery.created),
    };
    if delivery.open {
        row.insert("slot", delivery.slot());
        row.insert("lease", lease(delivery.lease.as_ref()));
    }
    put(&mut row, "settled", delivery.settled.map(date));
    put(&mut row, "provider_id", delivery.provider_id.as_deref());
    put(&mut row, "reason", delivery.reason.as_deref());
    row
}

fn delivery_of(row: &Document) -> Result<Delivery> {
    let delivery = Record::new("delivery", row);
    let text = |field| Ok(delivery.text(field)?.map(str::to_owned));
    Ok(Delivery {
        id: DeliveryId::stored(delivery.needs("_id", delivery.text("_id")?)?),
        user: UserId::stored(delivery.needs("user", delivery.text("user")?)?),
        cadence: delivery.needs("cadence", delivery.parsed("cadence")?)?,
        period: delivery.needs("period", text("period")?)?,
        state: delivery.needs("state", delivery.parsed("state")?)?,
        open: delivery.text("slot")?.is_some(),
        covers: covers_of(&delivery)?,
        marker: delivery.needs("marker", delivery.id("marker")?)?,
        lease: delivery.lease("lease")?,
        attempts: delivery.count32("attempts")?.unwrap_or(0),
        items: delivery.count32("items")?.unwrap_or(0),
        created: delivery.needs("created", delivery.time("created")?)?,
        settled: delivery.time("settled")?,
        provider_id: text("provider_id")?,
        reason: text("reason")?,
    })
}

fn covers_of(delivery: &Record<'_>) -> Result<Covers> {
    let cover = |cover: &Bson| {
        let fields = cover
            .as_document()
            .ok_or_else(|| delivery.corrupt("covers", "it holds no documents"))?;
        let cover = Record::new("a delivery's covers", fields);
        let stack = cover.needs("s", cover.parsed("s")?)?;
        Ok((stack, cover.needs("n", cover.count32("n")?)?))
    };
    let covers = delivery.needs("covers", delivery.list("covers")?)?;
    covers.iter().map(cover).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Cadence, Day, Form, Id, Lease, Period};

    fn row() -> Delivery {
        let created = DateTime::from_timestamp(1_398_124_800, 0).unwrap();
        let (user, day) = (UserId::stored("a.b"), Day::of(created));
        let period = Period::Day(created.date_naive());
        Delivery {
            id: DeliveryId::digest(&user, Cadence::Daily, period),
            user,
            cadence: Cadence::Daily,
            period: period.to_string(),
            state: DeliveryState::Pending,
            open: true,
            covers: vec![
                (
                    StackId {
                        day,
                        form: Form::ObjectId,
                    },
                    3,
                ),
                (StackId::of(day), u32::MAX),
            ],
            marker: Id::from_bytes([1; 12]),
            lease: Some(Lease {
                owner: "me".into(),
                until: created,
            }),
            attempts: 0,
            items: 0,
            created,
            settled: None,
            provider_id: None,
            reason: None,
        }
    }

    #[test]
    fn a_row_is_read_as_written() {
        let settled = Delivery {
            state: DeliveryState::Unknown,
            settled: Some(row().created),
            provider_id: Some("<1@example.org>".into()),
            reason: Some("time-out".into()),
            attempts: 2,
            items: 7,
            ..row()
        };
        let closed = Delivery {
            open: false,
            lease: None,
            ..settled.clone()
        };
        let free = Delivery {
            lease: None,
            ..row()
        };
        for row in [row(), free, settled, closed] {
            assert_eq!(delivery_of(&record_of(&row)).unwrap(), row);
        }
    }

    #[test]
    fn only_an_open_row_occupies_its_slot() {
        assert_eq!(record_of(&row()).get_str("slot").unwrap(), "digest:a.b");
        let closed = Delivery {
            open: false,
            ..row()
        };
        let record = record_of(&closed);
        assert!(!record.contains_key("slot") && !record.contains_key("lease"));
    }
}
