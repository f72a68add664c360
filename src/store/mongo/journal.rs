//! The journal of accepted events, and audiences that do not fit into the fan-out's document.
//!
//! Accepting an event is one durable insert, and the unique key decides which of several requests
//! is first. Each conditional write leaves a revision, which shows whether it took effect. All
//! parts of an audience are written before the fan-out that counts them (P1). A crash may leave
//! parts without a fan-out, whose event was never accepted; they are removed later.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use bson::oid::ObjectId;
use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use chrono::{DateTime, Utc};
use compact_str::CompactString;
use mongodb::options::FindOptions;
use serde::Deserialize;

use super::bulk::{Verb, encode};
use super::grouped::Change;
use super::{AUDIENCES, FANOUTS, Mongo, date, in_order, oid, put};
use crate::domain::audience::SMALL;
use crate::domain::coordination::furthest_lease;
use crate::domain::{ChangeNotice, Counts, Day, Fanout, Id, Progress, Selector, UserId};
use crate::store::record::fanout::{EventsRecord, FanoutRecord};
use crate::store::record::fields::Oid;
use crate::store::record::{read_bson, read_fields, shown_id};
use crate::store::{
    Accepted, AtMost, BadFanout, Claimed, Error, Journal, JournalEntry, JournalQuery,
    PendingFanouts, Result,
};

#[async_trait]
impl Journal for Mongo {
    async fn accept(&self, fanouts: &[Fanout]) -> Result<Vec<Accepted>> {
        let doing = "journalling events";
        let mut keys = HashSet::new();
        let (first, repeated): (Vec<usize>, Vec<usize>) =
            (0..fanouts.len()).partition(|item| keys.insert(fanouts[*item].key.as_str()));
        let mut known: HashSet<usize> = repeated.into_iter().collect();
        let record = |fanout| FanoutRecord::whole(fanout, parts(fanout).len());
        let encoded = encode(doing, fanouts.iter().map(record))?;
        self.put_audiences(doing, first.iter().map(|item| &fanouts[*item]))
            .await?;
        let inserted = self.write_some(doing, Verb::Insert, FANOUTS, &encoded, first);
        let refused = inserted.await?.duplicates(doing)?;
        known.extend(refused.iter().map(|refused| refused.item));
        let wanted: Vec<&str> = known.iter().map(|item| &*fanouts[*item].key).collect();
        let stored = self.stored_under(doing, &wanted).await?;
        let is_stored =
            |fanout: &Fanout| stored.get(&fanout.key).map(|found| found.id == fanout.id);
        let left = refused.iter().map(|refused| &fanouts[refused.item]);
        let left =
            left.filter(|fanout| is_stored(fanout) == Some(false) && !parts(fanout).is_empty());
        let left: Vec<Bson> = left.map(|fanout| oid(fanout.id)).collect();
        self.remove_audiences(doing, &left).await?;
        // If the insert was sent twice, it may have conflicted with its own document.
        let doubtful = refused.iter().filter(|refused| refused.resent);
        let doubtful: HashSet<usize> = doubtful.map(|refused| refused.item).collect();
        let answer = |(item, fanout): (usize, &Fanout)| {
            let is_own = doubtful.contains(&item) && is_stored(fanout) == Some(true);
            if !known.contains(&item) || is_own {
                return Ok(Accepted::New);
            }
            let conflict = || Error::Conflict {
                what: format!("fan-out {}", fanout.id),
            };
            let stored = stored.get(&fanout.key).ok_or_else(conflict)?;
            Ok(Accepted::Known(Box::new(stored.clone())))
        };
        fanouts.iter().enumerate().map(answer).collect()
    }

    async fn claim_fanouts(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        most: AtMost,
    ) -> Result<Claimed> {
        let doing = "claiming fan-outs";
        let free = doc! {
            "state": PENDING,
            "$or": [
                {"lease.until": Bson::Null},
                {"lease.until": {"$lte": date(now)}},
                {"lease.until": {"$gt": date(furthest_lease(now))}},
            ],
        };
        let lease = doc! {"owner": owner, "until": date(until)};
        let claimed = self.claim_raw(doing, FANOUTS, &free, doc! {"_id": 1}, lease, || {
            self.free_fanouts(doing, &free, most)
        });
        self.claimed_of(doing, &claimed.await?).await
    }

