//! A record as one line, by which two stores are compared.
//!
//! The rule: the same record makes the same line, whichever store it was read from, and another
//! record another one. What each store knows a record by is left out, and so is what means nothing:
//! the lease of a row that is closed. Lines are summed, and shown to nobody: they hold addresses.

use serde::Serialize;

use super::Kept;
use crate::domain::{Id, Inbox};
use crate::store::record::batch::{AccumulatorRecord, BatchRecord};
use crate::store::record::delivery::DeliveryRecord;
use crate::store::record::fanout::FanoutRecord;
use crate::store::record::fields::{As, Oid, Place, Time};
use crate::store::record::inbox::InboxRecord;
use crate::store::record::suppression::SuppressionRecord;
use crate::store::record::user::UserRecord;
use crate::store::{Error, Result};

impl Kept {
    /// The record as a line.
    pub fn line(&self) -> Result<String> {
        match self {
            Self::User(user) => json(&UserRecord::keep(user)),
            Self::Follow(key, user) => json(&(key.as_str(), user.as_str())),
            Self::Object(object) => json(&(
                (&object.key, object.notifiable, &object.title, &object.url),
                (&object.image, &object.by, object.at.map(Time)),
                (object.place.map(Place), &object.data),
            )),
            Self::Inbox(inbox) => json(&InboxRecord::keep(&Inbox {
                revision: None,
                ..(**inbox).clone()
            })),
            Self::Retraction(kept) => json(&(kept.t.as_str(), kept.o.as_str(), Oid(kept.at))),
            Self::Suppression(kept) => json(&SuppressionRecord::exactly(kept)),
            Self::SoftBounce {
                address,
                delivery,
                at,
            } => json(&(address.reveal(), delivery.as_str(), Time(*at))),
            Self::Sighting { key, mark, until } => json(&(key, mark, Time(*until))),
            Self::Fanout(fanout) => json(&FanoutRecord::whole(fanout, 0)),
            Self::Accumulator(kept) => json(&AccumulatorRecord::row(kept, NO_REVISION)),
            Self::Batch(batch) => json(&BatchRecord::row(batch)),
            Self::Delivery(delivery) => {
                let mut lasting = delivery.clone();
                if !lasting.open {
                    (lasting.lease, lasting.attempts.not_before) = (None, None);
                }
                json(&DeliveryRecord::row(&lasting))
            }
            Self::Note { name, text } => json(&(name, text)),
        }
    }
}

/// In the place of what a store knows an accumulator by.
const NO_REVISION: Id = Id::from_bytes([0; 12]);

fn json(record: &impl Serialize) -> Result<String> {
    serde_json::to_string(record).map_err(|cause| Error::database("writing a line", cause))
}
