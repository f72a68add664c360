//! Tests of the explanations that operators read: what happened to each event of a user, and why.

use std::time::Duration;

use chrono::TimeDelta;
use tidings::clock::Clock;
use tidings::domain::user::TypePreference;
use tidings::domain::{DeliveryState, ObjectId, Route};
use tidings::email::Outcome;
use tidings::engine::NoProgress;
use tidings::engine::batches::{BatchFilter, EndAction};
use tidings::engine::ingest::NewEvent;
use tidings::wire::explanation::{CoveredBy, EmailPlace, EventStatus, ExplainedEvent};

use super::retracting::retract;
use crate::support::town::{
    Town, busy, lost, monday, mostly_on_sqlite, refused, request, saturday, to,
};
use crate::support::{Fresh, kind, user};

mostly_on_sqlite! {
    a_withdrawn_event_is_listed_with_its_title
    an_overdue_digest_keeps_its_due_time_until_it_is_sent
    a_batched_event_is_explained_before_and_after_the_send
    unknown_and_canceled_batches_are_not_reported_as_emailed
    each_batched_event_has_its_place_in_the_email_explained
    later_changes_do_not_change_the_explanation_of_a_sent_batch
    events_that_a_batch_only_counted_are_not_reported_as_shown
    a_lead_and_the_later_events_name_separate_emails
    each_event_that_a_digest_excluded_has_a_reason
    an_event_names_its_pending_or_failed_delivery_and_next_attempt
}

async fn an_overdue_digest_keeps_its_due_time_until_it_is_sent(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada"])).await;
    let next_due = async || {
        let explanation = town.process().explain().user(&user("ada"), None).await;
        explanation.unwrap().digest.unwrap().next_due.unwrap()
    };
    let half_an_hour = TimeDelta::minutes(30);

    let before = next_due().await;
    town.clock.set(monday(0));
    let due = next_due().await;
    town.digests_at(monday(0)).await;
    let after = next_due().await;

    assert_eq!(before, monday(0) - half_an_hour);
    assert_eq!(due, before, "no digest has included it yet");
    assert_eq!(after, monday(1) - half_an_hour);
}

async fn a_withdrawn_event_is_listed_with_its_title(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1", "a9"], to(&["ada"])).await;

    let explanation = town.process().explain().user(&user("ada"), None).await;

    let listed: Vec<_> = explanation
        .unwrap()
        .events
        .into_iter()
        .map(|fate| (fate.title.unwrap(), fate.status))
        .collect();
    assert_eq!(
        listed,
        [
            ("Work a9.".to_owned(), EventStatus::Withdrawn),
            ("Work a1.".to_owned(), EventStatus::NextDigest)
        ]
    );
}

fn greylisted() -> Outcome {
    Outcome::TryLater("451 4.7.1 greylisted".into(), Some(Duration::from_secs(600)))
}

