//! The tables, and how a file is created or upgraded.
//!
//! Opening a file upgrades an earlier schema in one transaction ([`STEPS`]), and rejects a newer
//! one. Tables (`schema.sql`) are named after the MongoDB collections. Times are milliseconds since
//! 1970; ids of fan-outs and markers are 24 hexadecimal digits. Day tables come and go with their
//! days: see [`day_table`].

use std::path::Path;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::answer::{Answer, Statements as _};
use crate::domain::{Day, DeliveryId};
use crate::store::{Error, Schema};

/// "tdng": identifies the file as ours in its header, for other programs and for `file`.
const APPLICATION: i32 = 0x7464_6E67;

/// The schema that this code reads and writes.
pub(super) const VERSION: i32 = 1 + STEPS.len() as i32;

/// What each version after the first adds: a description, and columns as table, name and
/// declaration. Missing tables and indexes are created afterward.
///
/// A released step never changes. New columns have defaults, so that running processes of the
/// previous version keep working. If that is impossible, the description warns about it.
const STEPS: [(&str, &[[&str; 3]]); 14] = [
    (
        "adds the table notes (pauses, secrets of links, results of runs)",
        &[],
    ),
    (
        "adds to each delivery its call to the provider, and to each user their revision and when \
            they unsubscribed",
        &[
            ["deliveries", "call", "TEXT"],
            ["deliveries", "tried", "INTEGER"],
            ["users", "unsubscribed", "INTEGER"],
            ["users", "rev", "INTEGER NOT NULL DEFAULT 1"],
        ],
    ),
    (
        "adds to each delivery the tag that identifies it in reports of providers, and adds the \
            tables of suppressed addresses",
        &[
            // Files of schema 3 from between two releases may lack the columns of users.
            ["users", "unsubscribed", "INTEGER"],
            ["users", "rev", "INTEGER NOT NULL DEFAULT 1"],
            ["deliveries", "tag", "TEXT NOT NULL DEFAULT ''"],
            ["deliveries", "feedback", "TEXT"],
            ["deliveries", "feedback_at", "INTEGER"],
        ],
    ),
    (
        "adds the tables of batches, and creates the table deliveries again",
        &[
            ["fanouts", "batch_key", "TEXT"],
            ["deliveries", "batch", "TEXT"],
            ["deliveries", "turn", "INTEGER"],
        ],
    ),
    (
        "adds to each delivery when its digest fell due, and how often it was refused",
        &[
            ["deliveries", "due_on", "TEXT"],
            ["deliveries", "refusals", "INTEGER NOT NULL DEFAULT 0"],
        ],
    ),
    (
        "adds to each delivery how often it was tried again after it had failed",
        &[["deliveries", "reopened", "INTEGER NOT NULL DEFAULT 0"]],
    ),
    (
        "adds the tables of what is said of events, and of what people have seen of their feeds, and of pokes",
        &[],
    ),
    (
        "adds the table retractions (events that were taken back)",
        &[],
    ),
    (
        "adds the index users_by_schedule (whose digests fall due in an hour)",
        &[],
    ),
    (
        "writes the ids of what joined a batch shorter, which processes of the version before \
            cannot read: stop them first",
        &[],
    ),
    (
        "adds to each user their brand, what they muted and their quiet hours, which processes of the \
            version before forget when they change a user: stop them first",
        &[
            ["users", "brand", "TEXT"],
            ["users", "mutes", "TEXT"],
            ["users", "quiet", "TEXT"],
        ],
    ),
    (
        "adds to each suppressed address when it was last lifted, which processes of the version \
            before do not heed: stop them first",
        &[["suppressions", "lifted", "INTEGER"]],
    ),
    (
        "adds to each user where their record begins, if an earlier user had their id, which \
            processes of the version before forget when they change a user: stop them first",
        &[["users", "start", "TEXT"]],
    ),
    (
        "adds one column for all future preferences of users",
        &[["users", "preferences", "TEXT"]],
    ),
];

/// Returns the schema of this version, with the steps that it still needs.
pub(super) fn schema(version: i32) -> Schema {
    let steps = STEPS.iter().skip((version - 1).unsigned_abs() as usize);
    Schema {
        version: version.unsigned_abs(),
        known: VERSION.unsigned_abs(),
        steps: steps.map(|(does, _)| (*does).to_owned()).collect(),
    }
}

/// Upgrades a file of this schema to the current one.
fn upgrade(transaction: &Transaction<'_>, from: i32) -> Answer<()> {
    // Files from between two releases may have some of the columns. The first schemas lack some of
    // the tables, which are created below with all columns.
    let steps = STEPS.iter().skip((from - 1).unsigned_abs() as usize);
    for [table, column, declaration] in steps.flat_map(|(_, columns)| *columns) {
        let sql = "SELECT count(*) > 0 AND count(*) FILTER (WHERE name = ?2) = 0
                   FROM pragma_table_info(?1)";
        let is_missing: bool = transaction.query_row(sql, [table, column], |row| row.get(0))?;
        if is_missing {
            transaction.execute_batch(&format!(
                "ALTER TABLE {table} ADD COLUMN {column} {declaration}"
            ))?;
        }
    }
    if from < 4 {
        add_tags(transaction)?;
    }
    if from < 5 {
        recreate_deliveries(transaction)?;
    }
    Ok(transaction.execute_batch(TABLES)?)
}

