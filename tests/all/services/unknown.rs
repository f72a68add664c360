//! Events about unknown objects are not emailed, unless their type allows it (P6). Runs and dry
//! runs report the unknown objects.

use chrono::TimeDelta;
use tidings::domain::{DeliveryState, Object};
use tidings::engine::NoProgress;
use tidings::engine::digest::DigestRequest;
use tidings::wire::explanation::{CoveredBy, EmailPlace};

use crate::support::town::{Town, monday, mostly_on_sqlite, request, to};
use crate::support::{Fresh, feed_of};

mostly_on_sqlite! {
    an_unknown_object_is_in_the_feed_but_in_no_email
    an_unknown_object_is_emailed_by_id_if_its_type_allows_it
    an_object_created_before_the_digest_is_included
    a_batch_of_unknown_objects_is_canceled
    runs_and_dry_runs_report_unknown_objects
    an_id_with_and_without_its_model_is_the_same_object
    explain_does_not_guess_if_objects_change_after_the_digest
}

fn texts(town: &Town) -> String {
    let emails = town.emails().into_iter();
    emails.map(|email| email.fill_links().text).collect()
}

async fn an_unknown_object_is_in_the_feed_but_in_no_email(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1", "unheard-of"], to(&["ada"])).await;
    town.happens(&["unheard-of"], to(&["ben"])).await;

    town.digests_at(monday(0)).await;

    let text = texts(&town);
    assert!(text.contains("Work a1."), "{text}");
    assert!(!text.contains("unheard-of"), "{text}");
    assert_eq!(town.emails().len(), 1);
    let request = feed_of(&crate::support::user("ben"));
    let feed = town.process().feeds().page(&request).await.unwrap();
    assert_eq!(feed.answer.items.len(), 1);
}

async fn explain_does_not_guess_if_objects_change_after_the_digest(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1", "late", "a9"], to(&["ada"])).await;
    town.digests_at(monday(0)).await;
    let places = async || {
        let app = town.process();
        let explanation = app.explain().user(&crate::support::user("ada"), None).await;
        let events = explanation.unwrap().events.into_iter();
        let place = |covered| match covered {
            Some(CoveredBy::Email { place, .. }) => place,
            other => panic!("{other:?}"),
        };
        let mut places: Vec<(String, EmailPlace)> =
            events.map(|event| (event.object.to_string(), place(event.covered))).collect();
        places.sort_by(|one, other| one.0.cmp(&other.0));
        places.into_iter().map(|(_, place)| place).collect::<Vec<_>>()
    };
    let at_first = places().await;

    town.put_works(&["late"], |_| true).await;
    let put_later = places().await;
    town.put_works(&["late", "a1"], |_| false).await;
    let withdrawn_later = places().await;

    use EmailPlace::{Excluded, Shown, Unknown};
    assert_eq!(at_first, [Shown, Excluded, Excluded]);
    assert_eq!(put_later, [Unknown; 3]);
    assert_eq!(withdrawn_later, [Unknown; 3]);
}

async fn an_unknown_object_is_emailed_by_id_if_its_type_allows_it(fresh: Fresh) {
    let config = "[types.ArtworkPublished]\nunknown_objects = \"mail\"";
    let town = Town::found(&fresh, true, config).await;
    town.happens(&["unheard-of", "a9"], to(&["ada"])).await;

    town.digests_at(monday(0)).await;

    let text = texts(&town);
    assert!(text.contains("unheard-of"), "{text}");
    assert!(!text.contains("a9"), "{text}");
}

async fn an_object_created_before_the_digest_is_included(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["late"], to(&["ada"])).await;
    let late = Object {
        title: Some("A late work".into()),
        ..Object::without_data("late".parse().unwrap())
    };

    town.store.put_objects(&[late]).await.unwrap();
    town.digests_at(monday(0)).await;

    assert!(texts(&town).contains("A late work"));
}

async fn an_id_with_and_without_its_model_is_the_same_object(fresh: Fresh) {
    let config = "[types.ArtworkPublished]\nmodel = \"Artwork\"";
    let town = Town::found(&fresh, true, config).await;
    town.put_works(&["Artwork:n1", "Artwork:n2"], |_| true).await;
    let app = town.process();
    let named = request(&["Artwork:n1"], to(&["ada"]), Some("key"));
    let bare = request(&["n1"], to(&["ada"]), Some("key"));

    let accepted = app.notify().accept(vec![named, bare]).await.unwrap();
    town.happens(&["n2", "Artwork:n2"], to(&["ada"])).await;
    let explained = app.explain();
    let ada = crate::support::user("ada");
    let by_key = explained.user(&ada, Some("Artwork:n1")).await.unwrap();
    let by_id = explained.user(&ada, Some("n1")).await.unwrap();
    let kind = crate::support::kind("ArtworkPublished");
    let retracted = app.objects().retract(&kind, &["Artwork:n2".parse().unwrap()]).await;
    town.digests_at(monday(0)).await;

    assert!(accepted[1].duplicate, "the same key is the same event");
    assert_eq!((by_key.events.len(), by_id.events.len()), (1, 1));
    assert_eq!(by_id.events[0].object.as_str(), "n1");
    let retracted = retracted.unwrap();
    assert_eq!(retracted.objects[0].as_str(), "Artwork:n2");
    assert_eq!(retracted.warnings, Vec::<String>::new());
    let text = texts(&town);
    assert!(text.contains("Work Artwork:n1."), "{text}");
    assert!(!text.contains("Artwork:n2"), "{text}");
}

async fn a_batch_of_unknown_objects_is_canceled(fresh: Fresh) {
    let batch = "[types.ArtworkPublished]\nroute = \"batch\"\nwindow = \"5m\"";
    let town = Town::found(&fresh, true, batch).await;
    town.happens(&["unheard-of"], to(&["ada"])).await;

    town.clock.advance(TimeDelta::minutes(6));
    town.process().worker().round(&mut None, &NoProgress).await.unwrap();

    assert!(town.emails().is_empty());
    let rows = town.deliveries_of("ada").await;
    assert_eq!(rows[0].state, DeliveryState::Canceled);
}

async fn runs_and_dry_runs_report_unknown_objects(fresh: Fresh) {
    let town = Town::found(&fresh, true, "[types.Loan]\nheading = \"Loans\"").await;
    town.happens(&["a1", "unheard-of"], to(&["ada", "ben"])).await;
    town.clock.set(monday(0));

    let dry_run = town.process().dry_run();
    let (planned, _) = dry_run.run(&DigestRequest::default(), &NoProgress).await.unwrap();
    let ran = town.digests_at(monday(0)).await;

    for unknown in [&planned.unknown_names, &ran.unknown_names] {
        assert_eq!((unknown.events_about_objects, unknown.objects.len()), (2, 1));
        let warnings = unknown.warnings(&town.process().config.policies);
        assert!(warnings[0].contains("\"ArtworkPublished\" is not configured"), "{warnings:?}");
        assert!(
            warnings[1].contains("such as \"unheard-of\": events about them are not emailed"),
            "{warnings:?}"
        );
    }
    let recent = town.process().name_lookup().find_unknown_in_recent(10).await.unwrap();
    assert_eq!((recent.events_about_objects, recent.types.len()), (1, 1));
}
