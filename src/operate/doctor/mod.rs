//! Checks whether emails will be sent and delivered, before any is sent.
//!
//! Sends nothing. Writes only the secret of links, which the first email would generate too. Each
//! file checks one subject: a thin part queries, and a pure part judges. Checks run concurrently,
//! each with a time limit; without an answer, a check is `unchecked`. Start with [`Doctor::run`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use crate::clock::Clock;
use crate::config::{Config, StoreUrl, Transport};
use crate::domain::BrandName;
use crate::domain::messages::error_chain;
use crate::email::{Checked, Mailer};
use crate::engine::access::links::Links;
use crate::engine::delivery::brand_identities::{Theme, mailer};
use crate::operate::dns_and_web::{Names, Web};
use crate::operate::open::{Access, Refusal, open_with, upgrade_ahead};
use crate::render::Renderer;
use crate::store::mongo::MongoOptions;
use crate::store::{self, Store};
use crate::wire::status::Finding;
use database::{DATABASE, UNREACHED, judge_schema};

mod database;
mod dns;
mod public;
mod setup;
mod templates;

/// The options of the doctor.
#[derive(Debug, Clone, Copy)]
pub struct DoctorOptions {
    /// The time limit of each check.
    pub timeout: Duration,
    /// Whether to query nothing outside this machine and its database: no provider, DNS or public
    /// page.
    pub offline: bool,
    /// The name server to query; by default, those of this machine.
    pub nameserver: Option<SocketAddr>,
}

/// A component, or the reason why it is unavailable.
pub type Component<T> = Result<T, String>;

/// Checks a configuration and the services it names.
pub struct Doctor {
    /// The configuration: for a brand, as it applies to the brand.
    pub config: Config,
    /// The time limit, and which servers to query.
    pub options: DoctorOptions,
    /// The store, or the finding about it.
    pub store: Result<Arc<dyn Store>, Finding>,
    /// The provider. It is checked but gets no emails.
    pub mailer: Component<Arc<dyn Mailer>>,
    /// Renders sample emails to judge the templates.
    pub renderer: Component<Arc<Renderer>>,
    /// Makes links to try the public pages with; `None` without a store.
    pub links: Option<Arc<Links>>,
    /// Queries the DNS about the sender's domain.
    pub names: Component<Names>,
    /// Requests the public pages as an outside client does.
    pub web: Component<Web>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The doctor of each brand, which checks only what a brand configures itself.
    pub brands: Vec<(BrandName, Doctor)>,
}

const LANGUAGES: &str = "languages";
/// The finding for checks that `--offline` skips.
const LEFT: &str = "skipped because of --offline";

