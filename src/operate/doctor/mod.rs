//! Finds out whether emails can be sent and will arrive, before the first one is sent.
//!
//! Sends nothing, and writes only the secret of links, which the first email would create. In each
//! file one part asks and a pure part judges the answer. Each question has a time-out; independent
//! ones run at once. A question without an answer is `unchecked`. Start with [`Doctor::run`].

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
use crate::wire::doctor::{Finding, Verdict};
use finding::chain;

/// How the doctor asks.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// The time-out of each question.
    pub timeout: Duration,
    /// Whether to ask the provider, the DNS and the public pages.
    pub outside: Outside,
    /// The DNS server to ask; `None` for this machine's.
    pub nameserver: Option<SocketAddr>,
}

/// Whether to ask outside this machine and its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outside {
    /// Asks, each within the time-out.
    Look,
    /// Does not ask; dependent findings are `unchecked`.
    Leave,
}

/// A part, or the reason why it could not be built.
pub type Part<T> = Result<T, String>;

/// Examines a configuration and what it names.
pub struct Doctor {
    /// The configuration: for a brand, as it applies to the brand.
    pub config: Config,
    /// The file that the configuration was read from.
    pub file: Option<PathBuf>,
    /// The time-out, and which servers to ask.
    pub look: Look,
    /// The store, or a finding about it.
    pub store: Result<Arc<dyn Store>, Finding>,
    /// Checks the account at the provider; it sends nothing.
    pub mailer: Part<Arc<dyn Mailer>>,
    /// Renders sample emails to judge the templates.
    pub renderer: Part<Arc<Renderer>>,
    /// Makes links to try the public pages with; `None` without a store.
    pub links: Option<Arc<Links>>,
    /// Asks the DNS about the sender's domain.
    pub names: Part<Names>,
    /// Requests the public pages.
    pub web: Part<Web>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether a brand uses the default's folder of templates.
    pub shares_templates: bool,
    /// The doctors of the brands, which report only what is the brand's own.
    pub brands: Vec<(BrandName, Doctor)>,
}

/// The reason of unchecked findings with `--offline`.
const LEFT: &str = "left alone, as --offline was said";

impl Doctor {
    /// Returns all findings, in reading order.
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

    /// Returns the findings about a brand's sender, provider, pages and templates.
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

    /// Returns the answer, or `late` after the time-out.
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
