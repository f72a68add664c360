//! Opens the configured store, as far as a command may change it.
//!
//! Only a command that adds data creates a store. In a wrong folder, or with a mistyped name, every
//! other command fails and creates nothing. A command that only reads creates no index either.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::time::timeout;

use crate::clock::SystemClock;
use crate::config::{Config, StoreUrl};
use crate::operate::transfer::Transfer;
use crate::store::mongo::{Mongo, MongoOptions};
use crate::store::sqlite::Sqlite;
use crate::store::{self, ImportProgress, Schema, Store, TransferMark};

/// How a command uses the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Adds data: creates a missing store.
    Create,
    /// Changes data of an existing store.
    Write,
    /// Reads an existing store.
    Read,
    /// Shows the state of an existing store. Does not upgrade a MongoDB database; for files, see
    /// [`pending_upgrade`].
    Inspect,
    /// Reads all records. Also opens a store that an earlier export closed.
    Export,
    /// Writes all records. Also opens a half-imported store.
    Import,
}

impl Access {
    /// Returns whether a missing store is created.
    pub(crate) fn creates(self) -> bool {
        matches!(self, Self::Create | Self::Import)
    }
}

/// A wrong request, with what to do instead. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct Refusal {
    /// Whether there is no store.
    pub is_missing: bool,
    what: String,
    /// What to do instead.
    pub suggestion: String,
}

impl Refusal {
    /// Creates a refusal for any other reason than a missing store.
    pub fn new(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self { is_missing: false, what: what.into(), suggestion: next.into() }
    }

    /// Refuses a file in a folder that does not exist. `option` names the file.
    pub fn check_folder(option: &str, file: &Path) -> Result<(), Self> {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let Some(folder) = folder.filter(|folder| !folder.is_dir()) else {
            return Ok(());
        };
        let path = folder.display();
        let what = format!("{option}: the folder {path} does not exist");
        Err(Self::new(what, format!("mkdir -p {path}")))
    }

    /// Refuses a missing store. The name may be wrong, so the error names the configuration.
    fn missing(config: &Config) -> Self {
        let (source, check) = match &config.file {
            Some(file) => {
                (format!("the configuration is {}", file.display()), "check the option `store`")
            }
            None => (
                "no configuration file was read: this folder has no tidings.toml".to_owned(),
                "name the configuration with --config FILE",
            ),
        };
        let commands = "import, notify, serve, restore, suppressions add or keys create";
        let what = format!("there is no database at {:?} ({source})", config.store);
        let next = format!("{check}, or create the database with tidings {commands}");
        Self { is_missing: true, ..Self::new(what, next) }
    }

    /// Refuses a store that is being exported, imported or moved.
    fn of_mark(config: &Config, mark: &TransferMark) -> Self {
        let store = &config.store;
        let (what, next) = match mark {
            TransferMark::Closed { folder } => (
                format!("{store:?} is closed: it was exported to {folder} to be moved"),
                "set the option `store` to the new store; or, if there is none, open this one again \
                 with tidings export --reopen"
                    .to_owned(),
            ),
            TransferMark::Importing(ImportProgress { folder, .. }) => (
                format!("{store:?} is incomplete: the import of {folder} has not ended"),
                format!("tidings import store {folder}, which continues"),
            ),
            TransferMark::Moving => (
                format!("{store:?} is closed: `tidings move` has not ended"),
                "ending or undoing the move with the version of tidings that began it".to_owned(),
            ),
        };
        Self::new(what, next)
    }
}

/// How long a database may take to answer before a log line names what the command waits for.
const SILENCE: Duration = Duration::from_secs(2);

/// Returns whether this file holds a database. An empty file was never written.
pub(crate) fn has_database(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.len() > 0)
}

/// Returns whether the configured store is a file that was never written.
pub fn is_missing(config: &Config) -> bool {
    match &config.store {
        StoreUrl::Sqlite(path) => !has_database(path),
        StoreUrl::Mongo(_) => false,
    }
}

