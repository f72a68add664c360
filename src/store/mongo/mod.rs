//! MongoDB, the store for production: one collection a day for the stacks, one each for everything
//! else.
//!
//! The rule: every write is acknowledged by a majority, every read sees only what a majority has
//! and nothing older than what was met before ([`fresh`]), and every verb can be repeated, so a
//! lost connection or a change of primary is waited out here ([`patience`]). Many writes go as raw
//! commands of a thousand statements ([`bulk`]); stacks are read by merging sorted cursors
//! ([`scan`]). Start with [`stacks`].

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bson::{Bson, Document, RawDocument, RawDocumentBuf};
use futures::stream::{self, StreamExt};
use mongodb::options::{Acknowledgment, ClientOptions, ReadConcern, WriteConcern};
use mongodb::{Client, Collection, Database};
use tokio::sync::OnceCell;

use self::floor::Floor;
use self::joint::Joint;
use super::record::{Record, read_bson};
use super::{Error, Result};
use crate::domain::{Day, ModelName};

mod additions;
mod alike;
mod append;
mod aside;
mod audiences;
mod batches;
mod behind;
mod bulk;
mod condition;
mod data;
mod days;
mod decode;
mod deliveries;
mod directory;
mod encode;
mod feedback;
mod floor;
mod fresh;
mod inboxes;
mod indexes;
mod joint;
mod journal;
mod leases;
mod mapped;
mod mapping;
mod markers;
mod neighbors;
mod notes;
mod objects;
mod outstanding;
mod patience;
mod pokes;
mod push;
mod retention;
mod retractions;
mod scan;
mod schema;
mod sightings;
mod stacks;
mod suppressions;
mod transfer;
mod values;
mod windows;

pub use mapping::Mapping;
pub use schema::VERSION as SCHEMA;

/// The database when the connection string names none.
pub const DEFAULT_DATABASE: &str = "tidings";

/// What can be chosen beside the connection string.
#[derive(Debug, Clone)]
pub struct MongoOptions {
    /// How long a verb goes on trying while the database is away or elects a primary, all in all.
    pub patience: Duration,
    /// How long one attempt may take before it is given up and made again.
    pub attempt: Duration,
    /// How long the driver looks for a server that can be asked, unless the connection string says
    /// otherwise.
    pub selection: Duration,
    /// Models that are read from the application's own collections instead of `objects`.
    pub mapped: HashMap<ModelName, Mapping>,
}

impl Default for MongoOptions {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(30),
            attempt: Duration::from_secs(20),
            selection: Duration::from_secs(10),
            mapped: HashMap::new(),
        }
    }
}

/// How long a majority may take to acknowledge before the write is sent again.
const MAJORITY: Duration = Duration::from_secs(10);
/// Connections: a scan alone has two cursors a day, all reading ahead.
const POOL: u32 = 64;

/// The store in a MongoDB database. Clones share their connections.
#[derive(Clone)]
pub struct Mongo(Arc<Shared>);

struct Shared {
    client: Client,
    db: Database,
    options: MongoOptions,
    /// What is known of day collections. Hints only: a day that was dropped or made anew behind our
    /// back is still written and read correctly.
    days: Mutex<HashMap<Day, Known>>,
    /// How new reads have to be.
    floor: Floor,
    /// Puts of inboxes that come at the same time.
    inboxes: Joint<RawDocumentBuf>,
    /// Whether a router is asked, once that was found out.
    routed: OnceCell<bool>,
}

/// What is known of a day collection that stands.
#[derive(Debug, Clone, Copy)]
struct Known {
    layout: Layout,
    /// Whether most people pushed to last had no stack there yet.
    mostly_new: bool,
    /// Whether nearly all of them had one, with room in it.
    mostly_standing: bool,
}

/// How a day collection is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Documents stand in the order of `_id`: scans are sequential, but MongoDB 6.0 answers `$in`
    /// by reading everything.
    Clustered,
    /// As older writers made them.
    Ordinary,
}

