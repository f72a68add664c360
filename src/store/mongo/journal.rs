//! The journal of accepted events.
//!
//! Accepting an event is one durable insert, and the unique key decides which of several requests
//! is first. Each conditional write leaves a revision, which shows whether it took effect. Earlier
//! versions wrote long lists of users to `audiences`, in parts, before the fan-out that counts
//! them.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use bson::oid::ObjectId;
use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use chrono::{DateTime, Utc};
use compact_str::CompactString;
use serde::Deserialize;

use super::bulk::CommandKind;
use super::grouped_updates::Change;
use super::reads::id_of;
use super::{AUDIENCES, FANOUTS, Mongo, date, oid, without_nulls};
use crate::domain::audience::MAX_SMALL_AUDIENCE;
use crate::domain::coordination::MAX_LEASE;
use crate::domain::{
    ChangeNotice, Details, Event, Fanout, FanoutCounts, FanoutProgress, Id, Lease, Selector, UserId,
};
use crate::store::entry::{object_id, read_count};
use crate::store::record::fanout::{DetailsRecord, FanoutRecord};
use crate::store::record::{deserialize_document, format_id, read_bson};
use crate::store::{
    Acceptance, ClaimLimit, ClaimedFanouts, Error, Journal, PendingFanouts, Result,
    UnreadableFanout,
};

#[async_trait]
impl Journal for Mongo {
    async fn accept(&self, fanouts: &[Fanout]) -> Result<Vec<Acceptance>> {
        let mut keys = HashSet::new();
        let (first, repeated): (Vec<usize>, Vec<usize>) =
            (0..fanouts.len()).partition(|index| keys.insert(fanouts[*index].key.as_str()));
        let records = fanouts.iter().map(FanoutRecord::with_audience);
        let documents = self.encode(CommandKind::Insert, FANOUTS, records)?;
        let insert = |index: usize| (documents[index].clone(), 1);
        let outcome = self.send_all(CommandKind::Insert, FANOUTS, first, insert).await?;
        let duplicates = outcome.duplicates()?;
        let mut known: HashSet<usize> = repeated.into_iter().collect();
        known.extend(duplicates.iter().map(|duplicate| duplicate.item));
        let known_keys: Vec<&str> = known.iter().map(|index| &*fanouts[*index].key).collect();
        let stored = self.fanouts_by_key(&known_keys).await?;
        let resent = duplicates.iter().filter(|duplicate| duplicate.is_resent);
        let resent_indices: HashSet<usize> = resent.map(|duplicate| duplicate.item).collect();
        let acceptance = |(index, fanout): (usize, &Fanout)| {
            if !known.contains(&index) {
                return Ok(Acceptance::New);
            }
            let conflict = || Error::Conflict(format!("fan-out {}", fanout.id));
            let stored = stored.get(&fanout.key).ok_or_else(conflict)?;
            // If the insert was sent twice, it may have conflicted with its own document.
            let is_own = resent_indices.contains(&index) && stored.id == fanout.id;
            Ok(if is_own {
                Acceptance::New
            } else {
                Acceptance::Duplicate(Box::new(stored.clone()))
            })
        };
        fanouts.iter().enumerate().map(acceptance).collect()
    }

    async fn claim_fanouts(
        &self,
        lease: &Lease,
        now: DateTime<Utc>,
        limit: ClaimLimit,
    ) -> Result<ClaimedFanouts> {
        let free = doc! {
            "state": PENDING,
            "$or": [
                {"lease.until": Bson::Null},
                {"lease.until": {"$lte": date(now)}},
                {"lease.until": {"$gt": date(now + MAX_LEASE)}},
            ],
        };
        let find = || self.free_fanouts(&free, limit);
        let documents = self.claim_raw(FANOUTS, &free, doc! {"_id": 1}, lease, find).await?;
        let mut claimed = ClaimedFanouts::default();
        for raw in &documents {
            match self.read_fanout(raw).await {
                Ok(fanout) => claimed.fanouts.push(fanout),
                Err(error) if error.is_outage() => return Err(error),
                Err(error) => claimed
                    .bad
                    .push(UnreadableFanout { id: format_id(raw), reason: error.to_string() }),
            }
        }
        Ok(claimed)
    }

