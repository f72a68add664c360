//! Opens the configured store, as far as a command may change it.
//!
//! Only a command that adds data creates a store. In a wrong folder, or with a mistyped name, every
//! other command fails and creates nothing. A command that only reads creates no index either.

use std::collections::HashMap;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::time::timeout;

use crate::config::{Config, StoreUrl};
use crate::domain::ModelName;
use crate::store::mongo::{Mapping, Mongo, MongoOptions};
use crate::store::sqlite::Sqlite;
use crate::store::{self, MoveNote, Moving, Role, Schema, Store};

/// How a command uses the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Adds data: creates a missing store.
    Create,
    /// Changes data of an existing store.
    Write,
    /// Reads an existing store.
    Read,
}

/// The configured store does not exist.
#[derive(Debug, thiserror::Error)]
#[error("there is no database at {0}: nothing was ever brought in there")]
pub struct NoStore(pub String);

/// How long a database may take to answer before a log line names what the command waits for.
const SILENCE: Duration = Duration::from_secs(2);

/// Returns whether this file holds a database. An empty file was never written.
pub(crate) fn holds(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.len() > 0)
}

/// Returns whether the configured store is a file that was never written.
pub fn is_missing(config: &Config) -> bool {
    match &config.store {
        StoreUrl::Sqlite(path) => !holds(path),
        StoreUrl::Mongo(_) => false,
    }
}

/// Returns the folder that has to exist before the configured file can be created; `None` if it
/// exists.
pub fn missing_folder(config: &Config) -> Option<&Path> {
    let StoreUrl::Sqlite(path) = &config.store else {
        return None;
    };
    let folder = path.parent()?;
    (!folder.as_os_str().is_empty() && !folder.is_dir()).then_some(folder)
}

/// Opens the configured store. Unless the command only reads, creates missing tables and indexes.
///
/// # Errors
///
/// [`NoStore`] if there is no store and the command may not create one; [`InMove`] if the store is
/// being moved.
pub async fn open_store(config: &Config, access: Access) -> anyhow::Result<Arc<dyn Store>> {
    open_with(config, access, MongoOptions::default()).await
}

/// Opens the configured store like [`open_store`], with other time-outs of MongoDB.
pub(crate) async fn open_with(
    config: &Config,
    access: Access,
    options: MongoOptions,
) -> anyhow::Result<Arc<dyn Store>> {
    let place = format!("{:?}", config.store);
    let opening = || format!("opening {place}");
    let missing = || NoStore(place.clone());
    match &config.store {
        StoreUrl::Sqlite(path) => {
            if access != Access::Create && !holds(path) {
                return Err(missing().into());
            }
            let file = Sqlite::open(path).await.with_context(opening)?;
            match in_move(&file).await.with_context(opening)? {
                None => Ok(Arc::new(file)),
                Some(in_move) => Err(in_move.into()),
            }
        }
        StoreUrl::Mongo(url) => {
            let options = MongoOptions {
                mapped: mapped(config)?,
                ..options
            };
            let mongo = Mongo::connect(url, options).await.with_context(opening)?;
            let prepared = {
                let mut preparing = pin!(prepare(&mongo, access));
                match timeout(SILENCE, &mut preparing).await {
                    Ok(prepared) => prepared,
                    Err(_) => {
                        tracing::warn!(store = place, "MongoDB does not answer yet; waiting");
                        preparing.await
                    }
                }
            };
            match prepared.with_context(opening)? {
                Prepared::Ready => Ok(Arc::new(mongo)),
                Prepared::Missing => Err(missing().into()),
                Prepared::InMove(in_move) => Err(in_move.into()),
            }
        }
    }
}

/// Returns the upgrade that opening the configured file would run first; `None` if it needs none.
/// A MongoDB store is not upgraded when it is opened, but by the first command that writes.
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

/// The store is in a move, and this command is none.
#[derive(Debug)]
pub struct InMove(pub MoveNote);

impl std::error::Error for InMove {}

impl std::fmt::Display for InMove {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let MoveNote { from, to, .. } = &self.0;
        match (self.0.role, self.0.done) {
            (Role::Source, false) => write!(f, "{from} is being moved to {to}, and is closed"),
            (Role::Source, true) => write!(f, "{from} was moved to {to}, and is closed"),
            (Role::Target, _) => write!(f, "{to} is not whole: it is being moved into from {from}"),
        }
    }
}

impl InMove {
    /// What to do instead.
    pub fn next(&self) -> String {
        let to = &self.0.to;
        match (self.0.role, self.0.done) {
            (Role::Source, false) => {
                format!("tidings move --to {to}, which goes on; tidings move --undo opens it again")
            }
            (Role::Source, true) => {
                format!("with the option `store` at {to}, where everything is now")
            }
            (Role::Target, _) => {
                format!("tidings move --to {to} again, where the move was started")
            }
        }
    }
}

/// Returns why only a move may use this store. A store that was moved into completely is usable.
pub(crate) async fn in_move(store: &dyn Moving) -> store::Result<Option<InMove>> {
    let note = store.move_note().await?;
    let keeps_off = |note: &MoveNote| note.role == Role::Source || !note.done;
    Ok(note.filter(keeps_off).map(InMove))
}

/// Returns the models that are read from the application's own collections.
pub(crate) fn mapped(config: &Config) -> anyhow::Result<HashMap<ModelName, Mapping>> {
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

/// The result of opening a database.
enum Prepared {
    Ready,
    Missing,
    InMove(InMove),
}

async fn prepare(mongo: &Mongo, access: Access) -> crate::store::Result<Prepared> {
    // First, because the target of a move is otherwise empty when the move begins.
    if let Some(in_move) = in_move(mongo).await? {
        return Ok(Prepared::InMove(in_move));
    }
    if access != Access::Create && mongo.is_bare().await? {
        return Ok(Prepared::Missing);
    }
    match access {
        // Fails if the database needs a newer program.
        Access::Read => drop(mongo.schema().await?),
        Access::Create | Access::Write => mongo.prepare().await?,
    }
    Ok(Prepared::Ready)
}