/// What of a connection string is nobody's business, or may be: user and password, what stands
/// where a port should, and all values of parameters. The longest come first: others may be parts
/// of them.
fn secrets(url: &str) -> Vec<&str> {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    // A password may hold any sign that nobody encoded, and the driver repeats what stands between
    // two.
    let before = rest.rsplit_once('@').map_or("", |(before, _)| before);
    let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let (user, hosts) = place.rsplit_once('@').unwrap_or(("", place));
    let ports = hosts
        .split(['/', ','])
        .filter_map(|host| Some(host.rsplit_once(':')?.1));
    let values = parameters
        .split('&')
        .filter_map(|one| Some(one.split_once('=')?.1));
    let all = [user, before]
        .into_iter()
        .chain(user.split(':'))
        .chain(before.split(SIGNS))
        .chain(ports)
        .chain(values);
    let told =
        |secret: &&str| secret.len() > 3 && !secret.bytes().all(|byte| byte.is_ascii_digit());
    let mut all: Vec<&str> = all.filter(told).collect();
    all.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    all
}

/// At which a connection string is cut.
const SIGNS: [char; 7] = [':', '/', '?', '@', '&', '=', ','];

impl Mongo {
    /// Sets a client up for this connection string. The database is the one in its path, or
    /// [`DEFAULT_DATABASE`]. Nothing is sent yet: see [`Mongo::prepare`].
    pub async fn connect(url: &str, options: MongoOptions) -> Result<Self> {
        let refused = |error: mongodb::error::Error| {
            // The driver repeats what it cannot read, which may be a password.
            let told = secrets(url)
                .into_iter()
                .fold(error.kind.to_string(), |told, secret| {
                    told.replace(secret, "(hidden)")
                });
            Error::database("reading the MongoDB connection string", told)
        };
        let mut settings = ClientOptions::parse(url).await.map_err(refused)?;
        settings
            .app_name
            .get_or_insert_with(|| "tidings".to_owned());
        settings
            .server_selection_timeout
            .get_or_insert(options.selection);
        settings.max_pool_size.get_or_insert(POOL);
        settings.selection_criteria = None; // the primary
        settings.write_concern = Some(
            WriteConcern::builder()
                .w(Acknowledgment::Majority)
                .journal(true)
                .w_timeout(MAJORITY)
                .build(),
        );
        settings.read_concern = Some(ReadConcern::majority());
        let name = settings
            .default_database
            .clone()
            .unwrap_or_else(|| DEFAULT_DATABASE.to_owned());
        let client = Client::with_options(settings).map_err(refused)?;
        let db = client.database(&name);
        let days = Mutex::default();
        Ok(Self(Arc::new(Shared {
            client,
            db,
            options,
            days,
            floor: Floor::default(),
            inboxes: Joint::default(),
            routed: OnceCell::new(),
        })))
    }

    /// The database that holds everything.
    pub fn database(&self) -> &Database {
        &self.0.db
    }

    fn collection(&self, name: &str) -> Collection<Document> {
        self.0.db.collection(name)
    }

