//! What an operator is told of a person.

use chrono::TimeDelta;
use tidings::domain::user::TypePreference;
use tidings::domain::{ObjectId, Route};
use tidings::services::Silent;
use tidings::services::batches::{BatchFilter, End};
use tidings::wire::explanation::Why;

use crate::support::town::{Town, lost, monday, on_both_stores, saturday, to};
use crate::support::{Fresh, kind, user};

on_both_stores! {
    what_was_withdrawn_is_told_by_its_title
    a_digest_that_is_due_already_is_said_to_be
    what_gathers_is_said_to_and_then_to_be_mailed
    a_lost_answer_and_a_canceled_batch_are_told_from_mails
}

async fn a_digest_that_is_due_already_is_said_to_be(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada"])).await;
    let told = async || {
        let told = town.process().explain().user(&user("ada"), None).await;
        told.unwrap().digest.unwrap().next_due.unwrap()
    };
    let half_an_hour = TimeDelta::minutes(30);

    let before = told().await;
    town.clock.set(monday(0));
    let due = told().await;
    town.digests_at(monday(0)).await;
    let after = told().await;

    assert_eq!(before, monday(0) - half_an_hour);
    assert_eq!(due, before, "nobody has mailed it yet");
    assert_eq!(after, monday(1) - half_an_hour);
}

async fn what_was_withdrawn_is_told_by_its_title(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1", "a9"], to(&["ada"])).await;

    let told = town.process().explain().user(&user("ada"), None).await;

    let told: Vec<_> = told
        .unwrap()
        .events
        .into_iter()
        .map(|fate| (fate.title.unwrap(), fate.why))
        .collect();
    assert_eq!(
        told,
        [
            ("Work a9.".to_owned(), Why::Withdrawn),
            ("Work a1.".to_owned(), Why::NextDigest)
        ]
    );
}

const COMMENTS: &str = r#"
types.ArtworkPublished.route = "batch"
types.ArtworkPublished.window = "5m"
"#;

async fn fates(town: &Town, person: &str) -> Vec<(String, Why)> {
    let told = town.process().explain().user(&user(person), None).await;
    let told = told.unwrap().events.into_iter().rev();
    told.map(|fate| (fate.object.to_string(), fate.why))
        .collect()
}

/// Ends what is due, and mails what waits.
async fn mail(town: &Town) {
    let app = town.process();
    app.closer().drain(&Silent).await.unwrap();
    app.sender().drain().await.unwrap();
}

async fn what_gathers_is_said_to_and_then_to_be_mailed(fresh: Fresh) {
    let town = Town::found(&fresh, true, COMMENTS).await;
    town.happens(&["a1", "a9"], to(&["ada", "dee"])).await;
    town.happens(&["a2"], to(&["ada"])).await;
    town.process()
        .batches()
        .take_out(&kind("ArtworkPublished"), &[ObjectId::stored("a2")], None)
        .await
        .unwrap();
    let why = |fates: [Why; 3]| {
        let fates = ["a1", "a9", "a2"].map(str::to_owned).into_iter().zip(fates);
        fates.collect::<Vec<_>>()
    };

    let app = town.process();
    let gathering = app.explain().user(&user("ada"), None).await.unwrap();
    let before = fates(&town, "ada").await;
    town.clock.advance(TimeDelta::minutes(5));
    mail(&town).await;

    let batch = gathering.events[1].batch.clone().unwrap();
    assert_eq!(batch.closes_at, saturday() + TimeDelta::minutes(5));
    assert_eq!(
        (gathering.batches.len(), gathering.batches[0].id),
        (1, batch.id)
    );
    assert_eq!(before, why([Why::Gathering, Why::Withdrawn, Why::TakenOut]));
    let after = app.explain().user(&user("ada"), None).await.unwrap();
    assert_eq!((after.batches.len(), after.events[2].why), (0, Why::Mailed));
    assert_eq!(after.events[0].why, Why::TakenOut);
    // dee has not confirmed her address.
    let dee = app.explain().user(&user("dee"), None).await.unwrap();
    let canceled = dee.events[1].clone();
    assert_eq!(canceled.why, Why::NotMailed);
    assert!(
        canceled
            .batch
            .unwrap()
            .reason
            .unwrap()
            .contains("unconfirmed")
    );
}

async fn a_lost_answer_and_a_canceled_batch_are_told_from_mails(fresh: Fresh) {
    let town = Town::found(&fresh, false, COMMENTS).await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.happens(&["a2"], to(&["ben"])).await;
    let book = town.process().batches();
    let all = book.list(&BatchFilter::default(), None, 10).await.unwrap();
    for batch in all {
        let how = match batch.user == user("ada") {
            true => End::Close,
            false => End::Cancel,
        };
        book.end(batch.id, how).await.unwrap();
    }
    assert_eq!(fates(&town, "ada").await, [("a1".to_owned(), Why::Closing)]);
    town.answer([lost()]);
    mail(&town).await;

    assert_eq!(
        fates(&town, "ada").await,
        [("a1".to_owned(), Why::MayBeMailed)]
    );
    assert_eq!(
        fates(&town, "ben").await,
        [("a2".to_owned(), Why::NotMailed)]
    );
    // Who mutes a type is told so, whatever still gathers.
    town.happens(&["a3"], to(&["cem"])).await;
    assert_eq!(
        fates(&town, "cem").await,
        [("a3".to_owned(), Why::Gathering)]
    );
    let muted = TypePreference {
        route: Route::Never,
        since: saturday(),
        window: None,
    };
    let of_type = kind("ArtworkPublished");
    town.change("cem", move |cem| {
        cem.types.insert(of_type, muted);
    })
    .await;
    assert_eq!(
        fates(&town, "cem").await,
        [("a3".to_owned(), Why::NotForDigest)]
    );
    // Also of what comes a second time.
    town.happens(&["a3"], to(&["cem"])).await;
    let muted = ("a3".to_owned(), Why::NotForDigest);
    assert_eq!(fates(&town, "cem").await, [muted.clone(), muted]);
}
