//! Upgrades files of earlier schemas, one step for each version.
//!
//! A step changes columns and their contents; [`super::schema`] then adds missing tables and
//! indexes. A released step never changes. It skips existing columns, because files from between
//! two releases may have some. New columns have defaults, so that running processes of the previous
//! version keep working. If that is impossible, the description of the step warns about it.

use rusqlite::Transaction;

use super::answer::Answer;
use crate::domain::DeliveryId;
use crate::store::Schema;

/// The schema that this code reads and writes.
pub(super) const VERSION: i32 = 15;

/// A step: its description and its function.
type Step = (&'static str, fn(&Transaction<'_>) -> Answer<()>);

/// The first step upgrades schema 1 to schema 2, and so on.
const STEPS: [Step; VERSION as usize - 1] = [
    (
        "adds the table notes (pauses, secrets of links, what runs have found)",
        |_| Ok(()),
    ),
    (
        "adds the call of each delivery, the revision of each user and when they unsubscribed",
        calls_and_revisions,
    ),
    (
        "adds the tag that providers name a delivery by, and the tables of suppressed addresses",
        tags,
    ),
    (
        "adds the tables of batches, and makes the table of deliveries anew",
        batches,
    ),
    (
        "adds to each delivery when its digest fell due, and how often it was refused",
        late_digests,
    ),
    (
        "adds to each delivery how often it was tried again after it had failed",
        |transaction| {
            add_column(
                transaction,
                "deliveries",
                "reopened",
                "INTEGER NOT NULL DEFAULT 0",
            )
        },
    ),
    (
        "adds the tables of what is said of events, and of what people have seen of their feeds, and of pokes",
        |_| Ok(()),
    ),
    (
        "adds the table retractions (events that were taken back)",
        |_| Ok(()),
    ),
    (
        "adds the index users_by_schedule (whose digests fall due in an hour)",
        |_| Ok(()),
    ),
    (
        "writes the ids of what joined a batch shorter, which processes of the version before \
            cannot read: stop them first",
        |_| Ok(()),
    ),
    (
        "adds to each user their brand, what they muted and their quiet hours, which processes of the \
            version before forget when they change a user: stop them first",
        |transaction| {
            add_column(transaction, "users", "brand", "TEXT")?;
            add_column(transaction, "users", "mutes", "TEXT")?;
            add_column(transaction, "users", "quiet", "TEXT")
        },
    ),
    (
        "adds to each suppressed address when it was last lifted, which processes of the version \
            before do not heed: stop them first",
        // The first schemas lack the table, which is created later with the column.
        |transaction| match has_column(transaction, "suppressions", "address")? {
            true => add_column(transaction, "suppressions", "lifted", "INTEGER"),
            false => Ok(()),
        },
    ),
    (
        "adds to each user where their record begins, if an earlier user had their id, which \
            processes of the version before forget when they change a user: stop them first",
        |transaction| add_column(transaction, "users", "start", "TEXT"),
    ),
    (
        "adds one column for all future preferences of users",
        |transaction| add_column(transaction, "users", "preferences", "TEXT"),
    ),
];

fn left(from: i32) -> impl Iterator<Item = &'static Step> {
    let done = usize::try_from(from).unwrap_or(1).max(1) - 1;
    STEPS.iter().skip(done)
}

/// Returns the steps that a file of this schema still needs.
pub(super) fn schema(version: i32) -> Schema {
    Schema {
        version: version.unsigned_abs(),
        known: VERSION.unsigned_abs(),
        steps: left(version).map(|(does, _)| (*does).to_owned()).collect(),
    }
}

/// Upgrades the columns of a file from this schema to the current one.
pub(super) fn run(transaction: &Transaction<'_>, from: i32) -> Answer<()> {
    left(from).try_for_each(|(_, step)| step(transaction))
}

/// 2 to 3: the provider call of each delivery, and the revision of each user. Deliveries that were
/// `sending` have no call, so their outcome cannot be queried.
fn calls_and_revisions(transaction: &Transaction<'_>) -> Answer<()> {
    add_column(transaction, "deliveries", "call", "TEXT")?;
    add_column(transaction, "deliveries", "tried", "INTEGER")?;
    transaction.execute_batch("DROP INDEX IF EXISTS deliveries_by_state")?;
    users(transaction)
}

