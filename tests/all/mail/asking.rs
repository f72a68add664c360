//! P5: unknown outcomes, and queries to the providers that can resolve them.

use tidings::email::{QueryAnswer, Resolution, SendPermit};

use super::provider::{Dialect, Next, Provider};
use super::{PATIENT, emails, kinds, mailer};

/// Returns the kind of each answer.
fn answer_kinds(answers: &[QueryAnswer]) -> Vec<&'static str> {
    answers
        .iter()
        .map(|answer| match answer {
            QueryAnswer::Accepted(..) => "taken",
            QueryAnswer::NotAccepted => "not taken",
            QueryAnswer::Failed(_) => "silent",
        })
        .collect()
}

#[tokio::test]
async fn a_query_finds_accepted_emails_after_a_lost_answer() {
    for dialect in [Dialect::Mailgun, Dialect::Postmark] {
        let provider = Provider::start(dialect).await;
        let mailer = mailer(dialect, &provider.url, PATIENT);
        let (lost, reset) = (emails(3), emails(5).split_off(3));
        provider.then([Next::Lose, Next::Reset]);
        assert_eq!(kinds(&mailer.send("ref-1", &lost, &SendPermit::always()).await), ["unknown"]);
        assert_eq!(kinds(&mailer.send("ref-2", &reset, &SendPermit::always()).await), ["unknown"]);

        let ids = |emails: &[_]| -> Vec<_> {
            emails.iter().map(|email: &tidings::email::Message| email.delivery.clone()).collect()
        };
        let accepted = mailer.query_outcomes("ref-1", &ids(&lost)).await;
        let unknown = mailer.query_outcomes("ref-2", &ids(&reset)).await;

        assert_eq!(mailer.resolution(), Resolution::Query);
        assert_eq!(answer_kinds(&accepted), ["taken"; 3], "{dialect:?}: {accepted:?}");
        assert_eq!(answer_kinds(&unknown), ["not taken"; 2], "{dialect:?}: {unknown:?}");
        assert_eq!(provider.emails().len(), 3);
    }
}

#[tokio::test]
async fn one_event_shows_that_mailgun_accepted_the_whole_call() {
    let provider = Provider::start(Dialect::Mailgun).await;
    let mailer = mailer(Dialect::Mailgun, &provider.url, PATIENT);
    let all = emails(700);
    provider.then([Next::Lose]);
    mailer.send("ref-1", &all, &SendPermit::always()).await;

    let ids: Vec<_> = all.iter().map(|email| email.delivery.clone()).collect();
    let answers = mailer.query_outcomes("ref-1", &ids).await;

    assert_eq!(answer_kinds(&answers), ["taken"; 700]);
    assert_eq!(provider.requests().len(), 1 + 1);

    let others = r#"{"items":[{"message":{"headers":{"message-id":"ref-2@mg.art.example"}}}]}"#;
    provider.then([Next::Answer(200, vec![], others.into())]);
    let answers = mailer.query_outcomes("ref-1", &ids[..1]).await;
    assert_eq!(answer_kinds(&answers), ["silent"], "events of another call");
}

#[tokio::test]
async fn a_failed_or_unreadable_query_is_silence() {
    for dialect in [Dialect::Mailgun, Dialect::Postmark] {
        let provider = Provider::start(dialect).await;
        let mailer = mailer(dialect, &provider.url, PATIENT);
        let ids = [emails(1)[0].delivery.clone()];
        for next in [
            Next::Reset,
            Next::Garble,
            Next::Answer(500, vec![], String::new()),
            Next::Answer(
                200,
                vec![],
                r#"{"items":[{}],"paging":{},"TotalCount":1,"Messages":[{}]}"#.into(),
            ),
        ] {
            provider.then([next.clone()]);
            let answers = mailer.query_outcomes("ref-1", &ids).await;
            assert_eq!(answer_kinds(&answers), ["silent"], "{dialect:?} {next:?}: {answers:?}");
        }
    }
}

#[tokio::test]
async fn a_repeated_resend_call_under_its_key_sends_nothing_twice() {
    let provider = Provider::start(Dialect::Resend).await;
    let mailer = mailer(Dialect::Resend, &provider.url, PATIENT);
    let two = emails(2);
    provider.then([Next::Lose, Next::Garble]);

    assert_eq!(kinds(&mailer.send("ref-1", &two, &SendPermit::always()).await), ["unknown"]);
    assert_eq!(kinds(&mailer.send("ref-1", &two, &SendPermit::always()).await), ["unknown"]);
    assert_eq!(kinds(&mailer.send("ref-1", &two, &SendPermit::always()).await), ["accepted"]);
    // Resend rejects a changed body under a used key, which shows that the first call was accepted.
    assert_eq!(kinds(&mailer.send("ref-1", &emails(1), &SendPermit::always()).await), ["accepted"]);

    assert_eq!(provider.emails().len(), 2);
    assert!(matches!(mailer.resolution(), Resolution::Repeat { within: Some(_) }));
}

#[tokio::test]
async fn sendgrid_and_ses_cannot_be_queried() {
    for dialect in [Dialect::SendGrid, Dialect::Ses] {
        let provider = Provider::start(dialect).await;
        let mailer = mailer(dialect, &provider.url, PATIENT);
        let ids = [emails(1)[0].delivery.clone()];

        assert_eq!(mailer.resolution(), Resolution::Impossible, "{dialect:?}");
        assert_eq!(answer_kinds(&mailer.query_outcomes("ref-1", &ids).await), ["silent"]);
        assert!(provider.requests().is_empty());
    }
}

#[tokio::test]
async fn a_rate_limited_query_returns_the_requested_delay() {
    for dialect in [Dialect::Mailgun, Dialect::Postmark] {
        let provider = Provider::start(dialect).await;
        let wait = vec![("Retry-After", "7".to_owned())];
        provider.then([Next::Answer(429, wait, "{}".into())]);

        let answers = mailer(dialect, &provider.url, PATIENT)
            .query_outcomes("ref-1", &[emails(1)[0].delivery.clone()])
            .await;

        let QueryAnswer::Failed(silence) = &answers[0] else { panic!("{dialect:?}: {answers:?}") };
        assert_eq!(silence.min_wait, Some(std::time::Duration::from_secs(7)));
    }
}
