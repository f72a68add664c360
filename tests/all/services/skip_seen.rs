//! `digest.skip_seen`: digests exclude events that the user has seen in the feed. Batches include
//! them.

use chrono::TimeDelta;
use tidings::app::App;
use tidings::clock::Clock;
use tidings::domain::feed_marks::Mark;
use tidings::domain::{Day, DeliveryState, Position};
use tidings::wire::explanation::{CoveredBy, EmailPlace, EventStatus, ExplainedEvent};

use super::retracting::shown;
use crate::support::town::{Town, busy, monday, mostly_on_sqlite, to};
use crate::support::{Fresh, marks, user};

mostly_on_sqlite! {
    a_digest_excludes_seen_events
    by_default_a_digest_includes_seen_events
    an_event_marked_as_unread_still_counts_as_seen
    an_event_that_recurs_after_it_was_seen_is_included
    a_deferred_digest_excludes_events_seen_meanwhile
    a_batch_includes_seen_events
    the_backlog_excludes_seen_events
    seen_events_stay_excluded_after_their_day_leaves_the_window
    explain_reports_seen_events
    a_flush_counts_seen_events_only_without_skip_seen
    an_event_seen_after_its_email_is_reported_as_shown
    an_event_seen_before_its_email_is_reported_as_excluded
}

pub(super) const SKIP: &str = "digest.skip_seen = true\n";

/// Marks items in a user's feed.
pub(super) async fn mark(app: &App, person: &str, mark: Mark, ids: Vec<Position>) {
    let input = marks(mark, None, Some(ids));
    app.feeds().mark(&user(person), input).await.unwrap();
}

/// Marks all items in the feed as seen.
async fn see_all(town: &Town, person: &str) {
    let page = town.feed(person).await;
    let ids = page.items.iter().map(|item| item.id).collect();
    mark(&town.process(), person, Mark::Seen, ids).await;
}

async fn a_digest_excludes_seen_events(fresh: Fresh) {
    let town = Town::found(&fresh, true, SKIP).await;
    town.happens(&["a1", "a2"], to(&["ada", "ben", "cem"])).await;
    see_all(&town, "ada").await;
    see_all(&town, "cem").await;
    town.happens(&["a3"], to(&["ada"])).await;

    let report = town.digests_at(monday(0)).await;

    assert_eq!((report.due.users, report.emails.sent), (2, 2));
    assert_eq!(town.emailed_to("ada"), ["a3"]);
    assert_eq!(town.emailed_to("ben"), ["a1", "a2"]);
    assert_eq!(town.emailed_to("cem"), [""; 0]);
    // The marker covers the seen events, too.
    let stacks = fresh.stacks_of(&user("ada")).await;
    assert!(stacks.iter().all(|stack| stack.uncovered().next().is_none()));
    assert_eq!(shown(&town.feed("ada").await).len(), 3);
}

async fn by_default_a_digest_includes_seen_events(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada"])).await;
    see_all(&town, "ada").await;

    town.digests_at(monday(0)).await;

    assert_eq!(town.emailed_to("ada"), ["a1"]);
}

async fn an_event_marked_as_unread_still_counts_as_seen(fresh: Fresh) {
    let town = Town::found(&fresh, true, SKIP).await;
    town.happens(&["a1", "a2"], to(&["ada"])).await;
    let items = town.feed("ada").await.items;
    let a1 = items.iter().find(|item| item.object_id.as_str() == "a1");
    let a1 = a1.unwrap().id;
    for done in [Mark::Read, Mark::Archive, Mark::Unread] {
        mark(&town.process(), "ada", done, vec![a1]).await;
    }

    town.digests_at(monday(0)).await;

    assert_eq!(town.emailed_to("ada"), ["a2"]);
}

async fn an_event_that_recurs_after_it_was_seen_is_included(fresh: Fresh) {
    let town = Town::found(&fresh, true, SKIP).await;
    town.happens(&["a1"], to(&["ada"])).await;
    see_all(&town, "ada").await;
    town.clock.advance(TimeDelta::hours(1));
    town.happens(&["a1"], to(&["ada"])).await;

    town.digests_at(monday(0)).await;

    assert_eq!(town.emailed_to("ada"), ["a1"]);
}

async fn a_deferred_digest_excludes_events_seen_meanwhile(fresh: Fresh) {
    let town = Town::found(&fresh, true, SKIP).await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.happens(&["a2", "a3"], to(&["ben"])).await;
    town.answer([busy(), busy()]);
    assert_eq!(town.digests_at(monday(0)).await.emails.deferred, 2);

    see_all(&town, "ada").await;
    let items = town.feed("ben").await.items;
    mark(&town.process(), "ben", Mark::Read, vec![items[0].id]).await;
    town.clock.advance(TimeDelta::minutes(10));
    let report = town.digests_at(monday(0)).await;

    assert_eq!((report.emails.canceled, report.emails.sent), (1, 1));
    let row = town.deliveries_of("ada").await.remove(0);
    assert_eq!(row.state, DeliveryState::Canceled);
    let unread = items[1].object_id.as_str();
    assert_eq!(town.emailed_to("ben"), [unread]);
    assert_eq!(town.emailed_to("ada"), [""; 0]);
}