    async fn save_fanouts(
        &self,
        owner: &str,
        until: DateTime<Utc>,
        progress: &[(Id, Progress)],
    ) -> Result<Vec<bool>> {
        let save = |(id, progress): &(Id, Progress), revision: ObjectId| {
            let (mut set, mut unset) = (doc! {"stamp": revision}, Document::new());
            let mut own = doc! {"counts": counts_of(progress.counts)};
            let cursor = progress.cursor.as_ref().map(UserId::as_str);
            put(&mut own, "cursor", cursor);
            if progress.done {
                set.insert("state", DONE);
                unset.insert("lease", "");
            } else {
                set.insert("lease.until", date(until));
            }
            let change = Change {
                when: doc! {"state": PENDING, "lease.owner": owner},
                set,
                unset,
                own,
                ..Change::default()
            };
            (oid(*id), change)
        };
        self.change_each("saving fan-outs", FANOUTS, progress, save)
            .await
    }

    async fn fanout(&self, id: Id) -> Result<Option<Fanout>> {
        let found = self.find_by_id("reading a fan-out", FANOUTS, [oid(id)]);
        match found.await?.first() {
            Some(raw) => self.whole_fanout(raw).await.map(Some),
            None => Ok(None),
        }
    }

    async fn journal(&self, which: JournalQuery<'_>) -> Result<Vec<JournalEntry>> {
        let doing = "reading events";
        let (filter, mut options) = match which {
            JournalQuery::Ids(ids) => {
                let ids: Vec<Bson> = ids.iter().map(|id| oid(*id)).collect();
                (doc! {"_id": {"$in": ids}}, FindOptions::default())
            }
            JournalQuery::Newest(limit) => (doc! {}, in_order(doc! {"_id": -1}, limit)),
        };
        options.projection = Some(doc! {"type": 1, "objects": 1, "details": 1});
        let found = self.find_raw(doing, FANOUTS, &filter, options).await?;
        let read = |raw: &RawDocumentBuf| if_readable(read_bson::<EventsRecord>(raw));
        Ok(found.iter().filter_map(read).collect())
    }

    async fn pending(&self, limit: usize) -> Result<PendingFanouts> {
        // The index on `state` covers this query.
        let pipeline = [
            doc! {"$match": {"state": PENDING}},
            doc! {"$sort": {"_id": 1}},
            doc! {"$limit": i64::try_from(limit).unwrap_or(i64::MAX)},
            doc! {"$project": {"_id": 1, "day": 1}},
            doc! {"$group": {"_id": "$day", "first": {"$min": "$_id"}}},
        ];
        let doing = "reading pending fan-outs";
        let found = self.aggregate(doing, Some(FANOUTS), &pipeline, None);
        let mut pending = PendingFanouts::default();
        for found in found.await? {
            let first = found.get_object_id("first").ok();
            let at = first.map(|id| Id::from_bytes(id.bytes()).time());
            pending.oldest = pending.oldest.into_iter().chain(at).min();
            let group: Result<Group> = read_fields("a fan-out's day", &found);
            pending
                .days
                .extend(if_readable(group).map(|group| group.id));
        }
        pending.days.sort_unstable();
        Ok(pending)
    }
}

/// The number of entries that are read at once to find small audiences.
const READ_AT_ONCE: usize = 128;
pub(super) const PENDING: &str = "pending";
pub(super) const DONE: &str = "done";

impl Mongo {
    /// Removes a user as an actor, and the text and data of the user's events.
    pub(super) async fn forget_actor(&self, user: &UserId) -> Result<()> {
        let theirs = doc! {"details.actor.id": user.as_str()};
        let words = doc! {"details.actor": "", "details.text": "", "details.data": ""};
        let unset = doc! {"$unset": words};
        self.update_matching("erasing an actor", FANOUTS, &theirs, &unset)
            .await?;
        self.notify(ChangeNotice::All).await;
        Ok(())
    }

    async fn stored_under(&self, doing: &str, keys: &[&str]) -> Result<HashMap<String, Fanout>> {
        if keys.is_empty() {
            return Ok(HashMap::new());
        }
        let (filter, options) = (doc! {"key": {"$in": keys}}, FindOptions::default());
        let found = self.find_records::<FanoutRecord>(doing, FANOUTS, &filter, options);
        let fanouts = self.fanouts_of(doing, found.await?).await?.into_iter();
        Ok(fanouts.map(|fanout| (fanout.key.clone(), fanout)).collect())
    }

