//! The headers of an email reach every recipient unchanged, through each provider and over SMTP.

use tidings::email::{Mailer, Message, SendPermit};

use super::provider::Provider;
use super::received::{Received, by_smtp, received};
use super::server::Server;
use super::smtp::smtp;
use super::{ALL, PATIENT, call_of, kinds, mailer};

const FURTHER: [(&str, &str); 4] = [
    ("List-Id", "<Comment.art.example>"),
    ("Feedback-ID", "2014-04-22:Comment:batch:tidings"),
    ("In-Reply-To", "<thread-1@art.example>"),
    ("References", "<thread-1@art.example>"),
];

/// Adds the headers of a thread to these emails.
fn on_a_thread(emails: Vec<Message>) -> Vec<Message> {
    let further = FURTHER.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let with = |email| Message { extra_headers: further.to_vec(), ..email };
    emails.into_iter().map(with).collect()
}

/// Asserts that each header is present once, with its original value.
fn assert_headers(carrier: &str, email: &Received) {
    let automatic = ("Auto-Submitted", "auto-generated");
    let one_click = ("List-Unsubscribe-Post", "List-Unsubscribe=One-Click");
    for (name, value) in FURTHER.into_iter().chain([automatic, one_click]) {
        let named = email.headers.iter();
        let named = named.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        let values: Vec<&str> = named.map(|(_, value)| value.as_str()).collect();
        assert_eq!(values, [value], "{carrier}: {name}");
    }
}

#[tokio::test]
async fn every_provider_receives_the_headers_for_each_recipient() {
    for dialect in ALL {
        let provider = Provider::start(dialect).await;
        let mailer = mailer(dialect, &provider.url, PATIENT);
        let emails = on_a_thread(call_of(dialect, 2));

        let outcomes = mailer.send("ref-1", &emails, &SendPermit::always()).await;

        assert_eq!(kinds(&outcomes), ["accepted"], "{dialect:?}: {outcomes:?}");
        let requests = provider.requests();
        assert_eq!(requests.len(), 1, "{dialect:?}");
        let accepted = received(dialect, &requests[0]);
        assert_eq!(accepted.len(), emails.len(), "{dialect:?}");
        for email in &accepted {
            assert_headers(&format!("{dialect:?}"), email);
        }
    }
}

#[tokio::test]
async fn an_email_over_smtp_has_the_headers() {
    let server = Server::start().await;

    smtp(&server).send("ref", &on_a_thread(super::emails(1)), &SendPermit::always()).await;

    assert_headers("SMTP", &by_smtp(&server.emails()[0]));
}
