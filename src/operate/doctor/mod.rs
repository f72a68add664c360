//! Whether mails will leave and arrive, found out before any does.
//!
//! The rule: nothing is sent, and of what is written only the secret of links stays, which the
//! first mail would make. Each file looks at one kind of thing: a thin part asks, and a pure part
//! judges what was answered. Every look has a time-out, those that do not wait for each other go on
//! at once, and whoever cannot be asked is `unchecked`. [`setup`] is what is configured; begin
//! there.

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

/// How it looks.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// How long each thing may take to answer.
    pub timeout: Duration,
    /// Whether the provider, the DNS and the public pages are asked.
    pub outside: Outside,
    /// Who is asked for names; those whom this machine asks, if nobody is named.
    pub nameserver: Option<SocketAddr>,
}

/// What lies beyond this machine and its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outside {
    /// They are asked, each within the time-out.
    Look,
    /// They are left alone; what depends on them is `unchecked`.
    Leave,
}

/// A part that may not be there, and why it is not.
pub type Part<T> = Result<T, String>;

/// Looks a configuration over, and what it names.
pub struct Doctor {
    /// The configuration: for a brand, as it applies to the brand.
    pub config: Config,
    /// The file that the configuration was read from.
    pub file: Option<PathBuf>,
    /// How long answers are waited for, and who is asked.
    pub look: Look,
    /// Or what is wrong with it.
    pub store: Result<Arc<dyn Store>, Finding>,
    /// Asked whether it would take mails; it is given none.
    pub mailer: Part<Arc<dyn Mailer>>,
    /// Makes the mails by which templates are judged.
    pub renderer: Part<Arc<Renderer>>,
    /// Those of the store.
    pub links: Option<Arc<Links>>,
    /// Asks the DNS about the sender's domain.
    pub names: Part<Names>,
    /// Reaches the public pages as the world does.
    pub web: Part<Web>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether its folder of templates is the default's.
    pub shares_templates: bool,
    /// The same for each brand, of which only what is its own is told.
    pub brands: Vec<(BrandName, Doctor)>,
}

/// What is said of what is left alone.
const LEFT: &str = "left alone, as --offline was said";

impl Doctor {
    /// Everything that was found, in the order in which it is read.
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

    /// What is found of a brand: its sender, its provider, its pages and its templates.
    async fn of_brand(&self, default: &[Finding]) -> Vec<Finding> {
        let (mail, public) = futures::join!(self.mail(), self.public_face());
        let mut findings = self.brand_configuration();
        findings.extend(mail);
        findings.extend(public);
        findings.extend(self.brand_templates(default));
        findings
    }

    /// The provider, and what the DNS says of the sender's domain.
    async fn mail(&self) -> Vec<Finding> {
        let keys = async {
            let (provider, names) = self.provider().await;
            (provider, self.dkim(&names).await)
        };
        let (spf, (provider, dkim), dmarc) = futures::join!(self.spf(), keys, self.dmarc());
        [vec![provider, spf], dkim, vec![dmarc]].concat()
    }

    /// What it comes to, or that it took too long.
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