fn users(transaction: &Transaction<'_>) -> Answer<()> {
    add_column(transaction, "users", "unsubscribed", "INTEGER")?;
    add_column(transaction, "users", "rev", "INTEGER NOT NULL DEFAULT 1")
}

/// 3 to 4: the tag that providers name an email by, and their reports on it.
fn tags(transaction: &Transaction<'_>) -> Answer<()> {
    users(transaction)?;
    add_column(transaction, "deliveries", "tag", "TEXT NOT NULL DEFAULT ''")?;
    add_column(transaction, "deliveries", "feedback", "TEXT")?;
    add_column(transaction, "deliveries", "feedback_at", "INTEGER")?;
    let mut put = transaction.prepare("UPDATE deliveries SET tag = ?2 WHERE id = ?1")?;
    let mut untagged = transaction.prepare("SELECT id FROM deliveries WHERE tag = ''")?;
    let mut rows = untagged.query([])?;
    let mut ids: Vec<String> = Vec::new();
    while let Some(row) = rows.next()? {
        ids.push(row.get(0)?);
    }
    for id in ids {
        let tag = DeliveryId::stored(id.as_str()).tag();
        put.execute((id, tag.as_str()))?;
    }
    Ok(())
}

/// 4 to 5: deliveries of batches, without cadence and period.
///
/// SQLite cannot drop a NOT NULL constraint, so the table is created again. Running processes of
/// the previous version can still write to it, because they never write rows for batches.
fn batches(transaction: &Transaction<'_>) -> Answer<()> {
    add_column(transaction, "fanouts", "batch_key", "TEXT")?;
    if has_column(transaction, "deliveries", "batch")? {
        return Ok(());
    }
    transaction.execute_batch(
        "ALTER TABLE deliveries RENAME TO deliveries_4;
         CREATE TABLE deliveries (
            id          TEXT PRIMARY KEY NOT NULL,
            user        TEXT NOT NULL,
            cadence     TEXT,
            period      TEXT,
            batch       TEXT,
            turn        INTEGER,
            state       TEXT NOT NULL,
            open        INTEGER NOT NULL,
            slot        TEXT NOT NULL,
            covers      TEXT NOT NULL,
            marker      TEXT NOT NULL,
            owner       TEXT,
            until       INTEGER,
            attempts    INTEGER NOT NULL,
            items       INTEGER NOT NULL,
            created     INTEGER NOT NULL,
            settled     INTEGER,
            provider_id TEXT,
            reason      TEXT,
            call        TEXT,
            tried       INTEGER,
            tag         TEXT NOT NULL,
            feedback    TEXT,
            feedback_at INTEGER
         ) WITHOUT ROWID;
         INSERT INTO deliveries
            SELECT id, user, cadence, period, NULL, NULL, state, open, slot, covers, marker, owner, until, attempts, items,
                   created, settled, provider_id, reason, call, tried, tag, feedback, feedback_at
            FROM deliveries_4;
         DROP TABLE deliveries_4;",
    )?;
    Ok(())
}

/// 5 to 6: the due date of a digest, and the number of rejections by a provider.
fn late_digests(transaction: &Transaction<'_>) -> Answer<()> {
    add_column(transaction, "deliveries", "due_on", "TEXT")?;
    add_column(
        transaction,
        "deliveries",
        "refusals",
        "INTEGER NOT NULL DEFAULT 0",
    )
}

fn add_column(
    transaction: &Transaction<'_>,
    table: &str,
    column: &str,
    declaration: &str,
) -> Answer<()> {
    if !has_column(transaction, table, column)? {
        transaction.execute_batch(&format!(
            "ALTER TABLE {table} ADD COLUMN {column} {declaration}"
        ))?;
    }
    Ok(())
}

fn has_column(transaction: &Transaction<'_>, table: &str, column: &str) -> Answer<bool> {
    let sql = "SELECT count(*) FROM pragma_table_info(?1) WHERE name = ?2";
    let count: i64 = transaction.query_row(sql, [table, column], |row| row.get(0))?;
    Ok(count > 0)
}
