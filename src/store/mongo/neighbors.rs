//! Builds statements that each name many users with adjacent ids on one day.
//!
//! One such statement costs the server a half to a third as much as one per user. On MongoDB 6.0,
//! `$in` alone reads a whole clustered collection. So the statement also names the range of ids, if
//! few other users are in it. A router sends such a statement to all shards, so on a sharded
//! cluster each user gets a separate statement, here and in [`super::additions`].

use bson::{Bson, Document, doc};

use super::Mongo;
use super::patience::{if_soon, limit};
use crate::store::Result;

/// The number of users from which it pays to find out how close together their ids are.
pub(super) const MANY: usize = 32;
/// Users per statement.
pub(super) const TOGETHER: usize = 250;
/// The maximum number of documents read for each one written. To skip one costs a thirtieth of a
/// statement.
const PASSED_BY: usize = 8;

/// Returns the range from the first of these sorted ids to the last.
fn range(sorted: &[Bson]) -> Vec<Document> {
    let ends = sorted.first().zip(sorted.last());
    ends.map_or_else(Vec::new, |(first, last)| {
        vec![doc! {"_id": {"$gte": first}}, doc! {"_id": {"$lte": last}}]
    })
}

/// Matches these sorted ids, and reads only the range between them.
pub(super) fn between(sorted: &[Bson]) -> Document {
    let mut which = range(sorted);
    which.push(doc! {"_id": {"$in": sorted}});
    doc! {"$and": which}
}

impl Mongo {
    /// Returns whether few other documents are between the first and the last of these sorted ids.
    /// It checks the middle of a long list first: if its ids are far apart, most others are too.
    pub(super) async fn stand_close(
        &self,
        doing: &str,
        collection: &str,
        sorted: &[Bson],
    ) -> Result<bool> {
        if sorted.len() > 2 * MANY {
            let middle = (sorted.len() - MANY) / 2;
            let some = &sorted[middle..middle + MANY];
            if !self.has_few_between(doing, collection, some).await? {
                return Ok(false);
            }
        }
        self.has_few_between(doing, collection, sorted).await
    }

    /// Checks the whole range. Returns `false` if the server takes too long to count.
    async fn has_few_between(
        &self,
        doing: &str,
        collection: &str,
        sorted: &[Bson],
    ) -> Result<bool> {
        let (range, most) = (range(sorted), (sorted.len() * PASSED_BY) as u64);
        let limit = limit(self.0.options.attempt);
        let standing = self.patiently(doing, || {
            let collection = self.collection(collection);
            let filter = doc! {"$and": range.clone()};
            async move {
                let count = collection.count_documents(filter);
                let count = count.limit(most + 1).max_time(limit);
                if_soon(self.count_of(count).await)
            }
        });
        Ok(standing.await?.is_some_and(|standing| standing <= most))
    }

    /// Returns the `_id`s that a query finds; `None` if the server takes too long.
    pub(super) async fn ids_if_soon(
        &self,
        doing: &str,
        collection: &str,
        filter: &Document,
    ) -> Result<Option<Vec<Bson>>> {
        let limit = limit(self.0.options.attempt);
        let found = self.patiently(doing, || {
            let (collection, filter) = (self.collection(collection), filter.clone());
            async move {
                let find = collection.find(filter).projection(doc! {"_id": 1});
                if_soon(self.all_of(find.max_time(limit)).await)
            }
        });
        let id = |mut record: Document| record.remove("_id");
        let ids = |found: Vec<Document>| found.into_iter().filter_map(id).collect();
        Ok(found.await?.map(ids))
    }
}
