//! The tables, and how a file is created or upgraded.
//!
//! Opening a file upgrades an earlier schema in one transaction, with the steps of
//! [`super::upgrade`], and rejects a newer one. Tables are named after the MongoDB collections.
//! Times are milliseconds since 1970; ids of fan-outs and markers are 24 hexadecimal digits. Day
//! tables come and go with their days: see [`day_table`].

use std::path::Path;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::answer::Answer;
use super::upgrade::{self, VERSION};
use crate::domain::Day;
use crate::store::{Error, Schema};

/// "tdng": identifies the file as ours in its header, for other programs and for `file`.
const APPLICATION: i32 = 0x7464_6E67;

/// Page size: 32 KiB. A row of a `WITHOUT ROWID` table spills to overflow pages if it exceeds a
/// quarter of a page. From then on it costs three to five times as much. That is a day of 88
/// events; with the default of 4 KiB it would be 11.
const PAGE_BYTES: i32 = 32 * 1024;

/// All tables except day tables. Existing ones are not changed, so this completes a file of any
/// version once its columns have been upgraded.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS users (
    id           TEXT PRIMARY KEY NOT NULL,
    email        TEXT,
    name         TEXT,
    confirmed    INTEGER NOT NULL,
    tz           TEXT,
    locale       TEXT,
    brand        TEXT,
    lng          REAL,
    lat          REAL,
    cell         INTEGER,           -- the square of the grid that holds (lng, lat): see near.rs
    cadence      TEXT,
    weekday      TEXT,
    hour         INTEGER,
    digest_since INTEGER,
    types        TEXT NOT NULL,     -- {type: [route, since] or [route, since, window]}
    suppressed   INTEGER,
    unsubscribed INTEGER,
    mutes        TEXT,              -- {subject: [at, until or null, title or null]}
    quiet        TEXT,              -- {from, to}
    start        TEXT,              -- where it begins: erased, id and entries (domain/start.rs)
    rev          INTEGER NOT NULL,  -- how often the record was put
    preferences  TEXT               -- JSON of the fields without a column
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS users_by_cell ON users (cell, id, lng, lat) WHERE cell IS NOT NULL;
CREATE INDEX IF NOT EXISTS users_by_email ON users (email COLLATE NOCASE, id);
CREATE INDEX IF NOT EXISTS users_by_schedule ON users (tz, hour, cadence, weekday);

