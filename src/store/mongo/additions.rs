//! Events that join open batches where these stand, unread: what is asked of an accumulator, and
//! what is done to it. [`super::batches`] has the verbs.

use bson::{Bson, Document, doc};

use super::values::{date, oid};
use crate::domain::Id;
use crate::domain::batch::{AccumulatorId, Addition, Item, Keep};

/// An accumulator's `_id`.
pub(super) fn accumulator_id(id: &AccumulatorId) -> Document {
    doc! {"u": id.user.as_str(), "k": id.key.to_string()}
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
