//! Accumulators and batches as documents.
//!
//! The rule: an open batch stands in its accumulator, `{_id: {u, k}, open, ended, memories, …}`,
//! and one that left in `batches`, in the same shape under its own `_id`. What was added last
//! stands last, as in memory. [`super::batches`] has the verbs.

use bson::{Bson, Document, doc};

use super::record::{Record, date, lease, oid, put};
use crate::domain::batch::{
    Accumulator, AccumulatorId, Addition, Contents, Item, Keep, Lead, Memory,
};
use crate::domain::{Batch, BatchKey, EventType, Id, ObjectId, UserId};
use crate::store::Result;

/// An accumulator's `_id`.
pub(super) fn accumulator_id(id: &AccumulatorId) -> Document {
    doc! {"u": id.user.as_str(), "k": id.key.to_string()}
}

/// All of an accumulator but its `_id`.
pub(super) fn accumulator_of(accumulator: &Accumulator, revision: Id) -> Document {
    let mut record = doc! {"stamp": oid(revision)};
    put(&mut record, "due", accumulator.due().map(date));
    // Nobody's lease has ended before time began: then one range of an index tells who is free.
    record.insert("lease", lease(accumulator.lease.as_ref()));
    put(&mut record, "turn", accumulator.turn.map(date));
    if let Some(open) = &accumulator.open {
        let mut fields = doc! {"id": oid(open.id)};
        fields.extend(batch_fields(open));
        record.insert("open", fields);
    }
    if !accumulator.ended.is_empty() {
        let ended = |batch: &Batch| {
            let mut fields = doc! {"id": oid(batch.id)};
            fields.extend(batch_fields(batch));
            Bson::from(fields)
        };
        record.insert(
            "ended",
            accumulator.ended.iter().map(ended).collect::<Vec<_>>(),
        );
    }
    if !accumulator.memories.is_empty() {
        let memory = |memory: &Memory| {
            Bson::from(doc! {"at": date(memory.at), "joined": ids(&memory.joined)})
        };
        let memories: Vec<Bson> = accumulator.memories.iter().map(memory).collect();
        record.insert("memories", memories);
    }
    record
}

/// A filed batch.
pub(super) fn batch_record(batch: &Batch) -> Document {
    let mut record = doc! {
        "_id": oid(batch.id), "user": batch.user.as_str(), "key": batch.key.to_string(),
    };
    record.extend(batch_fields(batch));
    record
}

/// What a batch is without its id and whose it is.
fn batch_fields(batch: &Batch) -> Document {
    let mut fields = doc! {
        "state": batch.state.as_str(),
        "opened": date(batch.opened_at),
        "last": date(batch.last_event_at),
        "closes": date(batch.closes_at),
        "count": batch.contents.count as i64,
        "items": items(&batch.contents.items),
        "policy": &batch.policy,
        "joined": ids(&batch.joined),
    };
    match &batch.lead {
        Lead::None => {}
        Lead::Mailed { joined } => {
            fields.insert("led", ids(joined));
        }
        Lead::Waiting { contents, joined } => {
            let lead = doc! {
                "count": contents.count as i64,
                "items": items(&contents.items),
                "joined": ids(joined),
            };
            fields.insert("lead", lead);
        }
    }
    if !batch.taken.is_empty() {
        fields.insert("taken", items(&batch.taken));
    }
    put(&mut fields, "settled", batch.settled.map(date));
    fields
}

/// What `Addition::fits` asks of an accumulator, without its `_id`; `revision` is what it leaves.
pub(super) fn addition_query(addition: &Addition) -> Document {
    let fanouts = ids(&addition.fanouts);
    let mut query = doc! {
        "open.policy": &addition.policy,
        "open.joined": {"$nin": fanouts.clone()},
        "open.lead": {"$exists": false},
        "ended": {"$exists": false},
        "memories.joined": {"$nin": fanouts},
    };
    query.insert(
        format!("open.joined.{}", addition.joined_to),
        doc! {"$exists": false},
    );
    if let Some(most) = addition.count_to {
        query.insert("open.count", doc! {"$lte": most as i64});
    }
    if let Some(from) = addition.opened_from {
        query.insert("open.opened", doc! {"$gte": date(from)});
    }
    query
}