/// Gives a tag to each delivery of the first three schemas.
fn add_tags(transaction: &Transaction<'_>) -> Answer<()> {
    let sql = "SELECT id FROM deliveries WHERE tag = ''";
    let ids: Vec<String> = transaction.all(sql, [], |row| row.get(0))?;
    for id in ids {
        let tag = DeliveryId::stored(id.as_str()).tag();
        let sql = "UPDATE deliveries SET tag = ?2 WHERE id = ?1";
        transaction.run(sql, (id, tag.as_str()))?;
    }
    Ok(())
}

/// Creates the table of deliveries again. Deliveries of batches have no cadence and no period, but
/// before schema 5 both were `NOT NULL`, which SQLite cannot drop. Dropping the old table drops its
/// indexes too.
fn recreate_deliveries(transaction: &Transaction<'_>) -> Answer<()> {
    let sql = "SELECT group_concat(name) FROM pragma_table_info('deliveries')";
    let columns: String = transaction.query_row(sql, [], |row| row.get(0))?;
    Ok(transaction.execute_batch(&format!(
        "ALTER TABLE deliveries RENAME TO deliveries_4;
         {TABLES}
         INSERT INTO deliveries ({columns}) SELECT {columns} FROM deliveries_4;
         DROP TABLE deliveries_4;"
    ))?)
}

/// Page size: 32 KiB. A row of a `WITHOUT ROWID` table spills to overflow pages if it exceeds a
/// quarter of a page. From then on it costs three to five times as much. That is a day of 88
/// events; with the default of 4 KiB it would be 11.
const PAGE_BYTES: i32 = 32 * 1024;

/// The SQL that creates all tables except day tables, and their indexes.
const TABLES: &str = include_str!("schema.sql");

/// Returns the SQL that creates a day's table.
///
/// `id` is text, or twelve bytes if an older writer used an ObjectId. SQLite sorts text before
/// bytes, as BSON sorts text before ObjectIds. `events` holds one entry per line (see
/// [`super::entries`]), and `n` the number of entries.
///
/// Rows are stored in id order (`WITHOUT ROWID`), in which digests read them. A rowid table with an
/// index costs as much to write. If users arrive in random order, it costs two to four times as
/// much to read.
pub(super) fn day_table(day: Day) -> String {
    format!(
        "CREATE TABLE {} (id PRIMARY KEY NOT NULL, n INTEGER NOT NULL, events TEXT NOT NULL) WITHOUT ROWID",
        day.collection()
    )
}

