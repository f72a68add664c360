//! Stores accumulators and batches, many at a time.
//!
//! An accumulator is replaced only if it still has the revision that was read, and gets a new one.
//! A repeated statement recognizes its own revision. So no change is lost, and none happens twice.
//! Events are added to open batches without reading them if all conditions hold.

use std::collections::HashSet;

use async_trait::async_trait;
use bson::{Bson, Document, doc};
use chrono::{DateTime, Utc};

use super::bulk::{CommandKind, Replacement, Update, delete_one};
use super::grouped_updates::{TOGETHER, update_of};
use super::{ACCUMULATORS, BATCHES, Mongo, date, given, oid};
use crate::domain::batch::{Accumulator, AccumulatorId, Addition, BatchItem, Keep};
use crate::domain::coordination::LONGEST_LEASE;
use crate::domain::{Batch, BatchKey, BatchState, EventType, Id, ObjectId, UserId};
use crate::store::record::batch::{AccumulatorRecord, BatchRecord};
use crate::store::traits::in_order_of;
use crate::store::types::page;
use crate::store::{AccumulatorFilter, BatchFilter, Batches, Result};

#[async_trait]
impl Batches for Mongo {
    async fn put_accumulators(
        &self,
        accumulators: &[Accumulator],
        revision: Id,
    ) -> Result<Vec<bool>> {
        let (gone, left): (Vec<&Accumulator>, Vec<&Accumulator>) =
            accumulators.iter().partition(|one| one.is_empty());
        let replace = |one: &&Accumulator| Replacement {
            id: accumulator_id(&one.id).into(),
            read: one.revision.map(oid),
            revision: oid(revision),
            record: AccumulatorRecord::document(one, revision),
        };
        let records = left.iter().map(replace).collect();
        let replaced = self.replace_each(ACCUMULATORS, "stamp", records);
        let replaced = left.iter().zip(replaced.await?).filter(|(_, done)| *done);
        let mut done: HashSet<&AccumulatorId> = replaced.map(|(one, _)| &one.id).collect();
        let remove = |one: &&Accumulator| {
            let stamp = one.revision.map_or(Bson::Null, oid);
            delete_one(doc! {"_id": accumulator_id(&one.id), "stamp": stamp})
        };
        let removed = self.write(CommandKind::Delete, ACCUMULATORS, gone.iter().map(remove));
        removed.await?.complete()?;
        let ids = || gone.iter().map(|one| Bson::from(accumulator_id(&one.id)));
        let left = self.find_by_id(ACCUMULATORS, ids()).ids().await?;
        let removed = gone.iter().zip(ids()).filter(|(_, id)| !left.contains(id));
        done.extend(removed.map(|(one, _)| &one.id));
        let is_put = |one: &Accumulator| done.contains(&one.id);
        Ok(accumulators.iter().map(is_put).collect())
    }

    async fn add_to_open(
        &self,
        accumulators: &[(AccumulatorId, usize)],
        additions: &[Addition],
        revision: Id,
    ) -> Result<bool> {
        // A router's counts are reliable only for statements that name one document.
        let together = match self.is_routed().await? {
            true => 1,
            false => TOGETHER,
        };
        let mut groups = vec![Vec::new(); additions.len()];
        for (accumulator, addition) in accumulators {
            groups[*addition].push(Bson::from(accumulator_id(accumulator)));
        }
        let (mut statements, mut similar) = (Vec::new(), Vec::<Vec<(Bson, &Addition)>>::new());
        for (mut ids, addition) in groups.into_iter().zip(additions) {
            if together > 1 && ids.len() == 1 {
                let one = (ids.remove(0), addition);
                match similar.iter_mut().find(|of| is_similar(of[0].1, addition)) {
                    Some(group) if group.len() < OWN => group.push(one),
                    _ => similar.insert(0, vec![one]),
                }
                continue;
            }
            let (when, update) = (fits(&[addition]), Bson::from(adding(addition, revision)));
            let parts = ids.chunks(together);
            statements.extend(parts.map(|ids| update_of(ids, when.clone(), update.clone())));
        }
        let own = similar.into_iter().map(|group| {
            let (ids, additions): (Vec<Bson>, Vec<&Addition>) = group.into_iter().unzip();
            let update = adding_own(&ids, &additions, revision);
            update_of(&ids, fits(&additions), Bson::from(update))
        });
        statements.extend(own);
        let outcome = self.write(CommandKind::Update, ACCUMULATORS, statements);
        Ok(outcome.await?.complete()? == accumulators.len() as u64)
    }

    async fn accumulators(&self, ids: &[AccumulatorId]) -> Result<Vec<Option<Accumulator>>> {
        let found = self.find_by_id(ACCUMULATORS, ids.iter().map(accumulator_id));
        let found = found.records::<AccumulatorRecord>().await?;
        Ok(in_order_of(ids, found, |accumulator| &accumulator.id))
    }

