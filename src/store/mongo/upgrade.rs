//! Upgrades databases of earlier versions, and creates indexes. Start with [`Mongo::prepare`].
//!
//! Every step can be interrupted and repeated. The note `schema` stores which programs can use the
//! database. Processes of earlier versions have to be stopped before an upgrade, because they read
//! the note only when they start.

use std::collections::HashSet;
use std::time::Duration;

use bson::{Bson, Document, RawDocumentBuf, doc};
use futures::TryStreamExt;
use mongodb::options::{Collation, CollationStrength};
use serde::{Deserialize, Serialize};

use self::IndexKind::{AnyCase, Geo, Having, Plain, Sparse, Unique, UniqueSparse};
use super::bulk::{CommandKind, delete_one};
use super::patience::{self, AttemptFailure, NAMESPACE_EXISTS, NAMESPACE_NOT_FOUND};
use super::reads::id_of;
use super::{
    ACCUMULATORS, BATCHES, CHANGE_NOTICES, DELIVERIES, FANOUTS, FOLLOWS, INBOXES, Mongo, OBJECTS,
    RETRACTIONS, SUPPRESSIONS, USERS, WEBHOOK_RECEIPTS,
};
use crate::domain::Day;
use crate::store::record::format_id;
use crate::store::{Error, Notes, Result, Schema};

/// The schema that databases are upgraded to.
pub const VERSION: u32 = 3;
/// The oldest schema version whose programs can use a database of this version.
const OLDEST_COMPATIBLE: u32 = 3;

const NOTE: &str = "schema";

/// Collections that were renamed in schema 3: the former name, the new one, and a field that only
/// documents of tidings have.
const RENAMED: [(&str, &str, &str); 3] = [
    ("pokes", CHANGE_NOTICES, "u"),
    ("seats", ACCUMULATORS, "_id.u"),
    ("sightings", WEBHOOK_RECEIPTS, "mark"),
];

/// The content of the note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct StoredSchema {
    version: u32,
    /// Programs with this schema version or a newer one can use the database.
    #[serde(rename = "for")]
    oldest_compatible: u32,
}

impl Mongo {
    /// Returns the schema of the database. It is an error if the database needs a newer program.
    pub async fn schema(&self) -> Result<Schema> {
        Ok(Schema { version: self.stored_version().await?.unwrap_or(1), known: VERSION })
    }

    async fn stored_version(&self) -> Result<Option<u32>> {
        let Some(text) = self.note(NOTE).await? else {
            return Ok(None);
        };
        let stored: StoredSchema = serde_json::from_str(&text)
            .map_err(|error| Error::corrupt("the note schema", error.to_string()))?;
        if stored.oldest_compatible > VERSION {
            return Err(Error::Unsupported(format!(
                "the database was written by a newer version of tidings: its schema is number {}, and this one knows {VERSION}; \
                 use that version, or a newer one",
                stored.version
            )));
        }
        Ok(Some(stored.version))
    }

    /// Upgrades data from earlier versions and creates missing indexes. Safe to repeat, and to run
    /// while other processes of this version work.
    pub async fn prepare(&self) -> Result<()> {
        self.upgrade().await?;
        self.create_indexes().await?;
        self.prepare_notices().await;
        Ok(())
    }

    /// Upgrades data from earlier versions.
    pub async fn upgrade(&self) -> Result<()> {
        let former = self.former_collections().await?;
        let stored = self.stored_version().await?;
        if stored.is_none_or(|version| version < VERSION) {
            self.store_version().await?;
        }
        for (former, name) in former {
            if self.rename(former, name).await? == Err(NAMESPACE_EXISTS) {
                self.move_documents(former, name).await?;
            }
        }
        Ok(())
    }

    /// Returns the collections that have to be renamed, with their new names. Does not rely on the
    /// note alone, because a process of an earlier version may have created one again. Skips
    /// collections of other programs with these names.
    pub async fn former_collections(&self) -> Result<Vec<(&'static str, &'static str)>> {
        let is_second = self.stored_version().await? == Some(2);
        let mut former_collections = Vec::new();
        for (former, name, field) in RENAMED {
            let has_field = doc! {"$match": {field: {"$exists": true}}};
            let first = self.aggregate(Some(former), vec![doc! {"$limit": 1}, has_field]);
            if is_second || !first.await?.is_empty() {
                former_collections.push((former, name));
            }
        }
        Ok(former_collections)
    }

