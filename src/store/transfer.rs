//! The records of a store as lines of JSON, for an export or import of all of it.
//!
//! Equal records have equal lines in both stores, so sums of lines compare stores and files. Lines
//! leave out revisions, and values without a meaning, such as the lease of a closed delivery. Days
//! have lines already ([`super::Days`]). Leases by name, change notices and catch-up positions
//! belong to the processes of one store and have no lines.

use serde::Serialize;

use super::days::Meeting;
use super::error::{Error, Result};
use super::record::batch::{AccumulatorRecord, BatchRecord};
use super::record::delivery::DeliveryRecord;
use super::record::fanout::FanoutRecord;
use super::record::fields::As;
use super::record::small::{
    Follow, InboxRecord, Note, ObjectRecord, RetractionRecord, SoftBounce, SuppressionRecord,
    WebhookReceipt,
};
use super::record::user::UserRecord;
use super::record::{Record, read, value_of};
use crate::domain::batch::Accumulator;
use crate::domain::{
    Batch, Day, Delivery, Fanout, Id, Inbox, Object, Retraction, Suppression, User,
};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal,)*) => {
        /// A kind of record: one collection or table, and one file of an export.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// All kinds, in the order of an export.
            pub const ALL: [Self; 13] = [$(Self::$kind,)*];

            /// The name of its collection or table, and in file names and JSON.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    /// Users with their choices.
    Users "users",
    /// Who follows what.
    Follows "follows",
    /// Objects, except those in an application's own collections.
    Objects "objects",
    /// What users have seen, read and archived of their feeds.
    Inboxes "inboxes",
    /// Retracted events.
    Retractions "retractions",
    /// Addresses that get no email.
    Suppressions "suppressions",
    /// Recent soft bounces.
    SoftBounces "soft_bounces",
    /// Ids of recent reports from providers.
    WebhookReceipts "webhook_receipts",
    /// Accepted events, with audiences and details.
    Fanouts "fanouts",
    /// Accumulators, with open batches.
    Accumulators "accumulators",
    /// Batches that have ended.
    Batches "batches",
    /// Deliveries: one for each email.
    Deliveries "deliveries",
    /// Small shared texts, such as the secret that signs links.
    Notes "notes",
}

/// Evaluates an expression for the record type of a kind.
macro_rules! with_record {
    ($kind:expr, $Record:ident => $value:expr) => {{
        use crate::store::record as of;
        with_record!($kind, $Record => $value;
            Users of::user::UserRecord, Follows of::small::Follow, Objects of::small::ObjectRecord,
            Inboxes of::small::InboxRecord, Retractions of::small::RetractionRecord,
            Suppressions of::small::SuppressionRecord, SoftBounces of::small::SoftBounce,
            WebhookReceipts of::small::WebhookReceipt, Fanouts of::fanout::FanoutRecord,
            Accumulators of::batch::AccumulatorRecord, Batches of::batch::BatchRecord,
            Deliveries of::delivery::DeliveryRecord, Notes of::small::Note
        )
    }};
    ($kind:expr, $Record:ident => $value:expr; $($name:ident $form:ty),*) => {
        match $kind {$(
            $crate::store::Kind::$name => {
                type $Record = $form;
                $value
            }
        )*}
    };
}
pub(super) use with_record;

macro_rules! records {
    ($($name:ident),*) => {
        /// A record of any kind.
        #[derive(Clone)]
        #[allow(missing_docs, reason = "the kinds are documented")]
        pub enum AnyRecord { $($name(Box<$name>),)* }

        $(impl From<$name> for AnyRecord {
            fn from(record: $name) -> Self {
                Self::$name(Box::new(record))
            }
        })*
    };
}

records! {
    User, Follow, Object, Inbox, Retraction, Suppression, SoftBounce, WebhookReceipt, Fanout, Accumulator,
    Batch, Delivery, Note
}

/// A fan-out with its whole audience.
impl From<(Fanout, Option<usize>)> for AnyRecord {
    fn from((fanout, _): (Fanout, Option<usize>)) -> Self {
        fanout.into()
    }
}

impl AnyRecord {
    /// The line of the record.
    pub fn line(&self) -> Result<String> {
        match self {
            Self::User(user) => json(&UserRecord::from_value(user)),
            Self::Follow(follow) => json(follow),
            Self::Object(object) => json(&ObjectRecord::from_value(object)),
            Self::Inbox(inbox) => json(&InboxRecord::from_value(&Inbox {
                revision: None,
                ..(**inbox).clone()
            })),
            Self::Retraction(retraction) => json(&RetractionRecord::from_value(retraction)),
            Self::Suppression(suppression) => json(&SuppressionRecord::exactly(suppression)),
            Self::SoftBounce(bounce) => json(bounce),
            Self::WebhookReceipt(receipt) => json(receipt),
            Self::Fanout(fanout) => json(&FanoutRecord::whole(fanout)),
            Self::Accumulator(kept) => json(&AccumulatorRecord::row(kept, NO_REVISION)),
            Self::Batch(batch) => json(&BatchRecord::filed(batch)),
            Self::Delivery(delivery) => {
                let mut lasting = (**delivery).clone();
                if !lasting.open {
                    (lasting.lease, lasting.attempts.not_before) = (None, None);
                }
                json(&DeliveryRecord::row(&lasting))
            }
            Self::Note(note) => json(note),
        }
    }

    /// The record of a line.
    ///
    /// # Errors
    ///
    /// Names the field that cannot be read.
    pub fn read(kind: Kind, line: &str) -> Result<Self> {
        with_record!(kind, R => Ok(parse::<R>(line)?.into()))
    }
}

/// The revision of records without one.
pub(in crate::store) const NO_REVISION: Id = Id::from_bytes([0; 12]);

fn json(record: &impl Serialize) -> Result<String> {
    serde_json::to_string(record).map_err(|cause| Error::database("writing a line", cause))
}

fn parse<R: Record>(line: &str) -> Result<R::Value> {
    let what = || format!("a line of kind {}", R::WHAT);
    let why = |error: serde_json::Error| error.to_string();
    let mut from = serde_json::Deserializer::from_str(line);
    value_of(read::<R, _>(&mut from, what, str::to_owned, why)?, what)
}

/// What to export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Export {
    /// The documents of a day.
    Day(Day),
    /// The records of a kind.
    Records(Kind),
}

/// Where to import lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Import {
    /// Into a day.
    Day(Day, Meeting),
    /// Into the records of a kind.
    Records(Kind),
}

/// Some records of one kind, or documents of a day.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// One line for each readable record, in the order of their ids.
    pub lines: Vec<String>,
    /// The unreadable records, each with its id and the reason.
    pub bad: Vec<String>,
}

impl Page {
    /// Returns the page if all its records were readable.
    ///
    /// # Errors
    ///
    /// Names the first unreadable record.
    pub(super) fn complete(self) -> Result<Self> {
        match self.bad.first() {
            None => Ok(self),
            Some(bad) => Err(Error::Unsupported(bad.clone())),
        }
    }

    /// Adds a record, unless it is a note about the store itself.
    pub(super) fn push(&mut self, record: &AnyRecord) -> Result<()> {
        match record {
            AnyRecord::Note(note) if [MARK, MOVE, "schema"].contains(&&*note.name) => {}
            record => self.lines.push(record.line()?),
        }
        Ok(())
    }
}

/// The name of the note that holds the [`Mark`](super::Mark).
pub(super) const MARK: &str = "transfer";
/// The name of the note that `tidings move` wrote to both stores.
pub(super) const MOVE: &str = "moving";
