//! Calls to the providers' APIs: the requests, and the outcomes of responses and failures.

use std::collections::BTreeSet;
use std::time::Duration;

use tidings::config::Config;
use tidings::email::{CheckResult, Outcome, SendPermit, delivery_tag};
use tidings::engine::delivery::brand_identities::new_mailer as configured;
use tokio::net::TcpListener;

use super::provider::ses;
use super::provider::{Dialect, Next, Provider};
use super::{ALL, PATIENT, call_of, email, emails, kinds, mailer};

#[tokio::test]
async fn requests_have_the_form_that_each_provider_documents() {
    for dialect in ALL {
        let provider = Provider::start(dialect).await;

        let outcomes = mailer(dialect, &provider.url, PATIENT)
            .send("ref-1", &call_of(dialect, 2), &SendPermit::always())
            .await;

        assert_eq!(kinds(&outcomes), ["accepted"], "{dialect:?}: {outcomes:?}");
        let request = provider.requests().remove(0);
        assert!(request.header("user-agent").starts_with("tidings/"), "{dialect:?}");
        assert_eq!(request.header("accept"), "application/json");
        let (path, kind, proof, key) = match dialect {
            Dialect::Mailgun => (
                "/v3/mg.art.example/messages",
                "multipart/form-data; boundary=tidings-ref-1",
                "authorization",
                "Basic YXBpOmtleS0x",
            ),
            Dialect::SendGrid => {
                ("/v3/mail/send", "application/json", "authorization", "Bearer key-1")
            }
            Dialect::Postmark => {
                ("/email/batch", "application/json", "x-postmark-server-token", "key-1")
            }
            Dialect::Resend => {
                ("/emails/batch", "application/json", "authorization", "Bearer key-1")
            }
            Dialect::Ses => {
                ("/v2/email/outbound-emails", "application/json", "authorization", ses::PROOF)
            }
        };
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", path));
        // For SES, a signature of 64 hexadecimal digits follows.
        let (shown, signature) = request.header(proof).split_at(key.len());
        assert_eq!((request.header("content-type"), shown), (kind, key));
        let length = if dialect == Dialect::Ses { 64 } else { 0 };
        assert_eq!(signature.len(), length, "{dialect:?}");
        assert!(!format!("{request:?}").contains("key-1") || dialect != Dialect::Ses);
        let idempotency = request.header("idempotency-key");
        assert_eq!(idempotency, if dialect == Dialect::Resend { "ref-1" } else { "" });
    }
}

#[tokio::test]
async fn many_emails_share_a_call_and_each_has_one_recipient() {
    for (dialect, most) in [
        (Dialect::Mailgun, 1000),
        (Dialect::SendGrid, 1000),
        (Dialect::Postmark, 500),
        (Dialect::Resend, 100),
        (Dialect::Ses, 1),
    ] {
        let provider = Provider::start(dialect).await;
        let mailer = mailer(dialect, &provider.url, PATIENT);
        let all = emails(most + 1);

        let calls = mailer.split_into_calls(&all);
        for (n, call) in calls.iter().enumerate() {
            let together: Vec<_> = call.iter().map(|place| all[*place].clone()).collect();
            let outcomes = mailer.send(&format!("ref-{n}"), &together, &SendPermit::always()).await;
            assert_eq!(kinds(&outcomes), ["accepted"], "{dialect:?}");
        }

        assert_eq!(calls.iter().map(Vec::len).collect::<Vec<_>>(), [most, 1], "{dialect:?}");
        let accepted = provider.emails();
        assert_eq!(accepted.len(), most + 1);
        for (email, sent) in accepted.iter().zip(&all) {
            let person = sent.delivery.as_str().split(':').nth(1).unwrap();
            assert_eq!(email.to, [format!("{person}@example.org")], "{dialect:?}");
            assert_eq!(email.delivery, delivery_tag(&sent.delivery));
            assert_eq!(email.unsubscribe, format!("<https://x.example/u/{person}>"));
        }
        let ids: BTreeSet<_> = accepted.iter().map(|email| &email.delivery).collect();
        assert_eq!(ids.len(), most + 1);
    }
}

#[tokio::test]
async fn a_failed_connection_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    for dialect in ALL {
        let outcomes = mailer(dialect, &url, PATIENT)
            .send("ref-1", &call_of(dialect, 2), &SendPermit::always())
            .await;
        assert_eq!(kinds(&outcomes), ["unreachable"], "{dialect:?}: {outcomes:?}");
    }
}