    /// What a step comes to, see [`patience`].
    async fn patiently<T, F>(&self, doing: &str, step: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = std::result::Result<T, patience::Failure>>,
    {
        let MongoOptions {
            patience, attempt, ..
        } = self.0.options;
        patience::patiently(patience, attempt, doing, step).await
    }

    /// All records a query finds. For answers that fit into memory.
    async fn find_records<R: Record>(
        &self,
        doing: &str,
        collection: &str,
        filter: &Document,
        options: mongodb::options::FindOptions,
    ) -> Result<Vec<R::Value>> {
        let found = self.find_raw(doing, collection, filter, options).await?;
        records::<R>(doing, &found).collect()
    }

    /// All documents a query finds. For answers that fit into memory.
    async fn find_all(
        &self,
        doing: &str,
        collection: &str,
        filter: &Document,
        options: mongodb::options::FindOptions,
    ) -> Result<Vec<Document>> {
        let found = self.find_raw(doing, collection, filter, options).await?;
        Ok(readable(doing, &found))
    }

    /// The `_id`s of at most so many that a query finds, in this order.
    async fn find_ids(
        &self,
        doing: &str,
        collection: &str,
        filter: &Document,
        order: Document,
        limit: usize,
    ) -> Result<Vec<Bson>> {
        let options = values::ids_in_order(order, limit);
        let found = self.find_all(doing, collection, filter, options).await?;
        let id = |mut record: Document| record.remove("_id");
        Ok(found.into_iter().filter_map(id).collect())
    }

    /// The documents as they stand, whether they can be read or not; none where the limit is 0,
    /// which to the server is no limit.
    async fn find_raw(
        &self,
        doing: &str,
        collection: &str,
        filter: &Document,
        options: mongodb::options::FindOptions,
    ) -> Result<Vec<RawDocumentBuf>> {
        if options.limit == Some(0) {
            return Ok(Vec::new());
        }
        self.patiently(doing, || {
            let collection = self.0.db.collection::<RawDocumentBuf>(collection);
            let (filter, mut options) = (filter.clone(), options.clone());
            options.max_time = Some(patience::limit(self.0.options.attempt));
            async move {
                let find = collection.find(filter).with_options(options);
                self.all_of(find).await
            }
        })
        .await
    }

    /// What an aggregation comes to. For answers that fit into memory.
    async fn aggregate(
        &self,
        doing: &str,
        collection: &str,
        pipeline: Vec<Document>,
    ) -> Result<Vec<RawDocumentBuf>> {
        self.patiently(doing, || {
            let collection = self.0.db.collection::<RawDocumentBuf>(collection);
            let pipeline = pipeline.clone();
            async move { self.all_from(&collection, pipeline).await }
        })
        .await
    }

    /// How many documents match, by reading them.
    async fn matching(&self, doing: &str, collection: &str, filter: &Document) -> Result<u64> {
        let limit = patience::limit(self.0.options.attempt);
        self.patiently(doing, || {
            let (collection, filter) = (self.collection(collection), filter.clone());
            async move {
                let count = collection.count_documents(filter).max_time(limit);
                self.count_of(count).await
            }
        })
        .await
    }

    fn known(&self, day: Day) -> Option<Known> {
        let days = self.0.days.lock().unwrap_or_else(PoisonError::into_inner);
        days.get(&day).copied()
    }

    fn note(&self, day: Day, known: Known) {
        let mut days = self.0.days.lock().unwrap_or_else(PoisonError::into_inner);
        days.insert(day, known);
    }

    fn forget(&self, day: Day) {
        let mut days = self.0.days.lock().unwrap_or_else(PoisonError::into_inner);
        days.remove(&day);
    }
}

/// Those of the documents that can be read. One whose text is not UTF-8 is as good as none, and
/// keeps nobody from the others.
fn readable(doing: &str, found: &[RawDocumentBuf]) -> Vec<Document> {
    let found = found.iter();
    found.filter_map(|raw| document(doing, raw)).collect()
}

fn document(doing: &str, raw: &RawDocument) -> Option<Document> {
    let document = Document::try_from(raw);
    let said = document.inspect_err(|error| {
        tracing::warn!(doing, %error, "a document cannot be read, and is passed over");
    });
    said.ok()
}

/// Those of the same that are documents, as records; or what is wrong with one.
fn records<R: Record>(
    doing: &str,
    found: &[RawDocumentBuf],
) -> impl Iterator<Item = Result<R::Value>> {
    let read = move |raw: &RawDocumentBuf| match read_bson::<R>(raw) {
        Err(error) => document(doing, raw).map(|_| Err(error)),
        read => Some(read),
    };
    found.iter().filter_map(read)
}

/// Asks for each of these, so many at a time, and hands the answers on as they come.
async fn at_once<T, F: Future<Output = Result<T>>>(
    limit: usize,
    items: impl IntoIterator<Item = usize>,
    ask: impl Fn(usize) -> F,
    mut answer: impl FnMut(T),
) -> Result<()> {
    let mut asked = stream::iter(items).map(ask).buffer_unordered(limit);
    while let Some(part) = asked.next().await {
        answer(part?);
    }
    Ok(())
}

impl std::fmt::Debug for Mongo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Mongo").field(&self.0.db.name()).finish()
    }
}

const USERS: &str = "users";
const FOLLOWS: &str = "follows";
const OBJECTS: &str = "objects";
const POKES: &str = "pokes";
const FANOUTS: &str = "fanouts";
const AUDIENCES: &str = "audiences";
const ACCUMULATORS: &str = "seats";
const BATCHES: &str = "batches";
const DELIVERIES: &str = "deliveries";
const INBOXES: &str = "inboxes";
const RETRACTIONS: &str = "retractions";
const LEASES: &str = "leases";
const CATCH_UPS: &str = "catch_ups";
const NOTES: &str = "notes";
const SUPPRESSIONS: &str = "suppressions";
const SOFT_BOUNCES: &str = "soft_bounces";
const SIGHTINGS: &str = "sightings";
