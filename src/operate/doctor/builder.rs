//! Builds a [`Doctor`] from a configuration.
//!
//! Nothing here fails: a part that cannot be built becomes a finding. The store is opened without
//! changing it: no file, table or index is created.

use std::sync::Arc;
use std::time::Duration;

use super::database::{DATABASE, UNREACHED, judge_schema};
use super::{Doctor, DoctorOptions};
use crate::clock::Clock;
use crate::config::{Config, StoreUrl};
use crate::domain::BrandName;
use crate::domain::error_chain::error_chain;
use crate::engine::access::links::Links;
use crate::engine::delivery::brand_identities::{Theme, new_mailer};
use crate::operate::dns_and_web::{DnsResolver, Web};
use crate::operate::open::{Access, Refusal, open_store_with, pending_upgrade};
use crate::store::mongo::MongoOptions;
use crate::store::{self, Store};
use crate::wire::diagnosis::Finding;

/// Builds the doctor of a configuration.
pub async fn doctor(config: &Config, options: DoctorOptions, clock: Arc<dyn Clock>) -> Doctor {
    let opening = tokio::time::timeout(options.timeout, open(config, options.timeout));
    let store = opening.await.unwrap_or_else(|_| {
        let seconds = options.timeout.as_secs_f32();
        let found = format!("could not be opened within {seconds} s");
        Err(Finding::error(found, "see the option `store`").for_check(DATABASE))
    });
    let opened = store.as_ref().ok();
    let build = |config: Config, brand: Option<&BrandName>| Doctor {
        options,
        links: opened.map(|store| Arc::new(Links::from_config(&config, store.clone(), brand))),
        store: store.clone(),
        mailer: new_mailer(&config).map_err(|error| format!("{error:#}")),
        renderer: Theme::new(&config, config.mail.templates.clone())
            .map(|theme| theme.renderer)
            .map_err(|error| error_chain(&error)),
        resolver: DnsResolver::new(options.nameserver, options.timeout),
        web: Web::new(options.timeout),
        clock: clock.clone(),
        brands: Vec::new(),
        config,
    };
    let brands = config
        .brands
        .iter()
        .map(|(name, brand)| (name.clone(), build(config.with_brand(brand), Some(name))));
    Doctor { brands: brands.collect(), ..build(config.clone(), None) }
}

/// Opens the store without upgrading it; fails with a finding.
async fn open(config: &Config, timeout: Duration) -> Result<Arc<dyn Store>, Finding> {
    if let Ok(Some(schema)) = pending_upgrade(config).await {
        return Err(judge_schema(&schema));
    }
    let mongo = MongoOptions {
        // Shorter than the time-out, so that the driver's reason is reported.
        retry_timeout: timeout * 3 / 4,
        attempt_timeout: timeout * 3 / 4,
        server_selection_timeout: timeout / 2,
        ..MongoOptions::default()
    };
    let is_mongo = matches!(config.store, StoreUrl::Mongo(_));
    let judge = |error: anyhow::Error| {
        let advice = match error.downcast_ref::<store::Error>() {
            Some(store::Error::Unsupported(_)) => {
                "run the version of tidings that wrote the database, or a newer one"
            }
            Some(store::Error::Database { .. }) if is_mongo => UNREACHED,
            _ => "see the option `store`",
        };
        match error.downcast_ref::<Refusal>() {
            Some(refusal) if refusal.is_missing && config.file.is_some() => {
                Finding::warning(refusal.to_string(), &refusal.suggestion)
            }
            Some(refusal) => Finding::error(refusal.to_string(), &refusal.suggestion),
            None => Finding::error(format!("{error:#}"), advice),
        }
    };
    let opened = open_store_with(config, Access::Inspect, mongo).await;
    opened.map_err(|error| judge(error).for_check(DATABASE))
}
