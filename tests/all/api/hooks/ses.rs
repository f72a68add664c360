//! Amazon SES through SNS: subscriptions, plain text messages, and unavailable certificates.

use serde_json::{Value, json};
use tidings::domain::ReportKind;

use super::signing::{Envelope, Signed};
use super::{Event, email_to, emailed, recorded_kind, tag_of};
use crate::api::Api;
use crate::support::town::{monday, mostly_on_sqlite};
use crate::support::{Fresh, sns};

mostly_on_sqlite! {
    a_subscription_is_confirmed_only_after_verification
    an_unavailable_certificate_is_requested_again
}

on_sqlite! {
    a_certificate_is_fetched_once
    plain_text_messages_are_ignored
    only_ses_may_send_json_as_plain_text
}

fn envelope<'a>(kind: &'a str, message: &'a str, n: u32) -> Envelope<'a> {
    Envelope { kind, message, n, at: monday(0).timestamp(), token: None }
}

async fn a_subscription_is_confirmed_only_after_verification(fresh: Fresh) {
    let api = emailed(&fresh).await;
    let token = format!("70ce{:x}", api.addr.port());
    let envelope = Envelope {
        token: Some(&token),
        ..envelope("SubscriptionConfirmation", "You have chosen", 1)
    };
    let signed = envelope.signed();
    let body: Value = serde_json::from_slice(&signed.body).unwrap();
    assert!(body["SubscribeURL"].as_str().unwrap().contains("evil.example"));
    let with = |part: &str, value: &str| {
        let mut body = body.clone();
        body[part] = value.into();
        signed.with_body(body.to_string())
    };

    for forged in [
        with("Token", &format!("{token}0")),
        with("SubscribeURL", "https://sns.eu-west-1.amazonaws.com/"),
        with("Type", "Notification"),
    ] {
        let answer = api.hook("ses", forged).await;
        assert_eq!((answer.status, answer.code()), (401, "unverified"));
    }
    assert_eq!(sns::requests(&token), [] as [&str; 0]);

    let confirmed = api.hook("ses", signed).await;

    assert_eq!((confirmed.status, &confirmed.body["ignored"]), (200, &json!(1)));
    let expected = format!(
        "/?Action=ConfirmSubscription&TopicArn=arn%3Aaws%3Asns%3Aeu-west-1%3A123456789012%3Atidings&Token={token}"
    );
    assert_eq!(sns::requests(&token), [expected]);
    api.stop().await;
}

fn bounce(tag: &str, n: u32) -> Event<'_> {
    Event {
        provider: "ses",
        news: "bounced",
        n,
        tag,
        to: "ada@example.org",
        at: monday(0).timestamp(),
    }
}

fn certificate_at(signed: &Signed, path: &str) -> Signed {
    let mut body: Value = serde_json::from_slice(&signed.body).unwrap();
    body["SigningCertURL"] = format!("https://sns.eu-west-1.amazonaws.com/{path}").into();
    signed.with_body(body.to_string())
}

async fn an_unavailable_certificate_is_requested_again(fresh: Fresh) {
    let api = emailed(&fresh).await;
    let ada = email_to(&api, "ada").await;
    let tag = tag_of(&ada);
    let signed = bounce(&tag, 1).signed();

    let away = api.hook("ses", certificate_at(&signed, sns::AWAY)).await;
    let absent = api.hook("ses", certificate_at(&signed, sns::ABSENT)).await;
    assert_eq!(recorded_kind(&api, &ada).await, None);
    let accepted = api.hook("ses", signed).await;

    assert_eq!((away.status, away.code()), (503, "provider_unavailable"));
    assert_eq!((absent.status, absent.code()), (401, "unverified"));
    assert_eq!((accepted.status, &accepted.body["taken"]), (200, &json!(1)));
    assert_eq!(recorded_kind(&api, &ada).await, Some(ReportKind::Bounced));
    api.stop().await;
}

async fn a_certificate_is_fetched_once(fresh: Fresh) {
    let api = emailed(&fresh).await;
    let tag = tag_of(&email_to(&api, "ada").await);
    let path = format!("SimpleNotificationService-cafe{:x}.pem", api.addr.port());
    for n in 1..4 {
        let signed = certificate_at(&bounce(&tag, n).signed(), &path);
        assert_eq!(api.hook("ses", signed).await.status, 200, "{n}");
    }
    assert_eq!(sns::requests(&path).len(), 1);
    api.stop().await;
}

async fn plain_text_messages_are_ignored(fresh: Fresh) {
    let api = emailed(&fresh).await;
    let words = "Successfully validated SNS topic for Amazon SES event publishing.";
    for (n, kind) in ["Notification", "UnsubscribeConfirmation"].into_iter().enumerate() {
        let answer = api.hook("ses", envelope(kind, words, n as u32).signed()).await;
        assert_eq!((answer.status, &answer.body["ignored"]), (200, &json!(1)), "{kind}");
    }
    api.stop().await;
}

async fn only_ses_may_send_json_as_plain_text(fresh: Fresh) {
    let api = emailed(&fresh).await;
    let tag = tag_of(&email_to(&api, "ada").await);
    let post = |api: &Api, provider: &str, signed: Signed| {
        let mut request = api.anonymous("POST", &format!("/hooks/{provider}"));
        for (name, value) in signed.headers {
            request = request.header(name, value);
        }
        let request = request.header("Content-Type", "text/plain; charset=UTF-8");
        crate::api::answer(request.body(signed.body))
    };
    let other = Event { provider: "resend", ..bounce(&tag, 2) };

    let ses = post(&api, "ses", bounce(&tag, 1).signed()).await;
    let resend = post(&api, "resend", other.signed()).await;

    assert_eq!((ses.status, &ses.body["taken"]), (200, &json!(1)));
    resend.assert_problem(415, "unsupported_media_type", &"");
    api.stop().await;
}
