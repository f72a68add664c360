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
use super::grouped_updates::{RECORDS_PER_STATEMENT, update_statement};
use super::reads::in_order_of;
use super::{ACCUMULATORS, BATCHES, Mongo, date, oid, without_nulls};
use crate::domain::batch::{Accumulator, AccumulatorId, BatchAppend, BatchItem, Keep};
use crate::domain::coordination::MAX_LEASE;
use crate::domain::{Batch, BatchKey, BatchState, EventType, Id, ObjectId, UserId};
use crate::store::record::batch::{AccumulatorRecord, BatchRecord};
use crate::store::types::newest_page;
use crate::store::{AccumulatorFilter, BatchFilter, Batches, Result};

#[async_trait]
impl Batches for Mongo {
    async fn put_accumulators(
        &self,
        accumulators: &[Accumulator],
        revision: Id,
    ) -> Result<Vec<bool>> {
        let (empty, filled): (Vec<&Accumulator>, Vec<&Accumulator>) =
            accumulators.iter().partition(|accumulator| accumulator.is_empty());
        let replacement = |accumulator: &&Accumulator| Replacement {
            id: accumulator_id(&accumulator.id).into(),
            old_revision: accumulator.revision.map(oid),
            new_revision: oid(revision),
            record: AccumulatorRecord::for_document(accumulator, revision),
        };
        let records = filled.iter().map(replacement).collect();
        let is_replaced = self.replace_each(ACCUMULATORS, "stamp", records).await?;
        let replaced = filled.iter().zip(is_replaced).filter(|(_, is_replaced)| *is_replaced);
        let mut written: HashSet<&AccumulatorId> =
            replaced.map(|(accumulator, _)| &accumulator.id).collect();
        let delete = |accumulator: &&Accumulator| {
            let revision = accumulator.revision.map_or(Bson::Null, oid);
            delete_one(doc! {"_id": accumulator_id(&accumulator.id), "stamp": revision})
        };
        let deletes = empty.iter().map(delete);
        self.write(CommandKind::Delete, ACCUMULATORS, deletes).await?.complete()?;
        let ids = || empty.iter().map(|accumulator| Bson::from(accumulator_id(&accumulator.id)));
        let remaining = self.find_by_id(ACCUMULATORS, ids()).ids().await?;
        let deleted = empty.iter().zip(ids()).filter(|(_, id)| !remaining.contains(id));
        written.extend(deleted.map(|(accumulator, _)| &accumulator.id));
        let is_written = |accumulator: &Accumulator| written.contains(&accumulator.id);
        Ok(accumulators.iter().map(is_written).collect())
    }

    async fn add_to_open(
        &self,
        accumulators: &[(AccumulatorId, usize)],
        additions: &[BatchAppend],
        revision: Id,
    ) -> Result<bool> {
        // A router's counts are reliable only for statements that name one document.
        let size = if self.is_routed().await? { 1 } else { RECORDS_PER_STATEMENT };
        let mut ids_by_addition = vec![Vec::new(); additions.len()];
        for (accumulator, addition) in accumulators {
            ids_by_addition[*addition].push(Bson::from(accumulator_id(accumulator)));
        }
        let (mut statements, mut similar) = (Vec::new(), Vec::<Vec<(Bson, &BatchAppend)>>::new());
        for (mut ids, addition) in ids_by_addition.into_iter().zip(additions) {
            if size > 1 && ids.len() == 1 {
                let item = (ids.remove(0), addition);
                match similar.iter_mut().find(|group| is_similar(group[0].1, addition)) {
                    Some(group) if group.len() < ADDITIONS_PER_STATEMENT => group.push(item),
                    _ => similar.insert(0, vec![item]),
                }
                continue;
            }
            let (when, update) =
                (fits_condition(&[addition]), Bson::from(shared_update(addition, revision)));
            let chunks = ids.chunks(size);
            statements
                .extend(chunks.map(|ids| update_statement(ids, when.clone(), update.clone())));
        }
        statements.extend(similar.into_iter().map(|group| {
            let (ids, additions): (Vec<Bson>, Vec<&BatchAppend>) = group.into_iter().unzip();
            let update = individual_update(&ids, &additions, revision);
            update_statement(&ids, fits_condition(&additions), Bson::from(update))
        }));
        let outcome = self.write(CommandKind::Update, ACCUMULATORS, statements).await?;
        Ok(outcome.complete()? == accumulators.len() as u64)
    }

