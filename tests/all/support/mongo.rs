//! Empty MongoDB stores: a separate database for each test, on the server in the environment.
//!
//! Without a server, a test fails and explains how to start one. It is never skipped silently.

use std::ops::Deref;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bson::doc;
use futures::FutureExt;
use futures::future::BoxFuture;
use tidings::store::mongo::{Mongo, MongoOptions};

use super::Fresh;

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

    /// The full name of a collection, for fail points.
    pub fn namespace(&self, collection: &str) -> String {
        format!("{}.{collection}", self.name)
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

/// Each store connects with the name of its database as `appName`, which fail points match.
async fn on_fresh_database(
    options: MongoOptions,
    test: impl AsyncFnOnce(Fresh, mongodb::Client, String),
) {
    let name = format!("tidings_test_{}", bson::oid::ObjectId::new());
    let url = with_database(&server(), &name);
    let client = mongodb::Client::with_uri_str(&url).await.unwrap();
    let database = client.database(&name);
    let cleared = database.clone();
    let clear = Arc::new(move || -> BoxFuture<'static, ()> { Box::pin(empty(cleared.clone())) });
    let and = if url.ends_with('?') { "" } else { "&" };
    // After a simulated change of the primary, the driver waits for its next heartbeat.
    let url = format!("{url}{and}appName={name}&heartbeatFrequencyMS=500");
    let (store, second) = (open(&url, &options).await, open(&url, &options).await);
    let fresh = Fresh::new(store, second, clear, url);

    let outcome = AssertUnwindSafe(test(fresh, client, name))
        .catch_unwind()
        .await;

    database.drop().await.unwrap();
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
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
        let though = if required {
            ", though TIDINGS_TEST_REQUIRE_MONGO=1"
        } else {
            ""
        };
        panic!(
            "{URL} is not set{though}: this test needs a MongoDB. Run `scripts/with-mongo cargo test`, or \
             `scripts/test` for everything."
        );
    };
    url
}

async fn open(url: &str, options: &MongoOptions) -> Arc<Mongo> {
    let store = Mongo::connect(url, options.clone()).await.unwrap();
    store.prepare().await.unwrap();
    Arc::new(store)
}

/// Replaces the database in the connection string.
fn with_database(url: &str, name: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (place, options) = rest
        .split_once('?')
        .map_or((rest, ""), |(place, options)| (place, options));
    let hosts = place.split('/').next().unwrap();
    format!("{scheme}://{hosts}/{name}?{options}")
}
