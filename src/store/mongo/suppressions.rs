//! Addresses that must not be written to: one document each, `{_id: <address, folded>, reason, at,
//! source, detail}`.
//!
//! The rule: which of two pieces of news stands is decided by the server, in the one statement that
//! writes, so no race can let the lighter one win.

use std::collections::HashMap;

use async_trait::async_trait;
use bson::{Bson, Document, doc};
use chrono::{DateTime, Utc};
use mongodb::options::FindOptions;

use super::bulk::Write;
use super::values::{date, in_order};
use super::{Mongo, SOFT_BOUNCES, SUPPRESSIONS};
use crate::domain::{Address, DeliveryId, Reason, Suppression};
use crate::store::feedback::graver;
use crate::store::record::fields::As;
use crate::store::record::suppression::SuppressionRecord;
use crate::store::record::write_bson;
use crate::store::{Error, Result, Suppressions};

#[async_trait]
impl Suppressions for Mongo {
    async fn suppress(&self, suppressions: &[Suppression]) -> Result<()> {
        let doing = "suppressing addresses";
        let statement = |news: &Suppression| {
            let lighter = Reason::ALL.into_iter().filter(|other| *other < news.reason);
            let lighter: Vec<&str> = lighter.map(Reason::as_str).collect();
            let outweighs = doc! {"$or": [
                {"$eq": [{"$type": "$reason"}, "missing"]},
                {"$in": ["$reason", lighter]},
                {"$and": [{"$eq": ["$reason", news.reason.as_str()]}, {"$gt": ["$at", date(news.at)]}]},
            ]};
            // Literally: a dollar in an address is no field's name.
            let record = write_bson(doing, &SuppressionRecord::keep(news))?;
            let record =
                Document::try_from(record).map_err(|error| Error::corrupt(doing, error))?;
            let news_stands = doc! {"$cond": [outweighs, {"$literal": record}, "$$ROOT"]};
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
        let found: HashMap<Address, Suppression> = found.into_iter().map(keyed).collect();
        // The gravest of what is known, however an older program wrote the address.
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
        let filter = doc! {"_id": {"$gt": from.as_ref().map_or("", Address::reveal)}};
        let options = in_order(doc! {"_id": 1}, limit);
        let doing = "listing suppressed addresses";
        self.find_records::<SuppressionRecord>(doing, SUPPRESSIONS, &filter, options)
            .await
    }

    async fn lift(&self, address: &Address) -> Result<bool> {
        // Asked first: a deletion that is repeated after a lost answer no longer knows.
        let stood = self.suppressed(std::slice::from_ref(address)).await?;
        let spellings = address.spellings();
        self.patiently("lifting a suppression", || {
            let (suppressions, bounces) =
                (self.collection(SUPPRESSIONS), self.collection(SOFT_BOUNCES));
            let names: Vec<&str> = spellings.iter().map(Address::reveal).collect();
            let theirs: Vec<Document> = spellings.iter().map(of_address).collect();
            let (all, theirs) = (doc! {"_id": {"$in": names}}, doc! {"$or": theirs});
            async move {
                bounces.delete_many(theirs).await?;
                suppressions.delete_many(all).await?;
                Ok(())
            }
        })
        .await?;
        Ok(stood.iter().any(Option::is_some))
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

/// All soft bounces of an address: documents compare field by field, and `{}` stands after every
/// text.
fn of_address(address: &Address) -> Document {
    let address = address.reveal();
    doc! {"_id": {"$gte": {"a": address, "d": ""}, "$lt": {"a": address, "d": Bson::Document(Document::new())}}}
}
