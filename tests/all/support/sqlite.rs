//! Fresh SQLite stores: a real file in a folder of its own, opened twice as two processes would.

use std::sync::Arc;

use tidings::store::sqlite::Sqlite;

use super::Fresh;

/// Runs a test on a fresh store, which goes when the test ends, however it ends.
pub async fn run<F: Future<Output = ()>>(test: impl FnOnce(Fresh) -> F) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidings.db");
    let open = async || Arc::new(Sqlite::open(&path).await.unwrap());
    test(Fresh::new(open().await, open().await)).await;
}