/// Opens and upgrades the configured store. Unless the command only reads, creates missing tables
/// and indexes.
///
/// # Errors
///
/// [`Refusal`] if the command may not use the store: there is none, or it is exported or imported.
pub async fn open_store(config: &Config, access: Access) -> anyhow::Result<Arc<dyn Store>> {
    open_store_with(config, access, MongoOptions::default()).await
}

/// Opens the configured store like [`open_store`], with other time-outs of MongoDB.
pub(crate) async fn open_store_with(
    config: &Config,
    access: Access,
    options: MongoOptions,
) -> anyhow::Result<Arc<dyn Store>> {
    let name = format!("{:?}", config.store);
    let opening = || format!("opening {name}");
    let (store, refusal) = match &config.store {
        StoreUrl::Sqlite(path) => {
            if !access.creates() && !has_database(path) {
                return Err(Refusal::missing(config).into());
            }
            Refusal::check_folder("store", path)?;
            let file = Sqlite::open(path).await.with_context(opening)?;
            let refusal = check_mark(config, &file, access).await;
            (Arc::new(file) as Arc<dyn Store>, refusal)
        }
        StoreUrl::Mongo(url) => {
            let options = MongoOptions { mapped_models: config.models.clone(), ..options };
            let mongo = Mongo::connect(url, options).await.with_context(opening)?;
            let mut preparing = pin!(prepare(config, &mongo, access));
            let refusal = match timeout(SILENCE, &mut preparing).await {
                Ok(refusal) => refusal,
                Err(_) => {
                    tracing::warn!(store = name, "MongoDB does not answer yet; waiting");
                    preparing.await
                }
            };
            (Arc::new(mongo.clone()) as Arc<dyn Store>, refusal)
        }
    };
    match refusal.with_context(opening)? {
        None => Ok(store),
        Some(refusal) => Err(refusal.into()),
    }
}

/// Returns the upgrade that opening the configured file would run first; `None` if it needs none.
/// A MongoDB store can be opened without an upgrade: see [`Access::Inspect`].
pub async fn pending_upgrade(config: &Config) -> anyhow::Result<Option<Schema>> {
    let path = match &config.store {
        StoreUrl::Sqlite(path) if has_database(path) => path,
        _ => return Ok(None),
    };
    let opening = || format!("opening {:?}", config.store);
    let schema = Sqlite::read_schema(path).await.with_context(opening)?;
    Ok(schema.is_old().then_some(schema))
}

/// Returns why this command may not open the store.
async fn check_mark(
    config: &Config,
    store: &dyn Store,
    access: Access,
) -> store::Result<Option<Refusal>> {
    let is_refused = |mark: &TransferMark| match mark {
        TransferMark::Closed { .. } => access != Access::Export,
        TransferMark::Importing(_) => access != Access::Import,
        TransferMark::Moving => true,
    };
    let mark = store.transfer_mark().await?.filter(is_refused);
    Ok(mark.map(|mark| Refusal::of_mark(config, &mark)))
}

/// Opens the configured store for an export or import of this folder.
pub async fn open_transfer(
    config: &Config,
    access: Access,
    folder: PathBuf,
) -> anyhow::Result<Transfer> {
    Ok(Transfer { store: open_store(config, access).await?, folder, clock: Arc::new(SystemClock) })
}

/// Prepares a MongoDB database. Returns why the command may not use it.
async fn prepare(config: &Config, mongo: &Mongo, access: Access) -> store::Result<Option<Refusal>> {
    // First, because a database whose import has just begun holds only the mark.
    if let Some(refusal) = check_mark(config, mongo, access).await? {
        return Ok(Some(refusal));
    }
    if !access.creates() && mongo.is_unused().await? {
        return Ok(Some(Refusal::missing(config)));
    }
    match access {
        // Fails if the database needs a newer program.
        Access::Inspect => mongo.schema().await.map(drop)?,
        Access::Read | Access::Export => mongo.upgrade().await?,
        Access::Create | Access::Write | Access::Import => mongo.prepare().await?,
    }
    Ok(None)
}
