//! The records of a store as lines of JSON, to export or import a whole store.
//!
//! Equal records have equal lines in both stores, so checksums of lines compare stores and files.
//! Lines omit revisions and values without a meaning, such as the lease of a closed delivery. The
//! lines of days are defined in [`super::Days`]. Named leases, change notices and catch-up
//! positions belong to the processes of one store and have no lines.

use serde::{Serialize, Serializer};

use super::record::batch::{AccumulatorRecord, BatchRecord};
use super::record::delivery::DeliveryRecord;
use super::record::fanout::FanoutRecord;
use super::record::small::{
    Follow, InboxRecord, Note, ObjectRecord, RetractionRecord, SoftBounce, SuppressionRecord,
    WebhookReceipt,
};
use super::record::user::UserRecord;
use super::record::values::StoredForm;
use super::record::{Record, read_json, to_json};
use super::types::{Error, Result};
use crate::domain::batch::Accumulator;
use crate::domain::{
    Batch, Day, Delivery, Fanout, Id, Inbox, Object, Retraction, Suppression, User,
};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal: $value:ident as $record:ident,)*) => {
        /// A kind of record: one collection or table, and one file of an export.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum RecordKind { $($(#[$doc])* $kind,)* }

        impl RecordKind {
            /// All kinds, in the order of an export.
            pub const ALL: [Self; 13] = [$(Self::$kind,)*];

            /// The name of its collection or table, and in file names and JSON.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }
        }

        /// A record of any kind.
        #[derive(Clone)]
        #[allow(missing_docs, reason = "the kinds are documented")]
        pub enum AnyRecord { $($value(Box<$value>),)* }

        $(impl From<$value> for AnyRecord {
            fn from(record: $value) -> Self {
                Self::$value(Box::new(record))
            }
        })*

        impl AnyRecord {
            /// Reads a record of this kind.
            pub(super) fn read_from(kind: RecordKind, source: impl RecordSource) -> Result<Self> {
                match kind { $(RecordKind::$kind => Ok(source.read::<$record>()?.into()),)* }
            }
        }
    };
}

kinds! {
    /// Users with their choices.
    Users "users": User as UserRecord,
    /// The keys that users follow.
    Follows "follows": Follow as Follow,
    /// Objects, except those in an application's own collections.
    Objects "objects": Object as ObjectRecord,
    /// The items that users have seen, read and archived in their feeds.
    Inboxes "inboxes": Inbox as InboxRecord,
    /// Retracted events.
    Retractions "retractions": Retraction as RetractionRecord,
    /// Addresses that get no email.
    Suppressions "suppressions": Suppression as SuppressionRecord,
    /// Recent soft bounces.
    SoftBounces "soft_bounces": SoftBounce as SoftBounce,
    /// Ids of recent reports from providers.
    WebhookReceipts "webhook_receipts": WebhookReceipt as WebhookReceipt,
    /// Accepted events, with audiences and details.
    Fanouts "fanouts": Fanout as FanoutRecord,
    /// Accumulators, with open batches.
    Accumulators "accumulators": Accumulator as AccumulatorRecord,
    /// Batches that have ended.
    Batches "batches": Batch as BatchRecord,
    /// Deliveries: one for each email.
    Deliveries "deliveries": Delivery as DeliveryRecord,
    /// Small shared texts, such as the secret that signs links.
    Notes "notes": Note as Note,
}

/// The stored form of a single record.
pub(super) trait RecordSource {
    fn read<R: Record>(self) -> Result<R::Value>;
}

/// A line of an export.
impl RecordSource for &str {
    fn read<R: Record>(self) -> Result<R::Value> {
        let mut deserializer = serde_json::Deserializer::from_str(self);
        read_json::<R>(&mut deserializer, || format!("a line of kind {}", R::WHAT))
    }
}

impl AnyRecord {
    /// Returns the line of the record.
    pub fn to_line(&self) -> Result<String> {
        to_json(self)
    }

    /// Returns the record of a line.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`], which names the field that cannot be read.
    pub fn from_line(kind: RecordKind, line: &str) -> Result<Self> {
        Self::read_from(kind, line)
    }
}

/// Serializes the stored form of the record, without revisions and values without a meaning.
impl Serialize for AnyRecord {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::User(user) => UserRecord::from_value(user).serialize(to),
            Self::Follow(follow) => follow.serialize(to),
            Self::Object(object) => ObjectRecord::from_value(object).serialize(to),
            Self::Inbox(inbox) => {
                let mut record = InboxRecord::from_value(inbox);
                record.revision = None;
                record.serialize(to)
            }
            Self::Retraction(retraction) => RetractionRecord::from_value(retraction).serialize(to),
            Self::Suppression(suppression) => {
                SuppressionRecord::with_exact_spelling(suppression).serialize(to)
            }
            Self::SoftBounce(bounce) => bounce.serialize(to),
            Self::WebhookReceipt(receipt) => receipt.serialize(to),
            Self::Fanout(fanout) => FanoutRecord::with_audience(fanout).serialize(to),
            Self::Accumulator(accumulator) => {
                AccumulatorRecord::for_row(accumulator, NO_REVISION).serialize(to)
            }
            Self::Batch(batch) => BatchRecord::for_filed_batch(batch).serialize(to),
            Self::Delivery(delivery) => {
                let mut record = DeliveryRecord::for_row(delivery);
                record.lease = record.lease.filter(|_| delivery.open);
                record.serialize(to)
            }
            Self::Note(note) => note.serialize(to),
        }
    }
}

/// The revision of records without one.
pub(in crate::store) const NO_REVISION: Id = Id::from_bytes([0; 12]);

/// The part of a store to export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportPart {
    /// The documents of a day.
    Day(Day),
    /// The records of a kind.
    Records(RecordKind),
}

/// A page of the records of one kind, or of the documents of a day.
#[derive(Debug, Clone, Default)]
pub struct RecordPage {
    /// One line for each readable record, in the order of their ids.
    pub lines: Vec<String>,
    /// The unreadable records, each with its id and the reason.
    pub unreadable: Vec<String>,
}

impl RecordPage {
    /// Returns the page if all its records were readable.
    ///
    /// # Errors
    ///
    /// Names the first unreadable record.
    pub(super) fn require_readable(self) -> Result<Self> {
        match self.unreadable.first() {
            None => Ok(self),
            Some(bad) => Err(Error::Unsupported(bad.clone())),
        }
    }

    /// Adds a record, unless it is a note about the store itself.
    pub(super) fn push(&mut self, record: &AnyRecord) -> Result<()> {
        if let AnyRecord::Note(note) = record
            && [TRANSFER_NOTE, MOVE_NOTE, "schema"].contains(&note.name.as_str())
        {
            return Ok(());
        }
        self.lines.push(record.to_line()?);
        Ok(())
    }
}

/// The name of the note that holds the [`Mark`](super::TransferMark).
pub(super) const TRANSFER_NOTE: &str = "transfer";
/// The name of the note that `tidings move` of earlier versions wrote to both stores.
pub(super) const MOVE_NOTE: &str = "moving";
