//! What a command does to the store it opens, and how a store comes to be.
//!
//! The rule: only what brings something in makes a store. Everything else, started in a wrong
//! folder or with a mistyped name, says so and makes nothing; what only looks makes no index
//! either.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use crate::clock::{Ids, SystemClock};
use crate::config::{Config, StoreUrl};
use crate::domain::ModelName;
use crate::operate::transfer::Transfer;
use crate::store::mongo::{Mapping, Mongo, MongoOptions};
use crate::store::sqlite::Sqlite;
use crate::store::{self, Importing, Mark, Schema, WholeStore};

/// What is done to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Something is brought in: the store is made where there is none.
    Bring,
    /// What is there is worked with.
    Work,
    /// What is there is looked at.
    Look,
    /// All records are read. A store that an earlier export closed is opened, too.
    Export,
    /// All records are written. A half-imported store is opened, too.
    Import,
}

impl Access {
    /// Whether a missing store is created.
    fn creates(self) -> bool {
        matches!(self, Self::Bring | Self::Import)
    }
}

/// Nothing was ever brought in where the configuration says.
#[derive(Debug, thiserror::Error)]
#[error("there is no database at {0}: nothing was ever brought in there")]
pub struct NoStore(pub String);

/// How long a database may take to answer until whoever waits is told what for.
const SILENCE: Duration = Duration::from_secs(2);

/// Tells whoever waits what for.
async fn say_what_for(store: String) {
    tokio::time::sleep(SILENCE).await;
    tracing::warn!(store, "MongoDB does not answer yet; waiting");
}

/// Whether there is a database in this file: one that is empty was never written.
pub(super) fn holds(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.len() > 0)
}

/// Whether the configured store is a file that was never written.
pub fn is_missing(config: &Config) -> bool {
    match &config.store {
        StoreUrl::Sqlite(path) => !holds(path),
        StoreUrl::Mongo(_) => false,
    }
}

/// Opens the configured store. Creates its tables or indexes if the command writes.
pub async fn open_store(config: &Config, access: Access) -> anyhow::Result<Arc<dyn WholeStore>> {
    let missing = || NoStore(format!("{:?}", config.store));
    let opening = || format!("opening {:?}", config.store);
    match &config.store {
        StoreUrl::Sqlite(path) => {
            if !access.creates() && !holds(path) {
                return Err(missing().into());
            }
            let file = Sqlite::open(path).await.with_context(opening)?;
            match closed(config, &file, access).await.with_context(opening)? {
                None => Ok(Arc::new(file)),
                Some(closed) => Err(closed.into()),
            }
        }
        StoreUrl::Mongo(url) => {
            let options = MongoOptions {
                mapped: mapped(config)?,
                ..MongoOptions::default()
            };
            let mongo = Mongo::connect(url, options).await.with_context(opening)?;
            let silence = tokio::spawn(say_what_for(format!("{:?}", config.store)));
            let prepared = prepare(config, &mongo, access).await;
            silence.abort();
            match prepared.with_context(opening)? {
                Prepared::Ready => Ok(Arc::new(mongo)),
                Prepared::Missing => Err(missing().into()),
                Prepared::Closed(closed) => Err(closed.into()),
            }
        }
    }
}

/// What opening the configured store would do to it first, as an earlier version wrote it. On
/// MongoDB that is not opening, but working with it.
pub async fn upgrade_ahead(config: &Config) -> anyhow::Result<Option<Schema>> {
    let StoreUrl::Sqlite(path) = &config.store else {
        return Ok(None);
    };
    if !holds(path) {
        return Ok(None);
    }
    let schema = Sqlite::schema_of(path)
        .await
        .with_context(|| format!("opening {:?}", config.store))?;
    Ok((!schema.steps.is_empty()).then_some(schema))
}

/// The store is closed to this command.
#[derive(Debug)]
pub struct Closed {
    /// The store, without secrets.
    store: String,
    mark: Mark,
}

impl std::error::Error for Closed {}

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let store = &self.store;
        match &self.mark {
            Mark::Closed { folder } => {
                write!(
                    f,
                    "{store} is closed: it was exported to {folder} to be moved"
                )
            }
            Mark::Importing(Importing { folder, .. }) => {
                write!(
                    f,
                    "{store} is incomplete: the import of {folder} has not ended"
                )
            }
        }
    }
}

impl Closed {
    /// Returns what to do instead.
    pub fn next(&self) -> String {
        match &self.mark {
            Mark::Closed { .. } => {
                "set the option `store` to the new store; or, if there is none, open this one again \
                 with tidings export --reopen"
                    .to_owned()
            }
            Mark::Importing(Importing { folder, .. }) => {
                format!("tidings import store {folder}, which continues")
            }
        }
    }
}

/// Returns why this command may not open the store.
pub(super) async fn closed(
    config: &Config,
    store: &dyn WholeStore,
    access: Access,
) -> store::Result<Option<Closed>> {
    let is_kept_off = |mark: &Mark| match mark {
        Mark::Closed { .. } => access != Access::Export,
        Mark::Importing(_) => access != Access::Import,
    };
    let mark = store.mark().await?.filter(is_kept_off);
    let store = format!("{:?}", config.store);
    Ok(mark.map(|mark| Closed { store, mark }))
}

/// Opens the configured store for an export or import of this folder.
pub async fn transfer(
    config: &Config,
    access: Access,
    folder: PathBuf,
) -> anyhow::Result<Transfer> {
    Ok(Transfer {
        store: open_store(config, access).await?,
        folder,
        clock: Arc::new(SystemClock),
        ids: Arc::new(Ids::random()),
    })
}

/// The models that are read from the application's own collections.
pub(super) fn mapped(config: &Config) -> anyhow::Result<HashMap<ModelName, Mapping>> {
    let mapping = |(name, model): (&ModelName, &crate::config::Model)| {
        let filter = bson::serialize_to_document(&model.filter)
            .with_context(|| format!("models.{name}.filter cannot be a MongoDB filter"))?;
        let mapping = Mapping {
            collection: model.collection.clone(),
            database: model.database.clone(),
            id: Some(model.id.clone()),
            filter,
            title: model.title.clone(),
            url: model.url.clone(),
            image: model.image.clone(),
            by: model.by.clone(),
            at: model.at.clone(),
            place: model.place.clone(),
        };
        Ok((name.clone(), mapping))
    };
    config.models.iter().map(mapping).collect()
}

/// The result of preparing a database.
enum Prepared {
    Ready,
    /// There is nothing to open.
    Missing,
    Closed(Closed),
}

async fn prepare(config: &Config, mongo: &Mongo, access: Access) -> store::Result<Prepared> {
    // The first step, as an import begins with nothing but its mark.
    if let Some(closed) = closed(config, mongo, access).await? {
        return Ok(Prepared::Closed(closed));
    }
    if !access.creates() && mongo.is_bare().await? {
        return Ok(Prepared::Missing);
    }
    match access {
        // A database that needs a newer program is refused.
        Access::Look | Access::Export => drop(mongo.schema().await?),
        Access::Bring | Access::Work | Access::Import => mongo.prepare().await?,
    }
    Ok(Prepared::Ready)
}
