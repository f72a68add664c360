//! From a configuration to whoever looks it over.
//!
//! The rule: nothing here fails. A part that cannot be put together is handed on with the reason,
//! which is then a finding; and the store is opened as it stands: no index is made.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::access::{Access, Closed, closed, holds, mapped, upgrade_ahead};
use super::mailer::{dkim as signer, mailer};
use crate::clock::Clock;
use crate::config::{Config, StoreUrl, Transport};
use crate::domain::{BrandName, EventType, Policies};
use crate::engine::access::links::Links;
use crate::operate::doctor::{Departure, Doctor, Hook, Look, Setup, UNREACHED};
use crate::operate::probe::{Names, Web};
use crate::render::{Pages, Renderer, Site, strays};
use crate::store::Store;
use crate::store::mongo::{Mongo, MongoOptions};
use crate::store::sqlite::Sqlite;
use crate::wire::doctor::Finding;

/// Whoever looks this configuration over, which was read from this file.
pub async fn doctor(
    config: &Config,
    file: Option<PathBuf>,
    look: Look,
    clock: Arc<dyn Clock>,
) -> Doctor {
    let opening = open(config, look.timeout, file.is_some());
    let opening = tokio::time::timeout(look.timeout, opening);
    let store = opening.await.unwrap_or_else(|_| {
        let found = format!(
            "could not be opened within {} s",
            look.timeout.as_secs_f32()
        );
        Err(unopened(found))
    });
    let folder = &config.mail.templates;
    let part = |config: &Config, brand: Option<&BrandName>| {
        let server = &config.server;
        let (public_url, secret) = (server.public_url.clone(), server.link_secret.clone());
        let links = |store: &Arc<dyn Store>| {
            let links = Links::new(store.clone(), public_url, secret);
            Arc::new(match brand {
                Some(brand) => links.of_brand(brand.clone()),
                None => links,
            })
        };
        Doctor {
            setup: setup(config, file.clone()),
            look,
            links: store.as_ref().ok().map(links),
            store: store.clone(),
            mailer: mailer(config).map_err(|error| format!("{error:#}")),
            renderer: renderer(config).map_err(|error| format!("{error:#}")),
            names: Names::new(look.nameserver, look.timeout),
            web: Web::new(look.timeout),
            clock: clock.clone(),
            archive_keep: config.archive_keep,
            shares_templates: config.mail.templates == *folder,
            brands: Vec::new(),
        }
    };
    let brands = config.brands.iter();
    let brands = brands.map(|(name, brand)| {
        let own = part(&config.of_brand(brand), Some(name));
        (name.clone(), own)
    });
    Doctor {
        brands: brands.collect(),
        ..part(config, None)
    }
}

async fn open(
    config: &Config,
    timeout: Duration,
    is_configured: bool,
) -> Result<Arc<dyn Store>, Finding> {
    match &config.store {
        StoreUrl::Sqlite(path) => {
            is_there(path, is_configured)?;
            if let Ok(Some(schema)) = upgrade_ahead(config).await {
                return Err(Finding::upgrade(&schema));
            }
            let told = |error| unopened(format!("{:#}", anyhow::Error::from(error)));
            let opened = Sqlite::open(path).await.map_err(told)?;
            match closed(config, &opened, Access::Look).await.map_err(told)? {
                None => Ok(Arc::new(opened)),
                Some(why) => Err(unusable(&why)),
            }
        }
        StoreUrl::Mongo(url) => {
            let options = MongoOptions {
                // So that the driver says what was in the way before nobody waits any more.
                patience: timeout * 3 / 4,
                attempt: timeout * 3 / 4,
                selection: timeout / 2,
                mapped: mapped(config).map_err(|error| unopened(format!("{error:#}")))?,
            };
            let told = |error| unopened(format!("{:#}", anyhow::Error::from(error)));
            let mongo = Mongo::connect(url, options).await.map_err(told)?;
            let unreached = |error| {
                let why = format!("{:#}", anyhow::Error::from(error));
                Finding::error("database", why, UNREACHED)
            };
            let closed = closed(config, &mongo, Access::Look).await;
            if let Some(why) = closed.map_err(unreached)? {
                return Err(unusable(&why));
            }
            match mongo.is_bare().await.map_err(unreached)? {
                true => Err(nothing_yet(format!("{:?}", config.store), is_configured)),
                false => Ok(Arc::new(mongo)),
            }
        }
    }
}