/// Builds the doctor of a configuration. Nothing fails: a part that cannot be built becomes a
/// finding. The store is opened without changing it: no file, table or index is created.
pub async fn doctor(config: &Config, options: DoctorOptions, clock: Arc<dyn Clock>) -> Doctor {
    let opening = open(config, options.timeout);
    let opening = tokio::time::timeout(options.timeout, opening);
    let store = opening.await.unwrap_or_else(|_| {
        let seconds = options.timeout.as_secs_f32();
        let found = format!("could not be opened within {seconds} s");
        Err(Finding::error(found, "see the option `store`").of(DATABASE))
    });
    let opened = store.as_ref().ok();
    let build = |of: Config, brand: Option<&BrandName>| Doctor {
        options,
        links: opened.map(|store| Arc::new(Links::of(&of, store.clone(), brand))),
        store: store.clone(),
        mailer: mailer(&of).map_err(|error| format!("{error:#}")),
        renderer: Theme::new(&of, of.mail.templates.clone())
            .map(|theme| theme.renderer)
            .map_err(|error| error_chain(&error)),
        names: Names::new(options.nameserver, options.timeout),
        web: Web::new(options.timeout),
        clock: clock.clone(),
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

/// Opens the store and does not upgrade it; fails with a finding.
async fn open(config: &Config, timeout: Duration) -> Result<Arc<dyn Store>, Finding> {
    if let Ok(Some(schema)) = upgrade_ahead(config).await {
        return Err(judge_schema(&schema));
    }
    let mongo = MongoOptions {
        // Shorter than the time-out, so that the driver's reason is reported.
        patience: timeout * 3 / 4,
        attempt: timeout * 3 / 4,
        selection: timeout / 2,
        ..MongoOptions::default()
    };
    let is_mongo = matches!(config.store, StoreUrl::Mongo(_));
    let opened = open_with(config, Access::Inspect, mongo).await;
    let judged = |error: anyhow::Error| {
        let advice = match error.downcast_ref::<store::Error>() {
            Some(store::Error::Unsupported(_)) => {
                "run the version of tidings that wrote the database, or a newer one"
            }
            Some(store::Error::Database { .. }) if is_mongo => UNREACHED,
            _ => "see the option `store`",
        };
        match error.downcast_ref::<Refusal>() {
            Some(refusal) if refusal.is_missing && config.file.is_some() => {
                Finding::warning(refusal.to_string(), &refusal.next)
            }
            Some(refusal) => Finding::error(refusal.to_string(), &refusal.next),
            None => Finding::error(format!("{error:#}"), advice),
        }
    };
    opened.map_err(|error| judged(error).of(DATABASE))
}

impl Doctor {
    /// Returns all findings, in the order in which they are shown.
    pub async fn run(&self) -> Vec<Finding> {
        let (database, mail, public, templates) = futures::join!(
            self.database(),
            self.mail(),
            self.public_pages(),
            self.templates()
        );
        let mut findings = self.configuration();
        findings.extend(self.files());
        findings.extend(self.limits());
        findings.extend(self.secret_files());
        let brands = self.brands.iter();
        let brands = brands.map(|(name, own)| {
            let shares = own.config.mail.templates == self.config.mail.templates;
            own.of_brand(name, if shares { &templates } else { &[] })
        });
        let brands = join_all(brands).await.concat();
        [findings, database, mail, public, templates, brands].concat()
    }

    /// Checks a brand: its sender, provider, pages and templates. Omits findings about shared
    /// templates that the default has too.
    async fn of_brand(&self, name: &BrandName, of_default: &[Finding]) -> Vec<Finding> {
        let (mail, public, templates) =
            futures::join!(self.mail(), self.public_pages(), self.templates());
        let mut findings = [self.sending(), mail, public].concat();
        let templates = templates.into_iter();
        findings.extend(templates.filter(|finding| !of_default.contains(finding)));
        for finding in &mut findings {
            finding.brand = Some(name.clone());
        }
        findings
    }

    /// Checks the provider and the DNS records of the sender's domain.
    async fn mail(&self) -> Vec<Finding> {
        let keys = async {
            let (provider, names) = self.provider().await;
            (provider.of("provider"), self.dkim(&names).await)
        };
        let (spf, (provider, dkim), dmarc) = futures::join!(self.spf(), keys, self.dmarc());
        [vec![provider, spf], dkim, vec![dmarc]].concat()
    }

    /// Checks that the provider accepts the API key. Also returns the DNS names of the DKIM keys
    /// that the provider reports.
    async fn provider(&self) -> (Finding, Vec<String>) {
        let is_local = matches!(self.config.mail.transport, Transport::Outbox);
        let finding = match &self.mailer {
            Err(why) => Finding::error(why, "see the options of the section [mail]"),
            Ok(_) if self.options.offline && !is_local => Finding::unchecked(LEFT),
            Ok(mailer) => match self.within(mailer.check(), Checked::Unreached).await {
                Checked::Ready(found, dkim) => return (Finding::ok(found), dkim),
                Checked::Wrong(found, remedy) => Finding::error(found, remedy),
                Checked::Unreached(reason) => Finding::unchecked(reason),
            },
        };
        (finding, Vec::new())
    }

    /// Waits for a result for at most the time limit. Then calls `late` with the reason.
    async fn within<T>(&self, check: impl Future<Output = T>, late: impl FnOnce(String) -> T) -> T {
        let limit = self.options.timeout;
        match tokio::time::timeout(limit, check).await {
            Ok(found) => found,
            Err(_) => late(format!("no answer within {} s", limit.as_secs_f32())),
        }
    }
}
