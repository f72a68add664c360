//! Records as lines of JSON.
//!
//! Equal records have equal lines, in whichever store they are. Lines leave out revisions, which
//! each store makes itself, and values without a meaning, such as the lease of a closed delivery.

use serde::Serialize;

use super::Kind;
use crate::domain::batch::Accumulator;
use crate::domain::{Batch, Delivery, Fanout, Id, Inbox, Object, Retraction, Suppression, User};
use crate::store::record::batch::{AccumulatorRecord, BatchRecord};
use crate::store::record::delivery::DeliveryRecord;
use crate::store::record::fanout::FanoutRecord;
use crate::store::record::fields::As;
use crate::store::record::inbox::InboxRecord;
use crate::store::record::small::{
    Follow, Note, ObjectRecord, RetractionRecord, Sighting, SoftBounce,
};
use crate::store::record::suppression::SuppressionRecord;
use crate::store::record::user::UserRecord;
use crate::store::record::{Record, read, value_of};
use crate::store::{Error, Result};

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
    User, Follow, Object, Inbox, Retraction, Suppression, SoftBounce, Sighting, Fanout, Accumulator,
    Batch, Delivery, Note
}

impl AnyRecord {
    /// The line of the record.
    pub fn line(&self) -> Result<String> {
        match self {
            Self::User(user) => json(&UserRecord::keep(user)),
            Self::Follow(follow) => json(follow),
            Self::Object(object) => json(&ObjectRecord::keep(object)),
            Self::Inbox(inbox) => json(&InboxRecord::keep(&Inbox {
                revision: None,
                ..(**inbox).clone()
            })),
            Self::Retraction(retraction) => json(&RetractionRecord::keep(retraction)),
            Self::Suppression(suppression) => json(&SuppressionRecord::exactly(suppression)),
            Self::SoftBounce(bounce) => json(bounce),
            Self::Sighting(sighting) => json(sighting),
            Self::Fanout(fanout) => json(&FanoutRecord::whole(fanout, 0)),
            Self::Accumulator(kept) => json(&AccumulatorRecord::row(kept, NO_REVISION)),
            Self::Batch(batch) => json(&BatchRecord::row(batch)),
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
        Ok(match kind {
            Kind::Users => parse::<UserRecord>(line)?.into(),
            Kind::Follows => parse::<Follow>(line)?.into(),
            Kind::Objects => parse::<ObjectRecord>(line)?.into(),
            Kind::Inboxes => parse::<InboxRecord>(line)?.into(),
            Kind::Retractions => parse::<RetractionRecord>(line)?.into(),
            Kind::Suppressions => parse::<SuppressionRecord>(line)?.into(),
            Kind::SoftBounces => parse::<SoftBounce>(line)?.into(),
            Kind::Sightings => parse::<Sighting>(line)?.into(),
            Kind::Fanouts => parse::<FanoutRecord>(line)?.0.into(),
            Kind::Accumulators => parse::<AccumulatorRecord>(line)?.into(),
            Kind::Batches => parse::<BatchRecord>(line)?.into(),
            Kind::Deliveries => parse::<DeliveryRecord>(line)?.into(),
            Kind::Notes => parse::<Note>(line)?.into(),
        })
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
