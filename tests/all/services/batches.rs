//! End-to-end tests of batches.
//!
//! Events within a window become one email. It is sent once, to users who may be emailed, with the
//! events that still apply.
//!
//! Long because all tests share a few helpers.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use tidings::domain::batch::{ChosenKey, MAX_ENDED};
use tidings::domain::user::TypePreference;
use tidings::domain::{
    Batch, BatchState, Day, DeliveryState, Entry, ObjectId, Route, Suppression, SuppressionReason,
};
use tidings::engine::NoProgress;
use tidings::store::{BatchFilter, Store};
use tidings::wire::run_report::Tally;

use crate::support::town::{
    Town, followers_of, lost, monday, mostly_on_sqlite, refused, request, saturday, to,
};
use crate::support::{FailingStore, Fault, Fresh, Shorthand, Then, kind, user};

mostly_on_sqlite! {
    events_within_a_window_are_one_email_per_user
    a_digest_excludes_batched_events_even_after_a_route_change
    an_event_that_arrives_during_a_send_is_in_the_next_batch
    each_immediate_event_is_one_email_until_its_type_is_muted
    an_event_fanned_out_again_is_emailed_once
    withdrawn_objects_are_excluded_and_an_empty_batch_is_canceled
    events_beyond_keep_are_shown_when_all_kept_ones_are_withdrawn
    users_who_may_not_be_emailed_get_no_batch_email
    a_user_can_choose_their_own_window
    a_lead_is_emailed_at_once_and_later_events_are_batched
    types_with_the_same_batch_key_share_an_email
    a_batch_with_an_unknown_outcome_can_be_settled_by_hand
    a_retried_batch_that_is_rejected_again_fails_again
    users_with_the_same_events_share_content_and_a_provider_call
    a_user_with_many_emails_does_not_delay_other_users
    users_take_turns_even_if_their_batches_close_separately
    a_lead_is_not_shown_again_when_a_kept_event_is_withdrawn
    repeated_events_about_one_object_are_shown_once
    an_accumulator_holds_a_limited_number_of_ended_batches
    a_marker_lists_only_events_stored_within_the_day_cap
}

const BATCHED: &str = r#"
types.ArtworkPublished.route = "batch"
types.ArtworkPublished.window = "5m"
types.ArtworkPublished.keep = "last 2"
"#;

fn at(seconds: i64) -> DateTime<Utc> {
    saturday() + TimeDelta::seconds(seconds)
}

/// Sets the clock to `seconds` after the start (never back) and sends due emails.
async fn send_due_at(town: &Town, seconds: i64) -> Tally {
    town.send_due_at(at(seconds)).await
}

async fn batches(town: &Town) -> Vec<Batch> {
    let all = BatchFilter::default();
    town.store.find_batches(&all, 1_000).await.unwrap()
}

/// Returns the user, state and event count of each batch, sorted by user.
async fn states(town: &Town) -> Vec<(String, BatchState, u64)> {
    let mut states: Vec<_> = batches(town)
        .await
        .into_iter()
        .map(|batch| (batch.user.to_string(), batch.state, batch.events.count))
        .collect();
    states.sort_by(|a, b| a.0.cmp(&b.0));
    states
}

/// Returns the recipient of each email and the works that it shows, in the order of sending.
fn shown_works(town: &Town) -> Vec<(String, Vec<&'static str>)> {
    let of = |email: tidings::email::Message| {
        let text = email.fill_links().text;
        let works = crate::support::town::WORKS.into_iter();
        let shown = works.filter(|work| text.contains(&format!("Work {work}.")));
        (email.to.reveal().to_owned(), shown.collect())
    };
    town.emails().into_iter().map(of).collect()
}

async fn events_within_a_window_are_one_email_per_user(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCHED).await;
    for (second, work) in [(0, "a1"), (100, "a2"), (299, "a3")] {
        town.clock.set(at(second));
        town.happens(&[work], followers_of("artist:1")).await;
    }

    assert_eq!(send_due_at(&town, 299).await.sent, 0);
    let tally = send_due_at(&town, 300).await;

    // dee has not confirmed her address.
    assert_eq!((tally.sent, tally.events, tally.canceled), (2, 6, 1));
    let mut emails = shown_works(&town);
    emails.sort();
    let newest = vec!["a2", "a3"];
    assert_eq!(
        emails,
        [("ada@example.org".to_owned(), newest.clone()), ("ben@example.org".to_owned(), newest)]
    );
    assert!(town.emails()[0].fill_links().text.contains("\n  1 more\n"));
    let expected = [
        ("ada".to_owned(), BatchState::Closed, 3),
        ("ben".to_owned(), BatchState::Closed, 3),
        ("dee".to_owned(), BatchState::Canceled, 3),
    ];
    assert_eq!(states(&town).await, expected);
    assert_eq!(send_due_at(&town, 3_000).await, Tally::default());
}

