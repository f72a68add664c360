//! Exports tables as lines and imports lines, for a whole store.

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use rusqlite::{Row, Transaction, params_from_iter};
use serde::Serialize;

use super::answer::Answer;
use super::columns::{Fields, Met, Table, fields};
use super::odd_rows::Column;
use super::{Sqlite, batches, delivery_row, directory, inboxes, journal, objects, suppressions};
use crate::store::record::batch::{AccumulatorRecord, BatchRecord};
use crate::store::record::delivery::DeliveryRecord;
use crate::store::record::fields::As;
use crate::store::record::inbox::InboxRecord;
use crate::store::record::small::{Follow, Note, RetractionRecord, Sighting, SoftBounce};
use crate::store::record::suppression::SuppressionRecord;
use crate::store::record::user::UserRecord;
use crate::store::transfer::NO_REVISION;
use crate::store::{AnyRecord, Kind, Page, Result, Transfer};

/// The largest number of records in a page.
const RECORDS: usize = 1_000;
/// A page ends with the record that makes it larger than this number of bytes.
const BYTES: usize = 4 << 20;

const FOLLOWS: Table = table("follows", "k=_id.k u=_id.u");
const RETRACTIONS: Table = table("retractions", "type=t object=o at");
const SOFT_BOUNCES: Table = table("soft_bounces", "address=_id.a delivery=_id.d at");
const SIGHTINGS: Table = table("sightings", "key=_id mark until");
const NOTES: Table = table("notes", "name=_id text");

const fn table(name: &'static str, columns: &'static str) -> Table {
    Table { name, columns }
}

#[async_trait]
impl Transfer for Sqlite {
    fn export_pages(&self, kind: Kind) -> BoxStream<'_, Result<Page>> {
        let next = move |after: Vec<Column>| async move {
            let read = move |transaction: &Transaction<'_>| page(transaction, kind, &after);
            let doing = format!("exporting {}", kind.as_str());
            self.connections.read(doing, read).await
        };
        stream::try_unfold(Vec::new(), next).boxed()
    }

    async fn put_page(&self, kind: Kind, lines: &[String]) -> Result<()> {
        let doing = format!("importing {}", kind.as_str());
        let put = move |transaction: &Transaction<'_>, line: &String| {
            put(transaction, &AnyRecord::read(kind, line)?)
        };
        self.change_each(&doing, lines, put).await.map(drop)
    }
}

/// The columns of the primary key.
fn key(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Follows => &["k", "u"],
        Kind::Retractions => &["type", "object"],
        Kind::SoftBounces => &["address", "delivery"],
        Kind::Accumulators => &["user", "key"],
        Kind::Inboxes => &["user"],
        Kind::Suppressions => &["address"],
        Kind::Sightings => &["key"],
        Kind::Notes => &["name"],
        Kind::Users | Kind::Objects | Kind::Fanouts | Kind::Batches | Kind::Deliveries => &["id"],
    }
}

/// Reads the rows behind this key, and returns the key of the last one. `None` after the last row.
fn page(
    transaction: &Transaction<'_>,
    kind: Kind,
    after: &[Column],
) -> Answer<Option<(Page, Vec<Column>)>> {
    let names = key(kind).join(", ");
    let condition = match after {
        [] => String::new(),
        after => format!("WHERE ({names}) > ({})", vec!["?"; after.len()].join(", ")),
    };
    let rows = match kind {
        Kind::Fanouts => {
            "fanouts.*, objects, audience, details FROM fanouts
             LEFT JOIN audiences ON audiences.fanout = id LEFT JOIN details ON details.fanout = id"
        }
        kind => &format!("* FROM {}", kind.collection()),
    };
    let sql = format!("SELECT {rows} {condition} ORDER BY {names}");
    let mut statement = transaction.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(after))?;
    let (mut page, mut last, mut read, mut bytes) = (Page::default(), None, 0, 0);
    while read < RECORDS && bytes <= BYTES {
        let Some(row) = rows.next()? else { break };
        match read_record(kind, row) {
            Ok(record) => page.push(&record)?,
            Err(failure) if failure.is_unreadable() => page.bad.push(failure.told()),
            Err(failure) => return Err(failure),
        }
        read += 1;
        bytes += page.lines.last().map_or(0, String::len);
        let columns = key(kind).iter();
        let columns = columns.map(|name| row.get_ref(*name).map(Column::of));
        last = Some(columns.collect::<rusqlite::Result<_>>()?);
    }
    Ok(last.map(|last| (page, last)))
}

