//! Empty SQLite stores: a real file in a temporary folder, opened twice as two processes would.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tidings::store::sqlite::Sqlite;

use super::{Fresh, limited};

/// Runs a test on an empty store, which is deleted when the test ends, also after a panic.
pub async fn run<F: Future<Output = ()>>(test: impl FnOnce(Fresh) -> F) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidings.db");
    let open = async || Arc::new(Sqlite::open(&path).await.unwrap());
    let file = path.clone();
    let clear = Arc::new(move || -> BoxFuture<'static, ()> {
        empty(&file);
        Box::pin(async {})
    });
    let url = format!("sqlite:{}", path.display());
    let fresh = Fresh::new(open().await, open().await, clear, url);
    limited(test(fresh)).await;
}

/// Drops the days, and deletes the rows of all other tables.
fn empty(file: &Path) {
    let connection = rusqlite::Connection::open(file).unwrap();
    connection.busy_timeout(Duration::from_secs(30)).unwrap();
    let listed = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    let mut query = connection.prepare(listed).unwrap();
    let names = query.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let names: Vec<String> = names.collect::<Result<_, _>>().unwrap();
    let statements: String = names
        .iter()
        .map(|name| match name.starts_with("notifications_") {
            true => format!("DROP TABLE \"{name}\";"),
            false => format!("DELETE FROM \"{name}\";"),
        })
        .collect();
    // In one transaction, because each waits for the disk.
    let batch = format!("BEGIN IMMEDIATE; {statements} COMMIT;");
    connection.execute_batch(&batch).unwrap();
}