async fn a_digest_excludes_batched_events_even_after_a_route_change(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCHED).await;
    town.happens(&["a1"], to(&["ada"])).await;
    send_due_at(&town, 300).await;
    let digests = Town::found(&fresh, true, "").await;
    digests.clock.set(at(400));
    digests.happens(&["a2"], to(&["ada"])).await;

    let report = digests.digests_at(monday(0)).await;

    assert_eq!(report.emails.sent, 1);
    assert_eq!(digests.emailed_to("ada"), ["a2"]);
}

async fn an_event_that_arrives_during_a_send_is_in_the_next_batch(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCHED).await;
    town.happens(&["a1"], to(&["ada"])).await;
    let late = town.process();
    town.meanwhile(move || {
        Box::pin(async move {
            let late_event = request(&["a2"], to(&["ada"]), None);
            late.notify().accept(vec![late_event]).await.unwrap();
            late.fanouts().drain(&NoProgress).await.unwrap();
        })
    });

    send_due_at(&town, 300).await;
    assert_eq!(send_due_at(&town, 599).await.sent, 0);
    send_due_at(&town, 600).await;

    let ada = "ada@example.org".to_owned();
    assert_eq!(shown_works(&town), [(ada.clone(), vec!["a1"]), (ada, vec!["a2"])]);
}

async fn each_immediate_event_is_one_email_until_its_type_is_muted(fresh: Fresh) {
    let town = Town::found(&fresh, true, "types.ArtworkPublished.route = \"immediate\"").await;
    let app = town.process();
    let events = ["a1", "a2"].map(|work| request(&[work], to(&["ada"]), None));
    app.notify().accept(events.to_vec()).await.unwrap();
    app.fanouts().drain(&NoProgress).await.unwrap();
    assert_eq!(send_due_at(&town, 0).await.sent, 2);

    let route = |route| {
        move |user: &mut tidings::domain::User| {
            let chosen = TypePreference { route, since: at(20), window: None };
            user.types.insert(kind("ArtworkPublished"), chosen);
        }
    };
    town.clock.set(at(10));
    town.happens(&["a3"], to(&["ada"])).await;
    town.clock.set(at(20));
    // a3 is pending when the type is muted.
    town.change("ada", route(Route::Never)).await;
    town.happens(&["a4"], to(&["ada"])).await;
    assert_eq!(send_due_at(&town, 20).await.canceled, 1);
    town.change("ada", route(Route::Immediate)).await;
    town.clock.set(at(30));
    town.happens(&["a5"], to(&["ada"])).await;
    assert_eq!(send_due_at(&town, 30).await.sent, 1);

    let works: Vec<_> = shown_works(&town).into_iter().flat_map(|(_, works)| works).collect();
    assert_eq!(works, ["a1", "a2", "a5"]);
}

async fn an_event_fanned_out_again_is_emailed_once(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCHED).await;
    for fault in [Fault::Refused, Fault::Unheard] {
        for nth in 0.. {
            town.clock.advance(TimeDelta::hours(1));
            let before = town.emails().len();
            let event = request(&["a1"], to(&["ada"]), None);
            town.process().notify().accept(vec![event]).await.unwrap();
            let dies: Arc<dyn Store> =
                FailingStore::new(town.store.clone(), nth, fault, Then::StaysDown);
            let died = town.process_on(&dies).fanouts().drain(&NoProgress).await.is_err();
            // If the event joined a batch, send that batch before the second fan-out.
            town.clock.advance(TimeDelta::minutes(5));
            town.send_due().await;

            town.clock.advance(TimeDelta::minutes(30));
            town.process().fanouts().drain(&NoProgress).await.unwrap();
            town.clock.advance(TimeDelta::minutes(5));
            town.send_due().await;

            assert_eq!(town.emails().len(), before + 1, "{fault:?} of call {nth}");
            if !died {
                break;
            }
        }
    }
}