    async fn find_accumulators(
        &self,
        filter: &AccumulatorFilter<'_>,
        limit: usize,
    ) -> Result<Vec<Accumulator>> {
        let (filter, order) = match *filter {
            AccumulatorFilter::Due(now) => {
                let free = vec![
                    doc! {"lease.until": {"$lte": date(now)}},
                    doc! {"lease.until": {"$gt": date(now + LONGEST_LEASE)}},
                ];
                let due = doc! {"due": {"$lte": date(now)}, "$or": free};
                (due, doc! {"due": 1})
            }
            AccumulatorFilter::Of(batch) => {
                // The caller concludes that a missing batch does not exist, so the read must be
                // current.
                self.caught_up().await?;
                let here = doc! {"$or": [{"open.id": oid(batch)}, {"ended.id": oid(batch)}]};
                (here, Document::new())
            }
            AccumulatorFilter::Holding(kind, objects, after) => {
                // An accumulator that is missed keeps the retracted event, so the read must be
                // current.
                self.caught_up().await?;
                (holding(kind, objects, after), doc! {"_id": 1})
            }
        };
        let found = self.find(ACCUMULATORS, filter).sort(order).limit(limit);
        let mut found = found.records::<AccumulatorRecord>().await?;
        // Concurrent writes move accumulators within the index during the scan, so one may be found
        // twice.
        let mut met = HashSet::with_capacity(found.len());
        found.retain(|accumulator| met.insert(accumulator.id.clone()));
        Ok(found)
    }

    async fn file_batches(&self, batches: &[Batch]) -> Result<Vec<bool>> {
        let records = batches.iter().map(BatchRecord::filed);
        let filed = self.write(CommandKind::Insert, BATCHES, records).await?;
        let refused = filed.duplicates()?;
        let mut done = vec![true; batches.len()];
        let ids: Vec<Id> = refused.iter().map(|one| batches[one.item].id).collect();
        for (refused, stored) in refused.iter().zip(self.filed(&ids).await?) {
            let same = |stored: Batch| stored.has_same_events(&batches[refused.item]);
            done[refused.item] = stored.is_some_and(same);
        }
        Ok(done)
    }

    async fn settle_batches(&self, settled: &[(Id, BatchState)], now: DateTime<Utc>) -> Result<()> {
        let closing = BatchState::Closing.as_str();
        let settle = |(id, state): &(Id, BatchState)| {
            let set = doc! {"state": state.as_str(), "settled": date(now)};
            Update::new(doc! {"_id": oid(*id), "state": closing}, doc! {"$set": set})
        };
        let done = self.write(CommandKind::Update, BATCHES, settled.iter().map(settle));
        done.await?.complete().map(drop)
    }

    async fn filed(&self, ids: &[Id]) -> Result<Vec<Option<Batch>>> {
        let found = self.find_by_id(BATCHES, oids(ids));
        let found = found.records::<BatchRecord>().await?;
        Ok(in_order_of(ids, found, |batch| &batch.id))
    }

    async fn find_batches(&self, filter: &BatchFilter, limit: usize) -> Result<Vec<Batch>> {
        let (wanted, open) = (filter.state, BatchState::Open);
        let mut found = Vec::new();
        // Searches in the order in which batches move, so that none is missed.
        for (field, is_searched) in [
            ("open.id", wanted.is_none_or(|state| state == open)),
            // A batch that has ended is here for a moment, until it is filed.
            ("ended.id", wanted != Some(open)),
        ] {
            if is_searched {
                let there = self.accumulators_with(field, filter, limit);
                for accumulator in there.await? {
                    found.extend(accumulator.open.into_iter().chain(accumulator.ended));
                }
            }
        }
        found.retain(|batch| wanted.is_none_or(|state| state == batch.state));
        if wanted != Some(open) {
            let filed = given(doc! {
                "user": filter.user.as_ref().map(UserId::as_str),
                "key": filter.key.as_ref().map(BatchKey::to_string),
                "state": wanted.map(BatchState::as_str),
                "_id": filter.before.map(|before| doc! {"$lt": oid(before)}),
            });
            let filed = self.find(BATCHES, filed).sort(doc! {"_id": -1});
            found.extend(filed.limit(limit).records::<BatchRecord>().await?);
        }
        Ok(page(found, filter.before, limit))
    }
}

/// The most accumulators in a statement that adds different events: each looks up its own among
/// all of them.
const OWN: usize = 50;

/// Selects accumulators with such an event. Checking `open.id` makes the partial index usable.
fn holding(kind: &EventType, objects: &[ObjectId], after: Option<&AccumulatorId>) -> Document {
    let names: Vec<&str> = objects.iter().map(ObjectId::as_str).collect();
    given(doc! {
        "open.id": {"$exists": true},
        "open.items.o": {"$in": &names},
        "open.items": {"$elemMatch": {"t": kind.as_str(), "o": {"$in": names}}},
        "_id": after.map(|after| doc! {"$gt": accumulator_id(after)}),
    })
}

