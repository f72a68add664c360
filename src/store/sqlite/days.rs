//! Whole days: listing, dropping, exporting and restoring them.
//!
//! A day is exported and restored byte for byte. Before a drop, it is compared without blocking
//! writers, and the drop checks that it has not changed since. A row that has no exact document
//! is reported, and its day is kept. A document that only MongoDB can store exactly is rejected.

use async_trait::async_trait;
use bson::{Bson, Document, RawArray, RawArrayBuf, RawDocument};
use chrono::{DateTime, Utc};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Row, ToSql, Transaction};
use serde_json::json;

use super::rows::Statements as _;
use super::{Sqlite, entry_text, schema, transfer};
use crate::domain::day::COLLECTION_PREFIX;
use crate::domain::{Day, DaySet, Id, IdForm, UserId};
use crate::store::day_lines::merge;
use crate::store::extjson::CanonicalJson;
use crate::store::{
    Checksum, ChecksumBuilder, Days, Error, ExpiringRecords, ExportPart, MergePolicy, RecordKind,
    RecordPage, Result, StackLine, extjson,
};

#[async_trait]
impl Days for Sqlite {
    async fn days(&self) -> Result<Vec<Day>> {
        self.read(list_days).await
    }

    async fn drop_day(&self, day: Day, sum: &Checksum) -> Result<bool> {
        loop {
            // This takes as long as reading the whole day, but does not block writers.
            let (stored_sum, stored_fingerprint) = self
                .read(move |transaction| {
                    Ok((checksum(transaction, day)?, fingerprint(transaction, day)?))
                })
                .await?;
            if stored_sum != *sum {
                return Ok(false);
            }
            let dropped = self.write(move |transaction| {
                if fingerprint(transaction, day)? != stored_fingerprint {
                    return Ok(false);
                }
                let sql = format!("DROP TABLE IF EXISTS {}", day.collection_name());
                transaction.execute_batch(&sql)?;
                Ok(true)
            });
            if dropped.await? {
                return Ok(true);
            }
            // Another process wrote in the meantime: compare again.
        }
    }

    /// A day is dropped in one transaction, so there is nothing to repair.
    async fn fix_day(&self, _: Day) -> Result<()> {
        Ok(())
    }

    fn export(&self, part: ExportPart) -> BoxStream<'_, Result<RecordPage>> {
        let next = move |after: Vec<Value>| async move {
            self.read(move |transaction| match part {
                ExportPart::Day(day) => read_page(transaction, day, &after),
                ExportPart::Records(kind) => transfer::read_page(transaction, kind, &after),
            })
            .await
        };
        stream::try_unfold(Vec::new(), next).boxed()
    }

    async fn restore_day(&self, day: Day, stacks: &[StackLine], policy: MergePolicy) -> Result<()> {
        if stacks.is_empty() {
            return Ok(());
        }
        let stacks = stacks.to_vec();
        self.write(move |transaction| {
            create_day(transaction, day)?;
            stacks.iter().try_for_each(|line| restore_stack(transaction, day, line, policy))
        })
        .await
    }

    async fn import_records(&self, kind: RecordKind, lines: &[String]) -> Result<()> {
        self.change_each(lines, move |transaction, line| {
            transfer::import_line(transaction, kind, line)
        })
        .await
        .map(drop)
    }

    async fn forget(
        &self,
        kind: ExpiringRecords,
        before: DateTime<Utc>,
        limit: usize,
    ) -> Result<u64> {
        self.delete_expired(kind, before, limit).await
    }
}

/// Returns the schema version, the number of rows of a day, and their bytes. Together they detect
/// changes of a day without reading its rows.
///
/// Rows only grow, so each push, marker or append makes the day longer, and restoring adds rows. If
/// the day is dropped and created again in between, its length may be the same, but the schema
/// version has changed.
fn fingerprint(transaction: &Transaction<'_>, day: Day) -> Result<[i64; 3]> {
    let schema = transaction.pragma_query_value(None, "schema_version", |row| row.get(0))?;
    if !has_day(transaction, day)? {
        return Ok([schema, 0, 0]);
    }
    // `octet_length` reads the length from the row header. `length` would read the whole text.
    let table = day.collection_name();
    let sql = format!("SELECT count(*), coalesce(sum(octet_length(events)), 0) FROM {table}");
    Ok(transaction.query_row(&sql, [], |row| Ok([schema, row.get(0)?, row.get(1)?]))?)
}

