//! Records with few fields: objects, retractions, suppressions, inboxes and others.
//!
//! Those without a type in the domain are their own values, with the `_id` that MongoDB has. The
//! marks of an inbox are stored per stack, under the name that cursors use for it. A set of entries
//! is a bit set: bytes in BSON, hexadecimal digits elsewhere. Stacks with an invalid name are
//! ignored.

use std::collections::BTreeMap;

use compact_str::CompactString;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::values::{As, Oid, Place, Time, typed};
use super::{Record, of};
use crate::domain::feed_marks::{EntrySet, StackMarks};
use crate::domain::{Address, Inbox, Json, Object, Reason, Retraction, StackId, Suppression};

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
}

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
        address = "_id": String, reason: Reason, at: Time, source: String;
        detail: String, lifted: Time
    }
}

impl SuppressionRecord {
    /// Returns a record that keeps the spelling of the address, instead of its folded form.
    pub(in crate::store) fn exactly(suppression: &Suppression) -> Self {
        Self { address: suppression.address.reveal().to_owned(), ..Self::from_value(suppression) }
    }
}

/// The stored form of an address is the folded one.
impl As<Address> for String {
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
        revision = "stamp": Oid
    }
    extra(inbox) {
        days: BTreeMap<String, MarksRecord> = Some(days_of(inbox)),
    }
    odd(record) {
        stacks: {
            let days = record.days.unwrap_or_default().into_iter();
            let marks = |(name, marks): (String, MarksRecord)| {
                let stack = name.parse::<StackId>().ok()?;
                Some(marks.into_value().map(|marks| (stack, marks)))
            };
            days.filter_map(marks).collect::<Result<_, _>>()?
        },
    }
}

fn days_of(inbox: &Inbox) -> BTreeMap<String, MarksRecord> {
    let day = |(stack, marks): (&StackId, &StackMarks)| (stack.to_string(), As::from_value(marks));
    inbox.stacks.iter().map(day).collect()
}

record! {
    /// See [`StackMarks`].
    MarksRecord of StackMarks { ; seen: Bits, read: Bits, archived: Bits }
}

/// A set of entries. An empty one is not stored.
pub(in crate::store) struct Bits(Vec<u8>);

impl As<EntrySet> for Option<Bits> {
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
        match to.is_human_readable() {
            true => hex::encode(&self.0).serialize(to),
            false => to.serialize_bytes(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Bits {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if !from.is_human_readable() {
            let bytes = |value: bson::RawBsonRef<'_>| Some(value.as_binary()?.bytes.to_vec());
            return typed(from, bytes).map(Self);
        }
        let text = String::deserialize(from)?;
        hex::decode(text).map(Self).map_err(serde::de::Error::custom)
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
        let odd = doc! {"_id": "ada.lovelace@example.org", "reason": 7, "at": "x", "source": "s"};
        let document = write_bson("testing", &odd).unwrap();

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
        let whole = doc! {"_id": "ada", "changed": bson::DateTime::from_millis(0), "days": days};
        assert_eq!(bson::Document::try_from(&*document).unwrap(), whole);
        assert_eq!(json["days"]["20140421o"], serde_json::json!({"seen": "07", "read": "02"}));
        assert_eq!(read_bson::<InboxRecord>(&document).unwrap(), inbox);
        let row: InboxRecord = serde_json::from_value(json).unwrap();
        assert_eq!(row.into_value().unwrap(), inbox);
    }

    #[test]
    fn an_unknown_day_is_skipped_and_unreadable_marks_are_an_error() {
        let record = |days: bson::Document| {
            let whole =
                doc! {"_id": "ada", "changed": bson::DateTime::from_millis(0), "days": days};
            read_bson::<InboxRecord>(&write_bson("testing", &whole).unwrap())
        };

        let odd_name = record(doc! {"today": {}});
        let odd_bits = record(doc! {"20140421": {"seen": "07"}}).unwrap_err();

        assert_eq!(odd_name.unwrap(), Inbox::empty(UserId::stored("ada")));
        let expected = "days.20140421.seen of inbox ada";
        assert!(odd_bits.to_string().contains(expected), "{odd_bits}");
    }
}