impl Mongo {
    /// Returns accumulators that have this field, newest first.
    async fn accumulators_with(
        &self,
        field: &str,
        filter: &BatchFilter,
        limit: usize,
    ) -> Result<Vec<Accumulator>> {
        let there = match filter.before {
            Some(before) => doc! {"$lt": oid(before)},
            None => doc! {"$exists": true},
        };
        let mut accumulators = doc! {field: there};
        if let Some(user) = &filter.user {
            let key = |key: Bson| doc! {"u": user.as_str(), "k": key};
            let theirs = doc! {"$gte": key("".into()), "$lt": key(Bson::MaxKey)};
            accumulators.insert("_id", theirs);
        }
        if let Some(key) = &filter.key {
            accumulators.insert("_id.k", key.to_string());
        }
        let found = self.find(ACCUMULATORS, accumulators).sort(doc! {field: -1});
        found.limit(limit).records::<AccumulatorRecord>().await
    }
}

fn oids(ids: &[Id]) -> Vec<Bson> {
    ids.iter().map(|id| oid(*id)).collect()
}

/// An accumulator's `_id`.
pub(super) fn accumulator_id(id: &AccumulatorId) -> Document {
    doc! {"u": id.user.as_str(), "k": id.key.to_string()}
}

/// Returns a filter with the conditions of `Addition::fits`. None of its fan-outs may have joined.
/// Of several similar additions, no accumulator may have a fan-out of any.
fn fits(additions: &[&Addition]) -> Document {
    let addition = additions[0];
    let fanouts: Vec<Bson> = additions.iter().flat_map(|one| oids(&one.fanouts)).collect();
    given(doc! {
        "open.policy": &addition.policy,
        "open.joined": {"$nin": &fanouts},
        "open.deferred": {"$exists": false},
        "ended": {"$exists": false},
        "memories.joined": {"$nin": fanouts},
        format!("open.joined.{}", addition.joined_to): {"$exists": false},
        "open.count": addition.count_to.map(|most| doc! {"$lte": most as i64}),
        "open.opened": addition.opened_from.map(|from| doc! {"$gte": date(from)}),
    })
}

/// Returns the update that adds to each of these open batches the items of its own addition, all
/// of them similar. One statement costs the server less than one for each.
fn adding_own(ids: &[Bson], additions: &[&Addition], revision: Id) -> Vec<Document> {
    let (first, place) = (additions[0], doc! {"$indexOfArray": [{"$literal": ids}, "$_id"]});
    let longer = |list: &str, values: Vec<Vec<Bson>>| {
        let own = doc! {"$arrayElemAt": [{"$literal": values}, &place]};
        doc! {"$concatArrays": [list, own]}
    };
    let items = additions.iter().map(|one| items(one)).collect();
    let joined = additions.iter().map(|one| oids(&one.fanouts)).collect();
    let last = |field: &str, at| doc! {"$max": [field, date(at)]};
    let set = doc! {
        "open.items": {"$slice": [longer("$open.items", items), slice(first)]},
        "open.joined": longer("$open.joined", joined),
        "open.count": {"$add": ["$open.count", first.items.len() as i64]},
        "open.last": last("$open.last", first.at),
        "open.closes": last("$open.closes", first.closes_from),
        "due": last("$due", first.closes_from),
        "stamp": oid(revision),
    };
    vec![doc! {"$set": set}]
}

/// Returns whether two additions differ only in their events and fan-outs.
fn is_similar(one: &Addition, other: &Addition) -> bool {
    let without = |of: &Addition| Addition { items: Vec::new(), fanouts: Vec::new(), ..of.clone() };
    let sizes = |of: &Addition| (of.items.len(), of.fanouts.len());
    sizes(one) == sizes(other) && without(one) == without(other)
}

fn items(addition: &Addition) -> Vec<Bson> {
    let item =
        |item: &BatchItem| doc! {"t": item.t.as_str(), "o": item.o.as_str(), "i": oid(item.i)};
    addition.items.iter().map(item).map(Bson::from).collect()
}

/// Returns how many items a batch keeps, as `$slice` counts: from the end if negative.
fn slice(addition: &Addition) -> i64 {
    match addition.keep {
        Keep::First(most) => most as i64,
        Keep::Last(most) => -(most as i64),
    }
}

/// Returns the update that adds the items to an open batch.
fn adding(addition: &Addition, revision: Id) -> Document {
    doc! {
        "$push": {
            "open.items": {"$each": items(addition), "$slice": slice(addition)},
            "open.joined": {"$each": oids(&addition.fanouts)},
        },
        "$inc": {"open.count": addition.items.len() as i64},
        "$max": {
            "open.last": date(addition.at),
            "open.closes": date(addition.closes_from),
            "due": date(addition.closes_from),
        },
        "$set": {"stamp": oid(revision)},
    }
}