async fn withdrawn_objects_are_excluded_and_an_empty_batch_is_canceled(fresh: Fresh) {
    let config = BATCHED.to_owned() + "types.ArtworkPublished.model = \"Artwork\"";
    let town = Town::found(&fresh, true, &config).await;
    let works = |works: &'static [&'static str], there| {
        let town = &town;
        async move {
            let ids: Vec<String> = works.iter().map(|id| format!("Artwork:{id}")).collect();
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            town.put_works(&ids, |_| there).await;
        }
    };
    works(&["a1", "a2", "a3"], true).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    town.happens(&["a2"], to(&["ada"])).await;
    works(&["a1"], false).await;

    let tally = send_due_at(&town, 300).await;

    assert_eq!((tally.sent, tally.events, tally.canceled), (1, 1, 1));
    assert!(town.emails()[0].fill_links().text.contains("Work Artwork:a2."));
    let row = town.deliveries_of("ben").await.remove(0);
    let reason = row.outcome.reason.as_deref();
    assert_eq!(reason, Some("nothing is left that applies"));
}

async fn events_beyond_keep_are_shown_when_all_kept_ones_are_withdrawn(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCHED).await;
    for work in ["a1", "a2", "a3", "a4", "a5"] {
        town.happens(&[work], to(&["ada"])).await;
    }
    let removed = town
        .process()
        .batches()
        .remove_events(&kind("ArtworkPublished"), &[ObjectId::stored("a5")], None)
        .await
        .unwrap();
    assert_eq!((removed.removed, removed.omitted), (1, 3));
    town.put_works(&["a2", "a4"], |_| false).await;

    let tally = send_due_at(&town, 300).await;

    assert_eq!((tally.sent, tally.events), (1, 2));
    assert_eq!(shown_works(&town)[0].1, ["a1", "a3"]);
}

async fn users_who_may_not_be_emailed_get_no_batch_email(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCHED).await;
    town.happens(&["a1"], to(&["ada", "ben", "cem", "dee", "nobody"])).await;
    let ada = tidings::domain::Address::new("ada@example.org").unwrap();
    let bounced = Suppression::new(&ada, SuppressionReason::HardBounce, at(1), "esp");
    fresh.suppress(&[bounced]).await;
    town.change("ben", |user| user.unsubscribed = Some(at(2))).await;

    let tally = send_due_at(&town, 300).await;

    assert_eq!((tally.sent, tally.canceled), (1, 3));
    assert_eq!(shown_works(&town)[0].0, "cem@example.org");
    // The fifth recipient is unknown and has no batch.
    assert_eq!(states(&town).await.len(), 4);
}

async fn a_user_can_choose_their_own_window(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCHED).await;
    town.change("ben", |user| {
        let chosen = TypePreference {
            route: Route::Batch,
            since: DateTime::UNIX_EPOCH,
            window: Some(TimeDelta::hours(1)),
        };
        user.types.insert(kind("ArtworkPublished"), chosen);
    })
    .await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;

    send_due_at(&town, 300).await;
    assert_eq!(shown_works(&town)[0].0, "ada@example.org");
    assert_eq!(send_due_at(&town, 3_599).await.sent, 0);
    assert_eq!(send_due_at(&town, 3_600).await.sent, 1);
}

async fn a_lead_is_emailed_at_once_and_later_events_are_batched(fresh: Fresh) {
    let config = BATCHED.to_owned() + "types.ArtworkPublished.leading = true";
    let town = Town::found(&fresh, true, &config).await;
    town.happens(&["a1"], to(&["ada"])).await;
    assert_eq!(send_due_at(&town, 1).await.sent, 1);
    town.happens(&["a2"], to(&["ada"])).await;
    town.happens(&["a3"], to(&["ada"])).await;
    assert_eq!(send_due_at(&town, 299).await.sent, 0);

    assert_eq!(send_due_at(&town, 300).await.sent, 1);

    let works: Vec<_> = shown_works(&town).into_iter().map(|(_, works)| works).collect();
    assert_eq!(works, [vec!["a1"], vec!["a2", "a3"]]);
    // All three events were emailed, so no digest includes them.
    let digests = Town::found(&fresh, true, "").await;
    assert_eq!(digests.digests_at(monday(0)).await.due.users, 0);
}

