//! `doctor`, against real providers, DNS servers, pages and databases on loopback. It finds each
//! problem, and changes nothing.
//!
//! A test starts with a healthy setup, breaks one thing, and checks the findings about it.

mod databases;
mod dns;
mod mails;
mod pages;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidings::clock::SystemClock;
use tidings::config::Config;
use tidings::operate::doctor::{DoctorOptions, doctor};
use tidings::wire::diagnosis::{Finding, Severity};

use crate::mail::provider::{Dialect, Provider};

/// A healthy configuration, without the provider's URL and the store.
const HEALTHY: &str = "
    server.key = \"the key of the tests\"
    server.link_secret = \"the link secret of the tests\"
    site.postal_address = \"1 Main Street\"
    hooks.resend_secret = \"whsec_dGhlIHNlY3JldCBvZiB0aGUgdGVzdHM=\"
    mail.provider = \"resend\"
    mail.key = \"key-1\"
    mail.from = \"digest@art.example\"
";

/// The DNS records of a healthy setup.
fn healthy_records() -> Vec<(&'static str, String)> {
    let key = "A".repeat(392);
    vec![
        ("art.example", "v=spf1 include:provider.example -all".into()),
        ("provider.example", "v=spf1 ip4:192.0.2.0/24 -all".into()),
        ("resend._domainkey.art.example", format!("v=DKIM1; k=rsa; p={key}")),
        ("_dmarc.art.example", "v=DMARC1; p=quarantine".into()),
    ]
}

/// A provider and a DNS server for the checks that use the network.
struct Network {
    provider: Provider,
    nameserver: SocketAddr,
}

impl Network {
    async fn healthy() -> Self {
        Self::with(&[]).await
    }

    /// Starts both, with these texts instead of the healthy ones of the same names. An empty text
    /// removes the record.
    async fn with(texts: &[(&str, &str)]) -> Self {
        let records = healthy_records();
        let changed = |name: &str| texts.iter().any(|(other, _)| *other == name);
        let mut all: Vec<(&str, &str)> = records
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

    fn look(&self) -> DoctorOptions {
        DoctorOptions {
            timeout: Duration::from_secs(10),
            offline: false,
            nameserver: Some(self.nameserver),
        }
    }

    /// Runs the checks against this provider, with `more` added to the configuration.
    async fn findings(&self, more: &str) -> Vec<Finding> {
        let url = format!("mail.url = \"{}\"\n", self.provider.url);
        findings(&[HEALTHY, &url, more].concat(), self.look()).await
    }
}

async fn findings(config: &str, look: DoctorOptions) -> Vec<Finding> {
    let config = Config::parse(config).unwrap();
    let doctor = doctor(&config, look, Arc::new(SystemClock)).await;
    doctor.run().await
}

/// Returns the only finding of this check.
fn of<'a>(findings: &'a [Finding], check: &str) -> &'a Finding {
    let mut found = findings.iter().filter(|finding| finding.check == check);
    let first = found.next().unwrap_or_else(|| panic!("{check} was not looked at"));
    assert!(found.next().is_none(), "{check} was looked at twice");
    first
}

/// Asserts the severity of a finding and a part of its text. Only problems have advice.
fn found(findings: &[Finding], check: &str, expected: Severity, words: &str) {
    let finding = of(findings, check);
    assert_eq!(finding.severity, expected, "{finding:?}");
    let text = format!("{} {}", finding.result, finding.advice.as_deref().unwrap_or(""));
    assert!(text.contains(words), "{words} in {finding:?}");
    assert_eq!(finding.advice.is_some(), expected >= Severity::Warning, "{finding:?}");
}

/// Returns the findings that are not OK.
fn problems(findings: &[Finding]) -> Vec<(Severity, &'static str)> {
    let problems = findings.iter().filter(|finding| finding.severity != Severity::Ok);
    problems.map(|finding| (finding.severity, finding.check)).collect()
}