#[tokio::test]
async fn a_call_without_an_answer_is_unknown_and_not_repeated() {
    for dialect in ALL {
        for next in [Next::Reset, Next::Lose] {
            let provider = Provider::start(dialect).await;
            provider.then([next.clone()]);

            let outcomes = mailer(dialect, &provider.url, PATIENT)
                .send("ref-1", &call_of(dialect, 2), &SendPermit::always())
                .await;

            assert_eq!(kinds(&outcomes), ["unknown"], "{dialect:?} {next:?}: {outcomes:?}");
            assert_eq!(provider.requests().len(), 1);
        }
    }
}

#[tokio::test]
async fn a_late_answer_is_unknown() {
    for dialect in ALL {
        let provider = Provider::start(dialect).await;
        provider.then([Next::Late]);
        let hasty = mailer(dialect, &provider.url, Duration::from_millis(300));

        let outcomes = hasty.send("ref-1", &call_of(dialect, 2), &SendPermit::always()).await;

        assert_eq!(kinds(&outcomes), ["unknown"], "{dialect:?}: {outcomes:?}");
        let Outcome::Unknown(reason) = &outcomes[0] else { panic!() };
        assert_eq!(reason, "no answer within 0.3 s");
    }
}

#[tokio::test]
async fn an_unreadable_success_is_unknown() {
    // SendGrid reports success by status and header, without a body.
    for dialect in ALL.into_iter().filter(|it| *it != Dialect::SendGrid) {
        for next in [Next::Garble, Next::Break, Next::Flood] {
            let provider = Provider::start(dialect).await;
            provider.then([next.clone()]);

            let outcomes = mailer(dialect, &provider.url, PATIENT)
                .send("ref-1", &call_of(dialect, 2), &SendPermit::always())
                .await;

            assert_eq!(kinds(&outcomes), ["unknown"], "{dialect:?} {next:?}: {outcomes:?}");
        }
    }
}