async fn types_with_the_same_batch_key_share_an_email(fresh: Fresh) {
    let config = BATCHED.to_owned()
        + "types.Other.route = \"batch\"\ntypes.Other.window = \"5m\"\ntypes.Other.heading = \"Others\"";
    let town = Town::found(&fresh, true, &config).await;
    let event = |name: &str, work: &str, key: Option<&str>| {
        let mut event = request(&[work], to(&["ada"]), None);
        event.kind = kind(name);
        event.batch_key = key.map(|key| ChosenKey::new(key).unwrap());
        event
    };
    let events = vec![
        event("ArtworkPublished", "a1", Some("acme")),
        event("Other", "a2", Some("acme")),
        event("Other", "a3", Some("0")),
        event("Other", "a4", None),
        event("Other", "a5", Some("false")),
    ];
    let app = town.process();
    app.notify().accept(events).await.unwrap();
    app.fanouts().drain(&NoProgress).await.unwrap();

    assert_eq!(send_due_at(&town, 300).await.sent, 4);

    let mut works: Vec<_> = shown_works(&town).into_iter().map(|(_, works)| works).collect();
    works.sort();
    assert_eq!(works, [vec!["a1", "a2"], vec!["a3"], vec!["a4"], vec!["a5"]]);
}

async fn a_batch_with_an_unknown_outcome_can_be_settled_by_hand(fresh: Fresh) {
    let town = Town::found(&fresh, false, BATCHED).await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.answer([lost()]);

    assert_eq!(send_due_at(&town, 300).await.unknown, 1);
    assert_eq!(states(&town).await[0].1, BatchState::Closed);
    let row = town.deliveries_of("ada").await.remove(0);
    let ledger = town.process().deliveries();
    let not_sent = tidings::domain::delivery::OperatorDecision::NotSent;
    ledger.settle(&row.id, not_sent).await.unwrap();
    town.answer([refused("no")]);
    // The events are already marked as emailed, so the rejected email becomes unknown, not failed.
    assert_eq!(send_due_at(&town, 301).await.unknown, 1);
    ledger.settle(&row.id, not_sent).await.unwrap();
    assert_eq!(send_due_at(&town, 302).await.sent, 1);

    let row = town.deliveries_of("ada").await.remove(0);
    assert_eq!((row.state, row.open), (DeliveryState::Sent, false));
}

async fn a_retried_batch_that_is_rejected_again_fails_again(fresh: Fresh) {
    let town = Town::found(&fresh, false, BATCHED).await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.answer([refused("no")]);
    assert_eq!(send_due_at(&town, 300).await.failed, 1);
    let row = town.deliveries_of("ada").await.remove(0);
    let ledger = town.process().deliveries();

    town.answer([refused("no")]);
    let again = ledger.retry(std::slice::from_ref(&row.id)).await.unwrap();
    assert_eq!((again.reopened, send_due_at(&town, 301).await.failed), (1, 1));
    let again = ledger.retry(std::slice::from_ref(&row.id)).await.unwrap();
    assert_eq!((again.reopened, send_due_at(&town, 302).await.sent), (1, 1));

    assert_eq!(town.emails().len(), 1);
}

async fn users_with_the_same_events_share_content_and_a_provider_call(fresh: Fresh) {
    let config = "delivery.chunk = 100\n".to_owned() + BATCHED;
    let town = Town::found(&fresh, true, &config).await;
    let crowd = town.crowd(50).await;
    let crowd: Vec<&str> = crowd.iter().map(String::as_str).collect();
    town.happens(&["a1"], to(&crowd)).await;
    town.happens(&["a2"], to(&crowd)).await;

    assert_eq!(send_due_at(&town, 300).await.sent, 50);

    let emails = town.emails();
    let first = &emails[0].content;
    assert!(emails.iter().all(|email| Arc::ptr_eq(&email.content, first)));
    assert_eq!(town.calls().len(), 1);
}

