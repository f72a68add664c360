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
use super::{AUDIENCES, FANOUTS, Mongo, date, given, oid};
use crate::domain::audience::SMALL;
use crate::domain::coordination::LONGEST_LEASE;
use crate::domain::{
    ChangeNotice, Details, Event, FanOutCounts, FanOutProgress, Fanout, Id, Lease, Selector, UserId,
};
use crate::store::entry::{count_of, object_id};
use crate::store::record::fanout::{DetailsRecord, FanoutRecord};
use crate::store::record::{read_bson, read_fields, shown_id};
use crate::store::{
    Acceptance, AtMost, BadFanout, Claimed, Error, Journal, PendingFanouts, Result,
};

#[async_trait]
impl Journal for Mongo {
    async fn accept(&self, fanouts: &[Fanout]) -> Result<Vec<Acceptance>> {
        let mut keys = HashSet::new();
        let (first, repeated): (Vec<usize>, Vec<usize>) =
            (0..fanouts.len()).partition(|item| keys.insert(fanouts[*item].key.as_str()));
        let mut known: HashSet<usize> = repeated.into_iter().collect();
        let records = fanouts.iter().map(FanoutRecord::whole);
        let records = self.encode(CommandKind::Insert, FANOUTS, records)?;
        let insert = |item: usize| (records[item].clone(), 1);
        let inserted = self.bulk(CommandKind::Insert, FANOUTS, first, insert);
        let refused = inserted.await?.duplicates()?;
        known.extend(refused.iter().map(|refused| refused.item));
        let wanted: Vec<&str> = known.iter().map(|item| &*fanouts[*item].key).collect();
        let stored = self.stored_under(&wanted).await?;
        // If the insert was sent twice, it may have conflicted with its own document.
        let doubtful = refused.iter().filter(|refused| refused.resent);
        let doubtful: HashSet<usize> = doubtful.map(|refused| refused.item).collect();
        let answer = |(item, fanout): (usize, &Fanout)| {
            if !known.contains(&item) {
                return Ok(Acceptance::New);
            }
            let conflict = || Error::Conflict(format!("fan-out {}", fanout.id));
            let stored = stored.get(&fanout.key).ok_or_else(conflict)?;
            Ok(match doubtful.contains(&item) && stored.id == fanout.id {
                true => Acceptance::New,
                false => Acceptance::Known(Box::new(stored.clone())),
            })
        };
        fanouts.iter().enumerate().map(answer).collect()
    }

    async fn claim_fanouts(
        &self,
        lease: &Lease,
        now: DateTime<Utc>,
        most: AtMost,
    ) -> Result<Claimed> {
        let free = doc! {
            "state": PENDING,
            "$or": [
                {"lease.until": Bson::Null},
                {"lease.until": {"$lte": date(now)}},
                {"lease.until": {"$gt": date(now + LONGEST_LEASE)}},
            ],
        };
        let find = || self.free_fanouts(&free, most);
        let records = self.claim_raw(FANOUTS, &free, doc! {"_id": 1}, lease, find);
        let records = records.await?;
        let mut claimed = Claimed::default();
        for raw in &records {
            match self.whole_fanout(raw).await {
                Ok(fanout) => claimed.fanouts.push(fanout),
                Err(error) if error.is_outage() => return Err(error),
                Err(error) => {
                    claimed.bad.push(BadFanout { id: shown_id(raw), reason: error.to_string() })
                }
            }
        }
        Ok(claimed)
    }

    async fn save_fanouts(
        &self,
        lease: &Lease,
        progress: &[(Id, FanOutProgress)],
    ) -> Result<Vec<bool>> {
        let save = |(id, progress): &(Id, FanOutProgress), revision: ObjectId| {
            let (set, unset) = match progress.done {
                true => (doc! {"state": DONE}, doc! {"lease": ""}),
                false => (doc! {"lease.until": date(lease.until)}, doc! {}),
            };
            let cursor = progress.cursor.as_ref().map(UserId::as_str);
            let mut change = Change {
                when: doc! {"state": PENDING, "lease.owner": &lease.owner},
                set,
                unset,
                own: given(doc! {"counts": counts_of(progress.counts), "cursor": cursor}),
                ..Change::default()
            };
            change.set.insert("stamp", revision);
            (oid(*id), change)
        };
        self.change_each(FANOUTS, progress, save).await
    }

    async fn fanout(&self, id: Id) -> Result<Option<Fanout>> {
        match self.find_by_id(FANOUTS, [oid(id)]).raw().await?.first() {
            Some(raw) => self.whole_fanout(raw).await.map(Some),
            None => Ok(None),
        }
    }

    async fn details(&self, ids: &[Id]) -> Result<Vec<Option<Details>>> {
        let found = self.find_by_id(FANOUTS, ids.iter().map(|id| oid(*id)));
        let found = found.fields(doc! {"details": 1}).raw().await?;
        let read = |raw: &RawDocumentBuf| {
            let id = raw.get_object_id("_id").ok()?;
            let details = read_bson::<DetailsRecord>(raw.get_document("details").ok()?);
            Some((id, if_readable(details)?))
        };
        let found: HashMap<ObjectId, Details> = found.iter().filter_map(read).collect();
        let details = ids.iter().map(|id| found.get(&object_id(*id)).cloned());
        Ok(details.collect())
    }

