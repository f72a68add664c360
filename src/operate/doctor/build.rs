//! Builds a [`Doctor`] from a configuration.
//!
//! Nothing here fails: a part that cannot be built becomes a finding. The store is opened without
//! changing it: no file, table or index is created.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::{Doctor, Look, UNREACHED, chain};
use crate::clock::Clock;
use crate::config::{Config, StoreUrl};
use crate::domain::BrandName;
use crate::engine::access::links::Links;
use crate::engine::delivery::identity::Theme;
use crate::engine::delivery::mailer::mailer;
use crate::operate::open::{InMove, holds, in_move, mapped, upgrade_ahead};
use crate::operate::probe::{Names, Web};
use crate::store::Store;
use crate::store::mongo::{Mongo, MongoOptions};
use crate::store::sqlite::Sqlite;
use crate::wire::doctor::Finding;

/// Builds the doctor of a configuration; `file` is the file that it was read from.
pub async fn doctor(
    config: &Config,
    file: Option<PathBuf>,
    look: Look,
    clock: Arc<dyn Clock>,
) -> Doctor {
    let opening = open(config, look.timeout, file.is_some());
    let opening = tokio::time::timeout(look.timeout, opening);
    let store = opening.await.unwrap_or_else(|_| {
        let seconds = look.timeout.as_secs_f32();
        Err(unopened(format!("could not be opened within {seconds} s")))
    });
    let build = |of: Config, brand: Option<&BrandName>| Doctor {
        file: file.clone(),
        look,
        links: store
            .as_ref()
            .ok()
            .map(|store| Arc::new(Links::of(&of, store.clone(), brand))),
        store: store.clone(),
        mailer: mailer(&of).map_err(|error| format!("{error:#}")),
        renderer: Theme::new(&of, of.mail.templates.clone())
            .map(|theme| theme.renderer)
            .map_err(|error| chain(&error)),
        names: Names::new(look.nameserver, look.timeout),
        web: Web::new(look.timeout),
        clock: clock.clone(),
        shares_templates: of.mail.templates == config.mail.templates,
        brands: Vec::new(),
        config: of,
    };
    let brands = config.brands.iter();
    let brands =
        brands.map(|(name, brand)| (name.clone(), build(config.of_brand(brand), Some(name))));
    Doctor {
        brands: brands.collect(),
        ..build(config.clone(), None)
    }
}

async fn open(
    config: &Config,
    timeout: Duration,
    is_configured: bool,
) -> Result<Arc<dyn Store>, Finding> {
    let failed = |error| unopened(format!("{:#}", anyhow::Error::from(error)));
    match &config.store {
        StoreUrl::Sqlite(path) => {
            is_there(path, is_configured)?;
            if let Ok(Some(schema)) = upgrade_ahead(config).await {
                return Err(Finding::upgrade(&schema));
            }
            let opened = Sqlite::open(path).await.map_err(failed)?;
            match in_move(&opened).await.map_err(failed)? {
                None => Ok(Arc::new(opened)),
                Some(in_move) => Err(closed(&in_move)),
            }
        }
        StoreUrl::Mongo(url) => {
            let options = MongoOptions {
                // Shorter than the time-out, so that the driver's reason is reported.
                patience: timeout * 3 / 4,
                attempt: timeout * 3 / 4,
                selection: timeout / 2,
                mapped: mapped(config).map_err(|error| unopened(format!("{error:#}")))?,
            };
            let mongo = Mongo::connect(url, options).await.map_err(failed)?;
            let unreached = |error| {
                let why = format!("{:#}", anyhow::Error::from(error));
                Finding::error("database", why, UNREACHED)
            };
            if let Some(in_move) = in_move(&mongo).await.map_err(unreached)? {
                return Err(closed(&in_move));
            }
            match mongo.is_bare().await.map_err(unreached)? {
                true => Err(nothing_yet(format!("{:?}", config.store), is_configured)),
                false => Ok(Arc::new(mongo)),
            }
        }
    }
}

/// Reports a database without any data, which may be the wrong one.
fn nothing_yet(place: String, is_configured: bool) -> Finding {
    let found = format!("there is none at {place}: nothing was ever brought in there");
    match is_configured {
        true => Finding::warning(
            "database",
            found,
            "see that `store` names the right one; tidings import, notify, serve and restore make it",
        ),
        false => Finding::error(
            "database",
            format!("{found}, and no configuration names another"),
            "name yours with --config; tidings import, notify, serve and restore make a database",
        ),
    }
}

/// Fails if there is no such file, because opening it would create it.
fn is_there(path: &Path, is_configured: bool) -> Result<(), Finding> {
    if holds(path) {
        return Ok(());
    }
    let file = path.display();
    let folder = path.parent().unwrap_or(Path::new(""));
    if !folder.as_os_str().is_empty() && !folder.is_dir() {
        let folder = folder.display();
        let found = format!("the folder {folder} of {file} does not exist");
        let advice = format!("mkdir -p {folder}");
        return Err(Finding::error("database", found, advice));
    }
    Err(nothing_yet(file.to_string(), is_configured))
}

/// Reports a store that is being moved.
fn closed(in_move: &InMove) -> Finding {
    Finding::error("database", in_move.to_string(), in_move.next())
}

fn unopened(found: String) -> Finding {
    Finding::error("database", found, "see the option `store`")
}
