//! From a configuration to whoever moves its store, and what keeps everybody else from a store that
//! is being moved.
//!
//! The rule: only a move opens a store that is in one. A rehearsal makes nothing: no file, and no
//! index.

use std::sync::Arc;

use anyhow::Context;

use crate::clock::{Ids, SystemClock};
use crate::config::{Config, StoreUrl};
use crate::engine::moving::{self, Mover, Names};
use crate::operate::open::{NoStore, holds, is_missing, mapped};
use crate::store::Movable;
use crate::store::mongo::{Mongo, MongoOptions};
use crate::store::sqlite::Sqlite;
use crate::wire::moving::Account;

/// Whoever moves the configured store into another, which is made where there is none.
pub async fn mover(config: &Config, to: &StoreUrl) -> anyhow::Result<Mover> {
    let source = source(config).await?;
    let opening = || format!("opening {to:?}");
    let target: Arc<dyn Movable> = match to {
        StoreUrl::Sqlite(path) => Arc::new(Sqlite::open(path).await.with_context(opening)?),
        StoreUrl::Mongo(url) => {
            let mongo = mongo(config, url).await.with_context(opening)?;
            mongo.prepare().await.with_context(opening)?;
            Arc::new(mongo)
        }
    };
    Ok(Mover {
        source,
        target,
        names: names(config, to),
        clock: Arc::new(SystemClock),
        ids: Arc::new(Ids::random()),
    })
}

/// What a move would come to; nothing is changed, and nothing made.
pub async fn rehearse_move(config: &Config, to: &StoreUrl) -> anyhow::Result<Account> {
    let source = source(config).await?;
    let opening = || format!("opening {to:?}");
    let target: Option<Arc<dyn Movable>> = match to {
        StoreUrl::Sqlite(path) if !holds(path) => None,
        StoreUrl::Sqlite(path) => Some(Arc::new(Sqlite::open(path).await.with_context(opening)?)),
        StoreUrl::Mongo(url) => {
            let mongo = mongo(config, url).await.with_context(opening)?;
            // A database that needs a newer program is refused all the same.
            mongo.schema().await.with_context(opening)?;
            Some(Arc::new(mongo))
        }
    };
    let account = moving::rehearse(&*source, target.as_deref(), &names(config, to)).await;
    Ok(account?)
}

fn names(config: &Config, to: &StoreUrl) -> Names {
    Names {
        from: format!("{:?}", config.store),
        to: format!("{to:?}"),
    }
}

/// The configured store, whatever it is in a move.
pub async fn source(config: &Config) -> anyhow::Result<Arc<dyn Movable>> {
    let missing = || NoStore(format!("{:?}", config.store));
    let opening = || format!("opening {:?}", config.store);
    if is_missing(config) {
        return Err(missing().into());
    }
    match &config.store {
        StoreUrl::Sqlite(path) => Ok(Arc::new(Sqlite::open(path).await.with_context(opening)?)),
        StoreUrl::Mongo(url) => {
            let mongo = mongo(config, url).await.with_context(opening)?;
            match mongo.is_bare().await.with_context(opening)? {
                true => Err(missing().into()),
                false => Ok(Arc::new(mongo)),
            }
        }
    }
}

async fn mongo(config: &Config, url: &str) -> anyhow::Result<Mongo> {
    let options = MongoOptions {
        mapped: mapped(config)?,
        ..MongoOptions::default()
    };
    Ok(Mongo::connect(url, options).await?)
}