    async fn save_fanouts(
        &self,
        lease: &Lease,
        progress: &[(Id, FanoutProgress)],
    ) -> Result<Vec<bool>> {
        let save = |(id, progress): &(Id, FanoutProgress), revision: ObjectId| {
            let (mut set, unset) = if progress.done {
                (doc! {"state": DONE}, doc! {"lease": ""})
            } else {
                (doc! {"lease.until": date(lease.until)}, doc! {})
            };
            set.insert("stamp", revision);
            let cursor = progress.cursor.as_ref().map(UserId::as_str);
            let change = Change {
                when: doc! {"state": PENDING, "lease.owner": &lease.owner},
                set,
                unset,
                own: without_nulls(doc! {
                    "counts": counts_document(progress.counts), "cursor": cursor,
                }),
                ..Change::default()
            };
            (oid(*id), change)
        };
        self.change_each(FANOUTS, progress, save).await
    }

    async fn fanout(&self, id: Id) -> Result<Option<Fanout>> {
        match self.find_by_id(FANOUTS, [oid(id)]).raw().await?.first() {
            Some(raw) => self.read_fanout(raw).await.map(Some),
            None => Ok(None),
        }
    }

    async fn details(&self, ids: &[Id]) -> Result<Vec<Option<Details>>> {
        let find = self.find_by_id(FANOUTS, ids.iter().map(|id| oid(*id)));
        let found = find.fields(doc! {"details": 1}).raw().await?;
        let read = |raw: &RawDocumentBuf| {
            let id = raw.get_object_id("_id").ok()?;
            let details = read_bson::<DetailsRecord>(raw.get_document("details").ok()?);
            Some((id, if_readable(details)?))
        };
        let details_by_id: HashMap<ObjectId, Details> = found.iter().filter_map(read).collect();
        Ok(ids.iter().map(|id| details_by_id.get(&object_id(*id)).cloned()).collect())
    }

    async fn newest_events(&self, limit: usize) -> Result<Vec<Vec<Event>>> {
        // Without the named users, which may be many.
        let fields = doc! {
            "key": 1, "type": 1, "objects": 1, "day": 1, "at": 1, "state": 1,
            "audience.parts": {"$literal": 0},
        };
        let newest = self.find(FANOUTS, doc! {}).sort(doc! {"_id": -1}).limit(limit);
        let found = newest.fields(fields).raw().await?;
        let read = |raw: &RawDocumentBuf| if_readable(read_bson::<FanoutRecord>(raw));
        Ok(found
            .iter()
            .filter_map(read)
            .map(|fanout| fanout.entries_per_user().collect())
            .collect())
    }

    async fn pending(&self, limit: usize) -> Result<PendingFanouts> {
        // The index on `state` covers this query.
        let pipeline = vec![
            doc! {"$match": {"state": PENDING}},
            doc! {"$sort": {"_id": 1}},
            doc! {"$limit": i64::try_from(limit).unwrap_or(i64::MAX)},
            doc! {"$project": {"_id": 1, "day": 1}},
            doc! {"$group": {"_id": "$day", "first": {"$min": "$_id"}}},
        ];
        let mut pending = PendingFanouts::default();
        for group in self.aggregate(Some(FANOUTS), pipeline).await? {
            let first = group.get_object_id("first").ok();
            let oldest = first.map(|id| Id::from_bytes(id.bytes()).time());
            pending.add(group.get_str("_id").unwrap_or_default(), oldest);
        }
        Ok(pending)
    }
}

const FANOUTS_PER_READ: usize = 128;
pub(super) const PENDING: &str = "pending";
pub(super) const DONE: &str = "done";

impl Mongo {
    /// Removes a user as an actor, and the text and data of the user's events.
    pub(super) async fn forget_actor(&self, user: &UserId) -> Result<()> {
        let by_user = doc! {"details.actor.id": user.as_str()};
        let fields = doc! {"details.actor": "", "details.text": "", "details.data": ""};
        self.update_matching(FANOUTS, by_user, doc! {"$unset": fields}).await?;
        self.notify(ChangeNotice::All).await;
        Ok(())
    }

