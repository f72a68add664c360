//! Empty MongoDB stores: a separate database for each test, on the server in the environment.
//!
//! To create the indexes of a database takes longer than most tests. So tests that succeed leave
//! their databases to later ones. Without a server, a test fails and explains how to start one.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::doc;
use bson::oid::ObjectId;
use chrono::TimeDelta;
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use tidings::clock::{Clock, SystemClock};
use tidings::store::mongo::{Mongo, MongoOptions};

use super::{Fresh, limited};

/// The environment variable with the server's URL, which `scripts/with-mongo` sets.
const URL: &str = "TIDINGS_TEST_MONGO";

/// Runs a test on an empty database, and drops it when the test ends, also after a panic.
pub async fn run<F: Future<Output = ()>>(test: impl FnOnce(Fresh) -> F) {
    on_fresh_database(MongoOptions::default(), |fresh, _, _| test(fresh)).await;
}

/// An empty store, whose server can inject faults into its commands.
pub struct Faulty {
    fresh: Fresh,
    admin: mongodb::Database,
    name: String,
}

impl Deref for Faulty {
    type Target = Fresh;

    fn deref(&self) -> &Fresh {
        &self.fresh
    }
}

impl Faulty {
    /// Injects a fault into the next `times` commands of this store. `fault` is the `data` of the
    /// server's fail point `failCommand`.
    pub async fn fails(&self, times: i32, mut fault: bson::Document) {
        fault.insert("appName", &self.name);
        self.fail_point(doc! {"times": times}.into(), fault).await;
    }

    /// Delays the next command of this name. The returned future waits until the command has
    /// arrived.
    pub async fn holds_back(
        &self,
        command: &str,
        time: Duration,
    ) -> impl Future<Output = ()> + use<> {
        let data = doc! {
            "failCommands": [command], "blockConnection": true, "blockTimeMS": time.as_millis() as i64,
            "appName": &self.name,
        };
        let entered = self.fail_point(doc! {"times": 1}.into(), data).await;
        let admin = self.admin.clone();
        async move {
            let wait = doc! {"waitForFailPoint": "failCommand", "timesEntered": entered + 1, "maxTimeMS": 60_000};
            admin.run_command(wait).await.unwrap();
        }
    }

    /// Inserts a document past the store, as another program would.
    pub async fn write(&self, collection: &str, document: bson::Document) {
        self.write_all(collection, vec![document]).await;
    }

    /// Inserts documents past the store, as another program would.
    pub async fn write_all(&self, collection: &str, documents: Vec<bson::Document>) {
        let database = self.admin.client().database(&self.name);
        let collection = database.collection(collection);
        collection.insert_many(documents).await.unwrap();
    }

    /// Returns the number of documents in a collection.
    pub async fn stored(&self, collection: &str) -> u64 {
        let database = self.admin.client().database(&self.name);
        let collection = database.collection::<bson::Document>(collection);
        collection.count_documents(doc! {}).await.unwrap()
    }

    /// Creates a unique index that is not part of our schema.
    pub async fn unique_index(&self, collection: &str, field: &str) {
        let index = doc! {"key": {field: 1}, "name": field, "unique": true};
        let command = doc! {"createIndexes": collection, "indexes": [index]};
        let database = self.admin.client().database(&self.name);
        database.run_command(command).await.unwrap();
    }

    /// Sets the fail point. Returns how often it was entered before.
    async fn fail_point(&self, mode: bson::Bson, data: bson::Document) -> i64 {
        let command = doc! {"configureFailPoint": "failCommand", "mode": mode, "data": data};
        let done = self.admin.run_command(command).await.unwrap();
        let count = done.get("count").and_then(bson::Bson::as_i64);
        count.unwrap_or_else(|| done.get_i32("count").unwrap().into())
    }
}

/// Runs a test on an empty database with fault injection. Such tests run one at a time, because a
/// server has only one `failCommand`.
pub async fn faulty(options: MongoOptions, test: impl AsyncFnOnce(&Faulty)) {
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let alone = ALONE.lock().await;
    on_fresh_database(options, async |fresh, client: mongodb::Client, name| {
        let admin = client.database("admin");
        let faulty = Faulty { fresh, admin, name };
        test(&faulty).await;
        faulty.fail_point("off".into(), doc! {}).await;
    })
    .await;
    drop(alone);
}

/// An empty database, with the indexes of each collection right after its creation.
struct Prepared {
    name: String,
    indexes: BTreeMap<String, bson::Array>,
}

/// Databases of earlier tests, oldest first.
static IDLE: Mutex<VecDeque<Prepared>> = Mutex::new(VecDeque::new());
/// A database is reused only after this many others, when the last statements of its test are over.
const SPARE: usize = 4;
const PREFIX: &str = "tidings_test_";

/// Generates tests with fault injection. Each is an `async fn(&Faulty)`.
macro_rules! with_faults {
    ($($test:ident)*) => {
        mod with_faults {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    $crate::support::mongo::faulty(Default::default(), super::$test).await;
                }
            )*
        }
    };
}

pub(crate) use with_faults;

