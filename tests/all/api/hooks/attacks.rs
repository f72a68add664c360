//! P8: forged, modified, stale or replayed reports change nothing. Neither do bodies that are not
//! reports.

use serde_json::{Value, json};
use tidings::domain::ReportKind;

use super::signing::{MAILGUN, Signed, forge, mailgun, sign};
use super::{Event, PROVIDERS, email_to, emailed, lift_at, recorded_kind, suppression, tag_of};
use crate::api::{Answer, Api};
use crate::support::Fresh;
use crate::support::town::{monday, mostly_on_sqlite};

mostly_on_sqlite! {
    forged_or_stale_reports_change_nothing
    a_mailgun_token_is_valid_only_for_its_first_report
    a_repeated_report_is_accepted_and_changes_nothing
}

on_sqlite! {
    a_report_is_not_read_if_its_signature_is_wrong
    bodies_that_are_not_reports_are_rejected
    a_signature_is_valid_for_as_long_as_the_provider_retries
}

fn event<'a>(provider: &'a str, tag: &'a str, n: u32) -> Event<'a> {
    Event { provider, news: "bounced", n, tag, to: "ada@example.org", at: monday(0).timestamp() }
}

/// Asserts a rejection with 401, a status that no provider treats as a reason to stop retrying.
fn assert_refused(provider: &str, answer: &Answer, about: &str) {
    answer.assert_problem(401, "unverified", &format_args!("{provider}: {about}"));
    let body = answer.body.to_string();
    assert!(!body.contains("example.org"), "{body}");
}

async fn assert_unchanged(api: &Api, about: &str) {
    let ada = email_to(api, "ada").await;
    assert_eq!(recorded_kind(api, &ada).await, None, "{about}");
    for address in ["ada@example.org", "ben@example.org"] {
        assert_eq!(suppression(api, address).await, None, "{about}");
    }
}

async fn forged_or_stale_reports_change_nothing(fresh: Fresh) {
    let api = emailed(&fresh).await;
    let tag = tag_of(&email_to(&api, "ada").await);
    for provider in PROVIDERS {
        let event = event(provider, &tag, 1);
        let (body, at) = (event.body(), event.at);
        let good = event.signed();
        let text = String::from_utf8(good.body.clone()).unwrap();
        let tampered = text.replace("ada@example.org", "ben@example.org");
        let mut attacks = vec![
            ("another key", forge(provider, &body, at, 1)),
            ("no signature", Signed { headers: Vec::new(), body: body.to_string().into() }),
        ];
        if provider != "postmark" {
            let day = 24 * 3_600;
            attacks.push(("two days old", sign(provider, &body, at - 2 * day, 1)));
            attacks.push(("from tomorrow", sign(provider, &body, at + day, 1)));
        }
        if ["sendgrid", "resend", "ses"].contains(&provider) {
            attacks.push(("tampered", good.with_body(tampered)));
        }
        if ["sendgrid", "resend"].contains(&provider) {
            attacks
                .push(("shortened", good.with_body(text.trim_end_matches(['\r', '\n', '}', ']']))));
            attacks.push(("lengthened", good.with_body(format!("{text} "))));
        }
        for (name, _) in good.headers.clone() {
            attacks.push(("a header is missing", good.with_header(name, None)));
            for value in ["", "0", "v1,", "AAAA", "Basic Og==", "\u{fc}"] {
                attacks.push(("a header is wrong", good.with_header(name, Some(value))));
            }
        }
        if provider == "mailgun" {
            let of = |part: &str, value: Value| {
                let mut body: Value = serde_json::from_str(&text).unwrap();
                body["signature"][part] = value;
                good.with_body(body.to_string())
            };
            attacks.push(("another token", of("token", json!("token 2"))));
            attacks.push(("another time", of("timestamp", json!((at - 1).to_string()))));
            attacks.push(("no digits", of("signature", json!("zz"))));
            attacks.push(("no signature", of("signature", json!(""))));
            attacks.push(("a query", of("signature", json!({"$ne": ""}))));
        }
        for (about, attack) in attacks {
            let answer = api.hook(provider, attack).await;
            assert_refused(provider, &answer, about);
            assert_unchanged(&api, about).await;
        }
    }
    api.stop().await;
}

async fn a_mailgun_token_is_valid_only_for_its_first_report(fresh: Fresh) {
    let api = emailed(&fresh).await;
    let ada = email_to(&api, "ada").await;
    let (tag, ben) = (tag_of(&ada), tag_of(&email_to(&api, "ben").await));
    let bounced = event("mailgun", &tag, 1);
    let other = Event { n: 2, news: "complained", tag: &ben, to: "ben@example.org", ..bounced };
    let used = mailgun(MAILGUN, &other.body(), bounced.at, "token 1");
    // When it retries, Mailgun may serialize the same report differently.
    let again = mailgun(MAILGUN, &bounced.body(), bounced.at, "token 1");
    let again = again.with_body(format!(" {}\n", String::from_utf8(again.body.clone()).unwrap()));

    assert_eq!(api.report(&bounced).await.status, 200);
    let refused = api.hook("mailgun", used.clone()).await;
    let repeated = api.hook("mailgun", again).await;
    let refused_again = api.hook("mailgun", used).await;

    assert_refused("mailgun", &refused, "used");
    assert_refused("mailgun", &refused_again, "used");
    assert_eq!((repeated.status, &repeated.body["duplicates"]), (200, &json!(1)));
    assert_eq!(suppression(&api, "ben@example.org").await, None);
    api.stop().await;
}