    /// Moves the documents of a collection into the one that has replaced it. Keeps the former one,
    /// because an older process may have just written to it. The next start moves those documents.
    ///
    /// # Errors
    ///
    /// Fails if both have different accumulators for the same user and key, or an older process
    /// changes a document meanwhile. These remain in both; all others are moved.
    async fn move_documents(&self, former: &str, name: &str) -> Result<()> {
        let mut differing = None;
        let mut chunks = self.all_documents(former.to_owned());
        while let Some(documents) = chunks.try_next().await? {
            let inserted = self.write(CommandKind::Insert, name, &documents).await?;
            // A receipt or a notice with the same id is equivalent, so the stored one is kept.
            let duplicates: HashSet<usize> = inserted
                .duplicates()?
                .into_iter()
                .map(|duplicate| duplicate.item)
                .filter(|_| name == ACCUMULATORS)
                .collect();
            let ids = duplicates.iter().filter_map(|index| id_of(&documents[*index]));
            let stored = self.find_by_id(name, ids).raw().await?;
            let is_moved = |(index, document): &(usize, &RawDocumentBuf)| {
                !duplicates.contains(index) || stored.contains(document)
            };
            let moved = documents.iter().enumerate().filter(is_moved);
            let unchanged = moved.filter_map(|(_, document)| while_unchanged(name, document));
            let deletes: Vec<Document> = unchanged.map(delete_one).collect();
            self.write(CommandKind::Delete, former, deletes).await?.complete()?;
            if differing.is_none() {
                // Another process may have moved a differing document in the meantime.
                let ids = documents.iter().filter_map(|document| id_of(document));
                let remaining = self.find_by_id(former, ids).limit(1).raw().await?;
                differing = remaining.into_iter().next();
            }
        }
        let Some(differing) = differing else {
            return Ok(());
        };
        Err(Error::Unsupported(format!(
            "{former} and {name} have different documents with the _id {}: a process of an earlier \
             version still uses the database; stop it, and delete one of the two",
            format_id(&differing)
        )))
    }

    async fn store_version(&self) -> Result<()> {
        let schema = StoredSchema { version: VERSION, oldest_compatible: OLDEST_COMPATIBLE };
        let text = serde_json::to_string(&schema).unwrap_or_default();
        let stored = self.note(NOTE).await?;
        // If the note has changed meanwhile, another process wrote the same schema, or a newer one.
        self.swap_note(NOTE, stored.as_deref(), Some(&text)).await.map(drop)
    }

    /// Returns whether the database has no collections of tidings and no days of other writers.
    pub async fn is_unused(&self) -> Result<bool> {
        let listed = self.find_collections(doc! {}).await?;
        let ours = [USERS, FOLLOWS, OBJECTS, FANOUTS, DELIVERIES, SUPPRESSIONS];
        let is_ours = |name: &str| ours.contains(&name) || Day::from_collection(name).is_some();
        let mut names = listed.iter().filter_map(|listed| listed.get_str("name").ok());
        Ok(!names.any(is_ours))
    }

    /// Creates the missing indexes. If another program created one on the same fields with other
    /// options, that index stays.
    async fn create_indexes(&self) -> Result<()> {
        for (collection, indexes) in self.missing_specs().await? {
            let create = doc! {
                "createIndexes": collection, "indexes": indexes,
                "writeConcern": {"w": "majority"},
            };
            let doing = format!("creating the indexes of {collection}");
            let create = || async { Ok(self.0.db.run_command(create.clone()).await.map(drop)?) };
            patience::retry(BUILD_TIMEOUT, BUILD_TIMEOUT, &doing, create).await?;
        }
        Ok(())
    }

    /// Returns indexes that do not exist, or exist with other options, by collection.
    async fn missing_specs(&self) -> Result<Vec<(&'static str, Vec<Document>)>> {
        let mut missing_specs = Vec::new();
        for indexes in INDEXES.chunk_by(|a, b| a.0 == b.0) {
            let collection = indexes[0].0;
            let stored = self.indexes_of(collection).await?;
            let is_missing = |spec: &Document| !stored.iter().any(|index| is_same(index, spec));
            let missing: Vec<Document> = indexes.iter().map(spec).filter(is_missing).collect();
            if !missing.is_empty() {
                missing_specs.push((collection, missing));
            }
        }
        Ok(missing_specs)
    }

    /// Returns the missing indexes in a form such as `deliveries(slot)`.
    pub(super) async fn missing_indexes(&self) -> Result<Vec<String>> {
        let format = |(collection, missing): (&str, Vec<Document>)| {
            let format_one = |index: &Document| {
                let fields: Vec<&str> =
                    keys_of(index).into_iter().map(|(field, _)| field).collect();
                format!("{collection}({})", fields.join(", "))
            };
            missing.iter().map(format_one).collect::<Vec<_>>()
        };
        Ok(self.missing_specs().await?.into_iter().flat_map(format).collect())
    }

    async fn indexes_of(&self, collection: &str) -> Result<Vec<Document>> {
        let list = doc! {"listIndexes": collection};
        self.retry("listing indexes", || async {
            let indexes = match self.0.db.run_cursor_command(list.clone()).await {
                Ok(cursor) => cursor.try_collect().await,
                Err(error) => Err(error),
            };
            indexes.or_else(|error| match AttemptFailure::from(error) {
                failure if failure.code == Some(NAMESPACE_NOT_FOUND) => Ok(Vec::new()),
                failure => Err(failure),
            })
        })
        .await
    }
}

