//! Adds events to open batches without reading them. [`super::batches`] has the methods.
//!
//! Planning a statement costs the server more than adding an event, so one statement names many
//! accumulators. If it matches too few, as after a resend, the accumulators are read. A router
//! counts such statements differently, so on a sharded cluster each accumulator gets its own.

use bson::{Bson, Document, doc};

use super::values::{date, oid};
use crate::domain::Id;
use crate::domain::batch::{AccumulatorId, Addition, Item, Keep};

/// An accumulator's `_id`.
pub(super) fn accumulator_id(id: &AccumulatorId) -> Document {
    doc! {"u": id.user.as_str(), "k": id.key.to_string()}
}

/// Accumulators per statement if all get the same items.
const SAME: usize = 200;
/// Accumulators per statement if each looks up its own items in a table of all.
const OWN: usize = 50;
/// Items per statement with such a table, unless a single accumulator gets more.
const OWN_ITEMS: usize = 2_000;

/// Returns as few update statements for these accumulators as possible, or one each if the client
/// is connected to a router. Each accumulator gets the new `revision`.
pub(super) fn statements(
    accumulators: &[(AccumulatorId, usize)],
    additions: &[Addition],
    revision: Id,
    is_routed: bool,
) -> Vec<Document> {
    match is_routed {
        true => each_alone(accumulators, additions, revision),
        false => together(accumulators, additions, revision),
    }
}

fn each_alone(
    accumulators: &[(AccumulatorId, usize)],
    additions: &[Addition],
    revision: Id,
) -> Vec<Document> {
    let alone = |(accumulator, addition): &(AccumulatorId, usize)| {
        let addition = &additions[*addition];
        let query = query(
            accumulator_id(accumulator),
            oids(&addition.fanouts),
            addition,
        );
        doc! {"q": query, "u": pushed(addition, revision)}
    };
    accumulators.iter().map(alone).collect()
}

fn together(
    accumulators: &[(AccumulatorId, usize)],
    additions: &[Addition],
    revision: Id,
) -> Vec<Document> {
    let mut whose: Vec<Vec<Document>> = vec![Vec::new(); additions.len()];
    for (accumulator, addition) in accumulators {
        whose[*addition].push(accumulator_id(accumulator));
    }
    let (mut statements, mut alike) = (Vec::new(), Vec::<Vec<(Document, &Addition)>>::new());
    for (mut ids, addition) in whose.into_iter().zip(additions) {
        if ids.len() != 1 {
            let parts = ids.chunks(SAME);
            statements.extend(parts.map(|ids| of_all(ids, addition, revision)));
        } else if let Some(id) = ids.pop() {
            let own = (id, addition);
            match alike.iter_mut().find(|of| are_alike(of[0].1, addition)) {
                Some(group) => group.push(own),
                None => alike.push(vec![own]),
            }
        }
    }
    for group in &alike {
        let most = OWN_ITEMS / group[0].1.items.len().max(1);
        statements.extend(group.chunks(most.clamp(1, OWN)).map(|part| match part {
            [(id, addition)] => of_all(std::slice::from_ref(id), addition, revision),
            part => of_each(part, revision),
        }));
    }
    statements
}

/// Returns whether two additions differ only in their items.
fn are_alike(one: &Addition, other: &Addition) -> bool {
    let without = |of: &Addition| Addition {
        items: Vec::new(),
        fanouts: Vec::new(),
        ..of.clone()
    };
    one.items.len() == other.items.len()
        && one.fanouts.len() == other.fanouts.len()
        && without(one) == without(other)
}