/// Of a database into which nothing was ever brought: it may be the wrong one.
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

/// Opening a file would make it.
fn is_there(path: &Path, is_configured: bool) -> Result<(), Finding> {
    if holds(path) {
        return Ok(());
    }
    let file = path.display();
    let folder = path.parent().unwrap_or(Path::new(""));
    if !folder.as_os_str().is_empty() && !folder.is_dir() {
        let folder = folder.display();
        let found = format!("the folder {folder} of {file} does not exist");
        return Err(Finding::error(
            "database",
            found,
            format!("mkdir -p {folder}"),
        ));
    }
    Err(nothing_yet(file.to_string(), is_configured))
}

/// The finding about a store that is exported or imported.
fn unusable(closed: &Closed) -> Finding {
    Finding::error("database", closed.to_string(), closed.next())
}

fn unopened(found: String) -> Finding {
    Finding::error("database", found, "see the option `store`")
}

fn renderer(config: &Config) -> anyhow::Result<Renderer> {
    let site = Site {
        name: config.site.name.clone(),
        url: config.site.url.clone(),
        logo: config.site.logo.clone(),
        postal_address: config.site.postal_address.clone(),
        accent: config.site.accent.clone(),
    };
    Pages::new(&site, config.mail.templates.clone())?;
    Ok(Renderer::new(site, config.mail.templates.clone())?)
}

fn setup(config: &Config, file: Option<PathBuf>) -> Setup {
    let (site, server, mail) = (&config.site, &config.server, &config.mail);
    Setup {
        file,
        departure: departure(config),
        from: mail.from.clone(),
        public_url: server.public_url.clone(),
        has_server_key: server.key.is_some(),
        has_link_secret: server.link_secret.is_some(),
        has_postal_address: site.postal_address.is_some(),
        has_feedback_id: site.feedback_id.is_some(),
        dkim_selector: mail.dkim_selector.clone(),
        // A key that cannot be used is found where the mailer is made.
        dkim: (signer(mail).ok().flatten()).map(|dkim| (dkim.name(), dkim.record())),
        items: config.digest.caps.total,
        worded: worded(&config.policies),
        strays: mail
            .templates
            .as_ref()
            .map_or_else(Vec::new, |folder| strays(folder, config.policies.kinds())),
        files: files(config),
        secret_files: config.secret_files.clone(),
        doubts: config
            .warnings
            .iter()
            .map(|warning| {
                let found = format!("{} {}", warning.option, warning.what);
                (found, warning.advice.clone())
            })
            .collect(),
    }
}

/// What holds addresses and secrets on this machine.
fn files(config: &Config) -> Vec<PathBuf> {
    let mut files = Vec::new();
    if let StoreUrl::Sqlite(path) = &config.store {
        for beside in ["", "-wal", "-shm"] {
            let mut name = path.clone().into_os_string();
            name.push(beside);
            files.push(name.into());
        }
    }
    if matches!(config.mail.transport, Transport::Outbox) {
        files.push(config.mail.outbox.clone());
    }
    files
}

fn departure(config: &Config) -> Departure {
    let api = match &config.mail.transport {
        Transport::Outbox => return Departure::Outbox,
        Transport::Smtp(_) => {
            return Departure::Provider {
                name: "SMTP",
                bounces: Some(config.mail.from.domain().to_owned()),
                hook: Hook::None,
            };
        }
        Transport::Api(api) => api,
    };
    let provider = api.provider;
    Departure::Provider {
        name: provider.title,
        bounces: provider
            .bounces
            .and_then(|domain| api.options.get(domain).cloned()),
        hook: match config.reporter() {
            Some(_) => Hook::Verified,
            None => Hook::Lacks(provider.hook_key.options().0),
        },
    }
}

/// The types with a configured heading or phrase, and whether they have a phrase.
fn worded(policies: &Policies) -> Vec<(EventType, bool)> {
    let types = policies.kinds().map(|kind| (kind, policies.of(kind)));
    let worded = types.filter(|(_, of)| of.heading.is_some() || of.phrase.is_some());
    worded
        .map(|(kind, of)| (kind.clone(), of.phrase.is_some()))
        .collect()
}
