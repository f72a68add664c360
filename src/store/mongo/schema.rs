//! Upgrades databases of earlier versions, and creates indexes. Start with [`Mongo::prepare`].
//!
//! Every step can be interrupted, repeated, and run while earlier versions use the database. New
//! indexes come first; obsolete ones are dropped last. Readers understand both schemas, because
//! read-only commands do not upgrade. The note `schema` stores which programs can use the database.

use std::time::Duration;

use bson::{Bson, Document, doc};
use futures::TryStreamExt;
use mongodb::IndexModel;
use mongodb::options::{Collation, CollationStrength, IndexOptions};
use serde::{Deserialize, Serialize};

use self::Kind::{AnyCase, Geo, Having, Plain, Sparse, Unique, UniqueSparse};
use super::bulk::Verb;
use super::codec::STATEMENTS;
use super::patience::{self, Failure, INDEX_NOT_FOUND, NAMESPACE_NOT_FOUND};
use super::{
    ACCUMULATORS, BATCHES, DELIVERIES, FANOUTS, FOLLOWS, INBOXES, Mongo, OBJECTS, RETRACTIONS,
    SEEN_REPORTS, SUPPRESSIONS, USERS, in_order,
};
use crate::domain::{Day, DeliveryId};
use crate::store::{Error, Notes, Result, Schema};

/// The schema that databases are upgraded to.
pub const VERSION: u32 = 2;
/// The oldest schema version whose programs can use a database of this version.
const FOR: u32 = 1;

const NOTE: &str = "schema";

/// The content of the note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct StoredSchema {
    version: u32,
    /// Programs with this schema version or a newer one can use the database.
    #[serde(rename = "for")]
    least: u32,
}

impl Mongo {
    /// Returns the schema of the database. It is an error if the database needs a newer program.
    pub async fn schema(&self) -> Result<Schema> {
        let version = self.stored_version().await?.unwrap_or(1);
        let known = VERSION;
        Ok(Schema { version, known })
    }

    async fn stored_version(&self) -> Result<Option<u32>> {
        let Some(text) = Notes::note(self, NOTE).await? else {
            return Ok(None);
        };
        let stored: StoredSchema = serde_json::from_str(&text)
            .map_err(|error| Error::corrupt("the note schema", error.to_string()))?;
        if stored.least > VERSION {
            return Err(Error::Unsupported(format!(
                "the database was written by a newer version of tidings: its schema is number {}, and this one knows {VERSION}; \
                 use that version, or a newer one",
                stored.version
            )));
        }
        Ok(Some(stored.version))
    }

    /// Creates missing indexes and upgrades data from earlier versions. Safe to repeat, and to run
    /// while other processes work.
    pub async fn prepare(&self) -> Result<()> {
        let stored = self.stored_version().await?;
        self.create_indexes().await?;
        self.prepare_notices().await;
        // A database without a note may have data of version 1.
        if stored.is_some_and(|version| version >= VERSION) {
            return Ok(());
        }
        self.tag_deliveries().await?;
        self.drop_obsolete_indexes().await?;
        let current = StoredSchema {
            version: VERSION,
            least: FOR,
        };
        let current = serde_json::to_string(&current).unwrap_or_default();
        let read = Notes::note(self, NOTE).await?;
        // A faster process wrote the same schema, or a newer one.
        let written = self.swap_note(NOTE, read.as_deref(), Some(&current));
        written.await.map(drop)
    }

    /// Adds the tag to deliveries that lack one. Reads all of them in `_id` order, because no index
    /// covers a missing field.
    async fn tag_deliveries(&self) -> Result<()> {
        let doing = "giving deliveries their tags";
        let mut after = Bson::MinKey;
        loop {
            let mut options = in_order(doc! {"_id": 1}, STATEMENTS);
            options.projection = Some(doc! {"tag": 1});
            let page = doc! {"_id": {"$gt": after}};
            let found = self.find_raw(doing, DELIVERIES, &page, options).await?;
            let last = found.last().and_then(|row| row.get("_id").ok().flatten());
            let Some(last) = last.and_then(|id| Bson::try_from(id).ok()) else {
                return Ok(());
            };
            after = last;
            let untagged = found
                .iter()
                .filter(|row| matches!(row.get("tag"), Ok(None)));
            let updates = untagged.filter_map(|row| Some(tagging(row.get_str("_id").ok()?)));
            let updates: Vec<Document> = updates.collect();
            let written = self.write(doing, Verb::Update, DELIVERIES, updates);
            written.await?.complete(doing)?;
        }
    }

