//! People who stand close together on a day, named in one statement.
//!
//! The rule: to name many people in one statement costs the server a half to a third of what a
//! statement for each would. On a clustered collection `$in` alone would read all of it (MongoDB
//! 6.0), so such a statement reads from the first to the last, and is used only where few others
//! stand in between. A router of a sharded cluster sends what names many to all shards, so there
//! each is named alone.

use bson::{Bson, Document, doc};

use super::Mongo;
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
    /// Whether few others stand between the first of these sorted ids and the last.
    pub(super) async fn stand_close(
        &self,
        doing: &str,
        collection: &str,
        sorted: &[Bson],
    ) -> Result<bool> {
        let (range, most) = (range(sorted), sorted.len() * PASSED_BY);
        let standing = self.patiently(doing, || {
            let collection = self.collection(collection);
            let filter = doc! {"$and": range.clone()};
            async move {
                let count = collection.count_documents(filter).limit(most as u64 + 1);
                self.count_of(count).await
            }
        });
        Ok(standing.await? <= most as u64)
    }
}
