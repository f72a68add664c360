//! Connections to the file: one for writing and a few for reading, used only on blocking threads.
//!
//! Writers of one process queue here in order, because the lock of the file is unfair. Processes
//! wait up to [`LOCK_TIMEOUT`] for each other's lock. Readers never wait for writers (WAL). Each
//! operation runs in a task of its own, which owns the connection or the position in the queue.
//! Therefore a caller that is no longer polled does not block others.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::task::{JoinError, JoinSet};

use super::rows::is_busy;
use super::schema;
use crate::mutex::lock;
use crate::private;
use crate::store::{Error, Result, Schema};

/// Maximum wait for a transaction of another process.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause before opening a file again that another process is creating or closing.
const OPEN_RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Maximum number of concurrent reads. More would only compete for memory, because all of them wait
/// for one disk.
const MAX_READERS: usize = 4;
/// Size of the writer's page cache. It fills up and stays full. The operating system caches the
/// file as well.
const WRITER_CACHE_MIB: i64 = 16;
/// Size of the page cache of each reader.
const READER_CACHE_MIB: i64 = 4;
/// Number of prepared statements to cache per connection: some for each day of a window, and one or
/// two for each method.
const CACHED_STATEMENTS: usize = 128;

/// A store in one file. While it is open, SQLite keeps two more beside it: the write-ahead log and
/// its index.
#[derive(Debug, Clone)]
pub struct Sqlite {
    path: PathBuf,
    writer: Arc<AsyncMutex<Connection>>,
    read_permits: Arc<Semaphore>,
    idle_readers: Arc<Mutex<Vec<Connection>>>,
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
            writer: Arc::new(AsyncMutex::new(open_with_retries(&path).await?)),
            read_permits: Arc::new(Semaphore::new(MAX_READERS)),
            idle_readers: Arc::default(),
            path,
        })
    }

    /// Returns the schema of a file without upgrading it.
    pub async fn read_schema(path: impl AsRef<Path>) -> Result<Schema> {
        let path = path.as_ref().to_owned();
        blocking(move || {
            let mut connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            schema::read_schema(&mut connection, &path)
        })
        .await
    }

    /// Runs `work` in a transaction. Commits it durably if `work` succeeds, and otherwise rolls it
    /// back.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        run_with_guard(self.writer.clone().lock_owned(), move |mut writer| {
            let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let result = work(&transaction)?;
            simulate_slow_disk();
            transaction.commit()?;
            Ok(result)
        })
        .await
    }

    /// Runs `work` on one snapshot of the store.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (idle_readers, path) = (self.idle_readers.clone(), self.path.clone());
        run_with_guard(self.read_permits.clone().acquire_owned(), move |permit| {
            let _permit = permit.expect("the semaphore is never closed");
            let idle = lock(&idle_readers).pop();
            let mut reader = idle.map_or_else(|| open_reader(&path), Ok)?;
            let result = work(&reader.transaction()?)?;
            lock(&idle_readers).push(reader);
            Ok(result)
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

/// Acquires the guard of a connection and then runs the blocking work, in a task of its own. It
/// proceeds even if the caller is not polled.
///
/// If the caller drops the future, running work completes, but waiting work is not started.
async fn run_with_guard<T: Send + 'static, G: Send + 'static>(
    guard: impl Future<Output = G> + Send + 'static,
    work: impl FnOnce(G) -> Result<T> + Send + 'static,
) -> Result<T> {
    // Dropping the set aborts its task.
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let guard = guard.await;
        blocking(move || work(guard)).await
    });
    let joined = tasks.join_next().await.expect("the set has a task");
    joined.map_err(task_error)?
}

fn task_error(error: JoinError) -> Error {
    Error::database("using SQLite", error)
}

/// Delays each commit by `TIDINGS_SLOW_COMMITS` milliseconds, to simulate a slow disk in tests.
/// Does nothing in release builds.
#[cfg(debug_assertions)]
fn simulate_slow_disk() {
    let delay = std::env::var("TIDINGS_SLOW_COMMITS").ok();
    if let Some(millis) = delay.and_then(|millis| millis.parse().ok()) {
        // This runs on a blocking thread and must block it, as a disk does.
        std::thread::park_timeout(Duration::from_millis(millis));
    }
}

#[cfg(not(debug_assertions))]
#[inline(always)]
fn simulate_slow_disk() {}

/// Runs `work` on a blocking thread. It completes even if the caller drops the future.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(task_error)?
}

/// Opens the writer, and retries while the file is locked. SQLite's busy timeout does not apply
/// when a file switches to WAL, or when its last user closes it.
async fn open_with_retries(path: &Path) -> Result<Connection> {
    let mut waited = Duration::ZERO;
    loop {
        let owned_path = path.to_owned();
        match blocking(move || open_writer(&owned_path)).await {
            Err(error) if is_busy(&error) && waited < LOCK_TIMEOUT => {}
            Err(Error::Database { cause, .. }) => {
                let doing = format!("opening {}", path.display());
                return Err(Error::Database { doing, cause });
            }
            result => return result,
        }
        tokio::time::sleep(OPEN_RETRY_PAUSE).await;
        waited += OPEN_RETRY_PAUSE;
    }
}

fn open_writer(path: &Path) -> Result<Connection> {
    // SQLite would create the file with the mode of the umask, even at the target of a dangling
    // link. The log and its index get the mode of the file. If this fails, opening the file reports
    // the cause.
    let _ = private::open_options().create(true).truncate(false).open(path);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let mut connection = connect(path, flags)?;
    schema::prepare(&mut connection, path)?;
    // Sync every commit before it is acknowledged (P1), not only at checkpoints.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", kibibytes(WRITER_CACHE_MIB))?;
    // A long read can delay checkpoints and make the log grow. This shrinks it afterward.
    connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    Ok(connection)
}

fn open_reader(path: &Path) -> Result<Connection> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "cache_size", kibibytes(READER_CACHE_MIB))?;
    Ok(connection)
}

/// Opens the file. Making the path absolute keeps SQLite from reading it as a URI or as `:memory:`.
fn connect(path: &Path, flags: OpenFlags) -> Result<Connection> {
    let absolute = std::path::absolute(path)
        .map_err(|cause| Error::database(format!("finding {}", path.display()), cause))?;
    let connection =
        Connection::open_with_flags(absolute, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(LOCK_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    Ok(connection)
}

/// Converts a cache size for SQLite: negative numbers are KiB, positive ones pages.
fn kibibytes(mebibytes: i64) -> i64 {
    -1024 * mebibytes
}