/// Computes the checksum of a day's documents.
fn checksum(transaction: &Transaction<'_>, day: Day) -> Result<Checksum> {
    let (mut summing, mut after) = (ChecksumBuilder::default(), Vec::new());
    while let Some((page, last)) = read_page(transaction, day, &after)? {
        page.require_readable()?.lines.iter().for_each(|line| summing.add(line));
        after = last;
    }
    Ok(summing.finish())
}

/// Returns all days that have a table, oldest first.
fn list_days(transaction: &Transaction<'_>) -> Result<Vec<Day>> {
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB ?1 ORDER BY name";
    let pattern = format!("{COLLECTION_PREFIX}*");
    let names = transaction.query_all(sql, [pattern], |row| row.get::<_, String>(0))?;
    Ok(names.iter().filter_map(|name| Day::from_collection(name)).collect())
}

/// Returns the days of the window that have a table, oldest first.
pub(super) fn days_in(transaction: &Transaction<'_>, window: &DaySet) -> Result<Vec<Day>> {
    let mut days = list_days(transaction)?;
    days.retain(|day| window.contains(*day));
    Ok(days)
}

pub(super) fn has_day(transaction: &Transaction<'_>, day: Day) -> Result<bool> {
    let sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1";
    let mut statement = transaction.prepare_cached(sql)?;
    Ok(statement.exists([day.collection_name()])?)
}

/// Creates the day's table, unless it exists.
pub(super) fn create_day(transaction: &Transaction<'_>, day: Day) -> Result<()> {
    if !has_day(transaction, day)? {
        transaction.execute_batch(&schema::create_day_table(day))?;
    }
    Ok(())
}

/// Applies `read` to the row of a stack: to its number of entries and their lines. Returns `None`
/// if there is no row.
pub(super) fn find_row<T>(
    transaction: &Transaction<'_>,
    day: Day,
    id: &RowId,
    read: impl FnOnce(usize, &str) -> T,
) -> Result<Option<T>> {
    let sql = format!("SELECT n, events FROM {} WHERE id = ?1", day.collection_name());
    transaction.query_first(&sql, [id], |row| {
        let lines = entry_text::lines(row.get_ref(1)?);
        let count = row.get::<_, i64>(0).map(|n| n.max(0) as usize);
        Ok(read(count.unwrap_or_else(|_| lines.lines().count()), &lines))
    })
}

/// Appends lines to the row of a stack. Creates the row if it does not exist.
pub(super) fn append_to_row(
    transaction: &Transaction<'_>,
    day: Day,
    id: &RowId,
    count: usize,
    lines: &str,
) -> Result<()> {
    let sql = format!(
        "INSERT INTO {} (id, n, events) VALUES (?1, ?2, ?3)
         ON CONFLICT DO UPDATE SET n = n + excluded.n, events = events || excluded.events",
        day.collection_name()
    );
    transaction.run(&sql, (id, count as i64, lines)).map(drop)
}

/// The id of a stack's row: text or, if an older writer used an ObjectId, its twelve bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RowId {
    Text(UserId),
    ObjectId(Id),
}

impl RowId {
    /// Returns the id of the user's row of that form; `None` if the user id cannot be an ObjectId.
    pub(super) fn of_user(user: &UserId, form: IdForm) -> Option<Self> {
        match form {
            IdForm::Text => Some(Self::Text(user.clone())),
            IdForm::ObjectId => user.to_object_id().map(Self::ObjectId),
        }
    }

    pub(super) fn into_user(self) -> UserId {
        match self {
            Self::Text(user) => user,
            Self::ObjectId(id) => UserId::stored(id.to_string()),
        }
    }

