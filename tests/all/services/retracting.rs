//! What was taken back is told to nobody, wherever it stands, and hides nothing that comes later.

use chrono::TimeDelta;
use futures::FutureExt;
use tidings::app::App;
use tidings::domain::batch::TakenOut;
use tidings::domain::inbox::{ItemState, Mark};
use tidings::domain::{BatchState, DeliveryState, ObjectId};
use tidings::engine::Silent;
use tidings::engine::feed::MarksInput;
use tidings::store::BatchFilter;
use tidings::wire::explanation::{By, Fate, Place, Why};
use tidings::wire::feed::Page;

use crate::support::town::{Town, busy, followers_of, monday, on_both_stores, request, to};
use crate::support::{FailingStore, Fault, Fresh, Then, feed_of, kind, user};

on_both_stores! {
    what_was_taken_back_is_in_no_feed_and_no_digest
    what_happens_again_later_is_told_and_new
    what_is_accepted_and_not_fanned_out_yet_is_reached
    a_mail_that_waits_to_leave_tells_nothing_that_was_taken_back
    what_joined_a_batch_afterward_is_not_mailed
    an_open_batch_loses_what_is_taken_back
    explain_says_what_was_taken_back
    what_was_mailed_and_then_taken_back_is_said_to_have_been_mailed
    what_only_what_was_taken_back_waits_for_is_owed_to_nobody
    what_was_taken_back_is_flushed_and_not_counted
    whatever_fails_while_something_is_taken_back_it_can_be_repeated
    what_happens_again_while_batches_are_tidied_up_is_mailed
}

pub(super) const BATCHED: &str = r#"
types.ArtworkPublished.route = "batch"
types.ArtworkPublished.window = "5m"
"#;

pub(super) async fn retract(app: &App, objects: &[&str]) -> TakenOut {
    let objects: Vec<ObjectId> = objects.iter().map(ObjectId::stored).collect();
    let kind = kind("ArtworkPublished");
    app.retract().events(&kind, &objects).await.unwrap().out
}

pub(super) async fn feed(town: &Town, person: &str) -> Page {
    let request = feed_of(&user(person));
    town.process().feeds().page(&request).await.unwrap().answer
}

pub(super) fn shown(page: &Page) -> Vec<&str> {
    page.items.iter().map(|item| item.object.as_str()).collect()
}

/// To whom mails went, and which of the works a1 and a2 they tell.
fn of_batches(town: &Town) -> Vec<String> {
    let told = town.mails().into_iter().map(|mail| {
        let text = mail.filled().text;
        let works = ["a1", "a2"].into_iter();
        let works = works.filter(|work| text.contains(&format!("Work {work}.")));
        let works: Vec<&str> = works.collect();
        format!("{}: {}", mail.to.reveal(), works.join(" "))
    });
    told.collect()
}

async fn what_was_taken_back_is_in_no_feed_and_no_digest(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1", "a2"], followers_of("artist:1")).await;
    town.happens(&["a3"], to(&["cem"])).await;

    let out = retract(&town.process(), &["a2", "a3"]).await;

    assert_eq!((out.taken, out.not_kept), (0, 0));
    let page = feed(&town, "ada").await;
    assert_eq!(shown(&page), ["a1"]);
    assert_eq!((page.counts.unseen, page.counts.unread), (1, 1));
    assert_eq!(shown(&feed(&town, "cem").await), [""; 0]);
    let report = town.digests_at(monday(0)).await;
    assert_eq!((report.due.users, report.mails.sent), (2, 2));
    assert_eq!(town.told_to("ada"), ["a1"]);
    assert_eq!(town.told_to("cem"), [""; 0]);
}

async fn what_happens_again_later_is_told_and_new(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada"])).await;
    let page = feed(&town, "ada").await;
    let read = MarksInput {
        mark: Mark::Read,
        to: Some(page.counts.cursor.clone()),
        kind: None,
        category: None,
        day: None,
        about: None,
        ids: None,
    };
    town.process()
        .feeds()
        .mark(&user("ada"), read)
        .await
        .unwrap();
    retract(&town.process(), &["a1"]).await;
    assert_eq!(shown(&feed(&town, "ada").await), [""; 0]);

    town.clock.advance(TimeDelta::seconds(1));
    town.happens(&["a1"], to(&["ada"])).await;

    let again = feed(&town, "ada").await;
    assert_eq!(shown(&again), ["a1"]);
    assert_eq!(again.items[0].state, ItemState::Unseen);
    assert_ne!(again.items[0].id, page.items[0].id);
    assert_eq!((again.counts.unseen, again.counts.unread), (1, 1));
    town.digests_at(monday(0)).await;
    assert_eq!(town.told_to("ada"), ["a1"]);
    let told = town.told();
    assert_eq!(told.values().copied().collect::<Vec<_>>(), [1]);
}

