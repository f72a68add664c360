//! The tables, and how a file is created or upgraded.
//!
//! Opening a file upgrades an earlier schema in one transaction ([`upgrade`]), and rejects a newer
//! one. Tables (`schema.sql`) are named after the MongoDB collections. Times are milliseconds since
//! 1970; ids of fan-outs and markers are 24 hexadecimal digits. [`create_day_table`] defines the
//! tables of days.

use std::path::Path;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::rows::Statements as _;
use crate::domain::{Day, DeliveryId};
use crate::store::{Error, Result, Schema};

/// "tdng": identifies the file as ours in its header, for other programs and for `file`.
const APPLICATION_ID: i32 = 0x7464_6E67;

/// The schema that this code reads and writes. It grows with each release that changes a table.
pub(super) const VERSION: i32 = 16;

/// Upgrades a file of this schema to the current one: adds all missing tables, columns and indexes.
/// A column that is added to a table later needs a default or must allow `NULL`.
fn upgrade(transaction: &Transaction<'_>, from: i32) -> Result<()> {
    if from < 16 {
        rename_tables(transaction)?;
    }
    // Files from between two releases may have some of the columns. A table that does not exist yet
    // is created below with all of them.
    for [table, column, declaration] in columns(&new_file()?)? {
        let sql = "SELECT count(*) > 0 AND count(*) FILTER (WHERE name = ?2) = 0
                   FROM pragma_table_info(?1)";
        let is_missing: bool = transaction.query_row(sql, [&table, &column], |row| row.get(0))?;
        if is_missing {
            let add = format!("ALTER TABLE {table} ADD COLUMN {column} {declaration}");
            transaction.execute_batch(&add)?;
        }
    }
    if from < 4 {
        add_tags(transaction)?;
    }
    if from < 5 {
        recreate_deliveries(transaction)?;
    }
    Ok(transaction.execute_batch(CREATE_TABLES)?)
}

/// Tables that have other names since schema 16.
const RENAMED_TABLES: [[&str; 2]; 5] = [
    ["pokes", "change_notices"],
    ["seats", "accumulators"],
    ["seat_batches", "accumulator_batches"],
    ["seat_objects", "accumulator_objects"],
    ["sightings", "webhook_receipts"],
];

/// Renames the tables that exist, and drops indexes with former names. The upgrade creates all
/// missing indexes later.
fn rename_tables(transaction: &Transaction<'_>) -> Result<()> {
    let sql = "SELECT 'DROP INDEX ' || name FROM sqlite_schema
               WHERE type = 'index' AND tbl_name = ?1 AND sql IS NOT NULL
               UNION ALL SELECT 'ALTER TABLE ' || name || ' RENAME TO ' || ?2 FROM sqlite_schema
               WHERE type = 'table' AND name = ?1";
    for names in RENAMED_TABLES {
        let statements: Vec<String> = transaction.query_all(sql, names, |row| row.get(0))?;
        transaction.execute_batch(&statements.join(";"))?;
    }
    let drop = "DROP INDEX IF EXISTS fanouts_held; DROP INDEX IF EXISTS deliveries_held;";
    Ok(transaction.execute_batch(drop)?)
}

/// Returns the columns of all tables: table, name and declaration.
fn columns(file: &Connection) -> Result<Vec<[String; 3]>> {
    let sql = "SELECT tables.name, columns.name, columns.type
                   || iif(columns.\"notnull\", ' NOT NULL', '')
                   || coalesce(' DEFAULT ' || columns.dflt_value, '')
               FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns
               WHERE tables.type = 'table'";
    file.query_all(sql, [], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]))
}

/// Returns a new file in memory.
fn new_file() -> rusqlite::Result<Connection> {
    let file = Connection::open_in_memory()?;
    file.execute_batch(CREATE_TABLES)?;
    Ok(file)
}