    /// Reads the id in a row's first column.
    pub(super) fn read(value: ValueRef<'_>, day: Day) -> Result<Self> {
        let corrupt = |why: &str| Error::corrupt(format!("the id of a stack of {day}"), why);
        match value {
            ValueRef::Text(text) => match std::str::from_utf8(text) {
                Ok(text) => Ok(Self::Text(UserId::stored(text))),
                Err(_) => Err(corrupt("it is not UTF-8")),
            },
            ValueRef::Blob(bytes) => match bytes.try_into() {
                Ok(bytes) => Ok(Self::ObjectId(Id::from_bytes(bytes))),
                Err(_) => Err(corrupt("it is bytes, but not twelve")),
            },
            _ => Err(corrupt("it is neither text nor bytes")),
        }
    }
}

impl ToSql for RowId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Text(user) => user.as_str().to_sql(),
            Self::ObjectId(id) => Ok(ToSqlOutput::from(id.bytes().to_vec())),
        }
    }
}

/// Returns the lines after this id, and the id of the last one. `None` after the last row.
fn read_page(
    transaction: &Transaction<'_>,
    day: Day,
    after: &[Value],
) -> Result<Option<(RecordPage, Vec<Value>)>> {
    if !has_day(transaction, day)? {
        return Ok(None);
    }
    let table = day.collection_name();
    let sql = format!("SELECT id, n, events FROM {table} WHERE id > ?1 ORDER BY id");
    let mut statement = transaction.prepare_cached(&sql)?;
    // Every id is greater than this.
    let lowest = Value::Real(f64::NEG_INFINITY);
    let mut rows = statement.query([after.first().unwrap_or(&lowest)])?;
    transfer::fill_page(&mut rows, &["id"], |page, row| {
        page.lines.push(export_row(row, day)?);
        Ok(())
    })
}

/// Returns the document of a row, if restoring it creates the same row.
fn export_row(row: &Row<'_>, day: Day) -> Result<StackLine> {
    let id = RowId::read(row.get_ref(0)?, day)?;
    let (n, events): (i64, String) = (row.get(1)?, row.get(2)?);
    let line = document_line(&id, &events);
    let stack = DayRow { id, n, events };
    if parse_line(day, &line).is_ok_and(|restored| restored == stack) {
        return Ok(line);
    }
    let what = format!("the stack of {} on {day}", stack.id.into_user());
    Err(Error::corrupt(what, "its entries have no exact form in JSON"))
}

/// Returns the document of a row.
fn document_line(id: &RowId, events: &str) -> String {
    let id = match id {
        RowId::Text(user) => json!(user.as_str()),
        RowId::ObjectId(id) => json!({ "$oid": id }),
    };
    let events: Vec<&str> = events.lines().collect();
    format!("{{\"_id\":{id},\"events\":[{}]}}", events.join(","))
}

/// A row of a day table.
#[derive(PartialEq)]
struct DayRow {
    id: RowId,
    n: i64,
    events: String,
}

/// Restores a stack from its line, and merges it with a stored stack.
fn restore_stack(
    transaction: &Transaction<'_>,
    day: Day,
    line: &str,
    policy: MergePolicy,
) -> Result<()> {
    let DayRow { id, n, events } = parse_line(day, line)?;
    let Some(stored) = find_row(transaction, day, &id, |_, lines| lines.to_owned())? else {
        return append_to_row(transaction, day, &id, n as usize, &events);
    };
    if stored == events {
        return Ok(());
    }
    let to_document = |events: &str| extjson::from_line(&document_line(&id, events));
    let (Ok(stored), Ok(exported)) = (to_document(&stored), to_document(&events)) else {
        return Err(Error::Conflict(format!("the stack of {} on {day}", id.into_user())));
    };
    let new_entries = RawArrayBuf::from_iter(merge(day, &stored, &exported, policy)?);
    let lines = entry_lines(&new_entries).map_err(|why| corrupt_line(day, why))?;
    append_to_row(transaction, day, &id, lines.lines().count(), &lines)
}

fn corrupt_line(day: Day, why: extjson::ExtJsonError) -> Error {
    Error::corrupt(format!("a line of {day}"), why)
}

