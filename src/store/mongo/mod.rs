//! The MongoDB store, for production: one collection per day for the stacks, one each for the rest.
//!
//! A majority acknowledges every write. Reads return majority-committed data that is never older
//! than data this process has seen ([`reads`]). Every method can be repeated, so the store retries
//! it during elections and after lost connections ([`patience::retry`]). Start with [`stacks`].

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bson::{Bson, Document, Timestamp, doc};
use chrono::{DateTime, Utc};
use mongodb::options::{ClientOptions, ReadConcern, WriteConcern};
use mongodb::{Client, Collection, Database};
use tokio::sync::OnceCell;

use super::entry::object_id;
use super::{Error, Result};
use crate::domain::object::ModelMapping;
use crate::domain::{Day, Id, Lease, ModelName};
use crate::mutex::lock;

mod append_events;
mod batches;
mod bulk;
mod coordination;
mod days;
mod deliveries;
mod diagnostics;
mod expired;
mod feedback;
mod grouped_updates;
mod journal;
mod mapped_models;
mod objects;
mod patience;
mod reads;
mod stacks;
mod transfer;
mod upgrade;
mod users;

pub use upgrade::VERSION as SCHEMA;

/// The database that is used if the connection string names none.
pub const DEFAULT_DATABASE: &str = "tidings";

/// Options besides the connection string.
#[derive(Debug, Clone)]
pub struct MongoOptions {
    /// The total time for which a method keeps trying while the database is unavailable.
    pub retry_timeout: Duration,
    /// The time limit of one attempt. After it, the attempt is repeated.
    pub attempt_timeout: Duration,
    /// The driver's server selection timeout, unless the connection string sets one.
    pub server_selection_timeout: Duration,
    /// Models that are read from the application's own collections instead of `objects`.
    pub mapped_models: BTreeMap<ModelName, ModelMapping>,
}

impl Default for MongoOptions {
    fn default() -> Self {
        Self {
            retry_timeout: Duration::from_secs(30),
            attempt_timeout: Duration::from_secs(20),
            server_selection_timeout: Duration::from_secs(10),
            mapped_models: BTreeMap::new(),
        }
    }
}

/// The `wtimeout` of a write: how long to wait for a majority before the write is sent again.
const MAJORITY_TIMEOUT: Duration = Duration::from_secs(10);
/// One scan alone has two cursors per day, all reading ahead.
const MAX_CONNECTIONS: u32 = 64;

/// The store in a MongoDB database. Clones share their connections.
#[derive(Clone)]
pub struct Mongo(Arc<Shared>);

/// Whether most users of the last push had no stack on the day yet.
type MostlyNew = bool;

struct Shared {
    client: Client,
    db: Database,
    options: MongoOptions,
    /// Existing days. These are hints only: a day that another process dropped or recreated is
    /// still written correctly.
    days: Mutex<HashMap<Day, MostlyNew>>,
    /// The highest cluster time seen so far. Reads reflect at least this time. A standalone server
    /// reports none, and has no stale members.
    min_cluster_time: Mutex<Option<Timestamp>>,
    /// Whether the client is connected to a router (`mongos`), once detected.
    is_routed: OnceCell<bool>,
}

/// Returns the parts of a connection string that may be secret: user, password, text in place of a
/// port, and the values of all parameters. The longest come first, because others may be parts of
/// them.
fn secrets(url: &str) -> Vec<&str> {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    // A password may contain unencoded separators, and the driver's messages repeat the text
    // between two of them.
    let credentials = rest.rsplit_once('@').map_or("", |(credentials, _)| credentials);
    let after_signs = rest.split([':', '=']).skip(1);
    let values = after_signs.filter_map(|text| text.split(['&', '/', ',']).next());
    let parts = credentials.split(SEPARATORS).chain([credentials]).chain(values);
    let is_secret = |part: &&str| part.len() > 3 && !part.bytes().all(|byte| byte.is_ascii_digit());
    let mut secrets: Vec<&str> = parts.filter(is_secret).collect();
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets
}

/// The separators of a connection string.
const SEPARATORS: [char; 7] = [':', '/', '?', '@', '&', '=', ','];

