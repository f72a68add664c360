//! Exports rows as lines and imports lines, to transfer a whole store.

use rusqlite::types::Value;
use rusqlite::{Row, Rows, Transaction, params_from_iter};

use super::rows::{Fields, RowTable, to_fields};
use super::{batches, deliveries, journal, objects, suppressions, users};
use crate::store::record::Record;
use crate::store::record_lines::{NO_REVISION, RecordSource};
use crate::store::{AnyRecord, RecordKind, RecordPage, Result};

/// Maximum number of records in a page.
const MAX_PAGE_RECORDS: usize = 1_000;
/// A page ends with the record that makes it larger than this number of bytes.
const MAX_PAGE_BYTES: usize = 4 << 20;

/// Returns the table of a kind. Its primary key consists of this number of columns, the first ones.
fn table_of(kind: RecordKind) -> (&'static RowTable, usize) {
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

/// Reads the rows after this key, and returns the key of the last one. `None` after the last row.
pub(super) fn read_page(
    transaction: &Transaction<'_>,
    kind: RecordKind,
    after: &[Value],
) -> Result<Option<(RecordPage, Vec<Value>)>> {
    let (table, key_length) = table_of(kind);
    let key: Vec<&str> = table.names().take(key_length).collect();
    let key_columns = key.join(", ");
    let condition = match after {
        [] => String::new(),
        after => format!("WHERE ({key_columns}) > ({})", vec!["?"; after.len()].join(", ")),
    };
    let source = if kind == RecordKind::Fanouts { journal::WITH_PARTS } else { table.name };
    let sql = format!("SELECT * FROM {source} {condition} ORDER BY {key_columns}");
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
    let (mut page, mut last_key, mut count, mut bytes) = (RecordPage::default(), None, 0, 0);
    while count < MAX_PAGE_RECORDS && bytes <= MAX_PAGE_BYTES {
        let Some(row) = rows.next()? else { break };
        match add(&mut page, row) {
            Ok(()) => {}
            Err(error) if error.is_outage() => return Err(error),
            Err(error) => page.unreadable.push(error.to_string()),
        }
        count += 1;
        bytes += page.lines.last().map_or(0, String::len);
        let values = key.iter().map(|name| row.get(*name));
        last_key = Some(values.collect::<rusqlite::Result<_>>()?);
    }
    Ok(last_key.map(|last_key| (page, last_key)))
}

fn read_record(kind: RecordKind, row: &Row<'_>) -> Result<AnyRecord> {
    match kind {
        RecordKind::Objects => Ok(objects::read_object(row)?.into()),
        RecordKind::Fanouts => Ok(journal::read_fanout(row)?.into()),
        kind => AnyRecord::read_from(kind, (table_of(kind).0, row)),
    }
}

impl RecordSource for (&RowTable, &Row<'_>) {
    fn read<R: Record>(self) -> Result<R::Value> {
        let (table, row) = self;
        table.read::<R>(row, Fields::new())
    }
}

/// Writes the record of a line.
pub(super) fn import_line(
    transaction: &Transaction<'_>,
    kind: RecordKind,
    line: &str,
) -> Result<()> {
    let record = AnyRecord::from_line(kind, line)?;
    match &record {
        AnyRecord::User(user) => return users::replace_user(transaction, user, 1),
        AnyRecord::Object(object) => return objects::put_object(transaction, object),
        AnyRecord::Fanout(fanout) => return journal::replace_fanout(transaction, fanout),
        AnyRecord::Accumulator(accumulator) => {
            return batches::replace_accumulator(transaction, accumulator, NO_REVISION);
        }
        _ => {}
    }
    // A line has the fields of a row, except for revisions.
    let mut fields = to_fields(&record)?;
    if kind == RecordKind::Inboxes {
        fields.insert("stamp".to_owned(), NO_REVISION.to_string().into());
    }
    table_of(kind).0.replace(transaction, &fields)
}