    async fn accumulators(&self, ids: &[AccumulatorId]) -> Result<Vec<Option<Accumulator>>> {
        let find = self.find_by_id(ACCUMULATORS, ids.iter().map(accumulator_id));
        let accumulators = find.records::<AccumulatorRecord>().await?;
        Ok(in_order_of(ids, accumulators, |accumulator| &accumulator.id))
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
                    doc! {"lease.until": {"$gt": date(now + MAX_LEASE)}},
                ];
                let due = doc! {"due": {"$lte": date(now)}, "$or": free};
                (due, doc! {"due": 1})
            }
            AccumulatorFilter::WithBatch(batch) => {
                // The caller concludes that a missing batch does not exist, so the read must be
                // current.
                self.caught_up().await?;
                let has_batch = doc! {"$or": [{"open.id": oid(batch)}, {"ended.id": oid(batch)}]};
                (has_batch, Document::new())
            }
            AccumulatorFilter::WithEvent(kind, objects, after) => {
                // An accumulator that is missed keeps the retracted event, so the read must be
                // current.
                self.caught_up().await?;
                (has_event(kind, objects, after), doc! {"_id": 1})
            }
        };
        let find = self.find(ACCUMULATORS, filter).sort(order).limit(limit);
        let mut accumulators = find.records::<AccumulatorRecord>().await?;
        // Concurrent writes move accumulators within the index during the scan, so one may be found
        // twice.
        let mut seen = HashSet::with_capacity(accumulators.len());
        accumulators.retain(|accumulator| seen.insert(accumulator.id.clone()));
        Ok(accumulators)
    }

    async fn file_batches(&self, batches: &[Batch]) -> Result<Vec<bool>> {
        let records = batches.iter().map(BatchRecord::for_filed_batch);
        let inserted = self.write(CommandKind::Insert, BATCHES, records).await?;
        let duplicates = inserted.duplicates()?;
        let mut is_filed = vec![true; batches.len()];
        let ids: Vec<Id> = duplicates.iter().map(|one| batches[one.item].id).collect();
        for (duplicate, stored) in duplicates.iter().zip(self.filed_batches(&ids).await?) {
            let batch = &batches[duplicate.item];
            is_filed[duplicate.item] = stored.is_some_and(|stored| stored.has_same_events(batch));
        }
        Ok(is_filed)
    }

    async fn settle_batches(&self, settled: &[(Id, BatchState)], now: DateTime<Utc>) -> Result<()> {
        let closing = BatchState::Closing.as_str();
        let settle = |(id, state): &(Id, BatchState)| {
            let set = doc! {"state": state.as_str(), "settled": date(now)};
            Update::new(doc! {"_id": oid(*id), "state": closing}, doc! {"$set": set})
        };
        let statements = settled.iter().map(settle);
        self.write(CommandKind::Update, BATCHES, statements).await?.complete().map(drop)
    }

    async fn filed_batches(&self, ids: &[Id]) -> Result<Vec<Option<Batch>>> {
        let batches = self.find_by_id(BATCHES, oids(ids)).records::<BatchRecord>().await?;
        Ok(in_order_of(ids, batches, |batch| &batch.id))
    }

    async fn find_batches(&self, filter: &BatchFilter, limit: usize) -> Result<Vec<Batch>> {
        let has_state = |state: BatchState| filter.state.is_none_or(|wanted| wanted == state);
        let may_have_ended = filter.state != Some(BatchState::Open);
        let mut batches = Vec::new();
        // Searches in the order in which batches move, so that none is missed.
        for (field, is_searched) in [
            ("open.id", has_state(BatchState::Open)),
            // A batch that has ended is here for a moment, until it is filed.
            ("ended.id", may_have_ended),
        ] {
            if is_searched {
                for accumulator in self.accumulators_with(field, filter, limit).await? {
                    batches.extend(accumulator.open.into_iter().chain(accumulator.ended));
                }
            }
        }
        batches.retain(|batch| has_state(batch.state));
        if may_have_ended {
            let filed = without_nulls(doc! {
                "user": filter.user.as_ref().map(UserId::as_str),
                "key": filter.key.as_ref().map(BatchKey::to_string),
                "state": filter.state.map(BatchState::as_str),
                "_id": filter.before.map(|before| doc! {"$lt": oid(before)}),
            });
            let find = self.find(BATCHES, filed).sort(doc! {"_id": -1}).limit(limit);
            batches.extend(find.records::<BatchRecord>().await?);
        }
        Ok(newest_page(batches, filter.before, limit))
    }
}

/// The maximum number of different additions in a statement. Each accumulator looks up its own
/// among all of them.
const ADDITIONS_PER_STATEMENT: usize = 50;