    /// Returns whether the database has no collections of tidings and no days of other writers.
    pub async fn is_bare(&self) -> Result<bool> {
        let names = self.patiently("looking for collections", || async {
            Ok(self.0.db.list_collection_names().await?)
        });
        let kept = [USERS, FOLLOWS, OBJECTS, FANOUTS, DELIVERIES, SUPPRESSIONS];
        let is_ours =
            |name: &String| kept.contains(&name.as_str()) || Day::of_collection(name).is_some();
        Ok(!names.await?.iter().any(is_ours))
    }

    /// Creates the missing indexes. If another program created one on the same fields with other
    /// options, that index stays.
    async fn create_indexes(&self) -> Result<()> {
        for indexes in INDEXES.chunk_by(|a, b| a.0 == b.0) {
            let collection = indexes[0].0;
            let stored = self.indexes_of(collection).await?;
            let absent: Vec<IndexModel> = indexes
                .iter()
                .map(model)
                .filter(|wanted| !stored.iter().any(|index| is_same(index, wanted)))
                .map(|wanted| beside(wanted, &stored))
                .collect();
            if absent.is_empty() {
                continue;
            }
            let doing = format!("creating the indexes of {collection}");
            let collection = self.collection(collection);
            let create = || async {
                let created = collection.create_indexes(absent.clone()).await;
                Ok(created.map(drop)?)
            };
            patience::patiently(BUILDING, BUILDING, &doing, create).await?;
        }
        Ok(())
    }

    /// Drops the indexes that earlier versions created and that are no longer used.
    async fn drop_obsolete_indexes(&self) -> Result<()> {
        for obsolete in OBSOLETE {
            let (collection, ..) = obsolete;
            let stored = self.indexes_of(collection).await?;
            let found = stored.iter().find(|index| is_same(index, &model(obsolete)));
            let Some(name) = found.and_then(name) else {
                continue;
            };
            let collection = self.collection(collection);
            self.patiently("dropping an index that nothing uses any more", || async {
                let dropped = collection.drop_index(name).await;
                match dropped.map_err(Failure::from) {
                    Err(failure) if failure.code == Some(INDEX_NOT_FOUND) => Ok(()),
                    dropped => dropped,
                }
            })
            .await?;
        }
        Ok(())
    }

    /// Returns indexes that do not exist, or exist with other options, such as `deliveries(slot)`.
    pub(super) async fn missing(&self) -> Result<Vec<String>> {
        let mut missing = Vec::new();
        for indexes in INDEXES.chunk_by(|a, b| a.0 == b.0) {
            let collection = indexes[0].0;
            let stored = self.indexes_of(collection).await?;
            for wanted in indexes.iter().map(model) {
                if !stored.iter().any(|index| is_same(index, &wanted)) {
                    let fields: Vec<&str> = wanted.keys.keys().map(String::as_str).collect();
                    missing.push(format!("{collection}({})", fields.join(", ")));
                }
            }
        }
        Ok(missing)
    }

    async fn indexes_of(&self, collection: &str) -> Result<Vec<IndexModel>> {
        let doing = format!("listing the indexes of {collection}");
        let collection = self.collection(collection);
        self.patiently(&doing, || async {
            let listed = match collection.list_indexes().await {
                Ok(listed) => listed.try_collect().await,
                Err(error) => Err(error),
            };
            match listed.map_err(Failure::from) {
                Err(failure) if failure.code == Some(NAMESPACE_NOT_FOUND) => Ok(Vec::new()),
                listed => listed,
            }
        })
        .await
    }
}

/// Returns the statement that adds the tag to a delivery.
fn tagging(id: &str) -> Document {
    let tag = DeliveryId::stored(id).tag();
    let untagged = doc! {"_id": id, "tag": {"$exists": false}};
    doc! {"q": untagged, "u": {"$set": {"tag": tag.as_str()}}}
}

/// The time limit for building an index: a collection of millions takes minutes.
const BUILDING: Duration = Duration::from_secs(3_600);

/// Compares text without regard to case.
pub(super) fn any_case() -> Collation {
    let strength = CollationStrength::Secondary;
    Collation::builder().locale("en").strength(strength).build()
}