/// Returns the lines of these entries.
fn entry_lines(entries: &RawArray) -> std::result::Result<String, extjson::ExtJsonError> {
    let mut lines = String::new();
    for entry in entries {
        lines.push_str(&serde_json::to_string(&CanonicalJson(entry?))?);
        lines.push('\n');
    }
    Ok(lines)
}

/// Parses a line of an export. Entries are written in canonical form, so that all spellings of a
/// document become the same row.
fn parse_line(day: Day, line: &str) -> Result<DayRow> {
    let corrupt = |why| corrupt_line(day, why);
    let unsupported = |owner: &str, why: &str| {
        Error::Unsupported(format!(
            "the stack of {owner} on {day} cannot be stored in SQLite: {why}"
        ))
    };
    let raw = extjson::from_line(line).map_err(corrupt)?;
    let mut document = Document::try_from(&*raw)
        .map_err(|_| unsupported("a user", "not all of its text is UTF-8"))?;
    let id = match document.remove("_id") {
        Some(Bson::String(text)) => RowId::Text(UserId::stored(text)),
        Some(Bson::ObjectId(id)) => RowId::ObjectId(Id::from_bytes(id.bytes())),
        Some(other) => {
            let why = format!("its _id is {other}, not text or ObjectId");
            return Err(unsupported("a user", &why));
        }
        None => return Err(corrupt("it has no _id".into())),
    };
    let user = id.clone().into_user();
    let Some(Bson::Array(array)) = document.remove("events") else {
        return Err(corrupt(format!("{user} has no array of events").into()));
    };
    if !document.is_empty() {
        let other_fields: Vec<_> = document.keys().map(String::as_str).collect();
        let why = format!("it has more than events: {}", other_fields.join(", "));
        return Err(unsupported(user.as_str(), &why));
    }
    let n = array.len() as i64;
    let array = RawArrayBuf::try_from(array).map_err(|why| corrupt(why.into()))?;
    let events = entry_lines(&array).map_err(corrupt)?;
    // If Extended JSON has no exact form of an entry, the text form has none either.
    let reread = extjson::from_line(&document_line(&id, &events)).map_err(corrupt)?;
    let bytes = |stack: &RawDocument| Some(stack.get_array("events").ok()?.as_bytes().to_vec());
    if bytes(&raw) != bytes(&reread) {
        return Err(unsupported(user.as_str(), "an entry has no exact form in JSON"));
    }
    Ok(DayRow { id, n, events })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<DayRow> {
        parse_line("20140422".parse().unwrap(), line)
    }

    #[test]
    fn equivalent_spellings_give_the_same_document() {
        let canonical = r#"{"_id":"ada","events":[{"t":"T","o":"1"},{"flushed":{"$oid":"5334647b139b2165160000d8"},"n":{"$numberInt":"1"}}]}"#;
        let relaxed = r#" { "events" : [ {"t":"\u0054", "o" : "1"}, {"flushed": {"$oid": "5334647B139B2165160000D8"}, "n": 1} ], "_id": "ada"} "#;

        for line in [canonical, relaxed] {
            let row = parse(line).unwrap();
            assert_eq!(row.n, 2);
            assert_eq!(document_line(&row.id, &row.events), canonical);
        }
    }

    #[test]
    fn documents_that_only_mongodb_can_store_are_rejected_with_a_reason() {
        for (line, why) in [
            (
                r#"{"_id":"ada","events":[],"seen":{"$numberInt":"1"},"a":null}"#,
                "it has more than events: seen, a",
            ),
            (r#"{"_id":{"$numberInt":"5"},"events":[]}"#, "its _id is 5, not text or ObjectId"),
            (r#"{"_id":"ada"}"#, "ada has no array of events"),
            (r#"{"_id":"ada","events":{}}"#, "ada has no array of events"),
            (r#"{"events":[]}"#, "it has no _id"),
        ] {
            let error = parse(line).map(|row| row.n).unwrap_err().to_string();
            assert!(error.ends_with(why), "{error}");
        }
    }
}
