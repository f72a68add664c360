//! The MongoDB store, for production: one collection per day for the stacks, one each for the rest.
//!
//! A majority acknowledges every write. Reads return majority-committed data that is never older
//! than data this process has seen ([`fresh`]). Every method can be repeated, so lost connections
//! and elections are waited out here ([`patience`]). Start with [`stacks`].

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

/// The database that is used if the connection string names none.
pub const DEFAULT_DATABASE: &str = "tidings";

/// Options besides the connection string.
#[derive(Debug, Clone)]
pub struct MongoOptions {
    /// The total time for which a method keeps trying while the database is unavailable.
    pub patience: Duration,
    /// The time limit of one attempt. After it, the attempt is repeated.
    pub attempt: Duration,
    /// The driver's server selection timeout, unless the connection string sets one.
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

/// The `wtimeout` of a write: how long to wait for a majority before the write is sent again.
const MAJORITY: Duration = Duration::from_secs(10);
/// The maximum number of connections. One scan alone has two cursors per day, all reading ahead.
const POOL: u32 = 64;

/// The store in a MongoDB database. Clones share their connections.
#[derive(Clone)]
pub struct Mongo(Arc<Shared>);

struct Shared {
    client: Client,
    db: Database,
    options: MongoOptions,
    /// Facts about day collections. They are hints only: a day that another process dropped or
    /// recreated is still written and read correctly.
    days: Mutex<HashMap<Day, Known>>,
    /// The cluster time that reads must have reached.
    floor: Floor,
    /// Coalesces concurrent inbox writes.
    inboxes: Joint<RawDocumentBuf>,
    /// Whether the client is connected to a router (`mongos`), once detected.
    routed: OnceCell<bool>,
}

/// Facts about an existing day collection.
#[derive(Debug, Clone, Copy)]
struct Known {
    layout: Layout,
    /// Whether most users of the last push had no stack there yet.
    mostly_new: bool,
    /// Whether nearly all of them had one with room in it.
    mostly_standing: bool,
}

/// The storage layout of a day collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Documents are stored in `_id` order. Scans are sequential, but on MongoDB 6.0 a `$in` query
    /// reads the whole collection.
    Clustered,
    /// The default layout, which older writers created.
    Ordinary,
}

/// Returns the parts of a connection string that may be secret: user, password, text in place of a
/// port, and the values of all parameters. The longest come first, because others may be parts of
/// them.
fn secrets(url: &str) -> Vec<&str> {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    // A password may contain unencoded separators, and the driver's messages repeat the text
    // between two of them.
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

/// The separators of a connection string.
const SIGNS: [char; 7] = [':', '/', '?', '@', '&', '=', ','];

impl Mongo {
    /// Creates a client for this connection string. The database is the one in its path, or
    /// [`DEFAULT_DATABASE`]. This sends nothing yet: see [`Mongo::prepare`].
    pub async fn connect(url: &str, options: MongoOptions) -> Result<Self> {
        let refused = |error: mongodb::error::Error| {
            // The driver's message repeats text that it cannot parse, which may be a password.
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

    /// Returns the database that holds all collections.
    pub fn database(&self) -> &Database {
        &self.0.db
    }

    fn collection(&self, name: &str) -> Collection<Document> {
        self.0.db.collection(name)
    }

    /// Runs a step until it succeeds or time runs out, see [`patience`].
    async fn patiently<T, F>(&self, doing: &str, step: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = std::result::Result<T, patience::Failure>>,
    {
        let MongoOptions {
            patience, attempt, ..
        } = self.0.options;
        patience::patiently(patience, attempt, doing, step).await
    }

    /// Returns all records that a query finds. For results that fit into memory.
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

    /// Returns all documents that a query finds. For results that fit into memory.
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

    /// Returns the `_id`s of at most `limit` matching documents, in this order.
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

    /// Returns the documents undecoded, so that unreadable ones are included. A limit of 0 returns
    /// none, although the server treats it as no limit.
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

    /// Returns the results of an aggregation. For results that fit into memory.
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

    /// Counts the matching documents by reading them.
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

/// Decodes documents. One that cannot be decoded, such as one with text that is not UTF-8, is
/// skipped so that the others can still be read.
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

/// Decodes records. Skips documents that are not valid BSON; a valid document that is not a valid
/// record is an error.
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

/// Calls `ask` for each item, at most `limit` at a time, and passes on the results as they arrive.
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
