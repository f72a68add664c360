//! Records with few fields: objects, retractions, suppressions, inboxes and others.
//!
//! Records that have no type in the domain are their own values, with the `_id` that MongoDB has.
//! The marks of an inbox are stored per stack, under the name that cursors use for it. A set of
//! entries is a bit set: bytes in BSON, hexadecimal digits elsewhere. Stacks with an invalid name
//! are ignored.

use std::collections::BTreeMap;

use compact_str::CompactString;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::values::{StoredForm, StoredId, StoredPoint, Time, read_typed};
use super::{Record, in_field};
use crate::domain::feed_marks::{EntrySet, StackMarks};
use crate::domain::{
    Address, Inbox, Json, Object, Retraction, StackId, Suppression, SuppressionReason,
};

record! {
    /// See [`Object`]. MongoDB stores `data` as a document where it can.
    ObjectRecord of Object as "object" {
        key = "_id": CompactString, notifiable: Option<bool>;
        title: String, url: String, image: String, by: String, at: Time, place: StoredPoint
    }
    write(object) {
        data: Json = (!object.data.is_null()).then(|| object.data.clone()),
    }
    read(record) {
        data: record.data.unwrap_or_default(),
    }
}

record! {
    /// See [`Retraction`]. On MongoDB, `_id` holds the type and the object.
    RetractionRecord of Retraction as "retraction" {
        kind = "t": CompactString, object = "o": CompactString, at: StoredId;
    }
}