/// Gives a tag to each delivery of the first three schemas.
fn add_tags(transaction: &Transaction<'_>) -> Result<()> {
    let sql = "SELECT id FROM deliveries WHERE tag = ''";
    let ids: Vec<String> = transaction.query_all(sql, [], |row| row.get(0))?;
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
fn recreate_deliveries(transaction: &Transaction<'_>) -> Result<()> {
    let sql = "SELECT group_concat(name) FROM pragma_table_info('deliveries')";
    let columns: String = transaction.query_row(sql, [], |row| row.get(0))?;
    Ok(transaction.execute_batch(&format!(
        "ALTER TABLE deliveries RENAME TO deliveries_4;
         {CREATE_TABLES}
         INSERT INTO deliveries ({columns}) SELECT {columns} FROM deliveries_4;
         DROP TABLE deliveries_4;"
    ))?)
}

/// Page size: 32 KiB. A row of a `WITHOUT ROWID` table spills to overflow pages if it exceeds a
/// quarter of a page: a day of 88 events, or 11 with the default of 4 KiB. It then costs three to
/// five times as much.
const PAGE_BYTES: i32 = 32 * 1024;

/// The SQL that creates all tables except day tables, and their indexes.
const CREATE_TABLES: &str = include_str!("schema.sql");

/// Returns the SQL that creates a day's table.
///
/// `id` is text, or twelve bytes if an older writer used an ObjectId. SQLite sorts text before
/// bytes, as BSON sorts text before ObjectIds. `events` contains one entry per line (see
/// [`super::entry_text`]), and `n` is the number of entries.
///
/// Rows are stored in id order (`WITHOUT ROWID`), because digests read them in this order. A rowid
/// table with an index costs as much to write. If users are written in random order, it costs two
/// to four times as much to read.
pub(super) fn create_day_table(day: Day) -> String {
    format!(
        "CREATE TABLE {} (id PRIMARY KEY NOT NULL, n INTEGER NOT NULL, events TEXT NOT NULL)
         WITHOUT ROWID",
        day.collection_name()
    )
}

/// Creates or upgrades the file, and rejects files of other programs.
pub(super) fn prepare(connection: &mut Connection, path: &Path) -> Result<()> {
    let state = read_state(&connection.transaction()?, path)?;
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
    // Another process may have created or upgraded the file in the meantime.
    match read_state(&transaction, path)? {
        State::Current => {}
        State::Empty => transaction.execute_batch(CREATE_TABLES)?,
        State::Old(version) => upgrade(&transaction, version)?,
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    if let State::Old(from) = state {
        let file = path.display();
        tracing::warn!(
            "{file} was upgraded from schema {from} to {VERSION}; older versions cannot open it"
        );
    }
    Ok(())
}

/// Returns the schema of a file.
pub(super) fn read_schema(connection: &mut Connection, path: &Path) -> Result<Schema> {
    let version = match read_state(&connection.transaction()?, path)? {
        State::Old(version) => version,
        State::Empty | State::Current => VERSION,
    };
    Ok(Schema { version: version.unsigned_abs(), known: VERSION.unsigned_abs() })
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

fn list_indexes(file: &Connection) -> Result<Vec<String>> {
    let sql = "SELECT tbl_name || '(' || name || ')' FROM sqlite_schema
               WHERE type = 'index' AND sql IS NOT NULL ORDER BY 1";
    file.query_all(sql, [], |row| row.get(0))
}

/// Returns the indexes of a new file that this one does not have, such as
/// `deliveries(deliveries_by_tag)`.
pub(super) fn missing_indexes(transaction: &Transaction<'_>) -> Result<Vec<String>> {
    let stored = list_indexes(transaction)?;
    let mut missing = list_indexes(&new_file()?)?;
    missing.retain(|index| !stored.contains(index));
    Ok(missing)
}

/// Returns the state of the file, or an error if it is not ours. Requires a transaction, so that
/// all queries see one snapshot.
fn read_state(transaction: &Transaction<'_>, path: &Path) -> Result<State> {
    let pragma = |name| transaction.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let (application, version) = (pragma("application_id")?, pragma("user_version")?);
    let tables: i64 =
        transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let reject = |why: String| Err(Error::Unsupported(format!("{} {why}", path.display())));
    match (application, version) {
        (APPLICATION_ID, VERSION) => Ok(State::Current),
        (APPLICATION_ID, version) if version > VERSION => reject(format!(
            "was written by a newer version of tidings: its schema is number {version}, and this \
             one knows {VERSION}; open it with that version, or a newer one"
        )),
        (APPLICATION_ID, 1..) => Ok(State::Old(version)),
        (0, 0) if tables == 0 => Ok(State::Empty),
        _ => reject("is a database of another program".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> Result<Connection> {
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(std::time::Duration::from_secs(30))?;
        prepare(&mut connection, path)?;
        Ok(connection)
    }

    fn open_error(path: &Path) -> String {
        open(path).unwrap_err().to_string()
    }

    #[test]
    fn a_new_file_gets_its_tables_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new.db");
        for _ in 0..2 {
            let connection = open(&path).unwrap();
            let text = |sql| connection.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
            assert_eq!(text("PRAGMA journal_mode"), "wal");
            assert_eq!(text("SELECT CAST(page_size AS TEXT) FROM pragma_page_size"), "32768");
        }
    }

    #[test]
    fn a_copy_that_lost_wal_mode_is_switched_back() {
        let folder = tempfile::tempdir().unwrap();
        let (path, copy) = (folder.path().join("new.db"), folder.path().join("copy.db"));
        let into = copy.to_str().unwrap();
        open(&path).unwrap().execute("VACUUM INTO ?1", [into]).unwrap();
        let mode = |connection: Connection| -> String {
            connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap()
        };
        assert_eq!(mode(Connection::open(&copy).unwrap()), "delete");

        assert_eq!(mode(open(&copy).unwrap()), "wal");
    }

    #[test]
    fn a_file_of_a_newer_version_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("newer.db");
        open(&path).unwrap().pragma_update(None, "user_version", VERSION + 1).unwrap();

        let error = open_error(&path);

        assert!(
            error.contains(&format!(
                "its schema is number {}, and this one knows {VERSION}; open it with",
                VERSION + 1
            )),
            "{error}"
        );
    }

    /// Returns the columns of all tables, sorted by name.
    fn table_columns(connection: &Connection) -> Vec<(String, String, String, bool)> {
        let sql = "SELECT t.name, c.name, c.type, c.\"notnull\"
                   FROM sqlite_schema t, pragma_table_info(t.name) c
                   WHERE t.type = 'table' AND t.name NOT LIKE 'notifications%'
                   ORDER BY t.name, c.name";
        let mut query = connection.prepare(sql).unwrap();
        let rows =
            query.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)));
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
            include_str!("../../../tests/all/upgrades/schema_15.sql"),
        ];
        for (n, text) in earlier.iter().enumerate() {
            let path = folder.path().join(format!("{n}.db"));
            Connection::open(&path).unwrap().execute_batch(text).unwrap();

            let upgraded = open(&path).unwrap();

            assert_eq!(table_columns(&upgraded), table_columns(&new), "file {n}");
            assert_eq!(index_texts(&upgraded), index_texts(&new));
            let sql = "SELECT count(*) FROM deliveries WHERE length(tag) = 40";
            let tagged: i64 = upgraded.query_row(sql, [], |row| row.get(0)).unwrap();
            assert_eq!(tagged, 2);
            open(&path).unwrap();
        }
    }

    #[test]
    fn a_file_of_another_program_is_rejected_and_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, text) = (folder.path().join("other.db"), folder.path().join("notes.txt"));
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
        std::fs::write(&text, "a shopping list, long enough to be no header of a database at all")
            .unwrap();
        let before = std::fs::read(&path).unwrap();

        assert!(open_error(&path).ends_with("is a database of another program"));
        assert!(open(&text).is_err());

        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}