/// Selects accumulators with such an event. Checking `open.id` makes the partial index usable.
fn has_event(kind: &EventType, objects: &[ObjectId], after: Option<&AccumulatorId>) -> Document {
    let names: Vec<&str> = objects.iter().map(ObjectId::as_str).collect();
    without_nulls(doc! {
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
        let condition = match filter.before {
            Some(before) => doc! {"$lt": oid(before)},
            None => doc! {"$exists": true},
        };
        let mut selected = doc! {field: condition};
        if let Some(user) = &filter.user {
            let id = |key: Bson| doc! {"u": user.as_str(), "k": key};
            selected.insert("_id", doc! {"$gte": id("".into()), "$lt": id(Bson::MaxKey)});
        }
        if let Some(key) = &filter.key {
            selected.insert("_id.k", key.to_string());
        }
        let find = self.find(ACCUMULATORS, selected).sort(doc! {field: -1}).limit(limit);
        find.records::<AccumulatorRecord>().await
    }
}

fn oids(ids: &[Id]) -> Vec<Bson> {
    ids.iter().map(|id| oid(*id)).collect()
}

/// Returns the `_id` of an accumulator.
pub(super) fn accumulator_id(id: &AccumulatorId) -> Document {
    doc! {"u": id.user.as_str(), "k": id.key.to_string()}
}

/// Returns a filter with the conditions of [`BatchAppend::applies_to`]. None of its fan-outs may
/// have joined. Of several similar additions, no accumulator may have a fan-out of any.
fn fits_condition(additions: &[&BatchAppend]) -> Document {
    let addition = additions[0];
    let fanouts: Vec<Bson> = additions.iter().flat_map(|one| oids(&one.fanouts)).collect();
    without_nulls(doc! {
        "open.policy": &addition.policy,
        "open.joined": {"$nin": &fanouts},
        "open.deferred": {"$exists": false},
        "ended": {"$exists": false},
        "memories.joined": {"$nin": fanouts},
        format!("open.joined.{}", addition.max_joined): {"$exists": false},
        "open.count": addition.max_count.map(|max| doc! {"$lte": max as i64}),
        "open.opened": addition.min_opened_at.map(|from| doc! {"$gte": date(from)}),
    })
}

/// Returns the update that adds to each of these open batches the items of its own addition, all
/// of them similar. One statement costs the server less than one for each.
fn individual_update(ids: &[Bson], additions: &[&BatchAppend], revision: Id) -> Vec<Document> {
    let (first, index) = (additions[0], doc! {"$indexOfArray": [{"$literal": ids}, "$_id"]});
    let append = |list: &str, values: Vec<Vec<Bson>>| {
        let own = doc! {"$arrayElemAt": [{"$literal": values}, &index]};
        doc! {"$concatArrays": [list, own]}
    };
    let items = additions.iter().map(|addition| item_values(addition)).collect();
    let joined = additions.iter().map(|addition| oids(&addition.fanouts)).collect();
    let max = |field: &str, at| doc! {"$max": [field, date(at)]};
    let set = doc! {
        "open.items": {"$slice": [append("$open.items", items), slice(first)]},
        "open.joined": append("$open.joined", joined),
        "open.count": {"$add": ["$open.count", first.items.len() as i64]},
        "open.last": max("$open.last", first.at),
        "open.closes": max("$open.closes", first.min_closes_at),
        "due": max("$due", first.min_closes_at),
        "stamp": oid(revision),
    };
    vec![doc! {"$set": set}]
}

/// Returns whether two additions differ only in their events and fan-outs.
fn is_similar(one: &BatchAppend, other: &BatchAppend) -> bool {
    let without_events = |addition: &BatchAppend| BatchAppend {
        items: Vec::new(),
        fanouts: Vec::new(),
        ..addition.clone()
    };
    let sizes = |addition: &BatchAppend| (addition.items.len(), addition.fanouts.len());
    sizes(one) == sizes(other) && without_events(one) == without_events(other)
}

fn item_values(addition: &BatchAppend) -> Vec<Bson> {
    let value = |item: &BatchItem| {
        doc! {"t": item.kind.as_str(), "o": item.object.as_str(), "i": oid(item.fanout_id)}
    };
    addition.items.iter().map(value).map(Bson::from).collect()
}

/// Returns how many items a batch keeps, as `$slice` counts: from the end if negative.
fn slice(addition: &BatchAppend) -> i64 {
    match addition.keep {
        Keep::First(count) => count as i64,
        Keep::Last(count) => -(count as i64),
    }
}

/// Returns the update that adds the items to an open batch.
fn shared_update(addition: &BatchAppend, revision: Id) -> Document {
    doc! {
        "$push": {
            "open.items": {"$each": item_values(addition), "$slice": slice(addition)},
            "open.joined": {"$each": oids(&addition.fanouts)},
        },
        "$inc": {"open.count": addition.items.len() as i64},
        "$max": {
            "open.last": date(addition.at),
            "open.closes": date(addition.min_closes_at),
            "due": date(addition.min_closes_at),
        },
        "$set": {"stamp": oid(revision)},
    }
}
