//! Exports tables as lines and imports lines, for a whole store.

use rusqlite::types::Value;
use rusqlite::{Row, Rows, Transaction, params_from_iter};

use super::rows::{Fields, RowTable, fields};
use super::{batches, deliveries, journal, objects, suppressions, users};
use crate::store::record::Record;
use crate::store::record_lines::{NO_REVISION, RecordSource};
use crate::store::{AnyRecord, RecordKind, RecordPage, Result};

/// The largest number of records in a page.
const RECORDS: usize = 1_000;
/// A page ends with the record that makes it larger than this number of bytes.
const BYTES: usize = 4 << 20;

/// Returns the table of a kind, and the number of columns in its primary key, which are the first.
fn table(kind: RecordKind) -> (&'static RowTable, usize) {
    const fn table(name: &'static str, columns: &'static str) -> RowTable {
        RowTable { name, columns }
    }
    const FOLLOWS: RowTable = table("follows", "k=_id.k u=_id.u");
    const RETRACTIONS: RowTable = table("retractions", "type=t object=o at");
    const SOFT_BOUNCES: RowTable = table("soft_bounces", "address=_id.a delivery=_id.d at");
    const WEBHOOK_RECEIPTS: RowTable = table("webhook_receipts", "key=_id mark until");
    const NOTES: RowTable = table("notes", "name=_id text");
    match kind {
        RecordKind::Users => (&users::USERS, 1),
        RecordKind::Follows => (&FOLLOWS, 2),
        RecordKind::Objects => (&objects::OBJECTS, 1),
        RecordKind::Inboxes => (&users::INBOXES, 1),
        RecordKind::Retractions => (&RETRACTIONS, 2),
        RecordKind::Suppressions => (&suppressions::SUPPRESSIONS, 1),
        RecordKind::SoftBounces => (&SOFT_BOUNCES, 2),
        RecordKind::WebhookReceipts => (&WEBHOOK_RECEIPTS, 1),
        RecordKind::Fanouts => (&journal::FANOUTS, 1),
        RecordKind::Accumulators => (&batches::ACCUMULATORS, 2),
        RecordKind::Batches => (&batches::BATCHES, 1),
        RecordKind::Deliveries => (&deliveries::DELIVERIES, 1),
        RecordKind::Notes => (&NOTES, 1),
    }
}

/// Reads the rows behind this key, and returns the key of the last one. `None` after the last row.
pub(super) fn page(
    transaction: &Transaction<'_>,
    kind: RecordKind,
    after: &[Value],
) -> Result<Option<(RecordPage, Vec<Value>)>> {
    let (table, columns) = table(kind);
    let key: Vec<&str> = table.names().take(columns).collect();
    let names = key.join(", ");
    let condition = match after {
        [] => String::new(),
        after => format!("WHERE ({names}) > ({})", vec!["?"; after.len()].join(", ")),
    };
    let rows = match kind {
        RecordKind::Fanouts => journal::WITH_PARTS,
        _ => table.name,
    };
    let sql = format!("SELECT * FROM {rows} {condition} ORDER BY {names}");
    let mut statement = transaction.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(after))?;
    fill_page(&mut rows, &key, |page, row| page.push(&read_record(kind, row)?))
}

/// Adds rows to a page, and returns the key of the last one. `None` after the last row.
pub(super) fn fill_page(
    rows: &mut Rows<'_>,
    key: &[&str],
    mut add: impl FnMut(&mut RecordPage, &Row<'_>) -> Result<()>,
) -> Result<Option<(RecordPage, Vec<Value>)>> {
    let (mut page, mut last, mut read, mut bytes) = (RecordPage::default(), None, 0, 0);
    while read < RECORDS && bytes <= BYTES {
        let Some(row) = rows.next()? else { break };
        match add(&mut page, row) {
            Ok(()) => {}
            Err(error) if error.is_outage() => return Err(error),
            Err(error) => page.bad.push(error.to_string()),
        }
        read += 1;
        bytes += page.lines.last().map_or(0, String::len);
        let columns = key.iter().map(|name| row.get(*name));
        last = Some(columns.collect::<rusqlite::Result<_>>()?);
    }
    Ok(last.map(|last| (page, last)))
}

fn read_record(kind: RecordKind, row: &Row<'_>) -> Result<AnyRecord> {
    match kind {
        RecordKind::Objects => Ok(objects::read_object(row)?.into()),
        RecordKind::Fanouts => Ok(journal::read(row)?.into()),
        kind => AnyRecord::read_from(kind, (table(kind).0, row)),
    }
}

impl RecordSource for (&RowTable, &Row<'_>) {
    fn read<R: Record>(self) -> Result<R::Value> {
        let (table, row) = self;
        table.read::<R>(row, Fields::new())
    }
}

/// Writes the record of a line.
pub(super) fn put(transaction: &Transaction<'_>, kind: RecordKind, line: &str) -> Result<()> {
    let record = AnyRecord::read(kind, line)?;
    match &record {
        AnyRecord::User(user) => return users::write(transaction, user, 1),
        AnyRecord::Object(object) => return objects::put_object(transaction, object),
        AnyRecord::Fanout(fanout) => return journal::write(transaction, fanout),
        AnyRecord::Accumulator(accumulator) => {
            return batches::write(transaction, accumulator, NO_REVISION);
        }
        _ => {}
    }
    // A line has the fields of a row, except for revisions.
    let mut fields = fields(&record)?;
    if kind == RecordKind::Inboxes {
        fields.insert("stamp".to_owned(), NO_REVISION.to_string().into());
    }
    table(kind).0.replace(transaction, &fields)
}
