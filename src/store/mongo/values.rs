//! Values that queries and updates are made of.

use bson::oid::ObjectId as Oid;
use bson::{Bson, Document, doc};
use chrono::{DateTime, Utc};

use crate::domain::{Id, Lease};

/// A time, in whole milliseconds.
pub(super) fn date(time: DateTime<Utc>) -> Bson {
    Bson::DateTime(bson::DateTime::from_millis(time.timestamp_millis()))
}

pub(super) fn oid(id: Id) -> Bson {
    Bson::ObjectId(Oid::from_bytes(id.bytes()))
}

/// A lease that nobody holds has ended before time began.
pub(super) fn lease(lease: Option<&Lease>) -> Bson {
    match lease {
        Some(lease) => doc! {"owner": &lease.owner, "until": date(lease.until)}.into(),
        None => doc! {"until": date(DateTime::UNIX_EPOCH)}.into(),
    }
}

/// Puts a field where there is something to put.
pub(super) fn put(document: &mut Document, field: &str, value: Option<impl Into<Bson>>) {
    if let Some(value) = value {
        document.insert(field, value);
    }
}