/// Each store connects with the name of its database as `appName`, which fail points match.
async fn on_fresh_database(
    options: MongoOptions,
    test: impl AsyncFnOnce(Fresh, mongodb::Client, String),
) {
    let reused = {
        let mut idle = IDLE.lock().unwrap();
        (idle.len() > SPARE).then(|| idle.pop_front()).flatten()
    };
    let name = match &reused {
        Some(prepared) => prepared.name.clone(),
        None => format!("{PREFIX}{}", ObjectId::new()),
    };
    let url = with_database(&server(), &name);
    let client = mongodb::Client::with_uri_str(&url).await.unwrap();
    let database = client.database(&name);
    let cleared = database.clone();
    let clear = Arc::new(move || -> BoxFuture<'static, ()> { Box::pin(empty(cleared.clone())) });
    let and = if url.ends_with('?') { "" } else { "&" };
    // After a simulated change of the primary, the driver waits for its next heartbeat.
    let url = format!("{url}{and}appName={name}&heartbeatFrequencyMS=500");
    let connect = async || Mongo::connect(&url, options.clone()).await.unwrap();
    let (store, second) = (connect().await, connect().await);
    store.prepare().await.unwrap();
    let indexes = match reused {
        Some(prepared) => prepared.indexes,
        None => {
            drop_abandoned(&client).await;
            indexes(&database).await
        }
    };
    let fresh = Fresh::new(Arc::new(store), Arc::new(second), clear, url.clone());

    let outcome = AssertUnwindSafe(limited(test(fresh, client, name.clone()))).catch_unwind().await;

    let prepared = Prepared { name, indexes };
    match outcome {
        Ok(()) if is_reusable(&database, &prepared).await => {
            IDLE.lock().unwrap().push_back(prepared);
        }
        Ok(()) => database.drop().await.unwrap(),
        Err(panic) => {
            database.drop().await.unwrap();
            std::panic::resume_unwind(panic);
        }
    }
}

/// The indexes of each collection.
async fn indexes(database: &mongodb::Database) -> BTreeMap<String, bson::Array> {
    let names = database.list_collection_names().await.unwrap();
    let listed = names.into_iter().map(|name| async move {
        let answer = database.run_command(doc! {"listIndexes": &name});
        let mut answer = answer.await.unwrap();
        let cursor = answer.get_document_mut("cursor").unwrap();
        let indexes = cursor.get_array_mut("firstBatch").unwrap();
        (name, std::mem::take(indexes))
    });
    join_all(listed).await.into_iter().collect()
}

/// Empties the database, and returns whether it has the same collections and indexes as in the
/// beginning.
async fn is_reusable(database: &mongodb::Database, prepared: &Prepared) -> bool {
    database.run_command(doc! {"profile": 0}).await.unwrap();
    let names = database.list_collection_names().await.unwrap();
    join_all(names.iter().map(async |name| {
        let collection = database.collection::<bson::Document>(name);
        if prepared.indexes.contains_key(name) {
            collection.delete_many(doc! {}).await.unwrap();
        } else {
            collection.drop().await.unwrap();
        }
    }))
    .await;
    indexes(database).await == prepared.indexes
}

/// Drops the databases that earlier runs left behind. Those of concurrent runs are younger.
async fn drop_abandoned(client: &mongodb::Client) {
    static ONCE: tokio::sync::OnceCell<()> = tokio::sync::OnceCell::const_new();
    let sweep = async || {
        let day_ago = SystemClock.now() - TimeDelta::days(1);
        for name in client.list_database_names().await.unwrap() {
            let id = name.strip_prefix(PREFIX);
            let id = id.and_then(|id| ObjectId::parse_str(id).ok());
            if id.is_some_and(|id| id.timestamp().timestamp_millis() < day_ago.timestamp_millis()) {
                client.database(&name).drop().await.unwrap();
            }
        }
    };
    ONCE.get_or_init(sweep).await;
}

/// Drops the days, and deletes the documents of all other collections. Their indexes stay.
async fn empty(database: mongodb::Database) {
    for name in database.list_collection_names().await.unwrap() {
        let collection = database.collection::<bson::Document>(&name);
        if name.starts_with("notifications_") {
            collection.drop().await.unwrap();
        } else {
            collection.delete_many(doc! {}).await.unwrap();
        }
    }
}

/// The connection string of the test server.
fn server() -> String {
    let Ok(url) = std::env::var(URL) else {
        let required = std::env::var("TIDINGS_TEST_REQUIRE_MONGO").is_ok_and(|value| value == "1");
        let though = if required { ", though TIDINGS_TEST_REQUIRE_MONGO=1" } else { "" };
        panic!(
            "{URL} is not set{though}: this test needs a MongoDB. Run `scripts/with-mongo cargo test`, or \
             `scripts/test` for everything."
        );
    };
    url
}

/// Replaces the database in the connection string.
fn with_database(url: &str, name: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (place, options) =
        rest.split_once('?').map_or((rest, ""), |(place, options)| (place, options));
    let hosts = place.split('/').next().unwrap();
    format!("{scheme}://{hosts}/{name}?{options}")
}
