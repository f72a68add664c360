//! Updates many records conditionally, with one statement for all that have the same change.
//!
//! Planning a statement costs the server twice as much as changing a document. So records with the
//! same change share a statement, which takes individual values from a table by `_id`. A repeated
//! statement may match fewer records; then their revisions show which changes were made.

use std::collections::HashMap;

use bson::oid::ObjectId as Oid;
use bson::raw::RawArrayBuf;
use bson::{Bson, Document, RawDocumentBuf, doc, rawdoc};

use super::Mongo;
use super::bulk::CommandKind;
use crate::store::Result;
use crate::store::record::write_bson;

/// Records per statement. A slow command is sent again in smaller parts, but never less than one
/// statement.
pub(super) const RECORDS_PER_STATEMENT: usize = 200;

/// A change to a record that matches a condition.
#[derive(Debug, Clone, Default)]
pub(super) struct Change {
    /// The condition on the record.
    pub when: Document,
    pub set: Document,
    pub unset: Document,
    /// Added to the stored values.
    pub add: Document,
    /// Also set, but with individual values for each record.
    pub own: Document,
}

impl Mongo {
    /// Changes each record that matches its condition. Returns which were changed, in the order of
    /// the items. Each change has to set the given revision, in the field `stamp`.
    pub(super) async fn change_each<T: Sync>(
        &self,
        collection: &str,
        items: &[T],
        change: impl Fn(&T, Oid) -> (Bson, Change),
    ) -> Result<Vec<bool>> {
        let revision = Oid::new();
        let changes: Vec<(Bson, Change)> =
            items.iter().map(|item| change(item, revision)).collect();
        if self.change_all(collection, &changes).await? == items.len() as u64 {
            return Ok(vec![true; items.len()]);
        }
        // Some conditions did not hold, or a reply was lost.
        let revision = Bson::from(revision);
        let records = changes.iter().map(|(id, _)| (id, &revision)).collect();
        self.are_stored(collection, "stamp", records).await
    }

    /// Makes these changes. Returns the number of records that match their conditions.
    pub(super) async fn change_all(
        &self,
        collection: &str,
        changes: &[(Bson, Change)],
    ) -> Result<u64> {
        let statements = statements(collection, changes)?;
        self.write(CommandKind::Update, collection, statements).await?.complete()
    }
}

/// Returns the update statements for these changes. Equal changes share statements.
fn statements(doing: &str, changes: &[(Bson, Change)]) -> Result<Vec<Document>> {
    let (mut indices, mut groups) = (HashMap::new(), Vec::<Vec<&(Bson, Change)>>::new());
    for item in changes {
        let change = &item.1;
        let own: Vec<&String> = change.own.keys().collect();
        let kind = doc! {
            "when": &change.when, "set": &change.set, "unset": &change.unset, "add": &change.add,
            "own": own,
        };
        let index = *indices.entry(write_bson(doing, &kind)?.into_bytes()).or_insert(groups.len());
        match groups.get_mut(index) {
            Some(group) => group.push(item),
            None => groups.push(vec![item]),
        }
    }
    let chunks = groups.iter().flat_map(|group| group.chunks(RECORDS_PER_STATEMENT));
    Ok(chunks.map(statement).collect())
}

/// Returns one statement for records with the same change.
fn statement(group: &[&(Bson, Change)]) -> Document {
    let first = &group[0].1;
    let (mut set, mut tables) = (first.set.clone(), Document::new());
    let ids: Vec<Bson> = group.iter().map(|(id, _)| id.clone()).collect();
    for (field, value) in &first.own {
        let values = group.iter().filter_map(|(_, change)| change.own.get(field));
        if values.clone().all(|other| other == value) {
            set.insert(field, value);
        } else {
            let values: Vec<&Bson> = values.collect();
            let index = doc! {"$indexOfArray": [{"$literal": &ids}, "$_id"]};
            tables.insert(field, doc! {"$arrayElemAt": [{"$literal": values}, index]});
        }
    }
    let u = if tables.is_empty() {
        let (unset, add) = (first.unset.clone(), first.add.clone());
        Bson::from(operators([("$set", set), ("$unset", unset), ("$inc", add)]))
    } else {
        Bson::from(pipeline(set, tables, first))
    };
    update_statement(&ids, first.when.clone(), u)
}

/// Returns a statement that updates those of these records that match a condition.
pub(super) fn update_statement(ids: &[Bson], mut q: Document, u: Bson) -> Document {
    if let [id] = ids {
        q.insert("_id", id);
        return doc! {"q": q, "u": u};
    }
    q.insert("_id", doc! {"$in": ids});
    // Without the hint, the server may use an index on a field of the condition.
    doc! {"q": q, "u": u, "multi": true, "hint": {"_id": 1}}
}

/// Returns the condition on `_id` for these sorted users. `$in` alone reads the whole clustered
/// collection on MongoDB 6.0.
pub(super) fn id_condition(sorted: &[&str]) -> RawDocumentBuf {
    let (first, last) = (sorted[0], sorted[sorted.len() - 1]);
    let users = RawArrayBuf::from_iter(sorted.iter().copied());
    rawdoc! {"$gte": first, "$lte": last, "$in": users}
}

/// Returns the update operators that have any fields.
pub(super) fn operators<const N: usize>(operators: [(&str, Document); N]) -> Document {
    let used = operators.into_iter().filter(|(_, fields)| !fields.is_empty());
    used.map(|(operator, fields)| (operator.to_owned(), Bson::from(fields))).collect()
}

/// Returns the update as a pipeline, because only pipeline stages can look up values.
fn pipeline(set: Document, tables: Document, change: &Change) -> Vec<Document> {
    let literal = |(field, value): (String, Bson)| (field, doc! {"$literal": value}.into());
    let mut fields: Document = set.into_iter().map(literal).collect();
    for (field, increment) in &change.add {
        let stored = doc! {"$ifNull": [format!("${field}"), 0]};
        fields.insert(field, doc! {"$add": [stored, increment]});
    }
    fields.extend(tables);
    let unset: Vec<&String> = change.unset.keys().collect();
    let mut stages = vec![doc! {"$set": fields}];
    if !unset.is_empty() {
        stages.push(doc! {"$unset": unset});
    }
    stages
}
