//! Helpers that build values and options for queries and updates.

use bson::oid::ObjectId as Oid;
use bson::{Bson, Document, doc};
use chrono::{DateTime, Utc};
use mongodb::options::FindOptions;

use crate::domain::{Id, Lease};

/// Converts a time to whole milliseconds.
pub(super) fn date(time: DateTime<Utc>) -> Bson {
    Bson::DateTime(bson::DateTime::from_millis(time.timestamp_millis()))
}

pub(super) fn oid(id: Id) -> Bson {
    Bson::ObjectId(Oid::from_bytes(id.bytes()))
}

/// Returns options for at most `limit` documents in this order.
pub(super) fn in_order(order: Document, limit: usize) -> FindOptions {
    FindOptions::builder()
        .sort(order)
        .limit(i64::try_from(limit).unwrap_or(i64::MAX))
        .build()
}

/// Returns options for the `_id`s of at most `limit` documents in this order.
pub(super) fn ids_in_order(order: Document, limit: usize) -> FindOptions {
    let mut options = in_order(order, limit);
    options.projection = Some(doc! {"_id": 1});
    options
}

/// Encodes a lease. A missing one becomes a lease that ended at the Unix epoch.
pub(super) fn lease(lease: Option<&Lease>) -> Bson {
    match lease {
        Some(lease) => doc! {"owner": &lease.owner, "until": date(lease.until)}.into(),
        None => doc! {"until": date(DateTime::UNIX_EPOCH)}.into(),
    }
}

/// Inserts the field if there is a value.
pub(super) fn put(document: &mut Document, field: &str, value: Option<impl Into<Bson>>) {
    if let Some(value) = value {
        document.insert(field, value);
    }
}
