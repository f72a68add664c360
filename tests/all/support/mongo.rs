//! Fresh MongoDB stores: a database of its own for each test, on the server the environment names.
//!
//! The rule: no test is skipped silently. Without a server it fails, and says how to give it one.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use tidings::store::mongo::{Mongo, MongoOptions};

use super::Fresh;

/// Where tests find a server; `scripts/with-mongo` sets it.
const URL: &str = "TIDINGS_TEST_MONGO";

/// Runs a test on a fresh database and drops it when the test ends, however it ends.
pub async fn run<F: Future<Output = ()>>(test: impl FnOnce(Fresh) -> F) {
    let name = format!("tidings_test_{}", bson::oid::ObjectId::new());
    let url = with_database(&server(), &name);
    let database = mongodb::Client::with_uri_str(&url)
        .await
        .unwrap()
        .database(&name);
    let cleared = database.clone();
    let clear = Arc::new(move || -> BoxFuture<'static, ()> { Box::pin(empty(cleared.clone())) });
    let fresh = Fresh::new(open(&url).await, open(&url).await, clear);

    let outcome = AssertUnwindSafe(test(fresh)).catch_unwind().await;

    database.drop().await.unwrap();
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

/// Drops the days and deletes the documents of all other collections; their indexes stay.
async fn empty(database: mongodb::Database) {
    for name in database.list_collection_names().await.unwrap() {
        let collection = database.collection::<bson::Document>(&name);
        if name.starts_with("notifications_") {
            collection.drop().await.unwrap();
        } else {
            collection.delete_many(bson::doc! {}).await.unwrap();
        }
    }
}

/// The connection string of the server to test on.
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

async fn open(url: &str) -> Arc<Mongo> {
    let store = Mongo::connect(url, MongoOptions::default()).await.unwrap();
    store.prepare().await.unwrap();
    Arc::new(store)
}

/// The connection string with this database in the place of whatever it names.
fn with_database(url: &str, name: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (place, options) = rest
        .split_once('?')
        .map_or((rest, ""), |(place, options)| (place, options));
    let hosts = place.split('/').next().unwrap();
    format!("{scheme}://{hosts}/{name}?{options}")
}