async fn an_event_names_its_pending_or_failed_delivery_and_next_attempt(fresh: Fresh) {
    let town = Town::found(&fresh, true, "types.Comment.route = \"batch\"\n").await;
    town.happens(&["a1"], to(&["ada"])).await;
    let deliveries = async |person: &str| {
        let explanation = town.process().explain().user(&user(person), None).await;
        let fates = explanation.unwrap().events.into_iter();
        fates.map(|fate| (fate.status, fate.delivery)).collect::<Vec<_>>()
    };

    assert_eq!(deliveries("ada").await, [(EventStatus::NextDigest, None)]);
    town.answer([greylisted()]);
    town.digests_at(monday(0)).await;
    town.happens(&["a2"], to(&["ada"])).await;
    let pending = deliveries("ada").await;

    // The later event is not in that digest.
    assert_eq!(pending[0], (EventStatus::NextDigest, None));
    let (why, delivery) = pending[1].clone();
    let delivery = delivery.unwrap();
    assert_eq!(why, EventStatus::InDelivery);
    assert_eq!(delivery.id.as_str(), "digest:ada:weekly:2014-W17");
    assert_eq!(delivery.state, DeliveryState::Pending);
    assert_eq!(delivery.reason, "451 4.7.1 greylisted");
    let next = delivery.next_attempt.unwrap();
    assert!(next >= monday(0) + TimeDelta::minutes(10), "{next}");

    town.clock.set(next);
    town.answer([refused("550 5.1.1 no such user")]);
    town.process().sender().drain().await.unwrap();
    let failed = deliveries("ada").await;
    let (why, delivery) = failed[1].clone();
    let delivery = delivery.unwrap();
    assert_eq!((why, delivery.state), (EventStatus::NextDigest, DeliveryState::Failed));
    assert_eq!(delivery.reason, "550 5.1.1 no such user");
    assert_eq!(delivery.next_attempt, Some(next + TimeDelta::hours(1)));

    let comment = NewEvent { kind: kind("Comment"), ..request(&["a3"], to(&["ben"]), None) };
    town.process().notify().accept(vec![comment]).await.unwrap();
    town.process().fanouts().drain(&NoProgress).await.unwrap();
    town.clock.advance(TimeDelta::hours(1));
    town.answer([greylisted()]);
    town.send_due().await;
    let (why, delivery) = deliveries("ben").await[0].clone();
    let delivery = delivery.unwrap();
    assert_eq!(why, EventStatus::InClosingBatch);
    assert!(delivery.id.as_str().starts_with("batch:"), "{delivery:?}");
    assert_eq!(delivery.reason, "451 4.7.1 greylisted");
    assert!(delivery.next_attempt > Some(town.clock.now()));
}

const COMMENTS: &str = r#"
types.ArtworkPublished.route = "batch"
types.ArtworkPublished.window = "5m"
"#;

/// Returns the object and the explanation of each event of a user, oldest first.
async fn fates(town: &Town, person: &str) -> Vec<(String, EventStatus)> {
    let explanation = town.process().explain().user(&user(person), None).await;
    let fates = explanation.unwrap().events.into_iter().rev();
    fates.map(|fate| (fate.object.to_string(), fate.status)).collect()
}

async fn a_batched_event_is_explained_before_and_after_the_send(fresh: Fresh) {
    let town = Town::found(&fresh, true, COMMENTS).await;
    town.happens(&["a1", "a9"], to(&["ada", "dee"])).await;
    town.happens(&["a2"], to(&["ada"])).await;
    town.process()
        .batches()
        .remove_events(&kind("ArtworkPublished"), &[ObjectId::stored("a2")], None)
        .await
        .unwrap();
    let why = |fates: [EventStatus; 3]| {
        let fates = ["a1", "a9", "a2"].map(str::to_owned).into_iter().zip(fates);
        fates.collect::<Vec<_>>()
    };

    let app = town.process();
    let before_send = app.explain().user(&user("ada"), None).await.unwrap();
    let before = fates(&town, "ada").await;
    town.clock.advance(TimeDelta::minutes(5));
    town.send_due().await;

    let batch = before_send.events[1].batch.clone().unwrap();
    assert_eq!(batch.closes_at, saturday() + TimeDelta::minutes(5));
    assert_eq!((before_send.batches.len(), before_send.batches[0].id), (1, batch.id));
    assert_eq!(
        before,
        why([EventStatus::InOpenBatch, EventStatus::Withdrawn, EventStatus::Removed])
    );
    let after = app.explain().user(&user("ada"), None).await.unwrap();
    assert_eq!((after.batches.len(), after.events[2].status), (0, EventStatus::Emailed));
    assert_eq!(after.events[0].status, EventStatus::Removed);
    // dee has not confirmed her address.
    let dee = app.explain().user(&user("dee"), None).await.unwrap();
    let canceled = dee.events[1].clone();
    assert_eq!(canceled.status, EventStatus::NotEmailed);
    assert!(canceled.batch.unwrap().reason.unwrap().contains("unconfirmed"));
}

