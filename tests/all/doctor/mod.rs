//! `doctor`, against real providers, name servers, pages and databases on loopback: each thing that
//! can be wrong is found, and nothing is changed by looking.
//!
//! The rule: a test begins with what is well, breaks one thing, and asks what is said of it.

mod databases;
mod dns;
mod mails;
mod pages;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidings::clock::SystemClock;
use tidings::config::Config;
use tidings::operate::doctor::{Look, Outside, doctor};
use tidings::wire::doctor::{Finding, Verdict};

use crate::mail::provider::{Dialect, Provider};

/// What is configured where all is well, but for the provider's address and the store.
const WELL: &str = "
    server.key = \"the key of the tests\"
    server.link_secret = \"the link secret of the tests\"
    site.postal_address = \"1 Main Street\"
    hooks.resend_secret = \"whsec_dGhlIHNlY3JldCBvZiB0aGUgdGVzdHM=\"
    mail.provider = \"resend\"
    mail.key = \"key-1\"
    mail.from = \"digest@art.example\"
";

/// What the DNS holds where all is well.
fn well_known() -> Vec<(&'static str, String)> {
    let key = "A".repeat(392);
    vec![
        ("art.example", "v=spf1 include:provider.example -all".into()),
        ("provider.example", "v=spf1 ip4:192.0.2.0/24 -all".into()),
        (
            "resend._domainkey.art.example",
            format!("v=DKIM1; k=rsa; p={key}"),
        ),
        ("_dmarc.art.example", "v=DMARC1; p=quarantine".into()),
    ]
}

/// Somewhere to look: a provider and a name server where all is well.
struct Outdoors {
    provider: Provider,
    nameserver: SocketAddr,
}

impl Outdoors {
    async fn well() -> Self {
        Self::with(&[]).await
    }

    /// With these texts instead of those that stand under the same names; empty ones do not stand
    /// at all.
    async fn with(texts: &[(&str, &str)]) -> Self {
        let known = well_known();
        let changed = |name: &str| texts.iter().any(|(other, _)| *other == name);
        let mut all: Vec<(&str, &str)> = known
            .iter()
            .filter(|(name, _)| !changed(name))
            .map(|(name, text)| (*name, text.as_str()))
            .collect();
        all.extend(texts.iter().filter(|(_, text)| !text.is_empty()));
        Self {
            provider: Provider::start(Dialect::Resend).await,
            nameserver: dns::serve(dns::zone(&all)).await,
        }
    }

    fn look(&self) -> Look {
        Look {
            timeout: Duration::from_secs(10),
            outside: Outside::Look,
            nameserver: Some(self.nameserver),
        }
    }

    /// What is found with this provider and more in the configuration.
    async fn findings(&self, more: &str) -> Vec<Finding> {
        let url = format!("mail.url = \"{}\"\n", self.provider.url);
        findings(&[WELL, &url, more].concat(), self.look()).await
    }
}

async fn findings(config: &str, look: Look) -> Vec<Finding> {
    let config = Config::parse(config).unwrap();
    let doctor = doctor(&config, None, look, Arc::new(SystemClock)).await;
    doctor.run().await
}

/// What was found of one thing.
fn of<'a>(findings: &'a [Finding], check: &str) -> &'a Finding {
    let mut found = findings.iter().filter(|finding| finding.check == check);
    let first = found
        .next()
        .unwrap_or_else(|| panic!("{check} was not looked at"));
    assert!(found.next().is_none(), "{check} was looked at twice");
    first
}

/// That this was found: how bad it is, and words of it.
fn found(findings: &[Finding], check: &str, verdict: Verdict, words: &str) {
    let finding = of(findings, check);
    assert_eq!(finding.verdict, verdict, "{finding:?}");
    let text = format!(
        "{} {}",
        finding.found,
        finding.advice.as_deref().unwrap_or("")
    );
    assert!(text.contains(words), "{words} in {finding:?}");
    assert_eq!(
        finding.advice.is_some(),
        verdict >= Verdict::Warning,
        "{finding:?}"
    );
}

/// What is not well.
fn amiss(findings: &[Finding]) -> Vec<(Verdict, &'static str)> {
    let amiss = findings
        .iter()
        .filter(|finding| finding.verdict != Verdict::Ok);
    amiss
        .map(|finding| (finding.verdict, finding.check))
        .collect()
}
