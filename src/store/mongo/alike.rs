//! Conditional updates of many records: one statement for all that are changed alike.
//!
//! The rule: to plan a statement costs the server twice what changing a document does. So records
//! that are changed alike are named together in one statement; what is each record's own is looked
//! up there in a table, by its `_id`. Whether a change was made is told by the revision that it
//! left, never by a count that a lost answer may have taken along: a statement may be sent again.

use std::collections::{HashMap, HashSet};

use bson::oid::ObjectId as Oid;
use bson::{Bson, Document, doc};

use super::super::record::write_bson;
use super::Mongo;
use super::bulk::Verb;
use crate::store::Result;

/// Records of one statement. A command that is too slow goes again in smaller parts, but no part is
/// smaller than a statement.
const TOGETHER: usize = 200;

/// What is changed of one record, if it is found as it should be.
#[derive(Debug, Clone, Default)]
pub(super) struct Change {
    /// How it should be found.
    pub when: Document,
    pub set: Document,
    pub unset: Document,
    /// Added to what stands there.
    pub add: Document,
    /// Set as well; to something else for each record.
    pub own: Document,
}

impl Mongo {
    /// Changes these records, each if it is found as it should be; tells which were changed, in
    /// order. Each change has to set `stamp` to the revision it is given.
    pub(super) async fn change_each<T: Sync>(
        &self,
        doing: &str,
        collection: &str,
        items: &[T],
        change: impl Fn(&T, Oid) -> (Bson, Change),
    ) -> Result<Vec<bool>> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let revision = Oid::new();
        let changes = items.iter().map(|item| change(item, revision));
        let changes: Vec<(Bson, Change)> = changes.collect();
        let statements = statements(doing, &changes)?;
        let outcome = self.write(doing, Verb::Update, collection, statements);
        let outcome = outcome.await?.complete(doing)?;
        if outcome.n == items.len() as u64 {
            return Ok(vec![true; items.len()]);
        }
        // Some conditions did not hold, or an answer was lost: the revisions tell.
        let ids: Vec<&Bson> = changes.iter().map(|(id, _)| id).collect();
        let filter = doc! {"_id": {"$in": &ids}, "stamp": revision};
        let (order, all) = (Document::new(), usize::MAX);
        let done = self
            .find_ids(doing, collection, &filter, order, all)
            .await?;
        let done: HashSet<String> = done.iter().map(Bson::to_string).collect();
        let done = |id: &Bson| done.contains(&id.to_string());
        Ok(ids.into_iter().map(done).collect())
    }
}

/// Statements of an update that make these changes, as few as there are different ones.
pub(super) fn statements(doing: &str, changes: &[(Bson, Change)]) -> Result<Vec<Document>> {
    let (mut kinds, mut groups) = (HashMap::new(), Vec::<Vec<&(Bson, Change)>>::new());
    for one in changes {
        let Change {
            when,
            set,
            unset,
            add,
            own,
        } = &one.1;
        let own: Vec<&String> = own.keys().collect();
        let kind = doc! {"when": when, "set": set, "unset": unset, "add": add, "own": own};
        let kind = write_bson(doing, &kind)?.into_bytes();
        let group = *kinds.entry(kind).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group].push(one);
    }
    let parts = groups.iter().flat_map(|group| group.chunks(TOGETHER));
    Ok(parts.filter_map(statement).collect())
}

/// One statement for records that are changed alike.
fn statement(alike: &[&(Bson, Change)]) -> Option<Document> {
    let (id, first) = alike.first()?;
    let (mut q, mut set) = (first.when.clone(), first.set.clone());
    let mut tables = Document::new();
    let ids: Vec<&Bson> = alike.iter().map(|(id, _)| id).collect();
    for (field, value) in &first.own {
        let values = alike.iter().filter_map(|(_, change)| change.own.get(field));
        if values.clone().all(|other| other == value) {
            set.insert(field, value);
        } else {
            let values: Vec<&Bson> = values.collect();
            let place = doc! {"$indexOfArray": [{"$literal": &ids}, "$_id"]};
            tables.insert(field, doc! {"$arrayElemAt": [{"$literal": values}, place]});
        }
    }
    let u = match tables.is_empty() {
        true => {
            let (unset, add) = (first.unset.clone(), first.add.clone());
            Bson::from(operators([("$set", set), ("$unset", unset), ("$inc", add)]))
        }
        false => Bson::from(pipeline(set, tables, first)),
    };
    if alike.len() == 1 {
        q.insert("_id", id.clone());
        return Some(doc! {"q": q, "u": u});
    }
    q.insert("_id", doc! {"$in": ids});
    // Without it the server may walk an index of what stands in `when`.
    Some(doc! {"q": q, "u": u, "multi": true, "hint": {"_id": 1}})
}

/// The operators of an update that have something to do.
pub(super) fn operators<const N: usize>(all: [(&str, Document); N]) -> Document {
    let used = all.into_iter().filter(|(_, fields)| !fields.is_empty());
    used.map(|(operator, fields)| (operator.to_owned(), Bson::from(fields)))
        .collect()
}

/// The same where something is looked up: only stages can.
fn pipeline(set: Document, tables: Document, change: &Change) -> Vec<Document> {
    let literal = |(field, value): (String, Bson)| (field, doc! {"$literal": value}.into());
    let mut fields: Document = set.into_iter().map(literal).collect();
    for (field, more) in &change.add {
        let before = doc! {"$ifNull": [format!("${field}"), 0]};
        fields.insert(field, doc! {"$add": [before, more]});
    }
    fields.extend(tables);
    let unset: Vec<&String> = change.unset.keys().collect();
    let mut stages = vec![doc! {"$set": fields}];
    if !unset.is_empty() {
        stages.push(doc! {"$unset": unset});
    }
    stages
}
