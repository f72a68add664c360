//! Connections to the file: one that writes, a few that read, all of them used on blocking threads
//! only.
//!
//! The rule: within a process writers queue here, in order, and not at the file's lock, which is
//! unfair; between processes they wait for that lock up to [`PATIENCE`]. Readers wait for nobody
//! (WAL). Whoever asked never holds a place in the queue, nor the connection: a task of its own
//! does. Otherwise a caller that is handed the turn while it waits for something else would keep
//! everybody waiting, itself perhaps among them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::task::JoinHandle;

use super::answer::Answer;
use super::schema;
use crate::private;
use crate::store::{Error, Result, Schema};

/// How long to wait for another process's transaction.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait before a file is opened again that another process is just making, or closing.
const MOMENT: Duration = Duration::from_millis(20);
/// How many reads run at once. More would only take memory from each other: they all wait for one
/// disk.
const READERS: usize = 4;
/// The page caches of the writer and of each reader, in mebibytes. They fill up and stay full. The
/// system caches the file as well.
const WRITER_CACHE: i64 = 16;
const READER_CACHE: i64 = 4;
/// Statements kept prepared by each connection: some for each day of a window, and one or two for
/// every verb.
const STATEMENTS: usize = 128;

#[derive(Debug)]
pub(super) struct Connections {
    path: PathBuf,
    writer: Arc<AsyncMutex<Connection>>,
    turns: Arc<Semaphore>,
    readers: Arc<Mutex<Vec<Connection>>>,
}

impl Connections {
    pub(super) async fn open(path: PathBuf) -> Result<Self> {
        let writer = open_patiently(&path).await?;
        Ok(Self {
            path,
            writer: Arc::new(AsyncMutex::new(writer)),
            turns: Arc::new(Semaphore::new(READERS)),
            readers: Arc::default(),
        })
    }

    /// Does the work in a transaction of its own, which stands, durably, if the work succeeds, and
    /// never was if it does not.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        doing: impl Into<String>,
        work: impl FnOnce(&Transaction<'_>) -> Answer<T> + Send + 'static,
    ) -> Result<T> {
        let turn = self.writer.clone().lock_owned();
        in_turn(doing, turn, move |mut writer| {
            let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let answer = work(&transaction)?;
            slow_disk();
            transaction.commit()?;
            Ok(answer)
        })
        .await
    }

    /// Does the work on one snapshot of the store.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        doing: impl Into<String>,
        work: impl FnOnce(&Transaction<'_>) -> Answer<T> + Send + 'static,
    ) -> Result<T> {
        let turn = self.turns.clone().acquire_owned();
        let (readers, path) = (self.readers.clone(), self.path.clone());
        in_turn(doing, turn, move |turn| {
            let turn = turn.expect("nobody closes this semaphore");
            let idle = readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut reader = match idle {
                Some(reader) => reader,
                None => open_reader(&path)?,
            };
            let answer = work(&reader.transaction()?)?;
            readers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(reader);
            drop(turn);
            Ok(answer)
        })
        .await
    }
}

/// Waits for the turn, and does the work where it may block, in a task of its own: it goes on
/// however long nobody asks for the answer. If nobody wants it any more, what has begun runs to its
/// end, and what waits for its turn is not begun.
async fn in_turn<T: Send + 'static, Turn: Send + 'static>(
    doing: impl Into<String>,
    turn: impl Future<Output = Turn> + Send + 'static,
    work: impl FnOnce(Turn) -> Answer<T> + Send + 'static,
) -> Result<T> {
    let doing = doing.into();
    let task = tokio::spawn({
        let doing = doing.clone();
        async move {
            let turn = turn.await;
            blocking(doing, move || work(turn)).await
        }
    });
    let mut task = WhileWanted(task);
    match (&mut task.0).await {
        Ok(answer) => answer,
        Err(stopped) => Err(Error::database(doing, stopped)),
    }
}

/// In tests of slow disks a commit takes so many milliseconds more; what is released does not know
/// this.
#[cfg(debug_assertions)]
fn slow_disk() {
    let slow = std::env::var("TIDINGS_SLOW_COMMITS").ok();
    if let Some(millis) = slow.and_then(|millis| millis.parse().ok()) {
        // It is on a blocking thread, and is to hold it as a disk does.
        std::thread::park_timeout(Duration::from_millis(millis));
    }
}

#[cfg(not(debug_assertions))]
#[inline(always)]
fn slow_disk() {}

/// A task that is not gone on with when nobody waits for it any more.
struct WhileWanted<T>(JoinHandle<T>);

impl<T> Drop for WhileWanted<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs it where it may block. It runs to its end even if nobody waits for the answer any more.
async fn blocking<T: Send + 'static>(
    doing: impl Into<String>,
    work: impl FnOnce() -> Answer<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => answer.map_err(|failure| failure.while_doing(doing)),
        Err(panicked) => Err(Error::database(doing, panicked)),
    }
}

/// A file changes to write-ahead logging, and its last user tidies up, under a lock that SQLite
/// itself does not wait for.
async fn open_patiently(path: &Path) -> Result<Connection> {
    let mut waited = Duration::ZERO;
    loop {
        let place = path.to_owned();
        let attempt = move || match open_writer(&place) {
            Err(failure) if failure.is_busy() => Ok(None),
            opened => opened.map(Some),
        };
        let doing = format!("opening {}", path.display());
        if let Some(connection) = blocking(&doing, attempt).await? {
            return Ok(connection);
        }
        if waited >= PATIENCE {
            return Err(Error::database(doing, "another process keeps it locked"));
        }
        tokio::time::sleep(MOMENT).await;
        waited += MOMENT;
    }
}

fn open_writer(path: &Path) -> Answer<Connection> {
    // SQLite would create it with the umask's mode, also behind a dangling link. Its log and index
    // get the mode of the file. If it cannot be created, SQLite says why.
    let _ = private::options().create(true).truncate(false).open(path);
    let mut connection = connect(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
    )?;
    schema::prepare(&mut connection, path)?;
    // Every commit is on the disk before it is acknowledged (P1), not only every checkpoint.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", kibibytes(WRITER_CACHE))?;
    // What a long read kept from being checkpointed is given back to the disk afterward.
    connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    Ok(connection)
}

/// Which schema the file has.
pub(super) async fn schema_of(path: PathBuf) -> Result<Schema> {
    let look = move || {
        let mut connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        schema::of(&mut connection, &path)
    };
    blocking("looking at the schema of the file", look).await
}

fn open_reader(path: &Path) -> Answer<Connection> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "cache_size", kibibytes(READER_CACHE))?;
    Ok(connection)
}

/// A path is a path: no URI, no name that means memory.
fn connect(path: &Path, how: OpenFlags) -> Answer<Connection> {
    let path = std::path::absolute(path).map_err(|cause| {
        let doing = format!("finding {}", path.display());
        Error::database(doing, cause)
    })?;
    let connection = Connection::open_with_flags(path, how | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(PATIENCE)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// A cache's size as SQLite wants it: kibibytes, below zero, as above zero it would be pages.
fn kibibytes(mebibytes: i64) -> i64 {
    -1024 * mebibytes
}