    async fn newest_events(&self, limit: usize) -> Result<Vec<Vec<Event>>> {
        let newest = self.find(FANOUTS, doc! {}).sort(doc! {"_id": -1});
        // Without the named users, which may be many.
        let fields = doc! {
            "key": 1, "type": 1, "objects": 1, "day": 1, "at": 1, "state": 1,
            "audience.parts": {"$literal": 0},
        };
        let found = newest.limit(limit).fields(fields).raw().await?;
        let read = |raw: &RawDocumentBuf| if_readable(read_bson::<FanoutRecord>(raw));
        let found = found.iter().filter_map(read);
        Ok(found.map(|fanout| fanout.events().collect()).collect())
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
        for found in self.aggregate(Some(FANOUTS), pipeline).await? {
            let first = found.get_object_id("first").ok();
            let oldest = first.map(|id| Id::from_bytes(id.bytes()).time());
            pending.add(found.get_str("_id").unwrap_or_default(), oldest);
        }
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
        self.update_matching(FANOUTS, theirs, doc! {"$unset": words}).await?;
        self.notify(ChangeNotice::All).await;
        Ok(())
    }

    async fn stored_under(&self, keys: &[&str]) -> Result<HashMap<String, Fanout>> {
        if keys.is_empty() {
            return Ok(HashMap::new());
        }
        let mut stored = HashMap::new();
        let found = self.find(FANOUTS, doc! {"key": {"$in": keys}});
        for raw in &found.raw().await? {
            let fanout = self.whole_fanout(raw).await?;
            stored.insert(fanout.key.clone(), fanout);
        }
        Ok(stored)
    }

    /// Returns the oldest free fan-outs, and the small ones after them up to the first that is not
    /// small. An entry contains its named users and may be long, so only a few are read at a time.
    async fn free_fanouts(&self, free: &Document, most: AtMost) -> Result<Vec<Bson>> {
        // Other programs may have written a value that is not a list.
        let few = |field: &str, otherwise: bool| {
            let few = doc! {"$lte": [{"$size": field}, SMALL as i32]};
            doc! {"$cond": [{"$isArray": field}, few, otherwise]}
        };
        let is_small = doc! {"$and": [few("$audience.users", false), few("$except", true)]};
        let (mut ids, mut behind) = (Vec::<Bson>::new(), free.clone());
        let end = most.any + most.small;
        while ids.len() < end {
            let limit = READ_AT_ONCE.min(end - ids.len());
            let found = self.find(FANOUTS, behind.clone()).sort(doc! {"_id": 1});
            let found = found.limit(limit).fields(doc! {"small": &is_small});
            let found = found.raw().await?;
            for raw in &found {
                let is_next = ids.len() < most.any || matches!(raw.get_bool("small"), Ok(true));
                match id_of(raw).filter(|_| is_next) {
                    Some(id) => ids.push(id),
                    None => return Ok(ids),
                }
            }
            match ids.last() {
                Some(last) if found.len() == limit => behind.insert("_id", doc! {"$gt": last}),
                _ => break,
            };
        }
        Ok(ids)
    }

    /// Reads a fan-out with an audience that may be in parts.
    pub(super) async fn whole_fanout(&self, raw: &RawDocument) -> Result<Fanout> {
        let mut fanout = read_bson::<FanoutRecord>(raw)?;
        let Some(parts) = parts_of(raw) else {
            return Ok(fanout);
        };
        let id = oid(fanout.id);
        let ids = (0..parts).map(|n| part_id(&id, n as i32));
        let stored = self.find_by_id(AUDIENCES, ids).sort(doc! {"_id": 1});
        // An unreadable part counts as missing.
        let read = |part: &RawDocumentBuf| {
            if_readable(read_fields::<StoredAudiencePart>("audience", part))
        };
        let found: Vec<StoredAudiencePart> = stored.raw().await?.iter().filter_map(read).collect();
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
    read.inspect_err(|error| tracing::warn!(%error, "a fan-out is passed over")).ok()
}

fn counts_of(counts: FanOutCounts) -> Document {
    // BSON integers are signed. No count gets that far.
    let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    doc! {"people": count(counts.people), "pushed": count(counts.pushed), "capped": count(counts.capped)}
}

/// The `_id` of a part of the users of a fan-out.
pub(super) fn part_id(fanout: &Bson, n: i32) -> Bson {
    Bson::Document(doc! {"f": fanout, "n": n})
}

/// Returns the number of documents in which an earlier version stored the users of a fan-out.
pub(super) fn parts_of(fanout: &RawDocument) -> Option<u32> {
    let audience = fanout.get_document("audience").ok()?;
    audience.get("parts").ok()?.and_then(count_of)
}

/// Some of the users of a fan-out.
#[derive(Deserialize)]
struct StoredAudiencePart {
    users: Vec<CompactString>,
}