CREATE TABLE IF NOT EXISTS follows (
    k TEXT NOT NULL,
    u TEXT NOT NULL,
    PRIMARY KEY (k, u)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS follows_by_user ON follows (u);

CREATE TABLE IF NOT EXISTS objects (
    id         TEXT PRIMARY KEY NOT NULL,
    notifiable INTEGER NOT NULL,
    title      TEXT,
    url        TEXT,
    image      TEXT,
    by         TEXT,
    at         INTEGER,
    lng        REAL,
    lat        REAL,
    data       TEXT                 -- JSON
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS fanouts (
    id        TEXT PRIMARY KEY NOT NULL,
    key       TEXT NOT NULL UNIQUE,
    type      TEXT NOT NULL,
    batch_key TEXT,                 -- where its writer chose one
    day       TEXT NOT NULL,
    at        INTEGER NOT NULL,
    state     TEXT NOT NULL,
    cursor    TEXT,
    people    INTEGER NOT NULL,
    pushed    INTEGER NOT NULL,
    capped    INTEGER NOT NULL,
    owner     TEXT,
    until     INTEGER
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS fanouts_pending ON fanouts (at, id, until, day) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS fanouts_held ON fanouts (owner) WHERE owner IS NOT NULL;

-- Apart, as it may name 100,000 people, and saving a fan-out's progress rewrites its row.
CREATE TABLE IF NOT EXISTS audiences (
    fanout   TEXT PRIMARY KEY NOT NULL,
    objects  TEXT NOT NULL,         -- JSON
    audience TEXT NOT NULL          -- JSON
);

-- What is said of an event, where anything is.
CREATE TABLE IF NOT EXISTS details (
    fanout  TEXT PRIMARY KEY NOT NULL,
    details TEXT NOT NULL           -- JSON
) WITHOUT ROWID;

-- What people have seen, read and put away of their feeds.
CREATE TABLE IF NOT EXISTS inboxes (
    user    TEXT PRIMARY KEY NOT NULL,
    stamp   TEXT NOT NULL,          -- as which it was put last
    changed INTEGER NOT NULL,
    days    TEXT NOT NULL           -- {stack: {seen, read, archived}}, bits in hexadecimal digits
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS inboxes_by_changed ON inboxes (changed);

-- What was taken back.
CREATE TABLE IF NOT EXISTS retractions (
    type   TEXT NOT NULL,
    object TEXT NOT NULL,
    at     TEXT NOT NULL,           -- an id: what happened up to then is reached
    PRIMARY KEY (type, object)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS retractions_by_at ON retractions (at);

-- News of what may have changed in feeds; the newest are kept.
CREATE TABLE IF NOT EXISTS pokes (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    about TEXT NOT NULL,
    keys  BLOB NOT NULL
);

CREATE TABLE IF NOT EXISTS seats (
    user     TEXT NOT NULL,
    key      TEXT NOT NULL,
    stamp    TEXT NOT NULL,         -- as which it was put last
    due      INTEGER,
    owner    TEXT,
    until    INTEGER,
    turn     INTEGER,
    open     TEXT,                  -- JSON: see record/batch.rs
    ended    TEXT NOT NULL,         -- JSON
    memories TEXT NOT NULL,         -- JSON
    PRIMARY KEY (user, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS seats_due ON seats (due, until);

-- What accumulators (the table seats) are found by.
CREATE TABLE IF NOT EXISTS seat_batches (
    batch TEXT PRIMARY KEY NOT NULL,
    user  TEXT NOT NULL,
    key   TEXT NOT NULL,
    open  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS seat_batches_by_seat ON seat_batches (user, key, batch);
CREATE INDEX IF NOT EXISTS seat_batches_by_key ON seat_batches (key, batch);
CREATE INDEX IF NOT EXISTS seat_batches_open ON seat_batches (open, batch);
CREATE TABLE IF NOT EXISTS seat_objects (
    type   TEXT NOT NULL,
    object TEXT NOT NULL,
    user   TEXT NOT NULL,
    key    TEXT NOT NULL,
    PRIMARY KEY (type, object, user, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS seat_objects_by_seat ON seat_objects (user, key);

CREATE TABLE IF NOT EXISTS batches (
    id       TEXT PRIMARY KEY NOT NULL,
    user     TEXT NOT NULL,
    key      TEXT NOT NULL,
    state    TEXT NOT NULL,
    settled  INTEGER,
    gathered TEXT NOT NULL          -- JSON
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS batches_by_user ON batches (user, id);
CREATE INDEX IF NOT EXISTS batches_by_key ON batches (key, id);
CREATE INDEX IF NOT EXISTS batches_by_state ON batches (state, id);
CREATE INDEX IF NOT EXISTS batches_settled ON batches (settled) WHERE settled IS NOT NULL;

CREATE TABLE IF NOT EXISTS deliveries (
    id          TEXT PRIMARY KEY NOT NULL,
    user        TEXT NOT NULL,
    cadence     TEXT,               -- of a digest
    period      TEXT,
    batch       TEXT,               -- of a batch
    turn        INTEGER,
    state       TEXT NOT NULL,
    open        INTEGER NOT NULL,
    slot        TEXT NOT NULL,
    covers      TEXT NOT NULL,      -- [[stack, n], …]
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
    tag         TEXT NOT NULL,      -- what providers name the mail by in their reports
    feedback    TEXT,
    feedback_at INTEGER,
    due_on      TEXT,               -- the local date on which a digest fell due
    refusals    INTEGER NOT NULL DEFAULT 0,
    reopened    INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS deliveries_open ON deliveries (slot) WHERE open;
CREATE INDEX IF NOT EXISTS deliveries_free ON deliveries (coalesce(until, 0), slot) WHERE open;
CREATE INDEX IF NOT EXISTS deliveries_by_user ON deliveries (user, created);
CREATE INDEX IF NOT EXISTS deliveries_by_state ON deliveries (state, created);
CREATE INDEX IF NOT EXISTS deliveries_by_call ON deliveries (call) WHERE open AND call IS NOT NULL;
CREATE INDEX IF NOT EXISTS deliveries_held ON deliveries (owner) WHERE open AND owner IS NOT NULL;

CREATE INDEX IF NOT EXISTS deliveries_by_tag ON deliveries (tag);
CREATE INDEX IF NOT EXISTS deliveries_by_provider_id ON deliveries (provider_id) WHERE provider_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS deliveries_by_settled ON deliveries (settled, state, feedback) WHERE settled IS NOT NULL;

CREATE TABLE IF NOT EXISTS suppressions (
    address TEXT PRIMARY KEY NOT NULL,  -- in lower case
    reason  TEXT NOT NULL,
    at      INTEGER NOT NULL,
    source  TEXT NOT NULL,
    detail  TEXT,
    lifted  INTEGER                     -- when it was last lifted
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS soft_bounces (
    address  TEXT NOT NULL,
    delivery TEXT NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (address, delivery)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS sightings (
    key   TEXT PRIMARY KEY NOT NULL,
    mark  TEXT NOT NULL,
    until INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS sightings_by_until ON sightings (until);

CREATE TABLE IF NOT EXISTS leases (
    name  TEXT PRIMARY KEY NOT NULL,
    owner TEXT NOT NULL,
    until INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS notes (
    name TEXT PRIMARY KEY NOT NULL,
    text TEXT NOT NULL
) WITHOUT ROWID;
";

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
        State::Old(version) => {
            upgrade::run(&transaction, version)?;
            transaction.execute_batch(TABLES)?;
        }
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
    Ok(upgrade::schema(version))
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