async fn unknown_and_canceled_batches_are_not_reported_as_emailed(fresh: Fresh) {
    let town = Town::found(&fresh, false, COMMENTS).await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.happens(&["a2"], to(&["ben"])).await;
    let book = town.process().batches();
    let all = book.list(&BatchFilter::default(), 10).await.unwrap();
    for batch in all {
        let how = match batch.user == user("ada") {
            true => EndAction::Close,
            false => EndAction::Cancel,
        };
        book.end(batch.id, how).await.unwrap();
    }
    assert_eq!(fates(&town, "ada").await, [("a1".to_owned(), EventStatus::InClosingBatch)]);
    town.answer([lost()]);
    town.send_due().await;

    assert_eq!(fates(&town, "ada").await, [("a1".to_owned(), EventStatus::MayBeEmailed)]);
    assert_eq!(fates(&town, "ben").await, [("a2".to_owned(), EventStatus::NotEmailed)]);
    // A muted type is reported even while a batch with the event is open.
    town.happens(&["a3"], to(&["cem"])).await;
    assert_eq!(fates(&town, "cem").await, [("a3".to_owned(), EventStatus::InOpenBatch)]);
    let muted = TypePreference { route: Route::Never, since: saturday(), window: None };
    let of_type = kind("ArtworkPublished");
    town.change("cem", move |cem| {
        cem.types.insert(of_type, muted);
    })
    .await;
    assert_eq!(fates(&town, "cem").await, [("a3".to_owned(), EventStatus::NotForDigest)]);
    // The same applies to a repeated event.
    town.happens(&["a3"], to(&["cem"])).await;
    let muted = ("a3".to_owned(), EventStatus::NotForDigest);
    assert_eq!(fates(&town, "cem").await, [muted.clone(), muted]);
}

type Placed = (String, EventStatus, EmailPlace, Option<EventStatus>);

/// Returns the place of each event in its email, oldest first.
async fn places(town: &Town, person: &str) -> Vec<Placed> {
    let explanation = town.process().explain().user(&user(person), None).await;
    let place = |fate: ExplainedEvent| match fate.covered {
        Some(CoveredBy::Email { place, excluded, .. }) => {
            (fate.object.to_string(), fate.status, place, excluded)
        }
        other => panic!("{other:?}"),
    };
    explanation.unwrap().events.into_iter().rev().map(place).collect()
}

fn shown(object: &str) -> Placed {
    (object.to_owned(), EventStatus::Emailed, EmailPlace::Shown, None)
}

fn excluded(object: &str, why: EventStatus) -> Placed {
    (object.to_owned(), EventStatus::Excluded, EmailPlace::Excluded, Some(why))
}

async fn send_due_after(town: &Town, minutes: i64) {
    town.clock.advance(TimeDelta::minutes(minutes));
    town.send_due().await;
}

async fn each_batched_event_has_its_place_in_the_email_explained(fresh: Fresh) {
    let town = Town::found(&fresh, true, COMMENTS).await;
    town.happens(&["a1", "unheard-of", "a9"], to(&["ada"])).await;
    town.happens(&["a2"], to(&["ada"])).await;
    town.answer([busy()]);
    send_due_after(&town, 5).await;
    retract(&town.process(), &["a2"]).await;

    send_due_after(&town, 10).await;

    assert_eq!(town.emails().len(), 1);
    let expected = [
        shown("a1"),
        excluded("unheard-of", EventStatus::UnknownObject),
        excluded("a9", EventStatus::Withdrawn),
        excluded("a2", EventStatus::Retracted),
    ];
    assert_eq!(places(&town, "ada").await, expected);
}

