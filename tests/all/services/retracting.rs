//! Retraction: a retracted event is in no feed, email or backlog. A later event about the same
//! object is a new one.

use chrono::TimeDelta;
use futures::FutureExt;
use tidings::app::App;
use tidings::domain::batch::RemovedEvents;
use tidings::domain::feed_marks::{ItemState, Mark};
use tidings::domain::{BatchState, DeliveryState, ObjectId};
use tidings::engine::NoProgress;
use tidings::store::BatchFilter;
use tidings::wire::explanation::{CoveredBy, EmailPlace, EventStatus, ExplainedEvent};
use tidings::wire::feed::FeedPage;

use crate::support::town::{Town, busy, followers_of, monday, mostly_on_sqlite, request, to};
use crate::support::{FailingStore, Fault, Fresh, Then, kind, marks, user};

mostly_on_sqlite! {
    a_retracted_event_is_in_no_feed_and_no_digest
    an_event_after_a_retraction_is_new_and_emailed
    a_retraction_covers_events_that_are_not_fanned_out_yet
    a_deferred_email_excludes_retracted_events
    a_retracted_event_that_joins_a_batch_later_is_not_emailed
    a_retraction_removes_events_from_open_batches
    explain_reports_retracted_events
    explain_reports_events_retracted_after_their_email_as_shown
    the_backlog_excludes_retracted_events
    retracted_events_are_flushed_but_not_counted
    a_retraction_can_be_repeated_after_any_store_call_fails
    an_event_that_recurs_during_a_retraction_is_emailed
}

pub(super) const BATCHED: &str = r#"
types.ArtworkPublished.route = "batch"
types.ArtworkPublished.window = "5m"
"#;

pub(super) async fn retract(app: &App, objects: &[&str]) -> RemovedEvents {
    let objects: Vec<ObjectId> = objects.iter().map(ObjectId::stored).collect();
    let kind = kind("ArtworkPublished");
    app.objects().retract(&kind, &objects).await.unwrap().removed_events
}

pub(super) fn shown(page: &FeedPage) -> Vec<&str> {
    page.items.iter().map(|item| item.object_id.as_str()).collect()
}

/// Returns the recipient of each email, and which of the works `a1` and `a2` the email includes.
fn batch_emails(town: &Town) -> Vec<String> {
    let emails = town.emails().into_iter().map(|email| {
        let text = email.fill_links().text;
        let works = ["a1", "a2"].into_iter();
        let works = works.filter(|work| text.contains(&format!("Work {work}.")));
        let works: Vec<&str> = works.collect();
        format!("{}: {}", email.to.reveal(), works.join(" "))
    });
    emails.collect()
}

async fn a_retracted_event_is_in_no_feed_and_no_digest(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1", "a2"], followers_of("artist:1")).await;
    town.happens(&["a3"], to(&["cem"])).await;

    let out = retract(&town.process(), &["a2", "a3"]).await;

    assert_eq!((out.removed, out.omitted), (0, 0));
    let page = town.feed("ada").await;
    assert_eq!(shown(&page), ["a1"]);
    assert_eq!((page.counts.unseen, page.counts.unread), (1, 1));
    assert_eq!(shown(&town.feed("cem").await), [""; 0]);
    let report = town.digests_at(monday(0)).await;
    assert_eq!((report.due.users, report.emails.sent), (2, 2));
    assert_eq!(town.emailed_to("ada"), ["a1"]);
    assert_eq!(town.emailed_to("cem"), [""; 0]);
}

async fn an_event_after_a_retraction_is_new_and_emailed(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada"])).await;
    let page = town.feed("ada").await;
    let read = marks(Mark::Read, Some(page.counts.cursor.clone()), None);
    town.process().feeds().mark(&user("ada"), read).await.unwrap();
    retract(&town.process(), &["a1"]).await;
    assert_eq!(shown(&town.feed("ada").await), [""; 0]);

    town.clock.advance(TimeDelta::seconds(1));
    town.happens(&["a1"], to(&["ada"])).await;

    let again = town.feed("ada").await;
    assert_eq!(shown(&again), ["a1"]);
    assert_eq!(again.items[0].state, ItemState::Unseen);
    assert_ne!(again.items[0].id, page.items[0].id);
    assert_eq!((again.counts.unseen, again.counts.unread), (1, 1));
    town.digests_at(monday(0)).await;
    assert_eq!(town.emailed_to("ada"), ["a1"]);
    let times = town.emailed();
    assert_eq!(times.values().copied().collect::<Vec<_>>(), [1]);
}

async fn a_retraction_covers_events_that_are_not_fanned_out_yet(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let app = town.process();
    let accepted = vec![request(&["a1", "a2"], to(&["ada"]), None)];
    app.notify().accept(accepted).await.unwrap();

    retract(&app, &["a1"]).await;
    app.fanouts().drain(&NoProgress).await.unwrap();

    assert_eq!(shown(&town.feed("ada").await), ["a2"]);
    town.digests_at(monday(0)).await;
    assert_eq!(town.emailed_to("ada"), ["a2"]);
}

async fn a_deferred_email_excludes_retracted_events(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.happens(&["a2", "a3"], to(&["ben"])).await;
    town.answer([busy(), busy()]);
    assert_eq!(town.digests_at(monday(0)).await.emails.deferred, 2);

    retract(&town.process(), &["a1", "a2"]).await;
    town.clock.advance(TimeDelta::minutes(10));
    let report = town.digests_at(monday(0)).await;

    assert_eq!((report.emails.canceled, report.emails.sent), (1, 1));
    let row = town.deliveries_of("ada").await.remove(0);
    assert_eq!(row.state, DeliveryState::Canceled);
    assert_eq!(town.emailed_to("ada"), [""; 0]);
    assert_eq!(town.emailed_to("ben"), ["a3"]);
}

