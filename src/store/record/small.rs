//! Records with few fields, and objects in JSON.
//!
//! Those without a type in the domain are their own values, with the `_id` that MongoDB has.

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use super::fields::{As, Oid, Place, Time};
use super::{Record, of};
use crate::domain::{Json, Object, Retraction};

record! {
    /// See [`Object`]. MongoDB stores `data` as a document where it can.
    ObjectRecord of Object as "object" {
        key = "_id": CompactString, notifiable: Option<bool>;
        title: String, url: String, image: String, by: String, at: Time, place: Place
    }
    extra(object) {
        data: Json = (!object.data.is_null()).then(|| object.data.clone()),
    }
    odd(record) {
        data: record.data.unwrap_or_default(),
    }
}

record! {
    /// See [`Retraction`]. On MongoDB, `_id` holds `t` and `o`.
    RetractionRecord of Retraction as "retraction" { t: CompactString, o: CompactString, at: Oid; }
    extra(_value) {}
    odd(record) {}
}

macro_rules! own_records {
    ($(
        $(#[$doc:meta])* $name:ident $what:literal { $($(#[$meta:meta])* $field:ident: $form:ty),* }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Serialize, Deserialize)]
        pub struct $name { $($(#[$meta])* $field: $form,)* }

        impl Record for $name {
            const WHAT: &'static str = $what;
            type Value = Self;

            fn value(self) -> Result<Self, String> {
                Ok(self)
            }
        }
    )*};
}

own_records! {
    /// A user follows a key.
    Follow "follow" { #[serde(rename = "_id")] id: FollowId }
    /// A delivery bounced softly.
    SoftBounce "soft bounce" { #[serde(rename = "_id")] id: SoftBounceId, at: Time }
    /// A report was received.
    Sighting "sighting" { #[serde(rename = "_id")] key: String, mark: String, until: Time }
    /// A small shared text.
    Note "note" { #[serde(rename = "_id")] name: String, text: String }
}

#[derive(Clone, Serialize, Deserialize)]
struct FollowId {
    k: CompactString,
    u: CompactString,
}

/// An address and a delivery.
#[derive(Clone, Serialize, Deserialize)]
struct SoftBounceId {
    a: String,
    d: String,
}

impl Note {
    pub(in crate::store) fn name(&self) -> &str {
        &self.name
    }
}
