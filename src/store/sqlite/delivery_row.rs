//! Rows of the table `deliveries`.

use rusqlite::Transaction;

use super::answer::Answer;
use super::codec::to_json;
use super::columns::{Met, Table, fields};
use crate::domain::{Delivery, Watermarks};
use crate::store::record::delivery::{CoverRecord, DeliveryRecord};
use crate::store::record::fields::As;

pub(super) const DELIVERIES: Table = Table {
    name: "deliveries",
    columns: "id=_id user cadence period batch turn state open:flag slot covers:json marker
        owner=lease.owner until=lease.until attempts items created settled provider_id reason call
        tried tag feedback=feedback.news feedback_at=feedback.at due_on refusals reopened",
};

/// Returns the stored form of watermarks.
pub(super) fn watermarks(watermarks: &Watermarks) -> Answer<String> {
    to_json(&Vec::<CoverRecord>::keep(watermarks))
}

/// Adds the row, unless its id or its slot is taken. Returns whether it was added.
pub(super) fn open(transaction: &Transaction<'_>, row: &Delivery) -> Answer<bool> {
    let fields = fields(&DeliveryRecord::row(row))?;
    Ok(DELIVERIES.insert(transaction, Met::Kept, &fields)? == 1)
}

/// Returns the rows that match a condition.
pub(super) fn rows(
    transaction: &Transaction<'_>,
    condition: &str,
    values: impl rusqlite::Params,
) -> Answer<Vec<Delivery>> {
    DELIVERIES.find::<DeliveryRecord>(transaction, condition, values)
}
