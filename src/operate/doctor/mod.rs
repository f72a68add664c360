//! Checks whether emails will be sent and delivered, before any is sent.
//!
//! Sends nothing. Writes only the secret of links, which the first email would generate too, and a
//! test note that it deletes. Each file checks one subject: a thin part queries, and a pure part
//! judges. Checks run concurrently, each with a time limit; without an answer, a check is
//! `unchecked`. Start with [`Doctor::run`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use crate::clock::Clock;
use crate::config::{Config, Transport};
use crate::domain::BrandName;
use crate::email::{CheckResult, Mailer};
use crate::engine::access::links::Links;
use crate::operate::dns_and_web::{DnsResolver, Web};
use crate::render::Renderer;
use crate::store::Store;
use crate::wire::diagnosis::Finding;

mod builder;
mod database;
mod dns;
mod machine_limits;
mod public;
mod setup;
mod templates;

pub use builder::doctor;

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
    pub resolver: Component<DnsResolver>,
    /// Requests the public pages as an outside client does.
    pub web: Component<Web>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The doctor of each brand, which checks only what a brand configures itself.
    pub brands: Vec<(BrandName, Doctor)>,
}

const LANGUAGES: &str = "languages";
/// The finding for checks that `--offline` skips.
const SKIPPED: &str = "skipped because of --offline";

impl Doctor {
    /// Returns all findings, in the order in which they are shown.
    pub async fn run(&self) -> Vec<Finding> {
        let (database, mail, public, templates) =
            futures::join!(self.database(), self.mail(), self.public_pages(), self.templates());
        let mut findings = self.configuration();
        findings.extend(self.files());
        findings.extend(self.limits());
        findings.extend(self.secret_files());
        let brand_checks = self.brands.iter().map(|(name, own)| {
            let shares_templates = own.config.mail.templates == self.config.mail.templates;
            own.check_brand(name, if shares_templates { &templates } else { &[] })
        });
        let of_brands = join_all(brand_checks).await.concat();
        [findings, database, mail, public, templates, of_brands].concat()
    }

    /// Checks a brand: its sender, provider, pages and templates. Omits findings about shared
    /// templates that the default has too.
    async fn check_brand(&self, name: &BrandName, of_default: &[Finding]) -> Vec<Finding> {
        let (mail, public, templates) =
            futures::join!(self.mail(), self.public_pages(), self.templates());
        let mut findings = [self.sending(), mail, public].concat();
        findings.extend(templates.into_iter().filter(|finding| !of_default.contains(finding)));
        for finding in &mut findings {
            finding.brand = Some(name.clone());
        }
        findings
    }

    /// Checks the provider and the DNS records of the sender's domain.
    async fn mail(&self) -> Vec<Finding> {
        let keys = async {
            let (provider, names) = self.provider().await;
            (provider.for_check("provider"), self.dkim(&names).await)
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
            Ok(_) if self.options.offline && !is_local => Finding::unchecked(SKIPPED),
            Ok(mailer) => match self.within(mailer.check(), CheckResult::Unreached).await {
                CheckResult::Ready(found, dkim) => return (Finding::ok(found), dkim),
                CheckResult::Wrong(found, remedy) => Finding::error(found, remedy),
                CheckResult::Unreached(reason) => Finding::unchecked(reason),
            },
        };
        (finding, Vec::new())
    }

    /// Returns the result of a check; after the time limit, calls `late` with the reason.
    async fn within<T>(&self, check: impl Future<Output = T>, late: impl FnOnce(String) -> T) -> T {
        let limit = self.options.timeout;
        match tokio::time::timeout(limit, check).await {
            Ok(result) => result,
            Err(_) => late(format!("no answer within {} s", limit.as_secs_f32())),
        }
    }
}