async fn a_repeated_report_is_accepted_and_changes_nothing(fresh: Fresh) {
    let api = emailed(&fresh).await;
    let ada = email_to(&api, "ada").await;
    let tag = tag_of(&ada);
    for (n, provider) in PROVIDERS.into_iter().enumerate() {
        let mut event = event(provider, &tag, 1 + n as u32);
        event.at = monday(0).timestamp() - 60 + n as i64;
        assert_eq!(api.report(&event).await.body["suppressed"], 1, "{provider}");
        lift_at(&api, event.at).await;

        let again = api.report(&event).await;

        assert_eq!((again.status, &again.body["duplicates"]), (200, &json!(1)), "{provider}");
        assert_eq!(suppression(&api, "ada@example.org").await, None, "an operator lifted it");
    }
    assert_eq!(recorded_kind(&api, &ada).await, Some(ReportKind::Bounced));
    // The same event twice in one call.
    let event = event("sendgrid", &tag, 9);
    let body = event.body();
    let twice = json!([body[0], body[0]]);
    let answer = api.hook("sendgrid", sign("sendgrid", &twice, event.at, 9)).await;
    assert_eq!((&answer.body["taken"], &answer.body["duplicates"]), (&json!(1), &json!(1)));
    api.stop().await;
}

async fn bodies_that_are_not_reports_are_rejected(fresh: Fresh) {
    let api = emailed(&fresh).await;
    let at = monday(0).timestamp();
    let huge = format!("{{\"x\": \"{}\"}}", "x".repeat(1 << 20));
    for provider in PROVIDERS {
        let post = |body: &str, kind: &str| {
            let request = api.anonymous("POST", &format!("/hooks/{provider}"));
            let request = request.header("Content-Type", kind.to_owned());
            super::super::answer(request.body(body.to_owned()))
        };
        let large = post(&huge, "application/json").await;
        let form = post("a=b", "application/x-www-form-urlencoded").await;
        let text = post("not JSON", "application/json").await;
        large.assert_problem(413, "body_too_large", &provider);
        form.assert_problem(415, "unsupported_media_type", &provider);
        assert_refused(provider, &text, "not JSON");

        // Correctly signed, but not a report.
        for (n, body) in
            [json!({}), json!([{}]), json!({"event-data": {}}), json!({"RecordType": 1})]
                .into_iter()
                .enumerate()
        {
            if provider == "mailgun" && body.is_array() {
                continue;
            }
            let odd = api.hook(provider, sign(provider, &body, at, 100 + n as u32)).await;
            assert_eq!(
                (odd.status, odd.code()),
                match provider {
                    "ses" => (500, "internal"),
                    _ => (400, "invalid_body"),
                },
                "{provider} {body}"
            );
        }
    }
    assert_unchanged(&api, "no report").await;
    for method in ["GET", "PUT", "DELETE"] {
        let answer = super::super::answer(api.anonymous(method, "/hooks/mailgun")).await;
        assert_eq!((answer.status, answer.header("Allow")), (405, "POST"), "{method}");
    }
    api.stop().await;
}

async fn a_report_is_not_read_if_its_signature_is_wrong(fresh: Fresh) {
    let api = emailed(&fresh).await;
    let tag = tag_of(&email_to(&api, "ada").await);
    let event = event("mailgun", &tag, 1);
    let with_rest = |key: &str, rest: &str| {
        let signed = mailgun(key, &json!({}), event.at, "token 1");
        let signature: Value = serde_json::from_slice(&signed.body).unwrap();
        let signature = &signature["signature"];
        let body = format!(r#"{{"signature": {signature}, "event-data": {rest}}}"#);
        signed.with_body(body)
    };

    let forged = api.hook("mailgun", with_rest("another key", "{}")).await;
    let genuine = api.hook("mailgun", with_rest(MAILGUN, "{}")).await;
    let garbage = api.hook("mailgun", with_rest(MAILGUN, "{{{")).await;

    let detail = |answer: &Answer| answer.body["detail"].as_str().unwrap().to_owned();
    let wrong = "the signature does not fit the body and the key";
    assert_eq!((forged.status, detail(&forged)), (401, wrong.to_owned()));
    assert_eq!((genuine.status, genuine.code()), (400, "invalid_body"));
    assert_eq!(garbage.status, 401);
    assert!(detail(&garbage).contains("not JSON"), "{}", detail(&garbage));
    api.stop().await;
}

async fn a_signature_is_valid_for_as_long_as_the_provider_retries(fresh: Fresh) {
    let api = emailed(&fresh).await;
    let tag = tag_of(&email_to(&api, "ada").await);
    let minutes = [("mailgun", 12 * 60), ("sendgrid", 26 * 60), ("resend", 5), ("ses", 120)];
    for (n, (provider, minutes)) in minutes.into_iter().enumerate() {
        let event = event(provider, &tag, n as u32);
        let ago = |seconds: i64, n: u32| sign(provider, &event.body(), event.at - seconds, n);

        let late = api.hook(provider, ago(minutes * 60, 20 + n as u32)).await;
        let too_late = api.hook(provider, ago(minutes * 60 + 1, 30 + n as u32)).await;

        assert_eq!(late.status, 200, "{provider}");
        assert_refused(provider, &too_late, "too late");
    }
    api.stop().await;
}