/// Adds it.
pub(super) fn addition_update(addition: &Addition, revision: Id) -> Document {
    let slice = match addition.keep {
        Keep::First(most) => most as i64,
        Keep::Last(most) => -(most as i64),
    };
    doc! {
        "$push": {
            "open.items": {"$each": items(&addition.items), "$slice": slice},
            "open.joined": {"$each": ids(&addition.fanouts)},
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

fn items(items: &[Item]) -> Vec<Bson> {
    let item = |item: &Item| {
        Bson::from(doc! {"t": item.t.as_str(), "o": item.o.as_str(), "i": oid(item.i)})
    };
    items.iter().map(item).collect()
}

fn ids(ids: &[Id]) -> Vec<Bson> {
    ids.iter().map(|id| oid(*id)).collect()
}

pub(super) fn read_accumulator(record: &Document) -> Result<Accumulator> {
    let accumulator = Record::new("accumulator", record);
    let id = accumulator.needs("_id", accumulator.record("_id")?)?;
    let id = AccumulatorId {
        user: UserId::stored(id.needs("u", id.text("u")?)?),
        key: id.needs("k", id.parsed("k")?)?,
    };
    let of_accumulator = |batch: Record<'_>| {
        let own = batch.needs("id", batch.id("id")?)?;
        read_fields(&batch, own, id.user.clone(), id.key.clone())
    };
    let memory = |memory: Record<'_>| {
        Ok(Memory {
            at: memory.needs("at", memory.time("at")?)?,
            joined: memory.ids("joined")?,
        })
    };
    Ok(Accumulator {
        open: accumulator
            .record("open")?
            .map(of_accumulator)
            .transpose()?,
        ended: accumulator
            .records("ended")?
            .into_iter()
            .map(of_accumulator)
            .collect::<Result<_>>()?,
        memories: accumulator
            .records("memories")?
            .into_iter()
            .map(memory)
            .collect::<Result<_>>()?,
        turn: accumulator.time("turn")?,
        lease: accumulator.lease("lease")?,
        revision: accumulator.id("stamp")?,
        id,
    })
}

pub(super) fn read_batch(record: &Document) -> Result<Batch> {
    let batch = Record::new("batch", record);
    let id = batch.needs("_id", batch.id("_id")?)?;
    let user = UserId::stored(batch.needs("user", batch.text("user")?)?);
    let key = batch.needs("key", batch.parsed("key")?)?;
    read_fields(&batch, id, user, key)
}

fn read_fields(batch: &Record<'_>, id: Id, user: UserId, key: BatchKey) -> Result<Batch> {
    Ok(Batch {
        id,
        user,
        key,
        state: batch.needs("state", batch.parsed("state")?)?,
        opened_at: batch.needs("opened", batch.time("opened")?)?,
        last_event_at: batch.needs("last", batch.time("last")?)?,
        closes_at: batch.needs("closes", batch.time("closes")?)?,
        lead: read_lead(batch)?,
        contents: read_contents(batch)?,
        policy: batch.needs("policy", batch.text("policy")?)?.to_owned(),
        joined: ascending(batch.ids("joined")?),
        taken: read_items(batch, "taken")?,
        settled: batch.time("settled")?,
    })
}

/// What was added to an open batch stands last.
fn ascending(mut ids: Vec<Id>) -> Vec<Id> {
    if !ids.is_sorted() {
        ids.sort_unstable();
    }
    ids
}

fn read_lead(batch: &Record<'_>) -> Result<Lead> {
    match batch.record("lead")? {
        Some(lead) => Ok(Lead::Waiting {
            contents: read_contents(&lead)?,
            joined: lead.ids("joined")?,
        }),
        None => Ok(match batch.list("led")? {
            Some(_) => Lead::Mailed {
                joined: batch.ids("led")?,
            },
            None => Lead::None,
        }),
    }
}

fn read_contents(batch: &Record<'_>) -> Result<Contents> {
    Ok(Contents {
        count: batch.needs("count", batch.count("count")?)?,
        items: read_items(batch, "items")?,
    })
}

fn read_items(batch: &Record<'_>, field: &str) -> Result<Vec<Item>> {
    let item = |item: Record<'_>| {
        Ok(Item {
            i: item.needs("i", item.id("i")?)?,
            t: EventType::stored(item.needs("t", item.text("t")?)?),
            o: ObjectId::stored(item.needs("o", item.text("o")?)?),
        })
    };
    batch.records(field)?.into_iter().map(item).collect()
}
