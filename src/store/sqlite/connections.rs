//! Connections to the file: one for writing and a few for reading, used only on blocking threads.
//!
//! Writers of one process queue here in order, because the lock of the file is unfair. Processes
//! wait up to [`PATIENCE`] for each other's lock. Readers never wait for writers (WAL). Each
//! operation runs in a task of its own, which holds the connection or the place in the queue.
//! Therefore a caller that is no longer polled does not block others.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::task::{JoinError, JoinSet};

use super::rows::is_busy;
use super::schema;
use crate::private;
use crate::store::{Error, Result, Schema};

/// How long to wait for a transaction of another process.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait before opening a file again that another process is creating or closing.
const MOMENT: Duration = Duration::from_millis(20);
/// Maximum number of concurrent reads. More would only compete for memory, because all of them wait
/// for one disk.
const READERS: usize = 4;
/// Page caches of the writer and of each reader, in MiB. They fill up and stay full. The operating
/// system caches the file as well.
const WRITER_CACHE: i64 = 16;
const READER_CACHE: i64 = 4;
/// Number of prepared statements to cache per connection: some for each day of a window, and one or
/// two for each method.
const STATEMENTS: usize = 128;

/// A store in one file. While it is open, SQLite keeps two more beside it: the write-ahead log and
/// its index.
#[derive(Debug, Clone)]
pub struct Sqlite {
    path: PathBuf,
    writer: Arc<AsyncMutex<Connection>>,
    turns: Arc<Semaphore>,
    readers: Arc<Mutex<Vec<Connection>>>,
}

impl Sqlite {
    /// Opens the file, and creates it and its tables as needed.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the file belongs to another program or to a newer tidings. Such a
    /// file is not changed.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_owned();
        Ok(Self {
            writer: Arc::new(AsyncMutex::new(open_patiently(&path).await?)),
            turns: Arc::new(Semaphore::new(READERS)),
            readers: Arc::default(),
            path,
        })
    }

    /// Returns the schema of a file without upgrading it.
    pub async fn schema_of(path: impl AsRef<Path>) -> Result<Schema> {
        let path = path.as_ref().to_owned();
        blocking(move || {
            let mut connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            schema::of(&mut connection, &path)
        })
        .await
    }

    /// Runs `work` in a transaction, which is committed durably if it succeeds and rolled back if
    /// not.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let turn = self.writer.clone().lock_owned();
        in_turn(turn, move |mut writer| {
            let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let answer = work(&transaction)?;
            slow_disk();
            transaction.commit()?;
            Ok(answer)
        })
        .await
    }

    /// Runs `work` on one snapshot of the store.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let turn = self.turns.clone().acquire_owned();
        let (readers, path) = (self.readers.clone(), self.path.clone());
        in_turn(turn, move |turn| {
            let _turn = turn.expect("the semaphore is never closed");
            let readers = || readers.lock().unwrap_or_else(PoisonError::into_inner);
            let idle = readers().pop();
            let mut reader = idle.map_or_else(|| open_reader(&path), Ok)?;
            let answer = work(&reader.transaction()?)?;
            readers().push(reader);
            Ok(answer)
        })
        .await
    }

    /// Applies one change for each item, in one transaction. Returns the results in the order of
    /// the items.
    pub(super) async fn change_each<T: Clone + Send + Sync + 'static, A: Send + 'static>(
        &self,
        items: &[T],
        change: impl Fn(&Transaction<'_>, &T) -> Result<A> + Send + 'static,
    ) -> Result<Vec<A>> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let items = items.to_vec();
        self.write(move |transaction| items.iter().map(|item| change(transaction, item)).collect())
            .await
    }

    /// Runs one query for each item, in one snapshot. Returns the results in the order of the
    /// items.
    pub(super) async fn read_each<T: Clone + Send + Sync + 'static, A: Send + 'static>(
        &self,
        items: &[T],
        find: impl Fn(&Transaction<'_>, &T) -> Result<A> + Send + 'static,
    ) -> Result<Vec<A>> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let items = items.to_vec();
        self.read(move |transaction| items.iter().map(|item| find(transaction, item)).collect())
            .await
    }
}

/// Waits for the turn and then runs the blocking work, in a task of its own. It proceeds even if
/// the caller is not polled.
///
/// If the caller drops the future, running work completes, but waiting work is not started.
async fn in_turn<T: Send + 'static, Turn: Send + 'static>(
    turn: impl Future<Output = Turn> + Send + 'static,
    work: impl FnOnce(Turn) -> Result<T> + Send + 'static,
) -> Result<T> {
    // Dropping the set aborts its task.
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let turn = turn.await;
        blocking(move || work(turn)).await
    });
    let ended = tasks.join_next().await.expect("the set has a task");
    ended.map_err(panicked)?
}

fn panicked(error: JoinError) -> Error {
    Error::database("using SQLite", error)
}

/// Delays each commit by `TIDINGS_SLOW_COMMITS` milliseconds, to simulate a slow disk in tests.
/// Does nothing in release builds.
#[cfg(debug_assertions)]
fn slow_disk() {
    let slow = std::env::var("TIDINGS_SLOW_COMMITS").ok();
    if let Some(millis) = slow.and_then(|millis| millis.parse().ok()) {
        // This runs on a blocking thread and must block it, as a disk does.
        std::thread::park_timeout(Duration::from_millis(millis));
    }
}

#[cfg(not(debug_assertions))]
#[inline(always)]
fn slow_disk() {}

/// Runs `work` on a blocking thread. It completes even if the caller drops the future.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(panicked)?
}

/// Opens the writer, and retries while the file is locked. SQLite's busy timeout does not apply
/// when a file switches to WAL, or when its last user closes it.
async fn open_patiently(path: &Path) -> Result<Connection> {
    let mut waited = Duration::ZERO;
    loop {
        let place = path.to_owned();
        match blocking(move || open_writer(&place)).await {
            Err(error) if is_busy(&error) && waited < PATIENCE => {}
            Err(Error::Database { cause, .. }) => {
                let doing = format!("opening {}", path.display());
                return Err(Error::Database { doing, cause });
            }
            opened => return opened,
        }
        tokio::time::sleep(MOMENT).await;
        waited += MOMENT;
    }
}

fn open_writer(path: &Path) -> Result<Connection> {
    // SQLite would create the file with the mode of the umask, even at the target of a dangling
    // link. The log and its index get the mode of the file. If this fails, opening the file reports
    // the cause.
    let _ = private::options().create(true).truncate(false).open(path);
    let how = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let mut connection = connect(path, how)?;
    schema::prepare(&mut connection, path)?;
    // Sync every commit before it is acknowledged (P1), not only at checkpoints.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", kibibytes(WRITER_CACHE))?;
    // A long read can delay checkpoints and make the log grow. This shrinks it afterward.
    connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    Ok(connection)
}

fn open_reader(path: &Path) -> Result<Connection> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "cache_size", kibibytes(READER_CACHE))?;
    Ok(connection)
}

/// Opens the file. Making the path absolute keeps SQLite from reading it as a URI or as `:memory:`.
fn connect(path: &Path, how: OpenFlags) -> Result<Connection> {
    let path = std::path::absolute(path).map_err(|cause| {
        let doing = format!("finding {}", path.display());
        Error::database(doing, cause)
    })?;
    let connection = Connection::open_with_flags(path, how | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(PATIENCE)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// Converts a cache size for SQLite: negative numbers are KiB, positive ones pages.
fn kibibytes(mebibytes: i64) -> i64 {
    -1024 * mebibytes
}
