//! What `explain` and `deliveries show` report of a sent email after later changes.

use chrono::TimeDelta;
use tidings::clock::Clock;
use tidings::domain::inbox::Mark;
use tidings::domain::user::TypePreference;
use tidings::domain::{Cadence, DeliveryState, Route};
use tidings::wire::explanation::{By, Place};

use super::mandatory::happens;
use super::retracting::{BATCHED, retract};
use super::skip_seen::{SKIP, mark};
use crate::support::town::{Town, monday, mostly_on_sqlite, to};
use crate::support::{Fresh, kind, user};

mostly_on_sqlite! {
    turning_off_a_type_does_not_change_what_an_email_included
    a_digest_of_mandatory_events_excludes_seen_ones
    later_opt_outs_and_retractions_do_not_change_a_sent_digest
    later_opt_outs_and_retractions_do_not_change_a_sent_batch
}

async fn turning_off_a_type_does_not_change_what_an_email_included(fresh: Fresh) {
    let town = Town::found(&fresh, true, "").await;
    town.happens(&["a1", "a2"], to(&["ada"])).await;
    town.digests_at(monday(0)).await;
    let muted = TypePreference {
        route: Route::Never,
        since: town.clock.now(),
        window: None,
    };
    let of_type = kind("ArtworkPublished");
    town.change("ada", move |ada| {
        ada.types.insert(of_type, muted);
    })
    .await;

    let explanation = town.process().explain().user(&user("ada"), None).await;
    for fate in explanation.unwrap().events {
        let Some(By::Mail { place, .. }) = fate.covered else {
            panic!("{:?}", fate.covered);
        };
        assert_eq!(place, Place::Shown);
    }
}

async fn a_digest_of_mandatory_events_excludes_seen_ones(fresh: Fresh) {
    let config = format!("{SKIP}[types.Notice]\nmandatory = true\n");
    let town = Town::found(&fresh, true, &config).await;
    town.change("ada", |ada| ada.digest.cadence = Some(Cadence::Never))
        .await;
    happens(&town, "Notice", &["a1"], to(&["ada"])).await;
    let seen = town.feed("ada").await.items[0].id;
    mark(&town.process(), "ada", Mark::Seen, vec![seen]).await;
    happens(&town, "Notice", &["a2"], to(&["ada"])).await;
    town.happens(&["a3"], to(&["ada"])).await;

    town.digests_at(monday(0)).await;

    assert_eq!(town.emailed_to("ada"), ["a2"]);
    let row = town.deliveries_of("ada").await.remove(0);
    let story = town.process().compose().story(row).await.unwrap();
    let shown = story.mail.unwrap().items.into_iter();
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
        let story = town.process().compose().story(row).await.unwrap();
        let items = story.mail.unwrap().items.into_iter();
        let mut items: Vec<_> = items.map(|item| item.object.to_string()).collect();
        items.sort();
        items
    };
    let muted = TypePreference {
        route: Route::Never,
        since: town.clock.now(),
        window: None,
    };
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