impl Mongo {
    /// Creates a client for this connection string. The database is the one in its path, or
    /// [`DEFAULT_DATABASE`]. This sends nothing yet: see [`Mongo::prepare`].
    pub async fn connect(url: &str, options: MongoOptions) -> Result<Self> {
        let redacted = |error: mongodb::error::Error| {
            // The driver's message repeats text that it cannot parse, which may be a password.
            let mut message = error.kind.to_string();
            for secret in secrets(url) {
                message = message.replace(secret, "(hidden)");
            }
            Error::database("reading the MongoDB connection string", message)
        };
        let mut settings = ClientOptions::parse(url).await.map_err(redacted)?;
        settings.app_name.get_or_insert("tidings".into());
        settings.server_selection_timeout.get_or_insert(options.server_selection_timeout);
        settings.max_pool_size.get_or_insert(MAX_CONNECTIONS);
        settings.selection_criteria = None; // the primary
        let mut durable = WriteConcern::majority();
        durable.journal = Some(true);
        durable.w_timeout = Some(MAJORITY_TIMEOUT);
        settings.write_concern = Some(durable);
        settings.read_concern = Some(ReadConcern::majority());
        let client = Client::with_options(settings).map_err(redacted)?;
        let db = client.default_database().unwrap_or_else(|| client.database(DEFAULT_DATABASE));
        Ok(Self(Arc::new(Shared {
            client,
            db,
            options,
            days: Mutex::default(),
            min_cluster_time: Mutex::default(),
            is_routed: OnceCell::new(),
        })))
    }

    fn collection(&self, name: &str) -> Collection<Document> {
        self.0.db.collection(name)
    }

    /// Runs a step until it succeeds or time runs out, see [`patience::retry`].
    async fn retry<T, F>(&self, doing: &str, step: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = std::result::Result<T, patience::AttemptFailure>>,
    {
        let options = &self.0.options;
        patience::retry(options.retry_timeout, options.attempt_timeout, doing, step).await
    }

    /// Runs a command. Returns the error code if it is one of those expected.
    async fn run(
        &self,
        db: &Database,
        command: Document,
        expected: &[i32],
    ) -> Result<std::result::Result<Document, i32>> {
        let field = command.iter().next();
        let doing = field.map_or_else(String::new, |(name, on)| format!("running {name} {on}"));
        self.retry(&doing, || async {
            let reply = db.run_command(command.clone()).await;
            match reply.map_err(patience::AttemptFailure::from) {
                Err(patience::AttemptFailure { code: Some(code), .. })
                    if expected.contains(&code) =>
                {
                    Ok(Err(code))
                }
                reply => reply.map(Ok),
            }
        })
        .await
    }

    fn admin(&self) -> Database {
        self.0.client.database("admin")
    }

    /// Returns the server's time limit for an attempt.
    fn time_limit(&self) -> Duration {
        patience::server_time_limit(self.0.options.attempt_timeout)
    }

    fn raise_min_cluster_time(&self, to: Timestamp) {
        let mut time = lock(&self.0.min_cluster_time);
        *time = (*time).max(Some(to));
    }

    fn min_cluster_time(&self) -> Option<Timestamp> {
        *lock(&self.0.min_cluster_time)
    }

    fn known_days(&self) -> MutexGuard<'_, HashMap<Day, MostlyNew>> {
        lock(&self.0.days)
    }
}

/// Converts a time to whole milliseconds.
fn date(time: DateTime<Utc>) -> Bson {
    Bson::DateTime(bson::DateTime::from_millis(time.timestamp_millis()))
}

fn oid(id: Id) -> Bson {
    Bson::ObjectId(object_id(id))
}

/// Encodes a lease. A missing one becomes a lease that ended at the Unix epoch.
fn lease_document(lease: Option<&Lease>) -> Bson {
    match lease {
        Some(lease) => doc! {"owner": &lease.owner, "until": date(lease.until)}.into(),
        None => doc! {"until": date(DateTime::UNIX_EPOCH)}.into(),
    }
}

/// Returns the fields that have a value.
fn without_nulls(fields: Document) -> Document {
    fields.into_iter().filter(|(_, value)| *value != Bson::Null).collect()
}

impl std::fmt::Debug for Mongo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Mongo").field(&self.0.db.name()).finish()
    }
}

const USERS: &str = "users";
const FOLLOWS: &str = "follows";
const OBJECTS: &str = "objects";
const CHANGE_NOTICES: &str = "change_notices";
const FANOUTS: &str = "fanouts";
const AUDIENCES: &str = "audiences";
const ACCUMULATORS: &str = "accumulators";
const BATCHES: &str = "batches";
const DELIVERIES: &str = "deliveries";
const INBOXES: &str = "inboxes";
const RETRACTIONS: &str = "retractions";
const LEASES: &str = "leases";
const CATCH_UPS: &str = "catch_ups";
const NOTES: &str = "notes";
const SUPPRESSIONS: &str = "suppressions";
const SOFT_BOUNCES: &str = "soft_bounces";
const WEBHOOK_RECEIPTS: &str = "webhook_receipts";