async fn a_user_with_many_emails_does_not_delay_other_users(fresh: Fresh) {
    let config = "types.ArtworkPublished.route = \"immediate\"";
    let town = Town::found(&fresh, true, config).await;
    let many: Vec<_> =
        (0..20).map(|n| request(&[["a1", "a2"][n % 2]], to(&["ada"]), None)).collect();
    let app = town.process();
    app.notify().accept(many).await.unwrap();
    let one = request(&["a3"], to(&["ben"]), None);
    app.notify().accept(vec![one]).await.unwrap();
    app.fanouts().drain(&NoProgress).await.unwrap();

    assert_eq!(send_due_at(&town, 0).await.sent, 21);

    let order: Vec<String> = shown_works(&town).into_iter().map(|(person, _)| person).collect();
    let ben = order.iter().position(|person| person == "ben@example.org");
    assert!(ben.unwrap() < 2, "{order:?}");
}

async fn users_take_turns_even_if_their_batches_close_separately(fresh: Fresh) {
    let config = "types.ArtworkPublished.route = \"immediate\"";
    let town = Town::found(&fresh, true, config).await;
    let app = town.process();
    for work in ["a1", "a2", "a3"] {
        town.happens(&[work], to(&["ada"])).await;
        app.batches().drain(&NoProgress).await.unwrap();
    }
    town.happens(&["a4"], to(&["ben"])).await;

    assert_eq!(send_due_at(&town, 0).await.sent, 4);

    let works: Vec<_> = shown_works(&town).into_iter().map(|(_, works)| works[0]).collect();
    assert!(works[..2].contains(&"a1") && works[..2].contains(&"a4"), "{works:?}");
}

async fn a_lead_is_not_shown_again_when_a_kept_event_is_withdrawn(fresh: Fresh) {
    let config = BATCHED.to_owned() + "types.ArtworkPublished.leading = true";
    let town = Town::found(&fresh, true, &config).await;
    town.happens(&["a1"], to(&["ada"])).await;
    assert_eq!(send_due_at(&town, 1).await.sent, 1);
    for work in ["a2", "a3", "a4"] {
        town.happens(&[work], to(&["ada"])).await;
    }
    town.put_works(&["a4"], |_| false).await;

    send_due_at(&town, 300).await;

    let works: Vec<_> = shown_works(&town).into_iter().map(|(_, works)| works).collect();
    assert_eq!(works, [vec!["a1"], vec!["a2", "a3"]]);
}

async fn repeated_events_about_one_object_are_shown_once(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCHED).await;
    for _ in 0..6 {
        town.happens(&["a1"], to(&["ada"])).await;
    }

    let tally = send_due_at(&town, 300).await;

    assert_eq!((tally.sent, tally.events), (1, 1));
    assert!(!town.emails()[0].fill_links().text.contains("more"));
}

async fn an_accumulator_holds_a_limited_number_of_ended_batches(fresh: Fresh) {
    let config = "types.ArtworkPublished.route = \"immediate\"";
    let town = Town::found(&fresh, true, config).await;
    let events: Vec<_> =
        (0..MAX_ENDED + 50).map(|n| request(&[["a1", "a2"][n % 2]], to(&["ada"]), None)).collect();
    let app = town.process();
    for part in events.chunks(100) {
        app.notify().accept(part.to_vec()).await.unwrap();
    }

    // No closer runs until all events are fanned out.
    app.fanouts().drain(&NoProgress).await.unwrap();

    let all = batches(&town).await;
    assert_eq!(all.len(), MAX_ENDED + 50);
    let accumulator = town.store.accumulator_of(all[0].id).await;
    let ended = accumulator.map_or(0, |accumulator| accumulator.ended.len());
    assert!(ended <= MAX_ENDED, "{ended}");
    assert_eq!(town.send_due().await.sent, events.len() as u64);
}

async fn a_marker_lists_only_events_stored_within_the_day_cap(fresh: Fresh) {
    let config = BATCHED.to_owned() + "fanout.day_cap = 100";
    let town = Town::found(&fresh, true, &config).await;
    let app = town.process();
    for _ in 0..6 {
        let events: Vec<_> = (0..100).map(|_| request(&["a1"], to(&["ada"]), None)).collect();
        app.notify().accept(events).await.unwrap();
    }
    app.fanouts().drain(&NoProgress).await.unwrap();

    assert_eq!(send_due_at(&town, 300).await.sent, 1);

    let entries = fresh.entries_of(&user("ada"), Day::of(saturday())).await;
    let Some(Entry::BatchMarker(mailed)) = entries.last() else {
        panic!("{:?} is no mark", entries.last());
    };
    assert_eq!((entries.len(), mailed.fanouts.len()), (101, 100));
}