fn read_record(kind: Kind, row: &Row<'_>) -> Answer<AnyRecord> {
    let none = Fields::new;
    Ok(match kind {
        Kind::Users => directory::USERS.read::<UserRecord>(row, none())?.into(),
        Kind::Follows => FOLLOWS.read::<Follow>(row, none())?.into(),
        Kind::Objects => objects::read(row)?.into(),
        Kind::Inboxes => inboxes::INBOXES.read::<InboxRecord>(row, none())?.into(),
        Kind::Retractions => RETRACTIONS.read::<RetractionRecord>(row, none())?.into(),
        Kind::Suppressions => suppressions::SUPPRESSIONS
            .read::<SuppressionRecord>(row, none())?
            .into(),
        Kind::SoftBounces => SOFT_BOUNCES.read::<SoftBounce>(row, none())?.into(),
        Kind::Sightings => SIGHTINGS.read::<Sighting>(row, none())?.into(),
        Kind::Fanouts => journal::read(row)?.into(),
        Kind::Accumulators => batches::ACCUMULATORS
            .read::<AccumulatorRecord>(row, none())?
            .into(),
        Kind::Batches => batches::FILED.read::<BatchRecord>(row, none())?.into(),
        Kind::Deliveries => delivery_row::DELIVERIES
            .read::<DeliveryRecord>(row, none())?
            .into(),
        Kind::Notes => NOTES.read::<Note>(row, none())?.into(),
    })
}

fn put(transaction: &Transaction<'_>, record: &AnyRecord) -> Answer<()> {
    fn row(transaction: &Transaction<'_>, table: &Table, record: &impl Serialize) -> Answer<()> {
        let fields = fields(record)?;
        table.insert(transaction, Met::Replaced, &fields).map(drop)
    }
    match record {
        AnyRecord::User(user) => directory::write(transaction, user, 1),
        AnyRecord::Follow(follow) => row(transaction, &FOLLOWS, follow),
        AnyRecord::Object(object) => objects::put(transaction, object),
        AnyRecord::Inbox(inbox) => {
            let mut record = InboxRecord::keep(inbox);
            record.revision = record.revision.or(Some(As::keep(&NO_REVISION)));
            row(transaction, &inboxes::INBOXES, &record)
        }
        AnyRecord::Retraction(kept) => {
            row(transaction, &RETRACTIONS, &RetractionRecord::keep(kept))
        }
        AnyRecord::Suppression(kept) => {
            let record = SuppressionRecord::exactly(kept);
            row(transaction, &suppressions::SUPPRESSIONS, &record)
        }
        AnyRecord::SoftBounce(bounce) => row(transaction, &SOFT_BOUNCES, bounce),
        AnyRecord::Sighting(sighting) => row(transaction, &SIGHTINGS, sighting),
        AnyRecord::Fanout(fanout) => journal::write(transaction, fanout),
        AnyRecord::Accumulator(accumulator) => {
            let revision = accumulator.revision.unwrap_or(NO_REVISION);
            batches::write(transaction, accumulator, revision)
        }
        AnyRecord::Batch(batch) => row(transaction, &batches::FILED, &BatchRecord::row(batch)),
        AnyRecord::Delivery(delivery) => {
            let record = DeliveryRecord::row(delivery);
            row(transaction, &delivery_row::DELIVERIES, &record)
        }
        AnyRecord::Note(note) => row(transaction, &NOTES, note),
    }
}