/// Returns a filter with the conditions of `Addition::fits`. None of these fan-outs may have
/// joined.
fn query(which: Document, fanouts: Vec<Bson>, addition: &Addition) -> Document {
    let mut query = doc! {
        "_id": which,
        "open.policy": &addition.policy,
        "open.joined": {"$nin": fanouts.clone()},
        "open.lead": {"$exists": false},
        "open.deferred": {"$exists": false},
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

/// Returns the `$slice` argument for the end of the list that is kept.
fn slice(addition: &Addition) -> i64 {
    match addition.keep {
        Keep::First(most) => most as i64,
        Keep::Last(most) => -(most as i64),
    }
}

/// Returns a statement for many. Without the hint, the server may use an index on a filtered field.
fn many(q: Document, u: impl Into<Bson>) -> Document {
    doc! {"q": q, "u": u.into(), "multi": true, "hint": {"_id": 1}}
}

/// Adds the same items to all of these accumulators.
fn of_all(ids: &[Document], addition: &Addition, revision: Id) -> Document {
    let query = query(doc! {"$in": ids}, oids(&addition.fanouts), addition);
    many(query, pushed(addition, revision))
}

fn pushed(addition: &Addition, revision: Id) -> Document {
    doc! {
        "$push": {
            "open.items": {"$each": items(&addition.items), "$slice": slice(addition)},
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

/// Adds individual items to each accumulator. The filter skips an accumulator if any of all these
/// fan-outs has joined it. The accumulators are then read, as after any other mismatch.
fn of_each(whose: &[(Document, &Addition)], revision: Id) -> Document {
    let (_, addition) = whose[0];
    let ids: Vec<Document> = whose.iter().map(|(id, _)| id.clone()).collect();
    let all = whose.iter().flat_map(|(_, addition)| &addition.fanouts);
    let all = all.map(|id| oid(*id)).collect();
    let query = query(doc! {"$in": &ids}, all, addition);
    let place = doc! {"$indexOfArray": [{"$literal": ids}, "$_id"]};
    let own = |of: &dyn Fn(&Addition) -> Vec<Bson>| {
        let each: Vec<Vec<Bson>> = whose.iter().map(|(_, addition)| of(addition)).collect();
        doc! {"$arrayElemAt": [{"$literal": each}, place.clone()]}
    };
    let longer = |list: &str, own: Document| doc! {"$concatArrays": [format!("${list}"), own]};
    let kept = longer("open.items", own(&|addition| items(&addition.items)));
    let last = |field: &str, at| doc! {"$max": [format!("${field}"), date(at)]};
    let set = doc! {
        "open.items": {"$slice": [kept, slice(addition)]},
        "open.joined": longer("open.joined", own(&|addition| oids(&addition.fanouts))),
        "open.count": {"$add": ["$open.count", addition.items.len() as i64]},
        "open.last": last("open.last", addition.at),
        "open.closes": last("open.closes", addition.closes_from),
        "due": last("due", addition.closes_from),
        "stamp": oid(revision),
    };
    many(query, vec![doc! {"$set": set}])
}

fn items(items: &[Item]) -> Vec<Bson> {
    let item = |item: &Item| {
        Bson::from(doc! {"t": item.t.as_str(), "o": item.o.as_str(), "i": oid(item.i)})
    };
    items.iter().map(item).collect()
}

fn oids(ids: &[Id]) -> Vec<Bson> {
    ids.iter().map(|id| oid(*id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{BatchKey, BatchPolicy, ObjectId, UserId};
    use chrono::{DateTime, TimeDelta};

    /// A router's counts are reliable only for statements that name one document.
    #[test]
    fn on_a_sharded_cluster_each_document_has_its_own_statement() {
        let id = |n: u8| Id::from_bytes([n; 12]);
        let policy = BatchPolicy {
            window: TimeDelta::minutes(1),
            ..BatchPolicy::IMMEDIATE
        };
        let addition = |n: u8| {
            let item = Item {
                i: id(n),
                t: "Comment".parse().unwrap(),
                o: ObjectId::new("one").unwrap(),
            };
            Addition::new(vec![item], DateTime::UNIX_EPOCH, &policy).unwrap()
        };
        let additions = [addition(1), addition(2)];
        let key: BatchKey = "type:Comment".parse().unwrap();
        let accumulator = |(place, name): (usize, &str)| {
            let user = UserId::new(name).unwrap();
            let key = key.clone();
            (AccumulatorId { user, key }, place / 2)
        };
        let names = ["a", "b", "c"].into_iter().enumerate();
        let accumulators: Vec<(AccumulatorId, usize)> = names.map(accumulator).collect();

        let alone = statements(&accumulators, &additions, id(9), true);

        assert_eq!(alone.len(), 3);
        for (statement, (accumulator, addition)) in alone.iter().zip(&accumulators) {
            let own = [(accumulator.clone(), 0)];
            let of_it = &additions[*addition..][..1];
            let mut one = statements(&own, of_it, id(9), false).remove(0);
            let query = one.get_document_mut("q").unwrap();
            query.insert("_id", accumulator_id(accumulator));
            assert_eq!(statement.get("q"), one.get("q"));
            assert_eq!(statement.get("u"), one.get("u"));
            assert_eq!(statement.keys().collect::<Vec<_>>(), ["q", "u"]);
        }
    }
}
