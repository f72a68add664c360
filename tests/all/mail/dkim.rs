//! DKIM signatures, verified by `mail-auth`, which shares no code with our signing.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Instant;

use hickory_resolver::config::{ResolverConfig, ResolverOpts};
use mail_auth::common::parse::TxtRecordParser;
use mail_auth::common::verify::DomainKey;
use mail_auth::{
    AuthenticatedMessage, DkimResult, MessageAuthenticator, Parameters, ResolverCache, Txt,
};
use tidings::config::Config;
use tidings::domain::Secret;
use tidings::email::{Content, Dkim, Message, Permit};
use tidings::engine::delivery::identity::mailer;

use super::server::Server;
use super::{kinds, mail};
use crate::support::assert_contains;

const RSA: &str = include_str!("keys/rsa.pem");
const ED25519: &str = include_str!("keys/ed25519.pem");
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/mail/keys");

/// A DNS cache with the keys of a test.
struct Keys(HashMap<Box<str>, Txt>);

impl ResolverCache<Box<str>, Txt> for Keys {
    fn get<Q>(&self, name: &Q) -> Option<Txt>
    where
        Box<str>: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.0.get(name).cloned()
    }

    fn remove<Q>(&self, _: &Q) -> Option<Txt>
    where
        Box<str>: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        None
    }

    fn insert(&self, _: Box<str>, _: Txt, _: Instant) {}
}

/// Sends a message through the configured server, signed with the key in this file. Returns it as
/// received.
async fn sent(file: &str, message: Message) -> String {
    let server = Server::start().await;
    let config = Config::parse(&format!(
        r#"
        mail.provider = "smtp"
        mail.from = "digest@news.art.example"
        mail.from_name = "Art, news"
        mail.smtp_host = "127.0.0.1"
        mail.smtp_port = {}
        mail.smtp_tls = "none"
        mail.dkim_key_file = "{FOLDER}/{file}"
        mail.dkim_selector = "k1"
        mail.dkim_domain = "Art.example"
        "#,
        server.port
    ));
    let mailer = mailer(&config.unwrap()).unwrap();

    let outcomes = mailer.send("ref", &[message], &Permit::always()).await;

    assert_eq!(kinds(&outcomes), ["accepted"], "{outcomes:?}");
    server.mails().remove(0).replace('\n', "\r\n")
}

/// A message with details that are easily lost before signing: spaces, dots and non-ASCII text.
fn message() -> Message {
    let further = [
        ("List-Id", "<Comment.art.example>"),
        ("Feedback-ID", "2014-04-22:Comment:batch:tidings"),
        ("In-Reply-To", "<thread-1@art.example>"),
        ("References", "<thread-1@art.example>"),
    ];
    let mail = mail("ada");
    Message {
        content: Arc::new(Content {
            subject: "Über  14 works \u{2014} and a subject that is longer than a line is".into(),
            text: "A line. \t \n.\n..dots\n \n\nTwo  spaces\n\n\n".into(),
            ..(*mail.content).clone()
        }),
        further: further
            .map(|(name, value)| (name.into(), value.into()))
            .into(),
        ..mail
    }
}

/// Verifies the only signature against this DNS record. Returns the result and the covered headers.
async fn verified(mail: &str, record: &str) -> (DkimResult, Vec<String>) {
    let key = DomainKey::parse(record.as_bytes()).unwrap();
    let keys = HashMap::from([("k1._domainkey.art.example.".into(), Txt::from(key))]);
    let keys = Keys(keys);
    let no_servers = ResolverConfig::from_name_servers(Vec::new());
    let receiver = MessageAuthenticator::new(no_servers, ResolverOpts::default()).unwrap();
    let message = AuthenticatedMessage::parse(mail.as_bytes()).unwrap();
    let found = receiver
        .verify_dkim(Parameters::new(&message).with_txt_cache(&keys))
        .await;
    assert_eq!(found.len(), 1);
    let covered = found[0].signature().map(|of| of.h.clone());
    (found[0].result().clone(), covered.unwrap_or_default())
}

fn record(key: &str) -> String {
    let dkim = Dkim::new("art.example", "k1", &Secret::new(key)).unwrap();
    assert_eq!(dkim.name(), "k1._domainkey.art.example");
    dkim.record()
}

#[tokio::test]
async fn signatures_verify_for_each_key_type_and_cover_all_headers() {
    for (file, key) in [
        ("rsa.pem", RSA),
        ("rsa_pkcs1.pem", RSA),
        ("ed25519.pem", ED25519),
    ] {
        let mail = sent(file, message()).await;

        let (result, covered) = verified(&mail, &record(key)).await;

        assert_eq!(result, DkimResult::Pass, "{file}: {mail}");
        for name in [
            "From",
            "To",
            "Subject",
            "Date",
            "Message-ID",
            "MIME-Version",
            "Content-Type",
            "List-Unsubscribe",
            "List-Unsubscribe-Post",
            "List-Id",
            "Auto-Submitted",
            "References",
            "In-Reply-To",
            "Feedback-ID",
        ] {
            assert!(mail.contains(&format!("\r\n{name}: ")), "{name} in {mail}");
            let named = covered.iter().filter(|of| of.eq_ignore_ascii_case(name));
            assert_eq!(named.count(), 2, "{name} in {covered:?}");
        }
    }
}

#[tokio::test]
async fn changes_in_transit_invalidate_the_signature() {
    for (file, key) in [("rsa.pem", RSA), ("ed25519.pem", ED25519)] {
        let mail = sent(file, message()).await;
        let record = record(key);
        for (was, is) in [
            ("Two  spaces", "Three spaces"),
            ("=?utf-8?b?QXJ0LCBuZXdz?=", "Eve"),
            ("One-Click", "Two-Clicks"),
            ("<thread-1@", "<thread-2@"),
            ("/u/ada>", "/u/eve>"),
            ("\r\nFrom: ", "\r\nFrom: eve@example.org\r\nFrom: "),
            ("\r\nSubject: ", "\r\nSubject: Owned\r\nSubject: "),
            ("\r\nTo: ", "\r\nReply-To: eve@example.org\r\nTo: "),
            ("auto-generated", "no"),
        ] {
            let changed = mail.replacen(was, is, 1);
            assert_ne!(changed, mail, "{was} in {mail}");

            let (result, _) = verified(&changed, &record).await;

            let is_found = matches!(result, DkimResult::Fail(_) | DkimResult::Neutral(_));
            assert!(is_found, "{file}: {was} → {is}: {result:?}");
        }
    }
}

#[tokio::test]
async fn a_signature_by_another_key_does_not_verify() {
    let mail = sent("rsa.pem", message()).await;
    let other = record(ED25519);

    let (result, _) = verified(&mail, &other).await;

    assert!(!matches!(result, DkimResult::Pass), "{result:?}");
}

#[tokio::test]
async fn a_key_that_is_too_short_is_rejected_before_the_first_email() {
    let config = Config::parse(&format!(
        r#"
        mail.provider = "smtp"
        mail.from = "digest@art.example"
        mail.smtp_host = "127.0.0.1"
        mail.smtp_tls = "none"
        mail.dkim_key_file = "{FOLDER}/rsa_1024.pem"
        mail.dkim_selector = "k1"
        "#
    ));
    let config = config.unwrap();

    let refused = mailer(&config).err().unwrap().to_string();

    assert_contains!(refused, "mail.dkim_key_file");
    assert_contains!(refused, "2,048");
    assert!(!format!("{:?}", config.mail).contains("PRIVATE"));
}