async fn what_is_accepted_and_not_fanned_out_yet_is_reached(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let app = town.process();
    let accepted = vec![request(&["a1", "a2"], to(&["ada"]), None)];
    app.notify().accept(accepted).await.unwrap();

    retract(&app, &["a1"]).await;
    app.fanouts().drain(&Silent).await.unwrap();

    assert_eq!(shown(&feed(&town, "ada").await), ["a2"]);
    town.digests_at(monday(0)).await;
    assert_eq!(town.told_to("ada"), ["a2"]);
}

async fn a_mail_that_waits_to_leave_tells_nothing_that_was_taken_back(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.happens(&["a2", "a3"], to(&["ben"])).await;
    town.answer([busy(), busy()]);
    assert_eq!(town.digests_at(monday(0)).await.mails.deferred, 2);

    retract(&town.process(), &["a1", "a2"]).await;
    town.clock.advance(TimeDelta::minutes(10));
    let report = town.digests_at(monday(0)).await;

    assert_eq!((report.mails.canceled, report.mails.sent), (1, 1));
    let row = town.deliveries_of("ada").await.remove(0);
    assert_eq!(row.state, DeliveryState::Canceled);
    assert_eq!(town.told_to("ada"), [""; 0]);
    assert_eq!(town.told_to("ben"), ["a3"]);
}

async fn what_joined_a_batch_afterward_is_not_mailed(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCHED).await;
    let app = town.process();
    let accepted = ["a1", "a2"].map(|work| request(&[work], to(&["ada"]), None));
    app.notify().accept(accepted.to_vec()).await.unwrap();
    let alone = vec![request(&["a1"], to(&["ben"]), None)];
    app.notify().accept(alone).await.unwrap();

    retract(&app, &["a1"]).await;
    app.fanouts().drain(&Silent).await.unwrap();
    town.clock.advance(TimeDelta::minutes(5));
    app.closer().drain(&Silent).await.unwrap();
    app.sender().drain().await.unwrap();

    assert_eq!(of_batches(&town), ["ada@example.org: a2"]);
    let row = town.deliveries_of("ben").await.remove(0);
    assert_eq!(row.state, DeliveryState::Canceled);
}

async fn an_open_batch_loses_what_is_taken_back(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCHED).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    town.happens(&["a2"], to(&["ada"])).await;
    let app = town.process();

    let out = retract(&app, &["a1", "x"]).await;

    assert_eq!((out.taken, out.not_kept), (2, 0));
    assert_eq!(shown(&feed(&town, "ben").await), [""; 0]);
    town.clock.advance(TimeDelta::minutes(5));
    app.closer().drain(&Silent).await.unwrap();
    app.sender().drain().await.unwrap();
    assert_eq!(of_batches(&town), ["ada@example.org: a2"]);
    // The stacks still have it, and no digest tells it either.
    assert_eq!(town.digests_at(monday(0)).await.mails.sent, 0);
}

async fn explain_says_what_was_taken_back(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCHED).await;
    town.happens(&["a1", "a2"], to(&["ada"])).await;
    retract(&town.process(), &["a1"]).await;
    town.clock.advance(TimeDelta::seconds(1));
    town.happens(&["a1"], to(&["ada"])).await;

    let told = town.process().explain().user(&user("ada"), None).await;

    let told = told.unwrap().events.into_iter();
    let why: Vec<_> = told
        .map(|fate| (fate.object.to_string(), fate.why))
        .collect();
    let expected = [
        ("a1", Why::Gathering),
        ("a2", Why::Gathering),
        ("a1", Why::Retracted),
    ];
    assert_eq!(why, expected.map(|(object, why)| (object.to_owned(), why)));
}