/// The options of an index.
#[derive(Clone, Copy)]
enum Kind {
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
type Index = (&'static str, &'static str, Kind);

/// The indexes besides `_id`. Each serves a query of a store method, which a comment names if it is
/// not obvious. Day collections have none.
const INDEXES: &[Index] = &[
    (USERS, "loc", Geo),
    // Finds records that share an address.
    (USERS, "email", AnyCase),
    // Finds users whose digest is due in an hour, in `_id` order, and lists the time zones.
    (
        USERS,
        "tz digest.hour digest.cadence digest.weekday _id",
        Plain,
    ),
    (FOLLOWS, "_id.u _id.k", Plain),
    (FANOUTS, "key", Unique),
    // Includes the day, so that the index alone answers which days are busy.
    (FANOUTS, "state _id day", Plain),
    (ACCUMULATORS, "due lease.until", Plain),
    (ACCUMULATORS, "-open.id", Sparse),
    (ACCUMULATORS, "-ended.id", Sparse),
    (ACCUMULATORS, "_id.k -open.id", Plain),
    (ACCUMULATORS, "open.items.o _id", Having("open.id")),
    (ACCUMULATORS, "open.lead.items.o _id", Having("open.lead")),
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
    (SEEN_REPORTS, "until", Plain),
    (INBOXES, "changed", Plain),
    (RETRACTIONS, "at", Plain),
];

/// Indexes that earlier versions created and that are no longer used.
const OBSOLETE: &[Index] = &[
    // Replaced by an index that continues with `created` and `_id`.
    (DELIVERIES, "state", Plain),
];

fn model(&(_, fields, kind): &Index) -> IndexModel {
    let key = |field: &str| match (kind, field.strip_prefix('-')) {
        (Geo, _) => (field.to_owned(), Bson::from("2dsphere")),
        (_, Some(field)) => (field.to_owned(), Bson::Int32(-1)),
        (_, None) => (field.to_owned(), Bson::Int32(1)),
    };
    let keys: Document = fields.split(' ').map(key).collect();
    let options = IndexOptions::builder();
    let options = match kind {
        Plain | Geo => options.build(),
        Unique => options.unique(true).build(),
        Sparse => options.sparse(true).build(),
        UniqueSparse => options.unique(true).sparse(true).build(),
        AnyCase => options.collation(any_case()).build(),
        Having(field) => {
            let filter = doc! {field: {"$exists": true}};
            options.partial_filter_expression(filter).build()
        }
    };
    IndexModel::builder().keys(keys).options(options).build()
}

/// Returns whether two indexes have the same keys, uniqueness, sparseness and partial filter. Names
/// and collations are not compared.
fn is_same(one: &IndexModel, other: &IndexModel) -> bool {
    let options = |index: &IndexModel| {
        let options = index.options.clone().unwrap_or_default();
        let (unique, sparse) = (options.unique, options.sparse);
        let partial = options.partial_filter_expression;
        (unique.unwrap_or(false), sparse.unwrap_or(false), partial)
    };
    shape(&one.keys) == shape(&other.keys) && options(one) == options(other)
}

/// Gives the index an unused name. MongoDB derives the default name from the fields alone, so an
/// index on the same fields with other options may have it.
fn beside(mut wanted: IndexModel, stored: &[IndexModel]) -> IndexModel {
    let keys = shape(&wanted.keys).into_iter();
    let keys: Vec<String> = keys
        .map(|(field, order)| format!("{field}_{order}"))
        .collect();
    let default = keys.join("_");
    let is_used = |used: &str| stored.iter().filter_map(name).any(|name| name == used);
    if is_used(&default) {
        let mut ours = format!("tidings_{default}");
        while is_used(&ours) {
            ours.push('_');
        }
        wanted.options.get_or_insert_default().name = Some(ours);
    }
    wanted
}

fn name(index: &IndexModel) -> Option<&str> {
    index.options.as_ref()?.name.as_deref()
}

/// Returns the keys in a comparable form: shells write numbers as doubles.
fn shape(keys: &Document) -> Vec<(&str, String)> {
    let of = |value: &Bson| match value {
        Bson::Double(number) => (*number as i64).to_string(),
        Bson::String(text) => text.clone(),
        other => other.to_string(),
    };
    let keys = keys
        .iter()
        .map(|(field, value)| (field.as_str(), of(value)));
    keys.collect()
}