async fn a_retracted_event_that_joins_a_batch_later_is_not_emailed(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCHED).await;
    let app = town.process();
    let accepted = ["a1", "a2"].map(|work| request(&[work], to(&["ada"]), None));
    app.notify().accept(accepted.to_vec()).await.unwrap();
    let alone = vec![request(&["a1"], to(&["ben"]), None)];
    app.notify().accept(alone).await.unwrap();

    retract(&app, &["a1"]).await;
    app.fanouts().drain(&NoProgress).await.unwrap();
    town.send_due_in(5).await;

    assert_eq!(batch_emails(&town), ["ada@example.org: a2"]);
    let row = town.deliveries_of("ben").await.remove(0);
    assert_eq!(row.state, DeliveryState::Canceled);
}

async fn a_retraction_removes_events_from_open_batches(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCHED).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    town.happens(&["a2"], to(&["ada"])).await;
    let app = town.process();

    let out = retract(&app, &["a1", "x"]).await;

    assert_eq!((out.removed, out.omitted), (2, 0));
    assert_eq!(shown(&town.feed("ben").await), [""; 0]);
    town.send_due_in(5).await;
    assert_eq!(batch_emails(&town), ["ada@example.org: a2"]);
    // The stacks still hold the event, but no digest includes it.
    assert_eq!(town.digests_at(monday(0)).await.emails.sent, 0);
}

async fn explain_reports_retracted_events(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCHED).await;
    town.happens(&["a1", "a2"], to(&["ada"])).await;
    retract(&town.process(), &["a1"]).await;
    town.clock.advance(TimeDelta::seconds(1));
    town.happens(&["a1"], to(&["ada"])).await;

    let explanation = town.process().explain().user(&user("ada"), None).await;

    let fates = explanation.unwrap().events.into_iter();
    let why: Vec<_> = fates.map(|fate| (fate.object.to_string(), fate.status)).collect();
    let expected = [
        ("a1", EventStatus::InOpenBatch),
        ("a2", EventStatus::InOpenBatch),
        ("a1", EventStatus::Retracted),
    ];
    assert_eq!(why, expected.map(|(object, why)| (object.to_owned(), why)));
}

async fn the_backlog_excludes_retracted_events(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.happens(&["a2"], to(&["ben"])).await;
    retract(&town.process(), &["a1"]).await;

    let day = tidings::domain::Day::of(tidings::clock::Clock::now(&*town.clock));
    let backlog = town.mailable_backlog(day).await;

    assert_eq!((backlog.users, backlog.events), (1, 1));
}

async fn a_retraction_can_be_repeated_after_any_store_call_fails(fresh: Fresh) {
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

            let first = app.objects().retract(&kind, &object).await;

            if failing.struck().is_none() {
                assert!(first.is_ok() && nth > 1);
                break;
            }
            assert!(first.is_err(), "{nth} {fault:?}");
            app.objects().retract(&kind, &object).await.unwrap();
            assert_eq!(shown(&town.feed("ada").await), [""; 0], "{nth} {fault:?}");
            let open = BatchFilter { state: Some(BatchState::Open), ..BatchFilter::default() };
            let open = town.store.find_batches(&open, 10).await.unwrap();
            assert_eq!(open, [], "{nth} {fault:?}");
        }
    }
}

async fn an_event_that_recurs_during_a_retraction_is_emailed(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCHED).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    let (clock, other) = (town.clock.clone(), town.process());
    let again = async move {
        clock.advance(TimeDelta::seconds(1));
        let again = vec![request(&["a1"], to(&["ada"]), None)];
        other.notify().accept(again).await.unwrap();
        other.fanouts().drain(&NoProgress).await.unwrap();
    };
    let store: std::sync::Arc<dyn tidings::store::Store> =
        FailingStore::before(town.store.clone(), "find_accumulators", again.boxed());

    let out = retract(&town.process_on(&store), &["a1"]).await;

    assert_eq!((out.removed, out.omitted), (2, 0));
    town.send_due_in(5).await;
    assert_eq!(batch_emails(&town), ["ada@example.org: a1"]);
}

async fn explain_reports_events_retracted_after_their_email_as_shown(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1", "a2", "a3"], to(&["ada"])).await;
    retract(&town.process(), &["a1"]).await;
    town.digests_at(monday(0)).await;
    town.clock.advance(TimeDelta::seconds(1));
    retract(&town.process(), &["a2"]).await;

    let explanation = town.process().explain().user(&user("ada"), None).await;

    let place = |fate: ExplainedEvent| match fate.covered {
        Some(CoveredBy::Email { place, .. }) => (fate.object.to_string(), place),
        other => panic!("{other:?}"),
    };
    let mut places: Vec<_> = explanation.unwrap().events.into_iter().map(place).collect();
    places.sort_by(|one, other| one.0.cmp(&other.0));
    let expected =
        [("a1", EmailPlace::Excluded), ("a2", EmailPlace::Shown), ("a3", EmailPlace::Shown)];
    assert_eq!(places, expected.map(|(object, place)| (object.to_owned(), place)));
}

async fn retracted_events_are_flushed_but_not_counted(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1", "a2", "a3"], to(&["ada"])).await;
    town.happens(&["a1"], to(&["ben"])).await;
    let app = town.process();
    retract(&app, &["a1"]).await;

    let (ada, ben) = (user("ada"), user("ben"));
    let flushed = (app.backlog().flush(&ada).await, app.backlog().flush(&ben).await);

    assert_eq!((flushed.0.unwrap(), flushed.1.unwrap()), (2, 0));
    assert_eq!(app.backlog().flush(&ada).await.unwrap(), 0);
    assert_eq!(town.digests_at(monday(0)).await.due.users, 0);
}
