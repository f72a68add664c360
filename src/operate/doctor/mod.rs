//! Checks whether emails will be sent and delivered, before any is sent.
//!
//! Sends nothing. Writes only the secret of links, which the first email would generate too. Each
//! file checks one subject: a thin part queries, and a pure part evaluates. Checks run
//! concurrently, each with a time limit; without an answer, a check is `unchecked`. Start with
//! [`Doctor::run`].

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use crate::clock::Clock;
use crate::config::Config;
use crate::domain::BrandName;
use crate::email::Mailer;
use crate::operate::probe::{Names, Web};
use crate::render::Renderer;
use crate::store::Store;

mod build;
mod database;
mod dkim;
mod dmarc;
mod files;
mod finding;
mod provider;
mod public;
mod reports;
mod sender;
mod setup;
mod spf;
mod templates;

pub use build::doctor;

use crate::engine::access::links::Links;
use crate::wire::status::{Finding, Verdict};
use finding::chain;

/// The options of the doctor.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// The time limit of each check.
    pub timeout: Duration,
    /// Whether the provider, the DNS and the public pages are queried.
    pub outside: Outside,
    /// The name server to query; by default, those of this machine.
    pub nameserver: Option<SocketAddr>,
}

/// Whether the doctor queries anything outside this machine and its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outside {
    /// Query it, each part with the time limit.
    Look,
    /// Do not query it. Checks that need it are `unchecked`.
    Leave,
}

/// A component, or the reason why it is unavailable.
pub type Part<T> = Result<T, String>;

/// Checks a configuration and the services it names.
pub struct Doctor {
    /// The configuration: for a brand, as it applies to the brand.
    pub config: Config,
    /// The file that the configuration was read from.
    pub file: Option<PathBuf>,
    /// The time-out, and which servers to ask.
    pub look: Look,
    /// The store, or the finding about it.
    pub store: Result<Arc<dyn Store>, Finding>,
    /// The provider. It is checked but gets no emails.
    pub mailer: Part<Arc<dyn Mailer>>,
    /// Renders sample emails to judge the templates.
    pub renderer: Part<Arc<Renderer>>,
    /// Makes links to try the public pages with; `None` without a store.
    pub links: Option<Arc<Links>>,
    /// Queries the DNS about the sender's domain.
    pub names: Part<Names>,
    /// Requests the public pages as an outside client does.
    pub web: Part<Web>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether a brand uses the default's folder of templates.
    pub shares_templates: bool,
    /// The doctor of each brand, which checks only what a brand configures itself.
    pub brands: Vec<(BrandName, Doctor)>,
}

/// The finding for checks that `--offline` skips.
const LEFT: &str = "left alone, as --offline was said";

impl Doctor {
    /// Returns all findings, in the order in which they are shown.
    pub async fn run(&self) -> Vec<Finding> {
        let (database, mail, public) =
            futures::join!(self.database(), self.mail(), self.public_face());
        let mut findings = self.configuration();
        findings.extend(self.files());
        findings.extend(self.secret_files());
        findings.extend(database);
        findings.extend(mail);
        findings.extend(public);
        let templates = self.templates();
        let default = &templates[..];
        let brands = self.brands.iter().map(|(name, own)| async move {
            let findings = own.of_brand(default).await.into_iter();
            let named = findings.map(|finding| Finding {
                brand: Some(name.clone()),
                ..finding
            });
            named.collect::<Vec<_>>()
        });
        let brands = join_all(brands).await;
        findings.extend(templates);
        findings.extend(brands.into_iter().flatten());
        findings
    }

    /// Checks a brand: its sender, provider, pages and templates.
    async fn of_brand(&self, default: &[Finding]) -> Vec<Finding> {
        let (mail, public) = futures::join!(self.mail(), self.public_face());
        let mut findings = self.brand_configuration();
        findings.extend(mail);
        findings.extend(public);
        findings.extend(self.brand_templates(default));
        findings
    }

    /// Checks the provider and the DNS records of the sender's domain.
    async fn mail(&self) -> Vec<Finding> {
        let keys = async {
            let (provider, names) = self.provider().await;
            (provider, self.dkim(&names).await)
        };
        let (spf, (provider, dkim), dmarc) = futures::join!(self.spf(), keys, self.dmarc());
        [vec![provider, spf], dkim, vec![dmarc]].concat()
    }

    /// Waits for a result for at most the time limit. Then calls `late` with the reason.
    async fn within<T>(
        &self,
        looking: impl Future<Output = T>,
        late: impl FnOnce(String) -> T,
    ) -> T {
        let limit = self.look.timeout;
        match tokio::time::timeout(limit, looking).await {
            Ok(found) => found,
            Err(_) => late(format!("no answer within {} s", limit.as_secs_f32())),
        }
    }
}
