//! Stores suppressed addresses: one document each,
//! `{_id: <folded address>, reason, at, source, detail, lifted}`.
//!
//! The statement that writes also decides on the server whether the new suppression replaces the
//! stored one. So a race cannot let the less severe reason win.

use std::collections::HashMap;

use async_trait::async_trait;
use bson::{Bson, Document, doc};
use chrono::{DateTime, Utc};
use mongodb::options::FindOptions;

use super::bulk::Write;
use super::values::{date, in_order};
use super::{Mongo, SOFT_BOUNCES, SUPPRESSIONS};
use crate::domain::{Address, DeliveryId, Reason, Suppression};
use crate::store::record::fields::As;
use crate::store::record::suppression::SuppressionRecord;
use crate::store::record::write_bson;
use crate::store::types::graver;
use crate::store::{Error, Result, Suppressions};

#[async_trait]
impl Suppressions for Mongo {
    async fn suppress(&self, suppressions: &[Suppression]) -> Result<()> {
        let doing = "suppressing addresses";
        let statement = |news: &Suppression| {
            let lighter = Reason::ALL.into_iter().filter(|other| *other < news.reason);
            let lighter: Vec<&str> = lighter.map(Reason::as_str).collect();
            // A missing `lifted` sorts before every date.
            let is_later = doc! {"$gt": [date(news.at), "$lifted"]};
            let outweighs = doc! {"$and": [is_later, {"$or": [
                {"$eq": [{"$type": "$reason"}, "missing"]},
                {"$lte": ["$at", "$lifted"]},
                {"$in": ["$reason", lighter]},
                {"$and": [{"$eq": ["$reason", news.reason.as_str()]}, {"$gt": ["$at", date(news.at)]}]},
            ]}]};
            let record = literal(
                doing,
                &Suppression {
                    lifted: None,
                    ..news.clone()
                },
            )?;
            let record = doc! {"$mergeObjects": [record, {"lifted": "$lifted"}]};
            let news_stands = doc! {"$cond": [outweighs, record, "$$ROOT"]};
            Ok(Write {
                q: doc! {"_id": news.address.folded().reveal()},
                u: [doc! {"$replaceWith": news_stands}],
                upsert: true,
            })
        };
        let statements: Vec<_> = suppressions.iter().map(statement).collect::<Result<_>>()?;
        self.upsert(doing, SUPPRESSIONS, statements).await
    }

    async fn suppressed(&self, addresses: &[Address]) -> Result<Vec<Option<Suppression>>> {
        if addresses.is_empty() {
            return Ok(Vec::new());
        }
        let spellings: Vec<Vec<Address>> = addresses.iter().map(Address::spellings).collect();
        let names: Vec<&str> = spellings.iter().flatten().map(Address::reveal).collect();
        let filter = doc! {"_id": {"$in": names}};
        let doing = "looking for suppressed addresses";
        let options = FindOptions::default();
        let found = self
            .find_records::<SuppressionRecord>(doing, SUPPRESSIONS, &filter, options)
            .await?;
        let keyed = |found: Suppression| (found.address.clone(), found);
        let found = found.into_iter().filter(|stored| !stored.is_lifted());
        let found: HashMap<Address, Suppression> = found.map(keyed).collect();
        // The most severe one, for all spellings that earlier versions may have stored.
        let gravest = |spellings: &Vec<Address>| {
            let known = spellings.iter().filter_map(|spelling| found.get(spelling));
            known.cloned().reduce(graver)
        };
        Ok(spellings.iter().map(gravest).collect())
    }

    async fn suppressions(
        &self,
        after: Option<&Address>,
        limit: usize,
    ) -> Result<Vec<Suppression>> {
        let from = after.map(Address::lowered);
        let mut filter = not_lifted();
        let from = from.as_ref().map_or("", Address::reveal);
        filter.insert("_id", doc! {"$gt": from});
        let options = in_order(doc! {"_id": 1}, limit);
        let doing = "listing suppressed addresses";
        self.find_records::<SuppressionRecord>(doing, SUPPRESSIONS, &filter, options)
            .await
    }