/// Declares records that are their own values.
macro_rules! own_records {
    ($(
        $(#[$doc:meta])* $name:ident $what:literal { $($(#[$meta:meta])* $field:ident: $form:ty),* }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Serialize, Deserialize)]
        pub struct $name { $($(#[$meta])* pub(in crate::store) $field: $form,)* }

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
    WebhookReceipt "webhook receipt" { #[serde(rename = "_id")] key: String, mark: String, until: Time }
    /// A small shared text.
    Note "note" { #[serde(rename = "_id")] name: String, text: String }
}

/// A key and a user.
#[derive(Clone, Serialize, Deserialize)]
pub(in crate::store) struct FollowId {
    pub k: CompactString,
    pub u: CompactString,
}

/// An address and a delivery.
#[derive(Clone, Serialize, Deserialize)]
pub(in crate::store) struct SoftBounceId {
    a: String,
    d: String,
}

record! {
    /// See [`Suppression`].
    SuppressionRecord of Suppression as "suppression" {
        address = "_id": String, reason: SuppressionReason, at: Time, source: String;
        detail: String, lifted: Time
    }
}

impl SuppressionRecord {
    /// Returns a record with the address as it is spelled, instead of its folded form.
    pub(in crate::store) fn with_exact_spelling(suppression: &Suppression) -> Self {
        Self { address: suppression.address.reveal().to_owned(), ..Self::from_value(suppression) }
    }
}

/// The stored form of an address is the folded one.
impl StoredForm<Address> for String {
    fn from_value(address: &Address) -> Self {
        address.folded().reveal().to_owned()
    }

    fn into_value(self) -> Result<Address, String> {
        Address::stored(self).map_err(|why| why.to_string())
    }
}

record! {
    /// See [`Inbox`].
    InboxRecord of Inbox as "inbox" {
        user = "_id": CompactString, changed: Time;
        revision = "stamp": StoredId
    }
    write(inbox) {
        days: BTreeMap<String, MarksRecord> = {
            let stacks = inbox.stacks.iter();
            Some(stacks.map(|(stack, marks)| (stack.to_string(), StoredForm::from_value(marks))).collect())
        },
    }
    read(record) {
        stacks: {
            let days = record.days.unwrap_or_default().into_iter();
            let read_marks = |(name, marks): (String, MarksRecord)| {
                let stack = name.parse::<StackId>().ok()?;
                Some(marks.into_value().map(|marks| (stack, marks)))
            };
            days.filter_map(read_marks).collect::<Result<_, _>>()?
        },
    }
}

record! {
    /// See [`StackMarks`].
    MarksRecord of StackMarks { ; seen: Bits, read: Bits, archived: Bits }
}

/// A set of entries. An empty one is not stored.
pub(in crate::store) struct Bits(Vec<u8>);

impl StoredForm<EntrySet> for Option<Bits> {
    fn from_value(entries: &EntrySet) -> Self {
        let bytes = entries.bytes();
        (!bytes.is_empty()).then(|| Bits(bytes.to_vec()))
    }

    fn into_value(self) -> Result<EntrySet, String> {
        Ok(EntrySet::stored(self.map_or_else(Vec::new, |bits| bits.0)))
    }
}

impl Serialize for Bits {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            hex::encode(&self.0).serialize(to)
        } else {
            to.serialize_bytes(&self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Bits {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if !from.is_human_readable() {
            return read_typed(from, |value| Some(Self(value.as_binary()?.bytes.to_vec())));
        }
        let digits = String::deserialize(from)?;
        hex::decode(digits).map(Self).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::spec::BinarySubtype;

    use super::*;
    use crate::domain::UserId;
    use crate::store::record::{read_bson, write_bson};

    #[test]
    fn an_error_about_an_unreadable_record_masks_its_address() {
        let invalid =
            doc! {"_id": "ada.lovelace@example.org", "reason": 7, "at": "x", "source": "s"};
        let document = write_bson("testing", &invalid).unwrap();

        let error = read_bson::<SuppressionRecord>(&document).unwrap_err();

        let message = error.to_string();
        assert!(message.contains(SuppressionRecord::WHAT), "{message}");
        assert!(!message.contains("lovelace"), "{message}");
    }

    #[test]
    fn marks_are_bytes_in_bson_and_hex_digits_in_json() {
        let mut inbox = Inbox::empty(UserId::stored("ada"));
        let stack: StackId = "20140421o".parse().unwrap();
        let marks = StackMarks {
            seen: EntrySet::stored(vec![0b111]),
            read: EntrySet::stored(vec![0b010]),
            archived: EntrySet::default(),
        };
        inbox.stacks.insert(stack, marks);

        let document = write_bson("testing", &InboxRecord::from_value(&inbox)).unwrap();
        let json = serde_json::to_value(InboxRecord::from_value(&inbox)).unwrap();

        let bytes = |byte: u8| bson::Binary { subtype: BinarySubtype::Generic, bytes: vec![byte] };
        let days = doc! {"20140421o": {"seen": bytes(7), "read": bytes(2)}};
        let expected = doc! {"_id": "ada", "changed": bson::DateTime::from_millis(0), "days": days};
        assert_eq!(bson::Document::try_from(&*document).unwrap(), expected);
        assert_eq!(json["days"]["20140421o"], serde_json::json!({"seen": "07", "read": "02"}));
        assert_eq!(read_bson::<InboxRecord>(&document).unwrap(), inbox);
        let row: InboxRecord = serde_json::from_value(json).unwrap();
        assert_eq!(row.into_value().unwrap(), inbox);
    }

    #[test]
    fn an_unknown_day_is_skipped_and_unreadable_marks_are_an_error() {
        let read_days = |days: bson::Document| {
            let inbox =
                doc! {"_id": "ada", "changed": bson::DateTime::from_millis(0), "days": days};
            read_bson::<InboxRecord>(&write_bson("testing", &inbox).unwrap())
        };

        let invalid_name = read_days(doc! {"today": {}});
        let invalid_bits = read_days(doc! {"20140421": {"seen": "07"}}).unwrap_err();

        assert_eq!(invalid_name.unwrap(), Inbox::empty(UserId::stored("ada")));
        let expected = "days.20140421.seen of inbox ada";
        assert!(invalid_bits.to_string().contains(expected), "{invalid_bits}");
    }
}
