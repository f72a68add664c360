//! Records of accumulators and batches.
//!
//! An accumulator `{_id: {u, k}, open, ended, memories, …}` contains its open batch. A filed batch
//! is in `batches`, in the same shape with an `_id` of its own. In JSON, older versions wrote the
//! events of a batch as a field of their own (`contents`), and each item as a list of its fields.

use chrono::DateTime;
use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use super::values::{Count, LeaseRecord, StoredForm, StoredId, StoredIds, Text, Time};
use super::{Record, in_field, require};
use crate::domain::batch::{Accumulator, AccumulatorId, BatchEvents, BatchItem, FiledFanouts};
use crate::domain::{Batch, BatchKey, BatchState, Id};

record! {
    /// An event that a batch keeps.
    ItemRecord of BatchItem {
        fanout_id = "i": StoredId, kind = "t": CompactString, object = "o": CompactString;
    }
}

record! {
    /// See [`FiledFanouts`].
    FiledFanoutsRecord of FiledFanouts { at: Time, joined: StoredIds; }
}

/// The events of a batch in JSON of older versions.
#[derive(Serialize, Deserialize)]
pub(in crate::store) struct BatchContents {
    count: Count<u64>,
    items: Option<Vec<ItemRecord>>,
    joined: StoredIds,
}

/// Converts a list; `None` if it is empty.
fn unless_empty<T, A: StoredForm<T>>(list: &Vec<T>) -> Option<Vec<A>> {
    (!list.is_empty()).then(|| StoredForm::from_value(list))
}

record! {
    /// See [`Batch`]. The id, user and key of a batch in an accumulator may be in the enclosing
    /// record.
    BatchRecord of Batch {
        opened_at = "opened": Time, last_event_at = "last": Time, closes_at = "closes": Time,
        policy: String;
        settled: Time
    }
    write(batch) {
        // Only filed batches have these three fields.
        document_id = "_id": StoredId = None,
        user: CompactString = None,
        key: Text<BatchKey> = None,
        id: StoredId = Some(StoredId(batch.id)),
        state: BatchState = Some(batch.state),
        deferred: bool = batch.deferred.then_some(true),
        count: Count<u64> = Some(Count(batch.events.count)),
        items: Vec<ItemRecord> = Some(StoredForm::from_value(&batch.events.items)),
        joined: StoredIds = Some(StoredForm::from_value(&batch.joined)),
        // Older versions wrote this to JSON, in place of `count`, `items` and `joined`.
        contents: BatchContents = None,
        // Older versions stored the first events of a leading batch here until they were emailed.
        lead: BatchContents = None,
        led: StoredIds = (!batch.lead_fanouts.is_empty()).then(|| StoredForm::from_value(&batch.lead_fanouts)),
        taken: Vec<ItemRecord> = unless_empty(&batch.removed),
    }
    read(record) {
        id: require("id", record.id.or(record.document_id))?.0,
        user: require("user", record.user)?.into_value()?,
        key: require("key", record.key)?.0,
        state: require("state", record.state)?,
        // Older writers omit it.
        deferred: record.deferred.unwrap_or(false),
        lead_fanouts: record.led.map_or_else(Vec::new, |led| led.0),
        events: {
            let (mut count, mut items) = (require("count", record.count)?.0, Vec::new());
            if let Some(lead) = record.lead {
                count += lead.count.0;
                items = lead.items.unwrap_or_default();
            }
            items.extend(record.items.unwrap_or_default());
            BatchEvents { count, items: items.into_value()? }
        },
        joined: {
            // Additions to an open batch are appended, so the stored list may be unsorted.
            let mut joined: Vec<Id> = require("joined", record.joined)?.0;
            joined.sort_unstable();
            joined
        },
        removed: record.taken.unwrap_or_default().into_value()?,
    }
}

impl BatchRecord {
    /// Returns the record as a document with an `_id` of its own.
    pub(in crate::store) fn for_filed_batch(batch: &Batch) -> Self {
        Self {
            document_id: Some(StoredId(batch.id)),
            user: Some(StoredForm::from_value(&batch.user)),
            key: Some(StoredForm::from_value(&batch.key)),
            id: None,
            ..Self::from_value(batch)
        }
    }

    /// Converts a batch that is embedded in the accumulator with this id.
    fn into_batch_of(mut self, id: &AccumulatorIdRecord) -> Result<Batch, String> {
        self.user = Some(id.user.clone());
        self.key = Some(id.key.clone());
        self.value()
    }
}

impl Record for BatchRecord {
    const WHAT: &'static str = "batch";
    type Value = Batch;

    fn value(mut self) -> Result<Batch, String> {
        if let Some(contents) = self.contents.take() {
            self.count = Some(contents.count);
            self.items = contents.items;
            self.joined = Some(contents.joined);
        }
        self.into_value()
    }
}

record! {
    /// See [`Accumulator`].
    AccumulatorRecord of Accumulator as "accumulator" {
        ; queue_position = "turn": Time
    }
    write(accumulator) {
        id = "_id": AccumulatorIdRecord = None,
        revision = "stamp": StoredId = None,
        due: Time = accumulator.next_due().map(Time),
        lease: LeaseRecord = StoredForm::from_value(&accumulator.lease),
        open: BatchRecord = StoredForm::from_value(&accumulator.open),
        ended: Vec<BatchRecord> = unless_empty(&accumulator.ended),
        filed_fanouts = "memories": Vec<FiledFanoutsRecord> =
            unless_empty(&accumulator.filed_fanouts),
    }
    read(record) {
        open: {
            let id = require("_id", record.id.as_ref())?;
            in_field("open", record.open.map(|open| open.into_batch_of(id)).transpose())?
        },
        ended: {
            let id = require("_id", record.id.as_ref())?;
            let ended = record.ended.unwrap_or_default().into_iter();
            in_field("ended", ended.map(|batch| batch.into_batch_of(id)).collect::<Result<_, _>>())?
        },
        filed_fanouts: record.filed_fanouts.unwrap_or_default().into_value()?,
        lease: in_field("lease", record.lease.into_value())?,
        revision: record.revision.into_value()?,
        id: require("_id", record.id)?.into_value()?,
    }
}

record! {
    /// The `_id` of an accumulator.
    AccumulatorIdRecord of AccumulatorId { user = "u": CompactString, key = "k": Text<BatchKey>; }
}

impl AccumulatorRecord {
    /// Returns the record as a document without its `_id`, with this revision.
    pub(in crate::store) fn for_document(accumulator: &Accumulator, revision: Id) -> Self {
        let record = Self::from_value(accumulator);
        // A free accumulator gets an expired lease, so one index range finds all free ones.
        let lease = record.lease.or(Some(LeaseRecord::until(DateTime::UNIX_EPOCH)));
        Self { revision: Some(StoredId(revision)), lease, ..record }
    }

    /// Returns the record for columns, with this revision.
    pub(in crate::store) fn for_row(accumulator: &Accumulator, revision: Id) -> Self {
        Self {
            id: Some(StoredForm::from_value(&accumulator.id)),
            revision: Some(StoredId(revision)),
            ended: Some(StoredForm::from_value(&accumulator.ended)),
            filed_fanouts: Some(StoredForm::from_value(&accumulator.filed_fanouts)),
            ..Self::from_value(accumulator)
        }
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