#[tokio::test]
async fn a_429_is_retried_after_the_requested_delay() {
    for dialect in ALL {
        let provider = Provider::start(dialect).await;
        let wait = vec![("Retry-After", "7".to_owned())];
        provider.then([Next::Answer(429, wait, "{}".into())]);

        let outcomes = mailer(dialect, &provider.url, PATIENT)
            .send("ref-1", &call_of(dialect, 2), &SendPermit::always())
            .await;

        for outcome in outcomes {
            let Outcome::TryLater(_, after) = outcome else { panic!("{dialect:?}: {outcome:?}") };
            assert_eq!(after, Some(Duration::from_secs(7)));
        }
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    for dialect in ALL {
        let provider = Provider::start(dialect).await;
        let elsewhere = Provider::start(dialect).await;
        let location = vec![("Location", format!("{}/x", elsewhere.url))];
        provider.then([Next::Answer(307, location, String::new())]);

        let outcomes = mailer(dialect, &provider.url, PATIENT)
            .send("ref-1", &call_of(dialect, 2), &SendPermit::always())
            .await;

        assert_eq!(kinds(&outcomes), ["stop"], "{dialect:?}: {outcomes:?}");
        assert!(elsewhere.requests().is_empty());
    }
}

#[tokio::test]
async fn an_unsendable_email_does_not_block_the_others() {
    for dialect in ALL {
        let provider = Provider::start(dialect).await;
        let mut three = emails(3);
        three[1].extra_headers.push(("X-A".into(), "b\nBcc: eve@example.org".into()));

        let outcomes = mailer(dialect, &provider.url, PATIENT)
            .send("ref-1", &three, &SendPermit::always())
            .await;

        assert_eq!(kinds(&outcomes), ["accepted", "unsendable", "accepted"], "{dialect:?}");
        assert_eq!(provider.emails().len(), 2);
    }
}

#[tokio::test]
async fn an_inactive_recipient_does_not_affect_the_others() {
    let provider = Provider::start(Dialect::Postmark).await;
    let three = [email("ada"), email("inactive"), email("cem")];

    let outcomes = mailer(Dialect::Postmark, &provider.url, PATIENT)
        .send("ref-1", &three, &SendPermit::always())
        .await;

    assert_eq!(kinds(&outcomes), ["accepted", "undeliverable", "accepted"]);
    assert_eq!(provider.emails().len(), 2);
}

#[tokio::test]
async fn a_check_reports_problems_without_sending_an_email() {
    for dialect in ALL {
        let provider = Provider::start(dialect).await;
        let mailer = mailer(dialect, &provider.url, PATIENT);

        let fine = mailer.check().await;
        provider.then([Next::Answer(401, vec![], "\"Forbidden\"".into())]);
        let wrong = mailer.check().await;
        provider.then([Next::Answer(400, vec![], "\"Bad\"".into())]);
        let bad = mailer.check().await;
        provider.then([Next::Reset]);
        let silent = mailer.check().await;

        assert!(matches!(fine, CheckResult::Ready(..)), "{dialect:?}: {fine:?}");
        assert!(
            matches!(&wrong, CheckResult::Wrong(found, remedy)
                if found.contains("rejected the key") && remedy.contains("mail.key")),
            "{wrong:?}"
        );
        assert!(
            matches!(&bad, CheckResult::Wrong(found, _)
                if found.contains("rejected the key") == matches!(dialect, Dialect::Ses)),
            "{dialect:?}: {bad:?}"
        );
        assert!(
            matches!(&silent, CheckResult::Unreached(reason) if reason.contains("no answer")),
            "{silent:?}"
        );
        assert!(provider.requests().iter().all(|request| request.method == "GET"));
        assert!(!format!("{fine:?}{wrong:?}{silent:?}").contains("key-1"));
    }
}

#[tokio::test]
async fn a_check_returns_the_names_of_the_dkim_keys() {
    for (dialect, expected) in [
        (Dialect::Mailgun, &["k1._domainkey.mg.art.example"][..]),
        (Dialect::SendGrid, &[]),
        (Dialect::Postmark, &[]),
        (Dialect::Resend, &["resend._domainkey.art.example"]),
        (Dialect::Ses, &["t1._domainkey.art.example", "t2._domainkey.art.example"]),
    ] {
        let provider = Provider::start(dialect).await;

        let checked = mailer(dialect, &provider.url, PATIENT).check().await;

        assert!(matches!(&checked, CheckResult::Ready(_, dkim) if dkim == expected), "{checked:?}");
    }
}

#[tokio::test]
async fn a_key_restricted_to_sending_is_enough() {
    let provider = Provider::start(Dialect::Resend).await;
    let restricted = serde_json::json!({ "statusCode": 401, "name": "restricted_api_key", "message": "This API key is restricted to only send emails" });
    provider.then([Next::Answer(401, vec![], restricted.to_string())]);

    let checked = mailer(Dialect::Resend, &provider.url, PATIENT).check().await;

    assert!(
        matches!(&checked, CheckResult::Ready(found, _) if found.contains("only send")),
        "{checked:?}"
    );
}

#[tokio::test]
async fn a_domain_that_the_provider_does_not_send_from_is_a_problem() {
    for (dialect, answer, expected) in [
        (
            Dialect::Resend,
            serde_json::json!({ "data": [{ "id": "d2", "name": "other.example", "status": "verified" }] }),
            "not the domain art.example",
        ),
        (
            Dialect::Resend,
            serde_json::json!({ "data": [{ "id": "d1", "name": "art.example", "status": "pending" }] }),
            "art.example is pending",
        ),
        (
            Dialect::Mailgun,
            serde_json::json!({ "domain": { "state": "unverified" } }),
            "mg.art.example is unverified",
        ),
        (Dialect::SendGrid, serde_json::json!({ "scopes": ["stats.read"] }), "it may not send"),
    ] {
        let provider = Provider::start(dialect).await;
        provider.then([Next::Answer(200, vec![], answer.to_string())]);

        let checked = mailer(dialect, &provider.url, PATIENT).check().await;

        assert!(
            matches!(&checked, CheckResult::Wrong(found, _) if found.contains(expected)),
            "{checked:?}"
        );
    }
}

#[tokio::test]
async fn a_url_without_a_server_is_a_problem() {
    for dialect in ALL {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", free.local_addr().unwrap());
        drop(free);

        let checked = mailer(dialect, &url, PATIENT).check().await;

        assert!(
            matches!(&checked, CheckResult::Wrong(_, remedy) if remedy.contains("mail.url")),
            "{checked:?}"
        );
    }
}

#[tokio::test]
async fn the_configured_provider_receives_the_emails() {
    for dialect in ALL {
        let name = dialect.name();
        let provider = Provider::start(dialect).await;
        let config = Config::parse(&format!(
            r#"
            [mail]
            provider = "{name}"
            url = "{}"
            key = "key-2"
            domain = "mg.art.example"
            access_key_id = "{}"
            from = "digest@art.example"
            per_call = 2
            {}
            "#,
            provider.url,
            ses::KEY_ID,
            if dialect == Dialect::Ses { "region = \"eu-west-1\"" } else { "" },
        ));
        let mailer = configured(&config.unwrap()).unwrap();
        let three = emails(3);

        let calls = mailer.split_into_calls(&three);
        let first = &three[..calls[0].len()];
        let outcomes = mailer.send("ref-1", first, &SendPermit::always()).await;

        assert_eq!(kinds(&outcomes), ["accepted"], "{name}: {outcomes:?}");
        match dialect {
            Dialect::Ses => assert_eq!(calls, [vec![0], vec![1], vec![2]]),
            _ => assert_eq!(calls, [vec![0, 1], vec![2]]),
        }
        assert_eq!((mailer.name(), provider.emails().len()), (name, first.len()));
    }
}
