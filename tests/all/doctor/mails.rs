//! The provider, the sender's domain, and the templates.

use tidings::operate::doctor::DoctorOptions;
use tidings::wire::diagnosis::Severity;

use super::pages::always;
use super::{HEALTHY, Network, dns, findings, found};
use crate::mail::provider::Next;

const STORE: &str = "store = \"sqlite:/nowhere/at/all.db\"\n";

#[tokio::test]
async fn a_rejected_key_is_an_error_and_is_not_shown() {
    let network = Network::healthy().await;
    let refusal = r#"{"statusCode":401,"name":"invalid_api_key","message":"API key is invalid"}"#;
    network.provider.then([Next::Answer(401, vec![], refusal.into())]);

    let seen = network.findings(STORE).await;

    found(&seen, "provider", Severity::Error, "rejected the key");
    assert!(!format!("{seen:?}").contains("key-1"));
    assert_eq!(network.provider.emails(), []);
}

#[tokio::test]
async fn a_provider_that_does_not_answer_is_unchecked() {
    let network = Network::healthy().await;
    network.provider.then([Next::Reset]);

    let seen = network.findings(STORE).await;

    found(&seen, "provider", Severity::Unchecked, "no answer");
    found(&seen, "DKIM", Severity::Unchecked, "mail.dkim_selector");
}

#[tokio::test]
async fn a_dkim_selector_can_be_configured_if_the_provider_names_none() {
    let network = Network::healthy().await;
    network.provider.then([Next::Reset, Next::Reset]);

    let right = network.findings(&format!("{STORE}mail.dkim_selector = \"resend\"")).await;
    let wrong = network.findings(&format!("{STORE}mail.dkim_selector = \"s1\"")).await;

    found(&right, "DKIM", Severity::Ok, "resend._domainkey.art.example");
    found(&wrong, "DKIM", Severity::Error, "no key at s1._domainkey");
}

#[tokio::test]
async fn problems_of_the_senders_domain_are_found() {
    for (name, text, check, expected, words) in [
        ("art.example", "v=spf1 +all", "SPF", Severity::Error, "all senders"),
        ("resend._domainkey.art.example", "", "DKIM", Severity::Error, "no key"),
        ("_dmarc.art.example", "", "DMARC", Severity::Error, "no record"),
        ("_dmarc.art.example", "v=DMARC1; p=none", "DMARC", Severity::Warning, "p=quarantine"),
    ] {
        let seen = Network::with(&[(name, text)]).await.findings(STORE).await;

        found(&seen, check, expected, words);
    }
}

#[tokio::test]
async fn two_spf_records_are_an_error() {
    let two = [
        ("art.example", "v=spf1 include:provider.example -all"),
        ("art.example", "v=spf1 ip4:192.0.2.1 ~all"),
    ];

    let seen = Network::with(&two).await.findings(STORE).await;

    found(&seen, "SPF", Severity::Error, "2 records");
}

#[tokio::test]
async fn a_dmarc_record_of_a_parent_domain_applies_to_subdomains() {
    let network = Network::healthy().await;
    let below = HEALTHY.replace("digest@art.example", "digest@news.art.example");
    let url = format!("mail.url = \"{}\"\n", network.provider.url);

    let seen = findings(&[&below, STORE, &url].concat(), network.look()).await;

    found(&seen, "DMARC", Severity::Ok, "_dmarc.art.example");
    found(&seen, "provider", Severity::Error, "not the domain news.art.example");
}

#[tokio::test]
async fn a_name_server_that_knows_no_names_proves_nothing() {
    let network = Network::healthy().await;
    let without_names = Network { nameserver: dns::serve_nothing().await, ..network };

    let seen = without_names.findings(STORE).await;

    for check in ["SPF", "DKIM", "DMARC"] {
        found(&seen, check, Severity::Unchecked, "does not even know .example");
    }
}

#[tokio::test]
async fn without_a_network_the_local_checks_still_run() {
    // Both sockets exist, and never answer.
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dumb = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let silent = format!(
        "{STORE}mail.url = \"http://{0}\"\nserver.public_url = \"http://{0}\"",
        mute.local_addr().unwrap()
    );
    let look = DoctorOptions {
        timeout: std::time::Duration::from_millis(300),
        offline: false,
        nameserver: Some(dumb.local_addr().unwrap()),
    };

    let seen = findings(&[HEALTHY, &silent].concat(), look).await;

    for check in ["provider", "SPF", "DMARC", "public pages"] {
        found(&seen, check, Severity::Unchecked, "");
    }
    found(&seen, "templates", Severity::Ok, "");
    found(&seen, "database", Severity::Error, "there is no database");
}

