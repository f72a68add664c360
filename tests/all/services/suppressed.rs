//! P7: an address that must not be written to is asked about when a digest is built, and again just
//! before it leaves.

use chrono::TimeDelta;
use tidings::domain::{Address, DeliveryState, Reason, Suppression};
use tidings::mail::Outcome;
use tidings::services::Silent;
use tidings::services::archive::{Effect, Protection, Request};
use tidings::wire::archive::Fate;

use crate::support::town::{Town, busy, followers_of, monday, on_both_stores, to};
use crate::support::{Fresh, noon};

on_both_stores! {
    an_address_that_is_suppressed_before_the_mail_leaves_gets_none
    an_address_the_provider_takes_nothing_for_is_not_written_to_again
    what_only_a_suppressed_address_waits_for_holds_no_day_back
}

fn ada() -> Address {
    Address::new("ada@example.org").unwrap()
}

async fn suppress(fresh: &Fresh, reason: Reason) {
    let news = Suppression::new(&ada(), reason, noon(), "esp");
    fresh.suppress(&[news]).await.unwrap();
}

async fn an_address_that_is_suppressed_before_the_mail_leaves_gets_none(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.answer([busy()]);
    assert_eq!(town.digests_at(monday(0)).await.mails.deferred, 1);
    suppress(&fresh, Reason::Complaint).await;
    town.clock.advance(TimeDelta::minutes(10));

    let report = town.digests_at(monday(0)).await;

    assert_eq!((report.mails.canceled, report.mails.sent), (1, 0));
    let row = town.deliveries_of("ada").await.remove(0);
    assert_eq!(row.state, DeliveryState::Canceled);
    assert_eq!(
        row.reason.as_deref(),
        Some("the person is suppressed after a complaint")
    );
    assert!(town.told().is_empty());
}

async fn an_address_the_provider_takes_nothing_for_is_not_written_to_again(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], followers_of("artist:1")).await;
    // ada's, of ada's and ben's.
    town.answer([Outcome::Undeliverable {
        reason: "406: inactive recipient <ada@example.org>".into(),
    }]);

    let first = town.digests_at(monday(0)).await;
    town.happens(&["a2"], followers_of("artist:1")).await;
    let second = town.digests_at(monday(1)).await;

    assert_eq!((first.mails.failed, first.mails.sent), (1, 1));
    assert_eq!((second.mails.failed, second.mails.sent), (0, 1));
    assert_eq!(second.unmailable["suppressed after a hard bounce"], 1);
    let stands = fresh.suppressed(&[ada()]).await.unwrap().remove(0).unwrap();
    assert_eq!(
        (stands.reason, stands.source.as_str()),
        (Reason::HardBounce, "postbox")
    );
    assert_eq!(stands.detail.as_deref(), Some("406 inactive recipient"));
    let told = town.told_to("ben");
    assert_eq!(told, ["a1", "a2"]);
}

async fn what_only_a_suppressed_address_waits_for_holds_no_day_back(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.clock.set(monday(8));
    let request = Request {
        keep: TimeDelta::days(30),
        export: None,
        effect: Effect::Rehearse,
        protection: Protection::Keep,
    };
    let fate = async || {
        let archive = town.process().archive();
        let mut days = Vec::new();
        archive.run(&request, &Silent, &mut days).await.unwrap();
        days.remove(0).fate
    };
    assert_eq!(
        fate().await,
        Fate::Unmailed {
            people: 1,
            events: 1
        }
    );

    suppress(&fresh, Reason::HardBounce).await;

    assert_eq!(fate().await, Fate::Dropped { file: None });
}
