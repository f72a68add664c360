//! The record of a delivery: a row of the ledger.
//!
//! A lease without an owner defers the row until the lease ends. If it ends at the Unix epoch, the
//! row is free. Each store has its own way to keep the slots of open rows unique.

use chrono::DateTime;
use compact_str::CompactString;

use super::values::{Count, LeaseRecord, StoredForm, StoredId, Text, Time, forms};
use super::{in_field, require};
use crate::domain::delivery::{DeliveryAttempts, DeliveryOutcome};
use crate::domain::{
    Cadence, Delivery, DeliverySource, DeliveryState, Feedback, ReportKind, StackId,
};

record! {
    /// See [`Delivery`].
    DeliveryRecord of Delivery as "delivery" {
        id = "_id": String, user: CompactString, state: DeliveryState,
        watermarks = "covers": Vec<WatermarkRecord>, marker: StoredId, created: Time;
    }
    write(delivery) {
        tag: String = Some(delivery.id.tag().to_string()),
        cadence: Cadence = delivery.source.digest().map(|(cadence, _)| cadence),
        period: String = delivery.source.digest().map(|(_, period)| period.to_owned()),
        batch: StoredId = delivery.source.batch().map(StoredId),
        turn: Time = match &delivery.source {
            DeliverySource::Digest(..) => None,
            DeliverySource::Batch(_, queue_position) => Some(Time(*queue_position)),
        },
        slot: String = None,
        open: bool = None,
        lease: LeaseRecord = {
            let lease = delivery.lease.as_ref().map(LeaseRecord::from_value);
            lease.or(delivery.attempts.not_before.map(LeaseRecord::until))
        },
    }
    read(record) {
        source: match record.batch {
            Some(batch) => DeliverySource::Batch(batch.0, require("turn", record.turn)?.0),
            None => {
                let cadence = require("cadence", record.cadence)?;
                DeliverySource::Digest(cadence, require("period", record.period)?)
            },
        },
        open: record.open.unwrap_or(record.slot.is_some()),
        lease: in_field("lease", StoredForm::into_value(record.lease))?,
    }
    part attempts: DeliveryAttempts {
        made as attempts: Count<u32>, failed as refusals: Count<u32>,
        reopened as reopened: Count<u32>, call as call: String, called_at as tried: Time;
        not_before: {
            let deferral = record.lease.as_ref().filter(|lease| lease.owner.is_none());
            let until = deferral.and_then(|lease| Some(lease.until?.0));
            until.filter(|until| *until > DateTime::UNIX_EPOCH)
        }
    }
    part outcome: DeliveryOutcome {
        items as items: Count<u32>, settled as settled: Time, provider_id as provider_id: String,
        reason as reason: String, feedback as feedback: FeedbackRecord
    }
}

impl DeliveryRecord {
    /// Returns the record for MongoDB, where only an open row has a slot and a lease.
    pub(in crate::store) fn for_document(delivery: &Delivery) -> Self {
        let record = Self::from_value(delivery);
        let lease = record.lease.unwrap_or_else(|| LeaseRecord::until(DateTime::UNIX_EPOCH));
        Self {
            slot: delivery.open.then(|| delivery.slot()),
            lease: delivery.open.then_some(lease),
            ..record
        }
    }

    /// Returns the record for SQLite, where every row has a slot. An open row occupies it.
    pub(in crate::store) fn for_row(delivery: &Delivery) -> Self {
        Self {
            slot: Some(delivery.slot()),
            open: Some(delivery.open),
            ..Self::from_value(delivery)
        }
    }
}

record! {
    FeedbackRecord of Feedback { news: ReportKind, at: Time; }
}

/// A stack, and the number of its entries that an email covers. Older versions stored an array of
/// both in JSON, which serde also accepts.
#[derive(serde::Serialize, serde::Deserialize)]
pub(in crate::store) struct WatermarkRecord {
    s: Text<StackId>,
    n: Count<u32>,
}

forms! {
    (StackId, u32) as WatermarkRecord:
        |(stack, n)| WatermarkRecord { s: Text(*stack), n: Count(*n) },
        |watermark| (watermark.s.0, watermark.n.0);
}

#[cfg(test)]
#[path = "delivery_tests.rs"]
mod tests;
