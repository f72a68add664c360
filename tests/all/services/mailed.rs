//! The `mailed` flag of feed items: the marker of an email covers the item.

use chrono::TimeDelta;
use tidings::clock::Clock;
use tidings::domain::feed_marks::Mark;
use tidings::domain::user::TypePreference;
use tidings::domain::{Cadence, DeliveryState, Route};
use tidings::wire::explanation::{CoveredBy, EmailPlace};

use super::mandatory::happens;
use super::retracting::{BATCHED, retract};
use super::skip_seen::{SKIP, mark};
use crate::support::town::{Town, lost, monday, mostly_on_sqlite, saturday, to};
use crate::support::{Fresh, feed_of, kind, user};

mostly_on_sqlite! {
    an_item_in_a_sent_digest_is_flagged_as_mailed
    an_item_in_an_email_with_an_unknown_outcome_is_flagged_as_mailed
    an_item_of_another_route_is_not_flagged_as_mailed
    an_item_that_its_digest_skipped_as_seen_is_flagged_as_mailed
    an_item_in_a_sent_batch_is_flagged_as_mailed
    a_flush_flags_items_as_mailed
    a_recurring_event_keeps_the_mailed_flag_of_its_item
    turning_off_a_type_keeps_the_mailed_flag
    an_unknown_object_in_a_covered_entry_is_flagged_as_mailed
    a_digest_of_mandatory_events_excludes_seen_ones
    later_opt_outs_and_retractions_do_not_change_a_sent_digest
    later_opt_outs_and_retractions_do_not_change_a_sent_batch
}

/// Returns the objects in the feed, oldest first, with their `mailed` flags. Grouped items have the
/// same flags.
async fn mailed(town: &Town, person: &str) -> Vec<(String, bool)> {
    let page = town.feed(person).await;
    let mut items: Vec<_> =
        page.items.iter().map(|item| (item.object_id.to_string(), item.is_emailed)).collect();
    items.reverse();
    let request = feed_of(&user(person));
    let groups = town.process().feeds().groups(&request).await.unwrap();
    let grouped = groups.answer.groups.into_iter();
    let mut grouped: Vec<_> = grouped
        .flat_map(|group| group.items)
        .map(|item| (item.object_id.to_string(), item.is_emailed))
        .collect();
    let mut same = items.clone();
    grouped.sort();
    same.sort();
    assert_eq!(grouped, same, "groups say the same");
    items
}

fn each<const N: usize>(items: [(&str, bool); N]) -> Vec<(String, bool)> {
    items.map(|(object, mailed)| (object.to_owned(), mailed)).into()
}

async fn an_item_in_a_sent_digest_is_flagged_as_mailed(fresh: Fresh) {
    let town = Town::found(&fresh, true, "").await;
    town.happens(&["a1", "a2"], to(&["ada"])).await;
    assert_eq!(mailed(&town, "ada").await, each([("a1", false), ("a2", false)]));

    town.digests_at(monday(0)).await;
    town.happens(&["a3"], to(&["ada"])).await;

    let expected = each([("a1", true), ("a2", true), ("a3", false)]);
    assert_eq!(mailed(&town, "ada").await, expected);
    // The first day has left the window; the second digest included `a3`.
    town.digests_at(monday(0) + TimeDelta::days(7)).await;
    assert_eq!(mailed(&town, "ada").await, each([("a3", true)]));
}

async fn an_item_in_an_email_with_an_unknown_outcome_is_flagged_as_mailed(fresh: Fresh) {
    let town = Town::found(&fresh, false, "").await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.answer([lost()]);

    town.digests_at(monday(0)).await;

    let row = town.deliveries_of("ada").await.remove(0);
    assert_eq!(row.state, DeliveryState::Unknown);
    assert_eq!(mailed(&town, "ada").await, each([("a1", true)]));
}

async fn an_item_of_another_route_is_not_flagged_as_mailed(fresh: Fresh) {
    let town = Town::found(&fresh, true, "").await;
    town.happens(&["a1"], to(&["ada"])).await;
    // Digests exclude events from before `since`.
    town.clock.advance(TimeDelta::minutes(1));
    let chosen = TypePreference {
        route: Route::Digest,
        since: saturday() + TimeDelta::minutes(1),
        window: None,
    };
    let of_type = kind("ArtworkPublished");
    town.change("ada", move |ada| {
        ada.types.insert(of_type, chosen);
    })
    .await;
    town.happens(&["a2"], to(&["ada"])).await;

    town.digests_at(monday(0)).await;

    assert_eq!(town.emailed_to("ada"), ["a2"]);
    let expected = each([("a1", false), ("a2", true)]);
    assert_eq!(mailed(&town, "ada").await, expected);
}

async fn an_item_that_its_digest_skipped_as_seen_is_flagged_as_mailed(fresh: Fresh) {
    let town = Town::found(&fresh, true, SKIP).await;
    town.happens(&["a1"], to(&["ada"])).await;
    let seen = town.feed("ada").await.items[0].id;
    mark(&town.process(), "ada", Mark::Seen, vec![seen]).await;
    town.happens(&["a2", "a3"], to(&["ada"])).await;
    town.digests_at(monday(0)).await;
    assert_eq!(town.emailed_to("ada"), ["a2", "a3"]);

    town.clock.advance(TimeDelta::seconds(1));
    retract(&town.process(), &["a3"]).await;

    let expected = each([("a1", true), ("a2", true)]);
    assert_eq!(mailed(&town, "ada").await, expected);
}