async fn a_batch_includes_seen_events(fresh: Fresh) {
    let config = format!("{SKIP}types.ArtworkPublished.route = \"batch\"\n");
    let town = Town::found(&fresh, true, &config).await;
    town.happens(&["a1"], to(&["ada"])).await;
    see_all(&town, "ada").await;

    town.send_due_in(24 * 60).await;

    let emails = town.emails();
    assert_eq!(emails.len(), 1);
    assert!(emails[0].fill_links().text.contains("Work a1"));
}

async fn the_backlog_excludes_seen_events(fresh: Fresh) {
    let town = Town::found(&fresh, true, SKIP).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    see_all(&town, "ada").await;

    let day = Day::of(town.clock.now());
    let backlog = town.mailable_backlog(day).await;

    assert_eq!((backlog.users, backlog.events), (1, 1));
}

async fn explain_reports_seen_events(fresh: Fresh) {
    let town = Town::found(&fresh, true, SKIP).await;
    town.happens(&["a1"], to(&["ada"])).await;
    see_all(&town, "ada").await;
    town.happens(&["a2"], to(&["ada"])).await;

    let explanation = town.process().explain().user(&user("ada"), None).await;

    let fates = explanation.unwrap().events;
    let why: Vec<_> = fates.iter().map(|fate| (fate.object.as_str(), fate.status)).collect();
    assert_eq!(why, [("a2", EventStatus::NextDigest), ("a1", EventStatus::Seen)]);
}

async fn seen_events_stay_excluded_after_their_day_leaves_the_window(fresh: Fresh) {
    let town = Town::found(&fresh, true, SKIP).await;
    let day = Day::of(town.clock.now());
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    see_all(&town, "ada").await;
    town.clock.advance(TimeDelta::days(9));
    town.happens(&["a2", "a3"], to(&["ada"])).await;
    let items = town.feed("ada").await.items;
    mark(&town.process(), "ada", Mark::Read, vec![items[0].id]).await;

    let backlog = town.mailable_backlog(day).await;
    town.digests_at(monday(2)).await;

    assert_eq!((backlog.users, backlog.events), (1, 1));
    assert_eq!(town.emailed_to("ada"), [items[1].object_id.as_str()]);
    assert_eq!(town.emailed_to("ben"), ["a1"]);
}

/// Returns the place of each object in the digest, as explained, and the number of items in the
/// preview of that email.
async fn explain_email(town: &Town, person: &str) -> (Vec<(String, EmailPlace)>, usize) {
    let app = town.process();
    let explanation = app.explain().user(&user(person), None).await.unwrap();
    let place = |fate: ExplainedEvent| match fate.covered {
        Some(CoveredBy::Email { place, .. }) => (fate.object.to_string(), place),
        other => panic!("{other:?}"),
    };
    let mut places: Vec<_> = explanation.events.into_iter().map(place).collect();
    places.sort_by(|one, other| one.0.cmp(&other.0));
    let row = town.deliveries_of(person).await.remove(0);
    let story = app.compose().describe_delivery(row).await.unwrap();
    (places, story.email.map_or(0, |email| email.items.len()))
}

async fn an_event_seen_after_its_email_is_reported_as_shown(fresh: Fresh) {
    let town = Town::found(&fresh, true, SKIP).await;
    town.happens(&["a1", "a2"], to(&["ada"])).await;
    town.digests_at(monday(0)).await;

    see_all(&town, "ada").await;

    let (places, items) = explain_email(&town, "ada").await;
    let shown = |object: &str| (object.to_owned(), EmailPlace::Shown);
    assert_eq!(places, [shown("a1"), shown("a2")]);
    assert_eq!(items, 2);
}

async fn an_event_seen_before_its_email_is_reported_as_excluded(fresh: Fresh) {
    let town = Town::found(&fresh, true, SKIP).await;
    town.happens(&["a1"], to(&["ada"])).await;
    see_all(&town, "ada").await;
    town.happens(&["a2"], to(&["ada"])).await;
    town.digests_at(monday(0)).await;

    let (places, items) = explain_email(&town, "ada").await;

    let expected = [("a1", EmailPlace::Excluded), ("a2", EmailPlace::Shown)];
    assert_eq!(places, expected.map(|(object, place)| (object.to_owned(), place)));
    assert_eq!(items, 1);
}

async fn a_flush_counts_seen_events_only_without_skip_seen(fresh: Fresh) {
    for (later, config, person, counted) in [(0, "", "ada", 2), (60, SKIP, "ben", 1)] {
        let town = Town::found(&fresh, true, config).await;
        town.clock.advance(TimeDelta::seconds(later));
        town.happens(&["a1"], to(&[person])).await;
        see_all(&town, person).await;
        town.happens(&["a2"], to(&[person])).await;

        let flushed = town.process().backlog().flush(&user(person)).await.unwrap();

        assert_eq!(flushed, counted, "{config}");
    }
}