    async fn lift(
        &self,
        address: &Address,
        at: DateTime<Utc>,
        expired: DateTime<Utc>,
    ) -> Result<bool> {
        let doing = "lifting a suppression";
        let stored = self.suppressed(std::slice::from_ref(address)).await?.pop();
        let stored = stored.flatten();
        if let Some(stored) = &stored {
            // If the address was suppressed again since that read, it stays suppressed.
            let lifted = doc! {"lifted": date(at.max(stored.at))};
            let record = literal(doing, stored)?;
            let write = Write {
                q: doc! {"_id": stored.address.folded().reveal()},
                u: [doc! {"$replaceWith": {"$mergeObjects": [record, "$$ROOT", lifted]}}],
                upsert: true,
            };
            self.upsert(doing, SUPPRESSIONS, [write]).await?;
        }
        let folded = address.folded();
        let mut others = address.spellings();
        others.retain(|spelling| *spelling != folded);
        self.patiently(doing, || {
            let (suppressions, bounces) =
                (self.collection(SUPPRESSIONS), self.collection(SOFT_BOUNCES));
            let names: Vec<&str> = others.iter().map(Address::reveal).collect();
            let theirs = address.spellings();
            let theirs: Vec<Document> = theirs.iter().map(of_address).collect();
            let over = doc! {
                "lifted": {"$lt": date(expired)},
                "$expr": {"$lte": ["$at", "$lifted"]},
            };
            let gone = doc! {"$or": [{"_id": {"$in": names}}, over]};
            async move {
                bounces.delete_many(doc! {"$or": theirs}).await?;
                suppressions.delete_many(gone).await?;
                Ok(())
            }
        })
        .await?;
        Ok(stored.is_some())
    }

    async fn lifts(&self, addresses: &[Address]) -> Result<Vec<Option<DateTime<Utc>>>> {
        if addresses.is_empty() {
            return Ok(Vec::new());
        }
        let folded: Vec<Address> = addresses.iter().map(Address::folded).collect();
        let names: Vec<&str> = folded.iter().map(Address::reveal).collect();
        let filter = doc! {"_id": {"$in": names}, "lifted": {"$exists": true}};
        let doing = "looking for lifted suppressions";
        let found = self
            .find_records::<SuppressionRecord>(doing, SUPPRESSIONS, &filter, FindOptions::default())
            .await?;
        let lifted = |stored: Suppression| Some((stored.address, stored.lifted?));
        let lifted: HashMap<_, _> = found.into_iter().filter_map(lifted).collect();
        let moment = |address: &Address| lifted.get(address).copied();
        Ok(folded.iter().map(moment).collect())
    }

    async fn soft_bounce(
        &self,
        address: &Address,
        delivery: &DeliveryId,
        at: DateTime<Utc>,
        since: DateTime<Utc>,
    ) -> Result<u64> {
        let address = address.folded();
        let doing = "noting a soft bounce";
        let note = Write {
            q: doc! {"_id": {"a": address.reveal(), "d": delivery.as_str()}},
            u: doc! {"$min": {"at": date(at)}},
            upsert: true,
        };
        self.upsert(doing, SOFT_BOUNCES, [note]).await?;
        self.patiently(doing, || {
            let bounces = self.collection(SOFT_BOUNCES);
            let mut over = of_address(&address);
            over.insert("at", doc! {"$lt": date(since)});
            async move { Ok(bounces.delete_many(over).await.map(drop)?) }
        })
        .await?;
        self.matching(doing, SOFT_BOUNCES, &of_address(&address))
            .await
    }
}

/// Encodes a suppression as an expression, in which a dollar sign does not start a field path.
fn literal(doing: &'static str, suppression: &Suppression) -> Result<Document> {
    let record = write_bson(doing, &SuppressionRecord::keep(suppression))?;
    let record = Document::try_from(record).map_err(|error| Error::corrupt(doing, error))?;
    Ok(doc! {"$literal": record})
}

/// Selects the documents that suppress an address now, as [`Suppression::is_lifted`] does.
pub(super) fn not_lifted() -> Document {
    doc! {"$or": [{"lifted": {"$exists": false}}, {"$expr": {"$gt": ["$at", "$lifted"]}}]}
}

/// Selects the soft bounces of an address. Documents compare field by field, and `{}` sorts after
/// all text.
fn of_address(address: &Address) -> Document {
    let address = address.reveal();
    doc! {"_id": {"$gte": {"a": address, "d": ""}, "$lt": {"a": address, "d": Bson::Document(Document::new())}}}
}