async fn an_item_in_a_sent_batch_is_flagged_as_mailed(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCHED).await;
    town.happens(&["a1"], to(&["ada"])).await;
    assert_eq!(mailed(&town, "ada").await, each([("a1", false)]));

    town.send_due_in(5).await;
    town.happens(&["a2"], to(&["ada"])).await;

    let expected = each([("a1", true), ("a2", false)]);
    assert_eq!(mailed(&town, "ada").await, expected);
}

async fn a_flush_flags_items_as_mailed(fresh: Fresh) {
    let town = Town::found(&fresh, true, "").await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.digests_at(monday(0)).await;
    town.happens(&["a2"], to(&["ada"])).await;

    town.process().backlog().flush(&user("ada")).await.unwrap();

    let expected = each([("a1", true), ("a2", true)]);
    assert_eq!(mailed(&town, "ada").await, expected);
}

async fn a_recurring_event_keeps_the_mailed_flag_of_its_item(fresh: Fresh) {
    let town = Town::found(&fresh, true, "").await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.digests_at(monday(0)).await;

    town.happens(&["a1"], to(&["ada"])).await;

    assert_eq!(mailed(&town, "ada").await, each([("a1", true)]));
}

async fn turning_off_a_type_keeps_the_mailed_flag(fresh: Fresh) {
    let town = Town::found(&fresh, true, "").await;
    town.happens(&["a1", "a2"], to(&["ada"])).await;
    town.digests_at(monday(0)).await;
    let muted = TypePreference { route: Route::Never, since: town.clock.now(), window: None };
    let of_type = kind("ArtworkPublished");
    town.change("ada", move |ada| {
        ada.types.insert(of_type, muted);
    })
    .await;

    let expected = each([("a1", true), ("a2", true)]);
    assert_eq!(mailed(&town, "ada").await, expected);
    let explanation = town.process().explain().user(&user("ada"), None).await;
    for fate in explanation.unwrap().events {
        let Some(CoveredBy::Email { place, .. }) = fate.covered else {
            panic!("{:?}", fate.covered);
        };
        assert_eq!(place, EmailPlace::Shown);
    }
}

async fn an_unknown_object_in_a_covered_entry_is_flagged_as_mailed(fresh: Fresh) {
    let town = Town::found(&fresh, true, "").await;
    town.happens(&["a1", "unheard-of"], to(&["ada"])).await;

    town.digests_at(monday(0)).await;

    let expected = each([("a1", true), ("unheard-of", true)]);
    assert_eq!(mailed(&town, "ada").await, expected);
}

async fn a_digest_of_mandatory_events_excludes_seen_ones(fresh: Fresh) {
    let config = format!("{SKIP}[types.Notice]\nmandatory = true\n");
    let town = Town::found(&fresh, true, &config).await;
    town.change("ada", |ada| ada.digest.cadence = Some(Cadence::Never)).await;
    happens(&town, "Notice", &["a1"], to(&["ada"])).await;
    let seen = town.feed("ada").await.items[0].id;
    mark(&town.process(), "ada", Mark::Seen, vec![seen]).await;
    happens(&town, "Notice", &["a2"], to(&["ada"])).await;
    town.happens(&["a3"], to(&["ada"])).await;

    town.digests_at(monday(0)).await;

    assert_eq!(town.emailed_to("ada"), ["a2"]);
    let expected = each([("a1", true), ("a2", true), ("a3", true)]);
    assert_eq!(mailed(&town, "ada").await, expected);
    let row = town.deliveries_of("ada").await.remove(0);
    let story = town.process().compose().describe_delivery(row).await.unwrap();
    let shown = story.email.unwrap().items.into_iter();
    let shown: Vec<_> = shown.map(|item| item.object.to_string()).collect();
    assert_eq!(shown, ["a2"]);
}

async fn later_opt_outs_and_retractions_do_not_change_a_sent_digest(fresh: Fresh) {
    check_sent_content(fresh, "").await;
}

async fn later_opt_outs_and_retractions_do_not_change_a_sent_batch(fresh: Fresh) {
    check_sent_content(fresh, BATCHED).await;
}

/// Sends an email with two works (the third is withdrawn) and checks how it is shown after changes.
async fn check_sent_content(fresh: Fresh, config: &str) {
    let person = "ada";
    let town = Town::found(&fresh, true, config).await;
    town.happens(&["a1", "a2", "a9"], to(&[person])).await;
    town.digests_at(monday(0)).await;
    town.send_due().await;
    let shown = async || {
        let row = town.deliveries_of(person).await.remove(0);
        assert_eq!((row.state, row.outcome.items), (DeliveryState::Sent, 2));
        let story = town.process().compose().describe_delivery(row).await.unwrap();
        let items = story.email.unwrap().items.into_iter();
        let mut items: Vec<_> = items.map(|item| item.object.to_string()).collect();
        items.sort();
        items
    };
    let muted = TypePreference { route: Route::Never, since: town.clock.now(), window: None };
    let of_type = kind("ArtworkPublished");
    town.change(person, move |of| {
        of.types.insert(of_type, muted);
    })
    .await;
    assert_eq!(shown().await, ["a1", "a2"], "turned off since: {config}");

    town.clock.advance(TimeDelta::seconds(1));
    retract(&town.process(), &["a1"]).await;
    assert_eq!(shown().await, ["a1", "a2"], "taken back since: {config}");

    town.put_works(&["a2"], |_| false).await;
    assert_eq!(shown().await, ["a1"], "withdrawn since: {config}");
    town.put_works(&["a2"], |_| true).await;
}