#[tokio::test]
async fn offline_sends_no_requests() {
    let network = Network::healthy().await;
    let look = DoctorOptions { offline: true, ..network.look() };
    let url = format!("mail.url = \"{0}\"\nserver.public_url = \"{0}\"\n", network.provider.url);

    let seen = findings(&[HEALTHY, STORE, &url].concat(), look).await;

    for check in ["provider", "SPF", "DKIM", "DMARC", "public pages", "one-click"] {
        found(&seen, check, Severity::Unchecked, "--offline");
    }
    assert_eq!(network.provider.requests().len(), 0);
}

#[tokio::test]
async fn an_overlong_or_invalid_template_is_an_error_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("digest")).unwrap();
    let network = Network::healthy().await;
    let more = format!("{STORE}mail.templates = \"{}\"", folder.path().display());
    for (text, words) in
        [("x".repeat(120_000), "cut off at 102,000"), ("<p>{{ oops }}".to_owned(), "line 1")]
    {
        std::fs::write(folder.path().join("digest/body.html"), text).unwrap();

        let seen = network.findings(&more).await;

        found(&seen, "templates", Severity::Error, "digest/body.html");
        found(&seen, "templates", Severity::Error, words);
    }
}

#[tokio::test]
async fn a_shared_template_that_fails_for_one_brand_is_an_error_of_that_brand() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("digest")).unwrap();
    let subject = "{% if site.name == 'Acme' %}{{ oops }}{% endif %}News";
    std::fs::write(folder.path().join("digest/subject.txt"), subject).unwrap();
    let network = Network::healthy().await;
    let brands = "[brands.acme]\nsite.name = \"Acme\"\n[brands.other]\nsite.name = \"Other\"\n";
    let templates = folder.path().display();

    let config = format!("{STORE}mail.templates = \"{templates}\"\n{brands}");
    let mut seen = network.findings(&config).await;

    seen.retain(|finding| finding.check == "templates");
    let (acmes, own): (Vec<_>, Vec<_>) =
        seen.into_iter().partition(|finding| finding.brand.is_some());
    found(&own, "templates", Severity::Ok, "");
    found(&acmes, "templates", Severity::Error, "digest/subject.txt");
    assert_eq!(acmes[0].brand.as_ref().unwrap().as_str(), "acme");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_untrusted_connection_to_the_provider_is_an_error() {
    let network = Network::healthy().await;
    // This server does not speak TLS.
    let https = always("200 OK").await.replace("http://", "https://");

    let url = format!("mail.url = \"{https}\"\n");
    let seen = findings(&[HEALTHY, STORE, &url].concat(), network.look()).await;

    found(&seen, "provider", Severity::Error, "cannot be trusted");
}

#[tokio::test]
async fn problems_of_a_brand_are_reported_with_its_name() {
    let network = Network::healthy().await;
    let other = crate::mail::provider::Provider::start(crate::mail::provider::Dialect::Resend);
    let other = other.await;
    let refusal = r#"{"statusCode":401,"name":"invalid_api_key","message":"API key is invalid"}"#;
    other.then([Next::Answer(401, vec![], refusal.into())]);
    let url = &other.url;
    let brand = format!(
        "[brands.acme.mail]\nprovider = \"resend\"\nkey = \"key-2\"\nurl = \"{url}\"\nfrom = \"news@acme.example\"\n"
    );

    let seen = network.findings(&(STORE.to_owned() + &brand)).await;

    let (acmes, own): (Vec<_>, Vec<_>) =
        seen.into_iter().partition(|finding| finding.brand.is_some());
    found(&own, "provider", Severity::Ok, "");
    found(&own, "SPF", Severity::Ok, "art.example");
    found(&acmes, "provider", Severity::Error, "rejected the key");
    found(&acmes, "DMARC", Severity::Error, "acme.example");
    found(&acmes, "mail.provider", Severity::Ok, "an address at acme.example");
    assert!(!format!("{acmes:?}").contains("key-2"));
}
