//! People who stand close together on a day, named in one statement.
//!
//! The rule: to name many people in one statement costs the server a half to a third of what a
//! statement for each would. On a clustered collection `$in` alone would read all of it (MongoDB
//! 6.0), so such a statement reads from the first to the last, and is used only where few others
//! stand in between. On an ordinary one each is looked up, however far apart they stand; a day that
//! was made anew behind our back, clustered now, is read slowly, but with the right result. A
//! router of a sharded cluster sends what names many to all shards, so there each is named alone,
//! here and in [`super::additions`].

use bson::{Bson, Document, doc};

use super::Mongo;
use super::patience::{if_soon, limit};
use crate::store::Result;

/// From so many people on it pays to ask how close together they stand.
pub(super) const MANY: usize = 32;
/// People of one statement.
pub(super) const TOGETHER: usize = 250;
/// Documents that are read for each that is written to, at most: passing one by costs a thirtieth
/// of a statement.
const PASSED_BY: usize = 8;

/// From the first of these sorted ids to the last.
fn range(sorted: &[Bson]) -> Vec<Document> {
    let ends = sorted.first().zip(sorted.last());
    ends.map_or_else(Vec::new, |(first, last)| {
        vec![doc! {"_id": {"$gte": first}}, doc! {"_id": {"$lte": last}}]
    })
}

/// These sorted ids, and nobody in between.
pub(super) fn between(sorted: &[Bson]) -> Document {
    let mut which = range(sorted);
    which.push(doc! {"_id": {"$in": sorted}});
    doc! {"$and": which}
}

impl Mongo {
    /// Whether few others stand between the first of these sorted ids and the last. Of many, those
    /// in the middle are asked about first: where they are strewn, so are most.
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

    /// The same, all of them at once. A server that takes too long to say so counts too many.
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

    /// The `_id`s that a query finds; nothing where the server takes too long to say.
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