    async fn fanouts_by_key(&self, keys: &[&str]) -> Result<HashMap<String, Fanout>> {
        let mut fanouts_by_key = HashMap::new();
        if keys.is_empty() {
            return Ok(fanouts_by_key);
        }
        for raw in &self.find(FANOUTS, doc! {"key": {"$in": keys}}).raw().await? {
            let fanout = self.read_fanout(raw).await?;
            fanouts_by_key.insert(fanout.key.clone(), fanout);
        }
        Ok(fanouts_by_key)
    }

    /// Returns the ids of the oldest free fan-outs, and of the small ones after them up to the
    /// first that is not small. A fan-out may name many users, so only a few are read at a time.
    async fn free_fanouts(&self, free: &Document, limit: ClaimLimit) -> Result<Vec<Bson>> {
        // Other programs may have written a value that is not a list.
        let is_short = |list: &str, otherwise: bool| {
            let is_short = doc! {"$lte": [{"$size": list}, MAX_SMALL_AUDIENCE as i32]};
            doc! {"$cond": [{"$isArray": list}, is_short, otherwise]}
        };
        let is_small =
            doc! {"$and": [is_short("$audience.users", false), is_short("$except", true)]};
        let (mut ids, mut unread) = (Vec::<Bson>::new(), free.clone());
        let max = limit.any + limit.small;
        while ids.len() < max {
            let count = FANOUTS_PER_READ.min(max - ids.len());
            let oldest = self.find(FANOUTS, unread.clone()).sort(doc! {"_id": 1}).limit(count);
            let found = oldest.fields(doc! {"small": &is_small}).raw().await?;
            for raw in &found {
                let is_next = ids.len() < limit.any || matches!(raw.get_bool("small"), Ok(true));
                match id_of(raw).filter(|_| is_next) {
                    Some(id) => ids.push(id),
                    None => return Ok(ids),
                }
            }
            match ids.last() {
                Some(last) if found.len() == count => unread.insert("_id", doc! {"$gt": last}),
                _ => break,
            };
        }
        Ok(ids)
    }

    /// Reads a fan-out with an audience that may be in parts.
    pub(super) async fn read_fanout(&self, raw: &RawDocument) -> Result<Fanout> {
        let mut fanout = read_bson::<FanoutRecord>(raw)?;
        let Some(parts) = part_count(raw) else {
            return Ok(fanout);
        };
        let id = oid(fanout.id);
        let ids = (0..parts).map(|n| part_id(&id, n as i32));
        let documents = self.find_by_id(AUDIENCES, ids).sort(doc! {"_id": 1}).raw().await?;
        // An unreadable part counts as missing.
        let read = |part: &RawDocumentBuf| {
            if_readable(deserialize_document::<StoredAudiencePart>("audience", part))
        };
        let found: Vec<StoredAudiencePart> = documents.iter().filter_map(read).collect();
        if found.len() != parts as usize {
            let what = format!("the audience of fan-out {}", fanout.id);
            let why = format!("{} of its {parts} parts were found", found.len());
            return Err(Error::corrupt(what, why));
        }
        let users = found.into_iter().flat_map(|part| part.users);
        fanout.audience.to = Selector::Users(users.map(UserId::stored).collect());
        Ok(fanout)
    }
}

/// Returns `None` for an unreadable record, so that it does not hide all others.
fn if_readable<T>(read: Result<T>) -> Option<T> {
    read.inspect_err(|error| tracing::warn!(%error, "a fan-out is skipped")).ok()
}

fn counts_document(counts: FanoutCounts) -> Document {
    // BSON integers are signed, but no count is that large.
    let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    doc! {"people": count(counts.people), "pushed": count(counts.pushed), "capped": count(counts.capped)}
}

/// Returns the `_id` of a part of the users of a fan-out.
pub(super) fn part_id(fanout: &Bson, n: i32) -> Bson {
    Bson::Document(doc! {"f": fanout, "n": n})
}

/// Returns the number of documents in which an earlier version stored the users of a fan-out.
pub(super) fn part_count(fanout: &RawDocument) -> Option<u32> {
    let audience = fanout.get_document("audience").ok()?;
    audience.get("parts").ok()?.and_then(read_count)
}

/// Some of the users of a fan-out.
#[derive(Deserialize)]
struct StoredAudiencePart {
    users: Vec<CompactString>,
}
