//! What an operator is told of a person.

use std::time::Duration;

use chrono::TimeDelta;
use tidings::clock::Clock;
use tidings::domain::user::TypePreference;
use tidings::domain::{DeliveryState, ObjectId, Route};
use tidings::email::Outcome;
use tidings::engine::Silent;
use tidings::engine::batches::{BatchFilter, End};
use tidings::engine::ingest::notify::Request;
use tidings::wire::explanation::{By, Fate, LeftOut, Place, Why};

use super::retracting::retract;
use crate::support::town::{Town, busy, lost, monday, on_both_stores, request, saturday, to};
use crate::support::{Fresh, kind, user};

on_both_stores! {
    what_was_withdrawn_is_told_by_its_title
    a_digest_that_is_due_already_is_said_to_be
    what_gathers_is_said_to_and_then_to_be_mailed
    a_lost_answer_and_a_canceled_batch_are_told_from_mails
    of_each_event_it_is_said_what_its_batchs_mail_made_of_it
    what_changes_after_a_batchs_mail_changes_nothing_of_what_it_told
    what_a_batch_counted_is_not_said_to_have_been_shown
    a_lead_and_what_followed_are_in_mails_of_their_own
    a_digest_says_why_it_left_something_out
    an_event_names_the_delivery_that_waits_or_failed_with_its_reason_and_next_attempt
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

fn greylisted() -> Outcome {
    Outcome::TryLater {
        reason: "451 4.7.1 greylisted".into(),
        after: Some(Duration::from_secs(600)),
    }
}

async fn an_event_names_the_delivery_that_waits_or_failed_with_its_reason_and_next_attempt(
    fresh: Fresh,
) {
    let town = Town::found(&fresh, true, "types.Comment.route = \"batch\"\n").await;
    town.happens(&["a1"], to(&["ada"])).await;
    let deliveries = async |person: &str| {
        let told = town.process().explain().user(&user(person), None).await;
        let fates = told.unwrap().events.into_iter();
        fates
            .map(|fate| (fate.why, fate.delivery))
            .collect::<Vec<_>>()
    };

    assert_eq!(deliveries("ada").await, [(Why::NextDigest, None)]);
    town.answer([greylisted()]);
    town.digests_at(monday(0)).await;
    town.happens(&["a2"], to(&["ada"])).await;
    let waiting = deliveries("ada").await;

    // The later event is not in that digest.
    assert_eq!(waiting[0], (Why::NextDigest, None));
    let (why, delivery) = waiting[1].clone();
    let delivery = delivery.unwrap();
    assert_eq!(why, Why::InDelivery);
    assert_eq!(delivery.id.as_str(), "digest:ada:weekly:2014-W17");
    assert_eq!(delivery.state, DeliveryState::Pending);
    assert_eq!(delivery.reason, "451 4.7.1 greylisted");
    let next = delivery.next_attempt.unwrap();
    assert!(next >= monday(0) + TimeDelta::minutes(10), "{next}");

    town.clock.set(next);
    let reason = "550 5.1.1 no such user".to_owned();
    town.answer([Outcome::Refused { reason }]);
    town.process().sender().drain().await.unwrap();
    let failed = deliveries("ada").await;
    let (why, delivery) = failed[1].clone();
    let delivery = delivery.unwrap();
    assert_eq!(
        (why, delivery.state),
        (Why::NextDigest, DeliveryState::Failed)
    );
    assert_eq!(delivery.reason, "550 5.1.1 no such user");
    assert_eq!(delivery.next_attempt, Some(next + TimeDelta::hours(1)));

    let comment = Request {
        kind: kind("Comment"),
        ..request(&["a3"], to(&["ben"]), None)
    };
    town.process().notify().accept(vec![comment]).await.unwrap();
    town.process().fanouts().drain(&Silent).await.unwrap();
    town.clock.advance(TimeDelta::hours(1));
    town.answer([greylisted()]);
    mail(&town).await;
    let (why, delivery) = deliveries("ben").await[0].clone();
    let delivery = delivery.unwrap();
    assert_eq!(why, Why::Closing);
    assert!(delivery.id.as_str().starts_with("batch:"), "{delivery:?}");
    assert_eq!(delivery.reason, "451 4.7.1 greylisted");
    assert!(delivery.next_attempt > Some(town.clock.now()));
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

type Placed = (String, Why, Place, Option<LeftOut>);

/// Oldest first, what the mail made of each event.
async fn places(town: &Town, person: &str) -> Vec<Placed> {
    let told = town.process().explain().user(&user(person), None).await;
    let place = |fate: Fate| match fate.covered {
        Some(By::Mail {
            place, left_out, ..
        }) => (fate.object.to_string(), fate.why, place, left_out),
        other => panic!("{other:?}"),
    };
    told.unwrap().events.into_iter().rev().map(place).collect()
}

fn told(object: &str) -> Placed {
    (object.to_owned(), Why::Mailed, Place::Shown, None)
}

fn left_out(object: &str, why: LeftOut) -> Placed {
    (object.to_owned(), Why::LeftOut, Place::LeftOut, Some(why))
}

async fn mail_in(town: &Town, minutes: i64) {
    town.clock.advance(TimeDelta::minutes(minutes));
    mail(town).await;
}

async fn of_each_event_it_is_said_what_its_batchs_mail_made_of_it(fresh: Fresh) {
    let town = Town::found(&fresh, true, COMMENTS).await;
    town.happens(&["a1", "unheard-of", "a9"], to(&["ada"]))
        .await;
    town.happens(&["a2"], to(&["ada"])).await;
    town.answer([busy()]);
    mail_in(&town, 5).await;
    retract(&town.process(), &["a2"]).await;

    mail_in(&town, 10).await;

    assert_eq!(town.mails().len(), 1);
    let expected = [
        told("a1"),
        left_out("unheard-of", LeftOut::UnknownObject),
        left_out("a9", LeftOut::Withdrawn),
        left_out("a2", LeftOut::Retracted),
    ];
    assert_eq!(places(&town, "ada").await, expected);
}

async fn what_changes_after_a_batchs_mail_changes_nothing_of_what_it_told(fresh: Fresh) {
    let town = Town::found(&fresh, true, COMMENTS).await;
    town.happens(&["a1", "a2", "unheard-of"], to(&["ada"]))
        .await;
    mail_in(&town, 5).await;
    let unheard_of = left_out("unheard-of", LeftOut::UnknownObject);
    let expected = [told("a1"), told("a2"), unheard_of];

    town.clock.advance(TimeDelta::seconds(1));
    retract(&town.process(), &["a1"]).await;
    assert_eq!(places(&town, "ada").await, expected, "taken back since");
    town.put_works(&["a2"], |_| false).await;
    assert_eq!(places(&town, "ada").await, expected, "withdrawn since");
    town.put_works(&["a2"], |_| true).await;
    let muted = TypePreference {
        route: Route::Never,
        since: saturday() + TimeDelta::minutes(6),
        window: None,
    };
    let of_type = kind("ArtworkPublished");
    town.change("ada", move |ada| {
        ada.types.insert(of_type, muted);
    })
    .await;
    assert_eq!(places(&town, "ada").await, expected, "turned off since");
    town.put_works(&["unheard-of"], |_| true).await;
    let cannot_be_said =
        ["a1", "a2", "unheard-of"].map(|work| (work.to_owned(), Why::Mailed, Place::Unknown, None));
    assert_eq!(places(&town, "ada").await, cannot_be_said, "known since");
}

async fn what_a_batch_counted_is_not_said_to_have_been_shown(fresh: Fresh) {
    let keeps = format!("{COMMENTS}types.ArtworkPublished.keep = \"last 2\"");
    let town = Town::found(&fresh, true, &keeps).await;
    for work in ["a1", "unheard-of", "a2", "a3"] {
        town.happens(&[work], to(&["ada"])).await;
    }
    mail_in(&town, 5).await;
    for work in ["a4", "a5", "a6", "a9"] {
        town.happens(&[work], to(&["ben"])).await;
    }
    mail_in(&town, 5).await;

    let counted = |work: &str| (work.to_owned(), Why::Mailed, Place::Counted, None);
    // While all that is kept is told, the rest is counted, whatever it is.
    assert_eq!(
        places(&town, "ada").await,
        [counted("a1"), counted("unheard-of"), told("a2"), told("a3")]
    );
    assert_eq!(
        places(&town, "ben").await,
        [
            told("a4"),
            told("a5"),
            told("a6"),
            left_out("a9", LeftOut::Withdrawn)
        ]
    );
}

async fn a_lead_and_what_followed_are_in_mails_of_their_own(fresh: Fresh) {
    let leads = format!(
        "{COMMENTS}types.ArtworkPublished.leading = true\ntypes.ArtworkPublished.keep = \"last 1\""
    );
    let town = Town::found(&fresh, true, &leads).await;
    town.happens(&["a1", "a2"], to(&["ada"])).await;
    mail(&town).await;
    town.happens(&["a3"], to(&["ada"])).await;
    mail_in(&town, 5).await;

    let explained = town.process().explain().user(&user("ada"), None).await;

    let by = |fate: Fate| match fate.covered {
        Some(By::Mail {
            delivery, place, ..
        }) => (delivery, place),
        other => panic!("{other:?}"),
    };
    let events = explained.unwrap().events.into_iter().rev();
    let mails: Vec<_> = events.map(by).collect();
    let of = town.mails().into_iter().map(|mail| mail.delivery);
    let of: Vec<_> = of.collect();
    assert_eq!(
        mails,
        [
            (of[0].clone(), Place::Counted),
            (of[0].clone(), Place::Shown),
            (of[1].clone(), Place::Shown)
        ]
    );
}

async fn a_digest_says_why_it_left_something_out(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1", "unheard-of", "a9", "a2"], to(&["ada"]))
        .await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.happens(&["a3"], to(&["ada"])).await;
    retract(&town.process(), &["a3"]).await;

    town.digests_at(monday(0)).await;

    let covered = |(object, _, place, why): Placed| (object, Why::Covered, place, why);
    let expected = [
        told("a1"),
        left_out("unheard-of", LeftOut::UnknownObject),
        left_out("a9", LeftOut::Withdrawn),
        told("a2"),
        left_out("a1", LeftOut::Repeated),
        left_out("a3", LeftOut::Retracted),
    ];
    assert_eq!(places(&town, "ada").await, expected.map(covered));
}