async fn what_only_what_was_taken_back_waits_for_is_owed_to_nobody(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.happens(&["a2"], to(&["ben"])).await;
    retract(&town.process(), &["a1"]).await;

    let day = tidings::domain::Day::of(tidings::clock::Clock::now(&*town.clock));
    let owed = town.process().owed().count(day).await.unwrap().backlog.owed;

    assert_eq!((owed.people, owed.events), (1, 1));
}

async fn whatever_fails_while_something_is_taken_back_it_can_be_repeated(fresh: Fresh) {
    for fault in [Fault::Refused, Fault::Unheard] {
        for nth in 0.. {
            let town = Town::found(&fresh, true, BATCHED).await;
            let work = ["a1", "a2", "a3", "a4", "a5"][nth % 5];
            town.clock.advance(TimeDelta::minutes(nth as i64 + 10));
            town.happens(&[work], to(&["ada"])).await;
            let failing = FailingStore::new(fresh.handle(), nth, fault, Then::Recovers);
            let store: std::sync::Arc<dyn tidings::store::Store> = failing.clone();
            let app = town.process_on(&store);
            let (kind, object) = (kind("ArtworkPublished"), [ObjectId::stored(work)]);

            let first = app.retract().events(&kind, &object).await;

            if failing.struck().is_none() {
                assert!(first.is_ok() && nth > 1);
                break;
            }
            assert!(first.is_err(), "{nth} {fault:?}");
            app.retract().events(&kind, &object).await.unwrap();
            assert_eq!(shown(&feed(&town, "ada").await), [""; 0], "{nth} {fault:?}");
            let open = BatchFilter {
                state: Some(BatchState::Open),
                ..BatchFilter::default()
            };
            let open = town.store.find_batches(&open, None, 10).await.unwrap();
            assert_eq!(open, [], "{nth} {fault:?}");
        }
    }
}

async fn what_happens_again_while_batches_are_tidied_up_is_mailed(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCHED).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    let (clock, other) = (town.clock.clone(), town.process());
    let again = async move {
        clock.advance(TimeDelta::seconds(1));
        let again = vec![request(&["a1"], to(&["ada"]), None)];
        other.notify().accept(again).await.unwrap();
        other.fanouts().drain(&Silent).await.unwrap();
    };
    let store: std::sync::Arc<dyn tidings::store::Store> =
        FailingStore::before(town.store.clone(), "find_accumulators", again.boxed());

    let out = retract(&town.process_on(&store), &["a1"]).await;

    assert_eq!((out.taken, out.not_kept), (2, 0));
    town.clock.advance(TimeDelta::minutes(5));
    let app = town.process();
    app.closer().drain(&Silent).await.unwrap();
    app.sender().drain().await.unwrap();
    assert_eq!(of_batches(&town), ["ada@example.org: a1"]);
}

async fn what_was_mailed_and_then_taken_back_is_said_to_have_been_mailed(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1", "a2", "a3"], to(&["ada"])).await;
    retract(&town.process(), &["a1"]).await;
    town.digests_at(monday(0)).await;
    town.clock.advance(TimeDelta::seconds(1));
    retract(&town.process(), &["a2"]).await;

    let told = town.process().explain().user(&user("ada"), None).await;

    let place = |fate: Fate| match fate.covered {
        Some(By::Mail { place, .. }) => (fate.object.to_string(), place),
        other => panic!("{other:?}"),
    };
    let mut places: Vec<_> = told.unwrap().events.into_iter().map(place).collect();
    places.sort_by(|one, other| one.0.cmp(&other.0));
    let told = [
        ("a1", Place::LeftOut),
        ("a2", Place::Shown),
        ("a3", Place::Shown),
    ];
    assert_eq!(
        places,
        told.map(|(object, place)| (object.to_owned(), place))
    );
}

async fn what_was_taken_back_is_flushed_and_not_counted(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1", "a2", "a3"], to(&["ada"])).await;
    town.happens(&["a1"], to(&["ben"])).await;
    let app = town.process();
    retract(&app, &["a1"]).await;

    let (ada, ben) = (user("ada"), user("ben"));
    let flushed = (app.flush().user(&ada).await, app.flush().user(&ben).await);

    assert_eq!((flushed.0.unwrap(), flushed.1.unwrap()), (2, 0));
    assert_eq!(app.flush().user(&ada).await.unwrap(), 0);
    assert_eq!(town.digests_at(monday(0)).await.due.users, 0);
}
