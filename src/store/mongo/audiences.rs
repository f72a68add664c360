//! Stores long audiences: named users that do not fit into the fan-out's document.
//!
//! All parts are written, to a majority, before the fan-out that counts them, so a stored fan-out
//! has all its parts (P1). A crash may leave parts without a fan-out. Their event was never
//! accepted: they are not read, and are removed later.

use std::collections::HashMap;

use bson::{Bson, Document, RawDocumentBuf, doc};
use chrono::{DateTime, Utc};
use compact_str::CompactString;
use serde::Deserialize;

use super::bulk::Verb;
use super::{AUDIENCES, FANOUTS, Mongo, in_order, oid};
use crate::domain::{Fanout, Id, Selector, UserId};
use crate::store::record::fields::Oid;
use crate::store::record::read_fields;
use crate::store::{Error, Result};

/// The approximate number of bytes of users per document. A longer audience has several parts. A
/// command takes 8 MB.
const PART: usize = 6 << 20;
/// The bytes that a user takes besides the id: type, array index, length and terminators.
const EACH: usize = 14;

/// Splits a fan-out's users into parts. Returns none if they fit into its own document.
pub(super) fn parts(fanout: &Fanout) -> Vec<&[UserId]> {
    let Selector::Users(users) = &fanout.audience.to else {
        return Vec::new();
    };
    let (mut parts, mut begin, mut bytes) = (Vec::new(), 0, 0);
    for (index, user) in users.iter().enumerate() {
        let more = user.as_str().len() + EACH;
        if bytes + more > PART {
            parts.push(&users[begin..index]);
            (begin, bytes) = (index, 0);
        }
        bytes += more;
    }
    if !parts.is_empty() {
        parts.push(&users[begin..]);
    }
    parts
}

fn part_id(fanout: &Bson, n: i32) -> Bson {
    Bson::Document(doc! {"f": fanout, "n": n})
}

/// Some of the users of a fan-out.
#[derive(Deserialize)]
struct Part {
    #[serde(rename = "_id")]
    id: PartId,
    users: Vec<CompactString>,
}

#[derive(Deserialize)]
struct PartId {
    f: Oid,
}

impl Mongo {
    /// Writes the parts of these fan-outs, before the fan-outs themselves. Can be repeated.
    pub(super) async fn put_audiences<'a>(
        &self,
        doing: &str,
        fanouts: impl Iterator<Item = &'a Fanout>,
    ) -> Result<()> {
        let records = fanouts.flat_map(|fanout| {
            let parts = parts(fanout).into_iter().enumerate();
            parts.map(|(n, users)| {
                let users: Vec<&str> = users.iter().map(UserId::as_str).collect();
                doc! {"_id": part_id(&oid(fanout.id), n as i32), "users": users}
            })
        });
        let records: Vec<Document> = records.collect();
        let written = self.write(doing, Verb::Insert, AUDIENCES, records);
        // A duplicate is the same part, sent again.
        written.await?.duplicates(doing)?;
        Ok(())
    }

    /// Removes the parts of fan-outs that were not accepted.
    pub(super) async fn remove_audiences(&self, doing: &str, fanouts: &[Bson]) -> Result<u64> {
        if fanouts.is_empty() {
            return Ok(0);
        }
        let one = |fanout: &Bson| {
            let (from, to) = (part_id(fanout, 0), part_id(fanout, i32::MAX));
            doc! {"_id": {"$gte": from, "$lte": to}}
        };
        let filter = doc! {"$or": fanouts.iter().map(one).collect::<Vec<_>>()};
        self.delete_matching(doing, AUDIENCES, &filter).await
    }

    /// Adds the users to these fan-outs. `counted` has the number of parts of each. Returns the
    /// fan-outs with missing parts.
    pub(super) async fn fill_audiences(
        &self,
        doing: &str,
        fanouts: &mut [Fanout],
        counted: &HashMap<Id, usize>,
    ) -> Result<Vec<(Id, Error)>> {
        if counted.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<Bson> = counted
            .iter()
            .flat_map(|(id, parts)| (0..*parts).map(|n| part_id(&oid(*id), n as i32)))
            .collect();
        let (filter, order) = (doc! {"_id": {"$in": ids}}, doc! {"_id": 1});
        let all = in_order(order, usize::MAX);
        let found = self.find_raw(doing, AUDIENCES, &filter, all).await?;
        let mut people: HashMap<Id, (usize, Vec<UserId>)> = HashMap::with_capacity(counted.len());
        for part in &found {
            match read_fields::<Part>("audience", part) {
                Ok(part) => {
                    let (parts, all) = people.entry(part.id.f.0).or_default();
                    *parts += 1;
                    all.extend(part.users.into_iter().map(UserId::stored));
                }
                // An unreadable part counts as missing.
                Err(error) => tracing::warn!(%error, "a part of an audience is passed over"),
            }
        }
        let mut lost = Vec::new();
        for fanout in fanouts {
            let Some(counted) = counted.get(&fanout.id) else {
                continue;
            };
            match people.remove(&fanout.id) {
                Some((parts, users)) if parts == *counted => {
                    fanout.audience.to = Selector::Users(users);
                }
                found => {
                    let parts = found.map_or(0, |(parts, _)| parts);
                    let why = format!("{parts} of its {counted} parts were found");
                    let what = format!("the audience of fan-out {}", fanout.id);
                    lost.push((fanout.id, Error::corrupt(what, why)));
                }
            }
        }
        Ok(lost)
    }

    /// Removes parts of events from before this time that were never accepted. Returns how many.
    pub(super) async fn forget_audiences(
        &self,
        before: DateTime<Utc>,
        limit: usize,
    ) -> Result<u64> {
        let doing = "looking for audiences that were never accepted";
        let end = part_id(&oid(Id::at(before, [0; 8])), 0);
        // Parts are deleted if their fan-out is missing, so reads must be current.
        self.caught_up().await?;
        let pipeline = [
            doc! {"$match": {"_id": {"$lt": end}}},
            doc! {"$group": {"_id": "$_id.f"}},
            doc! {"$lookup": {"from": FANOUTS, "localField": "_id", "foreignField": "_id", "as": "accepted"}},
            doc! {"$match": {"accepted": []}},
            doc! {"$limit": i64::try_from(limit).unwrap_or(i64::MAX)},
        ];
        let found = self
            .aggregate(doing, Some(AUDIENCES), &pipeline, None)
            .await?;
        let id = |group: &RawDocumentBuf| Bson::try_from(group.get("_id").ok()??).ok();
        let ids: Vec<Bson> = found.iter().filter_map(id).collect();
        self.remove_audiences("forgetting audiences", &ids).await
    }
}