/// Creates or upgrades the file, and rejects files of other programs.
pub(super) fn prepare(connection: &mut Connection, path: &Path) -> Answer<()> {
    let state = state(&connection.transaction()?, path)?;
    if state == State::Empty {
        // The page size can only be set in an empty file, outside of a transaction.
        connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    }
    // WAL mode is stored in the file, but a copy made by `VACUUM INTO` loses it.
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    if state == State::Current {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have created or upgraded it in the meantime.
    match self::state(&transaction, path)? {
        State::Current => {}
        State::Empty => transaction.execute_batch(TABLES)?,
        State::Old(version) => upgrade(&transaction, version)?,
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    if let State::Old(from) = state {
        let file = path.display();
        tracing::warn!(
            "{file} was upgraded from schema {from} to {VERSION}; older versions refuse it"
        );
    }
    Ok(())
}

/// Returns the schema of a file.
pub(super) fn of(connection: &mut Connection, path: &Path) -> Answer<Schema> {
    let version = match state(&connection.transaction()?, path)? {
        State::Old(version) => version,
        State::Empty | State::Current => VERSION,
    };
    Ok(schema(version))
}

/// The state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Has no content yet.
    Empty,
    /// Has this earlier schema.
    Old(i32),
    Current,
}

/// Returns the existing indexes, each as `deliveries(deliveries_by_tag)`.
pub(super) fn indexes(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let listed = "SELECT tbl_name || '(' || name || ')' FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL ORDER BY 1";
    let mut query = connection.prepare(listed)?;
    let names = query.query_map([], |row| row.get(0))?;
    names.collect()
}

/// Returns the indexes of a newly created file.
pub(super) fn wanted_indexes() -> rusqlite::Result<Vec<String>> {
    let made = Connection::open_in_memory()?;
    made.execute_batch(TABLES)?;
    indexes(&made)
}

/// Returns the state of the file, or an error if it is not ours. Requires a transaction, so that
/// all queries see one snapshot.
fn state(transaction: &Transaction<'_>, path: &Path) -> Answer<State> {
    let number = |name| transaction.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let (application, version) = (number("application_id")?, number("user_version")?);
    let tables: i64 =
        transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let refuse = |why: String| Err(Error::Unsupported(format!("{} {why}", path.display())).into());
    match (application, version) {
        (APPLICATION, VERSION) => Ok(State::Current),
        (APPLICATION, version) if version > VERSION => refuse(format!(
            "was written by a newer version of tidings: its schema is number {version}, and this one knows {VERSION}; \
             open it with that version, or a newer one"
        )),
        (APPLICATION, 1..) => Ok(State::Old(version)),
        (0, 0) if tables == 0 => Ok(State::Empty),
        _ => refuse("is a database of another program".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> Answer<Connection> {
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(std::time::Duration::from_secs(30))?;
        prepare(&mut connection, path)?;
        Ok(connection)
    }

    fn refusal(path: &Path) -> String {
        open(path).unwrap_err().while_doing("opening").to_string()
    }

    #[test]
    fn a_new_file_gets_its_tables_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new.db");
        for _ in 0..2 {
            let connection = open(&path).unwrap();
            let text = |sql| {
                connection
                    .query_row(sql, [], |row| row.get::<_, String>(0))
                    .unwrap()
            };
            assert_eq!(text("PRAGMA journal_mode"), "wal");
            assert_eq!(
                text("SELECT CAST(page_size AS TEXT) FROM pragma_page_size"),
                "32768"
            );
        }
    }

    #[test]
    fn a_copy_that_lost_wal_mode_is_switched_back() {
        let folder = tempfile::tempdir().unwrap();
        let (path, copy) = (folder.path().join("new.db"), folder.path().join("copy.db"));
        let into = copy.to_str().unwrap();
        open(&path)
            .unwrap()
            .execute("VACUUM INTO ?1", [into])
            .unwrap();
        let mode = |connection: Connection| {
            let mode =
                connection.query_row("PRAGMA journal_mode", [], |row| row.get::<_, String>(0));
            mode.unwrap()
        };
        assert_eq!(mode(Connection::open(&copy).unwrap()), "delete");

        assert_eq!(mode(open(&copy).unwrap()), "wal");
    }

    #[test]
    fn a_file_of_a_newer_version_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("newer.db");
        open(&path)
            .unwrap()
            .pragma_update(None, "user_version", VERSION + 1)
            .unwrap();

        let error = refusal(&path);

        assert!(
            error.contains(&format!(
                "its schema is number {}, and this one knows {VERSION}; open it with",
                VERSION + 1
            )),
            "{error}"
        );
    }

    /// Returns the columns of all tables, sorted by name.
    fn shape(connection: &Connection) -> Vec<(String, String, String, bool)> {
        let sql = "SELECT t.name, c.name, c.type, c.\"notnull\"
                   FROM sqlite_schema t, pragma_table_info(t.name) c
                   WHERE t.type = 'table' AND t.name NOT LIKE 'notifications%' ORDER BY t.name, c.name";
        let mut query = connection.prepare(sql).unwrap();
        let rows = query.query_map([], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        });
        rows.unwrap().collect::<rusqlite::Result<_>>().unwrap()
    }

    /// Returns the SQL of all indexes.
    fn index_texts(connection: &Connection) -> Vec<String> {
        let sql =
            "SELECT sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL ORDER BY 1";
        let mut query = connection.prepare(sql).unwrap();
        let texts = query.query_map([], |row| row.get(0)).unwrap();
        texts.collect::<rusqlite::Result<_>>().unwrap()
    }

    #[test]
    fn files_of_all_earlier_versions_are_upgraded_to_the_current_schema() {
        let folder = tempfile::tempdir().unwrap();
        let new = open(&folder.path().join("new.db")).unwrap();
        let earlier = [
            include_str!("../../../tests/all/upgrades/schema_1.sql"),
            include_str!("../../../tests/all/upgrades/schema_2.sql"),
            include_str!("../../../tests/all/upgrades/schema_3.sql"),
            include_str!("../../../tests/all/upgrades/schema_4.sql"),
            include_str!("../../../tests/all/upgrades/schema_5.sql"),
            include_str!("../../../tests/all/upgrades/schema_6.sql"),
        ];
        for (n, text) in earlier.iter().enumerate() {
            let path = folder.path().join(format!("{n}.db"));
            let written = Connection::open(&path).unwrap();
            written.execute_batch(text).unwrap();
            drop(written);

            let upgraded = open(&path).unwrap();

            assert_eq!(shape(&upgraded), shape(&new), "schema {}", n + 1);
            assert_eq!(index_texts(&upgraded), index_texts(&new));
            let tagged = "SELECT count(*) FROM deliveries WHERE length(tag) = 40";
            let tagged: i64 = upgraded.query_row(tagged, [], |row| row.get(0)).unwrap();
            assert_eq!(tagged, 2);
            open(&path).unwrap();
        }
    }

    #[test]
    fn a_file_of_another_program_is_rejected_and_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, text) = (
            folder.path().join("other.db"),
            folder.path().join("notes.txt"),
        );
        let other = Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE theirs (x)").unwrap();
        drop(other);
        std::fs::write(
            &text,
            "a shopping list, long enough to be no header of a database at all",
        )
        .unwrap();
        let before = std::fs::read(&path).unwrap();

        assert!(refusal(&path).ends_with("is a database of another program"));
        assert!(open(&text).is_err());

        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}