    /// Returns the oldest free fan-outs, and the small ones after them up to the first that is not
    /// small. An entry contains its named users and may be long, so only a few are read at a time.
    async fn free_fanouts(&self, doing: &str, free: &Document, most: AtMost) -> Result<Vec<Bson>> {
        let order = doc! {"_id": 1};
        let oldest = self.find_ids(doing, FANOUTS, free, order.clone(), most.any);
        let mut ids = oldest.await?;
        if ids.len() < most.any {
            return Ok(ids);
        }
        // Other programs may have written a value that is not a list.
        let few = |field: &str, otherwise: bool| {
            let few = doc! {"$lte": [{"$size": field}, SMALL as i32]};
            doc! {"$cond": [{"$isArray": field}, few, otherwise]}
        };
        let is_small = doc! {"$and": [few("$audience.users", false), few("$except", true)]};
        let end = ids.len() + most.small;
        while ids.len() < end
            && let Some(last) = ids.last()
        {
            let mut behind = free.clone();
            behind.insert("_id", doc! {"$gt": last});
            let limit = READ_AT_ONCE.min(end - ids.len());
            let mut options = in_order(order.clone(), limit);
            options.projection = Some(doc! {"small": &is_small});
            let found = self.find_raw(doing, FANOUTS, &behind, options).await?;
            for raw in &found {
                let id = raw.get("_id").ok().flatten().map(Bson::try_from);
                match (id, raw.get_bool("small")) {
                    (Some(Ok(id)), Ok(true)) => ids.push(id),
                    _ => return Ok(ids),
                }
            }
            if found.len() < limit {
                break;
            }
        }
        Ok(ids)
    }

    /// Reads a fan-out with an audience that may be in parts.
    pub(super) async fn whole_fanout(&self, raw: &RawDocument) -> Result<Fanout> {
        let found = vec![read_bson::<FanoutRecord>(raw)?];
        let mut fanouts = self.fanouts_of("reading a fan-out", found).await?;
        Ok(fanouts.remove(0))
    }

    /// Adds the users that are stored in parts to these fan-outs. Each comes with its number of
    /// parts.
    async fn fanouts_of(
        &self,
        doing: &str,
        found: Vec<(Fanout, Option<usize>)>,
    ) -> Result<Vec<Fanout>> {
        let counted = found.iter();
        let counted = counted.filter_map(|(fanout, parts)| Some((fanout.id, (*parts)?)));
        let counted: HashMap<Id, usize> = counted.collect();
        let mut fanouts: Vec<Fanout> = found.into_iter().map(|(fanout, _)| fanout).collect();
        let lost = self.fill_audiences(doing, &mut fanouts, &counted).await?;
        match lost.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(fanouts),
        }
    }

    /// Decodes claimed records, and reports those whose record or audience cannot be read.
    async fn claimed_of(&self, doing: &str, records: &[RawDocumentBuf]) -> Result<Claimed> {
        let (mut claimed, mut counted) = (Claimed::default(), HashMap::new());
        for raw in records {
            match read_bson::<FanoutRecord>(raw) {
                Ok((fanout, parts)) => {
                    counted.extend(parts.map(|parts| (fanout.id, parts)));
                    claimed.fanouts.push(fanout);
                }
                Err(error) => claimed.bad.push(BadFanout {
                    id: shown_id(raw),
                    reason: error.to_string(),
                }),
            }
        }
        let fanouts = &mut claimed.fanouts;
        for (id, error) in self.fill_audiences(doing, fanouts, &counted).await? {
            fanouts.retain(|fanout| fanout.id != id);
            claimed.bad.push(BadFanout {
                id: id.to_string(),
                reason: error.to_string(),
            });
        }
        Ok(claimed)
    }
}

/// Returns `None` for an unreadable record, so that it does not hide all others.
fn if_readable<T>(read: Result<T>) -> Option<T> {
    read.inspect_err(|error| tracing::warn!(%error, "a fan-out is passed over"))
        .ok()
}

#[derive(Deserialize)]
struct Group {
    #[serde(rename = "_id")]
    id: Day,
}

fn counts_of(counts: Counts) -> Document {
    // BSON integers are signed. No count gets that far.
    let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    doc! {"people": count(counts.people), "pushed": count(counts.pushed), "capped": count(counts.capped)}
}

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
