//! Malformed documents, written past the store as another program or a faulty disk would.

use bson::{Bson, Document, RawDocumentBuf, doc};
use tidings::domain::Day;

use super::Fresh;

/// A text that is replaced by bytes that are not UTF-8.
pub const NOT_UTF8: &str = "~~~~";

/// The size limit of a MongoDB document.
const LARGEST: usize = 16 << 20;

/// The database of a store on MongoDB, or `None` on SQLite.
pub async fn database(fresh: &Fresh) -> Option<mongodb::Database> {
    if !fresh.url().starts_with("mongodb") {
        return None;
    }
    let client = mongodb::Client::with_uri_str(fresh.url()).await.unwrap();
    client.default_database()
}

/// The file of a store on SQLite.
pub fn file(fresh: &Fresh) -> rusqlite::Connection {
    let path = fresh.url().strip_prefix("sqlite:").unwrap();
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
    connection
}

/// Replaces the document with the same `_id`. Occurrences of [`NOT_UTF8`] become invalid UTF-8.
pub async fn put(database: &mongodb::Database, day: Day, document: Document) {
    put_into(database, &day.collection_name(), document).await;
}

/// Like [`put`], in any collection.
pub async fn put_into(database: &mongodb::Database, collection: &str, document: Document) {
    let id = document.get("_id").cloned().unwrap();
    let gone = doc! {"q": {"_id": {"$eq": id}}, "limit": 1};
    let delete = doc! {"delete": collection, "deletes": [gone]};
    let insert = doc! {"insert": collection, "documents": [document]};
    for command in [delete, insert] {
        let mut bytes = bson::serialize_to_vec(&command).unwrap();
        for at in 0..bytes.len().saturating_sub(NOT_UTF8.len()) {
            if bytes[at..].starts_with(NOT_UTF8.as_bytes()) {
                bytes[at..at + NOT_UTF8.len()].fill(0xff);
            }
        }
        let raw = RawDocumentBuf::from_bytes(bytes).unwrap();
        let answer = database.run_raw_command(raw).await.unwrap();
        assert!(!answer.contains_key("writeErrors"), "{answer}");
    }
}

/// The stored document with this `_id`.
pub async fn stored_document(database: &mongodb::Database, day: Day, id: &str) -> Document {
    let collection = database.collection::<Document>(&day.collection_name());
    let found = collection.find_one(doc! {"_id": id}).await.unwrap();
    found.unwrap()
}

/// Pads a user's document until it reaches the size limit.
pub async fn fill_up(database: &mongodb::Database, day: Day, id: &str) {
    let mut document = stored_document(database, day, id).await;
    document.insert("pad", Bson::String(String::new()));
    let size = bson::serialize_to_vec(&document).unwrap().len();
    document.insert("pad", "x".repeat(LARGEST - size - 8));
    put(database, day, document).await;
}