async fn later_changes_do_not_change_the_explanation_of_a_sent_batch(fresh: Fresh) {
    let town = Town::found(&fresh, true, COMMENTS).await;
    town.happens(&["a1", "a2", "unheard-of"], to(&["ada"])).await;
    send_due_after(&town, 5).await;
    let unknown = excluded("unheard-of", EventStatus::UnknownObject);
    let expected = [shown("a1"), shown("a2"), unknown];

    town.clock.advance(TimeDelta::seconds(1));
    retract(&town.process(), &["a1"]).await;
    assert_eq!(places(&town, "ada").await, expected, "taken back since");
    town.put_works(&["a2"], |_| false).await;
    let withdrawn = ("a2".to_owned(), EventStatus::Emailed, EmailPlace::Unknown, None);
    let [first, _, last] = expected.clone();
    let without = [first, withdrawn, last];
    assert_eq!(places(&town, "ada").await, without, "withdrawn since");
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
    let undetermined = ["a1", "a2", "unheard-of"]
        .map(|work| (work.to_owned(), EventStatus::Emailed, EmailPlace::Unknown, None));
    assert_eq!(places(&town, "ada").await, undetermined, "known since");
}

async fn events_that_a_batch_only_counted_are_not_reported_as_shown(fresh: Fresh) {
    let keeps = format!("{COMMENTS}types.ArtworkPublished.keep = \"last 2\"");
    let town = Town::found(&fresh, true, &keeps).await;
    for work in ["a1", "unheard-of", "a2", "a3"] {
        town.happens(&[work], to(&["ada"])).await;
    }
    send_due_after(&town, 5).await;
    for work in ["a4", "a5", "a6", "a9"] {
        town.happens(&[work], to(&["ben"])).await;
    }
    send_due_after(&town, 5).await;

    let counted = |work: &str| (work.to_owned(), EventStatus::Emailed, EmailPlace::Counted, None);
    // The email shows all kept events, so it counts all others, including the unknown object.
    assert_eq!(
        places(&town, "ada").await,
        [counted("a1"), counted("unheard-of"), shown("a2"), shown("a3")]
    );
    assert_eq!(
        places(&town, "ben").await,
        [shown("a4"), shown("a5"), shown("a6"), excluded("a9", EventStatus::Withdrawn)]
    );
}

async fn a_lead_and_the_later_events_name_separate_emails(fresh: Fresh) {
    let leads = format!(
        "{COMMENTS}types.ArtworkPublished.leading = true\ntypes.ArtworkPublished.keep = \"last 1\""
    );
    let town = Town::found(&fresh, true, &leads).await;
    town.happens(&["a1", "a2"], to(&["ada"])).await;
    town.send_due().await;
    town.happens(&["a3"], to(&["ada"])).await;
    send_due_after(&town, 5).await;

    let explained = town.process().explain().user(&user("ada"), None).await;

    let by = |fate: ExplainedEvent| match fate.covered {
        Some(CoveredBy::Email { delivery, place, .. }) => (delivery, place),
        other => panic!("{other:?}"),
    };
    let events = explained.unwrap().events.into_iter().rev();
    let emails: Vec<_> = events.map(by).collect();
    let of = town.emails().into_iter().map(|email| email.delivery);
    let of: Vec<_> = of.collect();
    assert_eq!(
        emails,
        [
            (of[0].clone(), EmailPlace::Counted),
            (of[0].clone(), EmailPlace::Shown),
            (of[1].clone(), EmailPlace::Shown)
        ]
    );
}

async fn each_event_that_a_digest_excluded_has_a_reason(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1", "unheard-of", "a9", "a2"], to(&["ada"])).await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.happens(&["a3"], to(&["ada"])).await;
    retract(&town.process(), &["a3"]).await;

    town.digests_at(monday(0)).await;

    let covered = |(object, _, place, why): Placed| (object, EventStatus::Covered, place, why);
    let expected = [
        shown("a1"),
        excluded("unheard-of", EventStatus::UnknownObject),
        excluded("a9", EventStatus::Withdrawn),
        shown("a2"),
        excluded("a1", EventStatus::Repeated),
        excluded("a3", EventStatus::Retracted),
    ];
    assert_eq!(places(&town, "ada").await, expected.map(covered));
}