/// Returns a condition that matches this document of a former collection until it is changed.
fn while_unchanged(name: &str, document: &RawDocumentBuf) -> Option<Document> {
    if name != ACCUMULATORS {
        // Receipts and notices have no revision, but few fields, and none is an array.
        return Document::try_from(document).ok();
    }
    let revision =
        document.get("stamp").ok()?.map(Bson::try_from).transpose().ok()?.unwrap_or(Bson::Null);
    Some(doc! {"_id": id_of(document)?, "stamp": revision})
}

/// The time limit for building an index: a collection of millions takes minutes.
const BUILD_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Compares text without regard to case.
pub(super) fn any_case() -> Collation {
    Collation::builder().locale("en").strength(CollationStrength::Secondary).build()
}

/// The options of an index.
#[derive(Clone, Copy)]
enum IndexKind {
    Plain,
    Geo,
    Unique,
    Sparse,
    UniqueSparse,
    AnyCase,
    /// Contains only documents with this field.
    Having(&'static str),
}

/// An index: its collection, its fields, and its options. A minus means descending order.
type Index = (&'static str, &'static str, IndexKind);

/// The indexes besides `_id`. Each serves a query of a store method, which a comment names if it is
/// not obvious. Day collections have none.
const INDEXES: &[Index] = &[
    (USERS, "loc", Geo),
    // Finds records that share an address.
    (USERS, "email", AnyCase),
    // Finds users whose digest is due in an hour, in `_id` order, and lists the time zones.
    (USERS, "tz digest.hour digest.cadence digest.weekday _id", Plain),
    (FOLLOWS, "_id.u _id.k", Plain),
    (FANOUTS, "key", Unique),
    // Includes the day, so that the index alone answers which days are busy.
    (FANOUTS, "state _id day", Plain),
    (ACCUMULATORS, "due lease.until", Plain),
    (ACCUMULATORS, "-open.id", Sparse),
    (ACCUMULATORS, "-ended.id", Sparse),
    (ACCUMULATORS, "_id.k -open.id", Plain),
    (ACCUMULATORS, "open.items.o _id", Having("open.id")),
    (BATCHES, "user -_id", Plain),
    (BATCHES, "key -_id", Plain),
    (BATCHES, "state -_id", Plain),
    (BATCHES, "settled", Sparse),
    // Only open rows have a slot and a lease.
    (DELIVERIES, "slot", UniqueSparse),
    (DELIVERIES, "lease.until", Sparse),
    (DELIVERIES, "user -created", Plain),
    (DELIVERIES, "state -created -_id", Plain),
    (DELIVERIES, "call", Having("slot")),
    // For provider reports: to find the delivery, and to count outcomes.
    (DELIVERIES, "tag", Sparse),
    (DELIVERIES, "provider_id", Sparse),
    (DELIVERIES, "settled state feedback.news", Having("settled")),
    (WEBHOOK_RECEIPTS, "until", Plain),
    (INBOXES, "changed", Plain),
    (RETRACTIONS, "at", Plain),
];

/// Returns the specification of an index. Its name differs from the default one, which indexes of
/// other programs on the same fields may have.
fn spec(&(_, fields, kind): &Index) -> Document {
    let key = |field: &str| match (kind, field.strip_prefix('-')) {
        (Geo, _) => (field.to_owned(), Bson::from("2dsphere")),
        (_, Some(field)) => (field.to_owned(), Bson::Int32(-1)),
        (_, None) => (field.to_owned(), Bson::Int32(1)),
    };
    let keys: Document = fields.split(' ').map(key).collect();
    let mut spec = match kind {
        Plain | Geo => doc! {},
        Unique => doc! {"unique": true},
        Sparse => doc! {"sparse": true},
        UniqueSparse => doc! {"unique": true, "sparse": true},
        AnyCase => doc! {"collation": {"locale": "en", "strength": 2}},
        Having(field) => doc! {"partialFilterExpression": {field: {"$exists": true}}},
    };
    spec.insert("key", keys);
    let suffix: String =
        keys_of(&spec).iter().map(|(field, order)| format!("_{field}_{order}")).collect();
    spec.insert("name", format!("tidings{suffix}"));
    spec
}

/// Returns whether two indexes have the same keys, uniqueness, sparseness and partial filter. Names
/// and collations are not compared.
fn is_same(one: &Document, other: &Document) -> bool {
    let options = |index: &Document| {
        let is_set = |option| index.get_bool(option).unwrap_or(false);
        let filter = index.get("partialFilterExpression").cloned();
        (is_set("unique"), is_set("sparse"), filter)
    };
    keys_of(one) == keys_of(other) && options(one) == options(other)
}

/// Returns the keys of an index in a comparable form: shells write numbers as doubles.
fn keys_of(index: &Document) -> Vec<(&str, String)> {
    let format = |order: &Bson| match order {
        Bson::Double(number) => (*number as i64).to_string(),
        Bson::String(text) => text.clone(),
        other => other.to_string(),
    };
    let keys = index.get_document("key").into_iter().flatten();
    keys.map(|(field, order)| (field.as_str(), format(order))).collect()
}
