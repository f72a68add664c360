//! The indexes besides `_id`, and how they are created.
//!
//! Each index serves a query of a store method, which a comment names if it is not obvious. Day
//! collections have no secondary index. Indexes are compared by their content, not by name.

use std::time::Duration;

use bson::{Bson, Document, doc};
use futures::TryStreamExt;
use mongodb::IndexModel;
use mongodb::options::{Collation, CollationStrength, IndexOptions};

use super::patience::{self, Failure};
use super::{
    ACCUMULATORS, BATCHES, DELIVERIES, FANOUTS, FOLLOWS, INBOXES, Mongo, OBJECTS, RETRACTIONS,
    SIGHTINGS, SUPPRESSIONS, USERS,
};
use crate::domain::Day;
use crate::store::Result;

/// Server error code: the collection does not exist.
const NAMESPACE_NOT_FOUND: i32 = 26;
/// Server error code: the index does not exist.
const INDEX_NOT_FOUND: i32 = 27;
/// The time limit for building an index: a collection of millions takes minutes.
const BUILDING: Duration = Duration::from_secs(3_600);

/// Compares text without regard to case.
pub(super) fn any_case() -> Collation {
    let strength = CollationStrength::Secondary;
    Collation::builder().locale("en").strength(strength).build()
}

/// Returns the indexes of each collection that has any.
fn wanted() -> [(&'static str, Vec<IndexModel>); 9] {
    let index = |keys: Document, options: IndexOptions| {
        IndexModel::builder().keys(keys).options(options).build()
    };
    let plain = IndexOptions::default;
    let unique = || IndexOptions::builder().unique(true).build();
    let sparse = || IndexOptions::builder().sparse(true).build();
    // Only open rows have a slot.
    let of_open = || {
        let open = doc! {"slot": {"$exists": true}};
        IndexOptions::builder()
            .partial_filter_expression(open)
            .build()
    };
    let holding = |what: &str| {
        let holding = doc! {what: {"$exists": true}};
        IndexOptions::builder()
            .partial_filter_expression(holding)
            .build()
    };
    let unique_sparse = || IndexOptions::builder().unique(true).sparse(true).build();
    let settled = || {
        let settled = doc! {"settled": {"$exists": true}};
        IndexOptions::builder()
            .partial_filter_expression(settled)
            .build()
    };
    [
        (
            USERS,
            vec![
                index(doc! {"loc": "2dsphere"}, plain()),
                // Finds records that share an address.
                index(
                    doc! {"email": 1},
                    IndexOptions::builder().collation(any_case()).build(),
                ),
                // Finds users whose digest is due in an hour, in `_id` order, and lists the time
                // zones.
                index(
                    doc! {"tz": 1, "digest.hour": 1, "digest.cadence": 1, "digest.weekday": 1, "_id": 1},
                    plain(),
                ),
            ],
        ),
        (FOLLOWS, vec![index(doc! {"_id.u": 1, "_id.k": 1}, plain())]),
        (
            FANOUTS,
            vec![
                index(doc! {"key": 1}, unique()),
                // Includes the day, so that the index alone answers which days are busy.
                index(doc! {"state": 1, "_id": 1, "day": 1}, plain()),
            ],
        ),
        (
            ACCUMULATORS,
            vec![
                index(doc! {"due": 1, "lease.until": 1}, plain()),
                index(doc! {"open.id": -1}, sparse()),
                index(doc! {"ended.id": -1}, sparse()),
                index(doc! {"_id.k": 1, "open.id": -1}, plain()),
                index(doc! {"open.items.o": 1, "_id": 1}, holding("open.id")),
                index(
                    doc! {"open.lead.items.o": 1, "_id": 1},
                    holding("open.lead"),
                ),
            ],
        ),
        (
            BATCHES,
            vec![
                index(doc! {"user": 1, "_id": -1}, plain()),
                index(doc! {"key": 1, "_id": -1}, plain()),
                index(doc! {"state": 1, "_id": -1}, plain()),
                index(doc! {"settled": 1}, sparse()),
            ],
        ),
        (
            DELIVERIES,
            vec![
                index(doc! {"slot": 1}, unique_sparse()),
                // Only open rows have a lease.
                index(doc! {"lease.until": 1}, sparse()),
                index(doc! {"user": 1, "created": -1}, plain()),
                index(doc! {"state": 1, "created": -1, "_id": -1}, plain()),
                index(doc! {"call": 1}, of_open()),
                // For provider reports: to find the delivery, and to count outcomes.
                index(doc! {"tag": 1}, sparse()),
                index(doc! {"provider_id": 1}, sparse()),
                index(
                    doc! {"settled": 1, "state": 1, "feedback.news": 1},
                    settled(),
                ),
            ],
        ),
        (SIGHTINGS, vec![index(doc! {"until": 1}, plain())]),
        (INBOXES, vec![index(doc! {"changed": 1}, plain())]),
        (RETRACTIONS, vec![index(doc! {"at": 1}, plain())]),
    ]
}

/// Returns indexes that earlier versions created and that are no longer used.
fn obsolete() -> [(&'static str, IndexModel); 1] {
    let plain = |keys: Document| IndexModel::builder().keys(keys).build();
    // Replaced by an index that continues with `created` and `_id`.
    [(DELIVERIES, plain(doc! {"state": 1}))]
}

impl Mongo {
    /// Returns whether the database has no collections of tidings and no days of other writers.
    pub async fn is_bare(&self) -> Result<bool> {
        let names = self.patiently("looking for collections", || {
            let db = self.database().clone();
            async move { Ok(db.list_collection_names().await?) }
        });
        let kept = [USERS, FOLLOWS, OBJECTS, FANOUTS, DELIVERIES, SUPPRESSIONS];
        let is_ours =
            |name: &String| kept.contains(&name.as_str()) || Day::of_collection(name).is_some();
        Ok(!names.await?.iter().any(is_ours))
    }

    /// Creates the missing indexes. If another program created one on the same fields with other
    /// options, that index stays.
    pub(super) async fn create_indexes(&self) -> Result<()> {
        for (collection, indexes) in wanted() {
            let standing = self.standing(collection).await?;
            let absent: Vec<IndexModel> = indexes
                .into_iter()
                .filter(|wanted| !standing.iter().any(|there| is_same(there, wanted)))
                .map(|wanted| beside(wanted, &standing))
                .collect();
            if absent.is_empty() {
                continue;
            }
            let doing = format!("creating the indexes of {collection}");
            let create = || {
                let collection = self.collection(collection);
                let absent = absent.clone();
                async move { Ok(collection.create_indexes(absent).await.map(drop)?) }
            };
            patience::patiently(BUILDING, BUILDING, &doing, create).await?;
        }
        Ok(())
    }

    /// Drops the indexes that earlier versions created and that are no longer used.
    pub(super) async fn drop_obsolete_indexes(&self) -> Result<()> {
        for (collection, obsolete) in obsolete() {
            let standing = self.standing(collection).await?;
            let there = standing.iter().find(|there| is_same(there, &obsolete));
            let Some(name) = there.and_then(name) else {
                continue;
            };
            self.patiently("dropping an index that nothing uses any more", || {
                let collection = self.collection(collection);
                async move {
                    let dropped = collection.drop_index(name).await;
                    match dropped.map_err(Failure::from) {
                        Err(failure) if failure.code == Some(INDEX_NOT_FOUND) => Ok(()),
                        dropped => dropped,
                    }
                }
            })
            .await?;
        }
        Ok(())
    }

    /// Returns indexes that do not exist, or exist with other options, such as `deliveries(slot)`.
    pub(super) async fn missing(&self) -> Result<Vec<String>> {
        let mut missing = Vec::new();
        for (collection, indexes) in wanted() {
            let standing = self.standing(collection).await?;
            let is_there =
                |wanted: &IndexModel| standing.iter().any(|there| is_same(there, wanted));
            let absent = indexes.iter().filter(|wanted| !is_there(wanted));
            missing.extend(absent.map(|index| format!("{collection}({})", fields(&index.keys))));
        }
        Ok(missing)
    }

    async fn standing(&self, collection: &str) -> Result<Vec<IndexModel>> {
        let doing = format!("listing the indexes of {collection}");
        self.patiently(&doing, || {
            let collection = self.collection(collection);
            async move {
                let listed = match collection.list_indexes().await {
                    Ok(listed) => listed.try_collect().await,
                    Err(error) => Err(error),
                };
                match listed.map_err(Failure::from) {
                    Err(failure) if failure.code == Some(NAMESPACE_NOT_FOUND) => Ok(Vec::new()),
                    listed => listed,
                }
            }
        })
        .await
    }
}

/// Returns whether two indexes have the same keys, uniqueness, sparseness and partial filter. Names
/// and collations are not compared.
fn is_same(one: &IndexModel, other: &IndexModel) -> bool {
    let flag = |index: &IndexModel, which: fn(&IndexOptions) -> Option<bool>| {
        index.options.as_ref().and_then(which).unwrap_or(false)
    };
    let partial = |index: &IndexModel| {
        let options = index.options.as_ref();
        options.and_then(|options| options.partial_filter_expression.clone())
    };
    shape(&one.keys) == shape(&other.keys)
        && flag(one, |options| options.unique) == flag(other, |options| options.unique)
        && flag(one, |options| options.sparse) == flag(other, |options| options.sparse)
        && partial(one) == partial(other)
}

/// Gives the index an unused name. MongoDB derives the default name from the fields alone, so an
/// index on the same fields with other options may have it.
fn beside(mut wanted: IndexModel, standing: &[IndexModel]) -> IndexModel {
    let made_up: Vec<String> = shape(&wanted.keys)
        .into_iter()
        .map(|(field, order)| format!("{field}_{order}"))
        .collect();
    let made_up = made_up.join("_");
    let taken = |name_: &str| standing.iter().filter_map(name).any(|there| there == name_);
    if taken(&made_up) {
        let mut ours = format!("tidings_{made_up}");
        while taken(&ours) {
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
fn shape(keys: &Document) -> Vec<(String, String)> {
    let of = |value: &Bson| match value {
        Bson::Double(number) => (*number as i64).to_string(),
        Bson::Int32(number) => number.to_string(),
        Bson::Int64(number) => number.to_string(),
        Bson::String(text) => text.clone(),
        other => other.to_string(),
    };
    let keys = keys.iter().map(|(field, value)| (field.clone(), of(value)));
    keys.collect()
}

fn fields(keys: &Document) -> String {
    let fields: Vec<&str> = keys.keys().map(|field| field.as_str()).collect();
    fields.join(", ")
}
