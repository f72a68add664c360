//! Outcomes that nobody saw, and how they are found out where they can be (P5).

use tidings::email::{Answer, Certainty, Leave, tag};

use super::provider::{Dialect, Next, Provider};
use super::{PATIENT, kinds, mailer, mails};

/// Kinds of answers, in order.
fn said(answers: &[Answer]) -> Vec<&'static str> {
    answers
        .iter()
        .map(|answer| match answer {
            Answer::Taken { .. } => "taken",
            Answer::NotTaken => "not taken",
            Answer::Silent(_) => "silent",
        })
        .collect()
}

#[tokio::test]
async fn who_can_be_asked_says_what_was_taken_though_its_answer_was_lost() {
    for dialect in [Dialect::Mailgun, Dialect::Postmark] {
        let provider = Provider::start(dialect).await;
        let mailer = mailer(dialect, &provider.url, PATIENT);
        let (lost, reset) = (mails(3), mails(5).split_off(3));
        provider.then([Next::Lose, Next::Reset]);
        assert_eq!(
            kinds(&mailer.send("ref-1", &lost, &Leave::always()).await),
            ["unknown"]
        );
        assert_eq!(
            kinds(&mailer.send("ref-2", &reset, &Leave::always()).await),
            ["unknown"]
        );

        let ids = |mails: &[_]| -> Vec<_> {
            mails
                .iter()
                .map(|mail: &tidings::email::Message| mail.delivery.clone())
                .collect()
        };
        let taken = mailer.ask("ref-1", &ids(&lost)).await;
        let not_taken = mailer.ask("ref-2", &ids(&reset)).await;

        assert_eq!(mailer.certainty(), Certainty::Ask);
        assert_eq!(said(&taken), ["taken"; 3], "{dialect:?}: {taken:?}");
        assert_eq!(
            said(&not_taken),
            ["not taken"; 2],
            "{dialect:?}: {not_taken:?}"
        );
        assert_eq!(provider.mails().len(), 3);
    }
}

#[tokio::test]
async fn a_call_of_many_is_read_page_by_page_from_mailgun_and_nobody_else() {
    let provider = Provider::start(Dialect::Mailgun).await;
    let mailer = mailer(Dialect::Mailgun, &provider.url, PATIENT);
    let all = mails(700);
    provider.then([Next::Lose]);
    mailer.send("ref-1", &all, &Leave::always()).await;

    let ids: Vec<_> = all.iter().map(|mail| mail.delivery.clone()).collect();
    let answers = mailer.ask("ref-1", &ids).await;

    assert_eq!(said(&answers), ["taken"; 700]);
    assert_eq!(provider.requests().len(), 1 + 3);

    // A page that names another place to go on is read on where the key belongs.
    let elsewhere = Provider::start(Dialect::Mailgun).await;
    let tag = tag(&all[0].delivery);
    let item = format!(
        r#"{{"message":{{"headers":{{"message-id":"ref-1@mg.art.example"}}}},"user-variables":{{"delivery":"{tag}"}}}}"#
    );
    let items = vec![item; 300].join(",");
    let next = format!(
        "{}/v3/mg.art.example/events?message-id=ref-1%40mg.art.example&page=600",
        elsewhere.url
    );
    let page = format!(r#"{{"items":[{items}],"paging":{{"next":"{next}"}}}}"#);
    provider.then([Next::Answer(200, vec![], page)]);
    let answers = mailer.ask("ref-1", &ids[..1]).await;
    assert_eq!(said(&answers), ["taken"]);
    assert!(elsewhere.requests().is_empty());
}

#[tokio::test]
async fn a_mail_that_is_not_listed_beside_others_of_its_call_is_asked_about_again() {
    let provider = Provider::start(Dialect::Mailgun).await;
    let mailer = mailer(Dialect::Mailgun, &provider.url, PATIENT);
    let three = mails(3);
    mailer.send("ref-1", &three[..2], &Leave::always()).await;

    let ids: Vec<_> = three.iter().map(|mail| mail.delivery.clone()).collect();
    let answers = mailer.ask("ref-1", &ids).await;

    assert_eq!(said(&answers), ["taken", "taken", "silent"]);
}

#[tokio::test]
async fn an_answer_that_cannot_be_got_is_silence() {
    for dialect in [Dialect::Mailgun, Dialect::Postmark] {
        let provider = Provider::start(dialect).await;
        let mailer = mailer(dialect, &provider.url, PATIENT);
        let ids = [mails(1)[0].delivery.clone()];
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
            let answers = mailer.ask("ref-1", &ids).await;
            assert_eq!(
                said(&answers),
                ["silent"],
                "{dialect:?} {next:?}: {answers:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_call_to_resend_is_made_again_under_its_key_and_mails_nothing_twice() {
    let provider = Provider::start(Dialect::Resend).await;
    let mailer = mailer(Dialect::Resend, &provider.url, PATIENT);
    let two = mails(2);
    provider.then([Next::Lose, Next::Garble]);

    assert_eq!(
        kinds(&mailer.send("ref-1", &two, &Leave::always()).await),
        ["unknown"]
    );
    assert_eq!(
        kinds(&mailer.send("ref-1", &two, &Leave::always()).await),
        ["unknown"]
    );
    assert_eq!(
        kinds(&mailer.send("ref-1", &two, &Leave::always()).await),
        ["accepted"]
    );
    // Even if what the mails say has changed meanwhile.
    assert_eq!(
        kinds(&mailer.send("ref-1", &mails(1), &Leave::always()).await),
        ["accepted"]
    );

    assert_eq!(provider.mails().len(), 2);
    assert!(matches!(
        mailer.certainty(),
        Certainty::Repeat { within: Some(_) }
    ));
}

#[tokio::test]
async fn nobody_can_ask_sendgrid_or_ses() {
    for dialect in [Dialect::SendGrid, Dialect::Ses] {
        let provider = Provider::start(dialect).await;
        let mailer = mailer(dialect, &provider.url, PATIENT);
        let ids = [mails(1)[0].delivery.clone()];

        assert_eq!(mailer.certainty(), Certainty::Never, "{dialect:?}");
        assert_eq!(said(&mailer.ask("ref-1", &ids).await), ["silent"]);
        assert!(provider.requests().is_empty());
    }
}

#[tokio::test]
async fn too_many_questions_are_answered_with_the_wait_that_is_asked_for() {
    for dialect in [Dialect::Mailgun, Dialect::Postmark] {
        let provider = Provider::start(dialect).await;
        let wait = vec![("Retry-After", "7".to_owned())];
        provider.then([Next::Answer(429, wait, "{}".into())]);

        let answers = mailer(dialect, &provider.url, PATIENT)
            .ask("ref-1", &[mails(1)[0].delivery.clone()])
            .await;

        let Answer::Silent(silence) = &answers[0] else {
            panic!("{dialect:?}: {answers:?}")
        };
        assert_eq!(silence.after, Some(std::time::Duration::from_secs(7)));
    }
}
