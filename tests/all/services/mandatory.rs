//! What nobody can turn off: it goes its way in digests and batches, to whoever can be written to,
//! and takes nothing else with it.

use chrono::{DateTime, TimeDelta, Utc};
use tidings::domain::user::TypePreference;
use tidings::domain::{
    Address, Audience, Cadence, DeliveryState, Reason, Route, Suppression, User,
};
use tidings::email::Message;
use tidings::engine::Silent;
use tidings::engine::archive::{Effect, Protection, Request as Archive};
use tidings::engine::digest::{Effect as DigestEffect, Request as DigestRequest};
use tidings::engine::ingest::notify::Request;
use tidings::wire::archive::Fate;
use tidings::wire::explanation::{By, Place, Why};

use crate::support::town::{Town, busy, monday, on_both_stores, request, saturday, to};
use crate::support::{Fresh, kind, noon, user};

on_both_stores! {
    who_wants_no_digest_gets_one_of_what_is_mandatory_alone
    a_mail_of_nothing_else_offers_no_unsubscribing
    only_a_wish_is_passed_over_and_no_bounce
    a_row_that_was_opened_for_more_tells_what_is_mandatory
    who_comes_back_misses_nothing_mandatory
    a_batch_tells_what_is_mandatory_of_it_to_who_unsubscribed
    a_route_that_was_chosen_does_not_count
    a_day_with_something_mandatory_for_who_unsubscribed_is_kept
    a_run_for_another_cadence_leaves_it_alone
    explain_says_that_it_is_mandatory_and_why_nothing_else_is_mailed
}

/// Notices are mandatory, loans are not.
const DIGEST: &str = r#"
server.public_url = "https://news.example.org"
[types.ArtworkPublished]
[types.Notice]
mandatory = "Notices cannot be turned off"
"#;

const BATCH: &str = r#"
server.public_url = "https://news.example.org"
[types.ArtworkPublished]
route = "batch"
window = "5m"
batch_key = "news"
[types.Notice]
mandatory = true
route = "batch"
window = "5m"
batch_key = "news"
"#;

pub(super) async fn happens(town: &Town, name: &str, objects: &[&str], audience: Audience) {
    let app = town.process();
    let request = Request {
        kind: kind(name),
        ..request(objects, audience, None)
    };
    app.notify().accept(vec![request]).await.unwrap();
    app.fanouts().drain(&Silent).await.unwrap();
}

/// To everybody, a work and a notice.
async fn both_happen(town: &Town, work: &str, notice: &str) {
    let all = || to(&["ada", "ben", "cem", "dee"]);
    happens(town, "ArtworkPublished", &[work], all()).await;
    happens(town, "Notice", &[notice], all()).await;
}

async fn unsubscribe(town: &Town, id: &str) {
    let left = town.process().people().unsubscribe(&user(id)).await;
    assert!(left.unwrap().is_some());
}

/// Ada unsubscribes, Ben wants no digest, Cem wants everything, and Dee never confirmed.
async fn town(fresh: &Fresh, config: &str) -> Town {
    let town = Town::found(fresh, true, config).await;
    unsubscribe(&town, "ada").await;
    town.change("ben", |ben| ben.digest.cadence = Some(Cadence::Never))
        .await;
    town
}

fn told(mail: &Message) -> (String, Vec<&'static str>) {
    let text = mail.filled().text;
    let works = ["a1", "a2", "a3", "a4"].into_iter();
    let works = works.filter(|work| text.contains(&format!("Work {work}.")));
    (mail.to.to_string(), works.collect())
}

fn all_told(town: &Town) -> Vec<(String, Vec<&'static str>)> {
    let mut all: Vec<_> = town.mails().iter().map(told).collect();
    all.sort();
    all
}

fn masked(id: &str) -> String {
    let address = Address::new(format!("{id}@example.org")).unwrap();
    address.to_string()
}

async fn who_wants_no_digest_gets_one_of_what_is_mandatory_alone(fresh: Fresh) {
    let town = town(&fresh, DIGEST).await;
    both_happen(&town, "a1", "a2").await;

    let first = town.digests_at(monday(0)).await;
    let again = town.digests_at(monday(0)).await;

    assert_eq!(first.due.users, 3);
    assert_eq!(first.mails.sent, 3);
    assert_eq!(again.mails.sent, 0);
    assert_eq!((first.due.events, first.mails.events), (4, 4));
    let each = [
        (masked("ada"), vec!["a2"]),
        (masked("ben"), vec!["a2"]),
        (masked("cem"), vec!["a1", "a2"]),
    ];
    assert_eq!(all_told(&town), each);
    assert_eq!(
        first.users.unmailable.get("unconfirmed"),
        Some(&1),
        "dee never confirmed her address"
    );

    happens(&town, "ArtworkPublished", &["a3"], to(&["ada", "ben"])).await;
    let later = town.digests_at(monday(1)).await;
    assert_eq!(later.mails.sent, 0);
    assert_eq!((later.users.unsubscribed, later.users.turned_off), (1, 1));
}

async fn a_mail_of_nothing_else_offers_no_unsubscribing(fresh: Fresh) {
    let town = town(&fresh, DIGEST).await;
    both_happen(&town, "a1", "a2").await;
    happens(&town, "Notice", &["a3"], to(&["cem"])).await;
    let rehearse = DigestRequest {
        effect: DigestEffect::Rehearse,
        at: Some(monday(0)),
        ..DigestRequest::default()
    };
    let run = town.process().digests();
    assert_eq!(run.run(&rehearse, &Silent).await.unwrap().due.users, 3);
    town.digests_at(monday(0)).await;
    // Cem, who wants everything, gets a digest of a notice alone as well.
    happens(&town, "Notice", &["a4"], to(&["cem"])).await;
    town.digests_at(monday(1)).await;

    let mails = town.mails();
    let offers = |mail: &Message| {
        let (headers, filled) = (mail.headers(), mail.filled());
        let header = headers.iter().any(|(name, _)| name == "List-Unsubscribe");
        let post = headers
            .iter()
            .any(|(name, _)| name == "List-Unsubscribe-Post");
        let text = filled.text.contains("Unsubscribe from this digest:");
        let html = filled.html.contains(">Unsubscribe from this digest</a>");
        assert!(
            filled.html.contains("/preferences\""),
            "all lead to the preferences"
        );
        assert!([post, text, html].iter().all(|is| *is == header));
        header
    };
    let offers: Vec<_> = mails
        .iter()
        .map(|mail| (told(mail), offers(mail)))
        .collect();
    let of = |id: &str, works: &[&'static str], offer: bool| ((masked(id), works.to_vec()), offer);
    for expected in [
        of("ada", &["a2"], false),
        of("ben", &["a2"], false),
        of("cem", &["a1", "a2", "a3"], true),
        of("cem", &["a4"], false),
    ] {
        assert!(offers.contains(&expected), "{expected:?} in {offers:?}");
    }
    assert_eq!(offers.len(), 4);
}

async fn only_a_wish_is_passed_over_and_no_bounce(fresh: Fresh) {
    let town = Town::found(&fresh, true, DIGEST).await;
    let news = |id: &str, reason, minutes| {
        let address = Address::new(format!("{id}@example.org")).unwrap();
        Suppression::new(
            &address,
            reason,
            noon() + TimeDelta::minutes(minutes),
            "esp",
        )
    };
    let all = [
        news("ada", Reason::Unsubscribe, 0),
        // What an operator said before is not undone by a wish.
        news("ben", Reason::Manual, 0),
        news("ben", Reason::Unsubscribe, 1),
        news("cem", Reason::HardBounce, 0),
        news("cem", Reason::Unsubscribe, 1),
    ];
    for one in all {
        fresh.suppress(&[one]).await.unwrap();
    }
    // Both left, and cannot be written to besides: Dee never confirmed her address.
    unsubscribe(&town, "cem").await;
    unsubscribe(&town, "dee").await;
    town.crowd(1).await;
    town.change("p0", |somebody| {
        somebody.suppressed = Some(noon());
        somebody.unsubscribed = Some(noon());
    })
    .await;
    both_happen(&town, "a1", "a2").await;
    happens(&town, "Notice", &["a2"], to(&["p0"])).await;

    let report = town.digests_at(monday(0)).await;

    assert_eq!(all_told(&town), [(masked("ada"), vec!["a2"])]);
    assert_eq!(report.users.unmailable["suppressed by an operator"], 1);
    assert_eq!(report.users.unmailable["suppressed"], 1);
    assert_eq!(report.users.unsubscribed, 2);
}

async fn a_row_that_was_opened_for_more_tells_what_is_mandatory(fresh: Fresh) {
    let town = Town::found(&fresh, true, DIGEST).await;
    both_happen(&town, "a1", "a2").await;
    happens(&town, "ArtworkPublished", &["a3"], to(&["dee"])).await;
    town.answer([busy(), busy(), busy()]);
    let busy = town.digests_at(monday(0)).await;
    unsubscribe(&town, "ada").await;
    unsubscribe(&town, "ben").await;
    let story = async |id: &str| {
        let row = town.deliveries_of(id).await.remove(0);
        let told = town.process().compose().story(row).await.unwrap();
        let titles = told
            .mail
            .map(|mail| mail.items.into_iter().map(|item| item.title.unwrap()));
        (
            titles.map_or(Vec::new(), Iterator::collect::<Vec<_>>),
            told.barred,
        )
    };
    let before = story("ada").await;
    town.postbox.takes_everything();
    town.clock.advance(TimeDelta::minutes(10));

    town.digests_at(monday(0)).await;

    assert_eq!(busy.mails.deferred, 3);
    assert_eq!(before, (vec!["Work a2.".to_owned()], None));
    let each = [
        (masked("ada"), vec!["a2"]),
        (masked("ben"), vec!["a2"]),
        (masked("cem"), vec!["a1", "a2"]),
    ];
    assert_eq!(all_told(&town), each);
    let row = town.deliveries_of("ada").await.remove(0);
    assert_eq!((row.state, row.outcome.items), (DeliveryState::Sent, 1));
    assert_eq!(story("ada").await.0, ["Work a2."]);
    assert_eq!(story("cem").await.0.len(), 2);
    unsubscribe(&town, "cem").await;
    assert_eq!(story("cem").await.0.len(), 2, "it was mailed as a whole");
}

async fn who_comes_back_misses_nothing_mandatory(fresh: Fresh) {
    let town = town(&fresh, DIGEST).await;
    both_happen(&town, "a1", "a2").await;
    town.clock.advance(TimeDelta::hours(1));
    let back = serde_json::from_str(r#"{"digest": {"cadence": "weekly"}}"#).unwrap();
    let people = town.process().people();
    let ben = people.prefer(&user("ben"), back).await.unwrap().unwrap();

    town.digests_at(monday(0)).await;

    assert_eq!(ben.digest.since, Some(saturday() + TimeDelta::hours(1)));
    assert!(all_told(&town).contains(&(masked("ben"), vec!["a2"])));
}

/// Turns the clock to so many minutes after the beginning, ends what is due, and mails what waits.
async fn mailed_after(town: &Town, minutes: i64) {
    town.clock.set(saturday() + TimeDelta::minutes(minutes));
    let app = town.process();
    app.closer().drain(&Silent).await.unwrap();
    app.sender().drain().await.unwrap();
}

async fn a_batch_tells_what_is_mandatory_of_it_to_who_unsubscribed(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCH).await;
    town.change("dee", |dee| dee.confirmed = true).await;
    both_happen(&town, "a1", "a2").await;
    happens(&town, "ArtworkPublished", &["a3"], to(&["ada"])).await;
    // They joined before she left.
    unsubscribe(&town, "ada").await;
    unsubscribe(&town, "ben").await;
    // Dee said so at the provider, and of her routes nothing changed.
    let dee = Address::new("dee@example.org").unwrap();
    let news = Suppression::new(&dee, Reason::Unsubscribe, noon(), "esp");
    fresh.suppress(&[news]).await.unwrap();

    mailed_after(&town, 5).await;
    both_happen(&town, "a3", "a4").await;
    mailed_after(&town, 15).await;

    let offers = |mail: &Message| {
        let mut names = mail.headers().into_iter().map(|(name, _)| name);
        names.any(|name| name == "List-Unsubscribe")
    };
    let mut all: Vec<_> = town
        .mails()
        .iter()
        .map(|mail| (told(mail), offers(mail)))
        .collect();
    all.sort();
    let of = |id: &str, works: [&'static str; 1]| ((masked(id), works.to_vec()), false);
    assert_eq!(
        all,
        [
            of("ada", ["a2"]),
            of("ada", ["a4"]),
            of("ben", ["a2"]),
            of("ben", ["a4"]),
            ((masked("cem"), vec!["a1", "a2"]), true),
            ((masked("cem"), vec!["a3", "a4"]), true),
            of("dee", ["a2"]),
            of("dee", ["a4"]),
        ]
    );
}

async fn a_route_that_was_chosen_does_not_count(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCH).await;
    let choose = |route, since: DateTime<Utc>| {
        move |person: &mut User| {
            let chosen = TypePreference {
                route,
                since,
                window: Some(TimeDelta::hours(9)),
            };
            person.types.insert(kind("Notice"), chosen);
        }
    };
    town.change("ada", choose(Route::Never, saturday())).await;
    town.change("ben", choose(Route::Digest, saturday())).await;
    let later = saturday() + TimeDelta::days(1);
    town.change("cem", choose(Route::Batch, later)).await;
    happens(&town, "Notice", &["a2"], to(&["ada", "ben", "cem"])).await;

    mailed_after(&town, 5).await;

    assert_eq!(town.mails().len(), 3);
    assert_eq!(town.digests_at(monday(0)).await.mails.sent, 0);
}

async fn a_day_with_something_mandatory_for_who_unsubscribed_is_kept(fresh: Fresh) {
    let town = town(&fresh, DIGEST).await;
    both_happen(&town, "a1", "a2").await;
    town.change("ben", |ben| ben.confirmed = false).await;
    town.change("cem", |cem| cem.confirmed = false).await;
    town.clock.set(monday(8));
    let request = Archive {
        keep: TimeDelta::days(30),
        export: None,
        effect: Effect::Rehearse,
        protection: Protection::Keep,
    };
    let mut days = Vec::new();
    let archive = town.process().archive();
    archive.run(&request, &Silent, &mut days).await.unwrap();

    assert_eq!(
        days.remove(0).fate,
        Fate::Unmailed {
            people: 4,
            events: 6
        },
        "the notices of ada and ben, who want no more, and all of cem and dee, who may confirm"
    );
}

async fn a_run_for_another_cadence_leaves_it_alone(fresh: Fresh) {
    let town = town(&fresh, DIGEST).await;
    both_happen(&town, "a1", "a2").await;
    town.clock.set(monday(0));
    let run = async |cadence| {
        let request = DigestRequest {
            cadence: Some(cadence),
            ..DigestRequest::default()
        };
        let run = town.process().digests();
        run.run(&request, &Silent).await.unwrap().mails.sent
    };

    assert_eq!(run(Cadence::Daily).await, 0);
    assert_eq!(run(Cadence::Weekly).await, 3);
}

async fn explain_says_that_it_is_mandatory_and_why_nothing_else_is_mailed(fresh: Fresh) {
    let town = town(&fresh, DIGEST).await;
    both_happen(&town, "a1", "a2").await;
    let explained = async || {
        let told = town.process().explain().user(&user("ada"), None).await;
        told.unwrap()
    };
    let fates = |told: &tidings::wire::explanation::Explanation| -> Vec<_> {
        let fates = told.events.iter().rev();
        fates
            .map(|fate| (fate.object.to_string(), fate.mandatory, fate.why))
            .collect()
    };

    let before = explained().await;
    town.digests_at(monday(0)).await;
    let after = explained().await;

    assert_eq!(
        before.unmailable.as_deref(),
        Some("they are unsubscribed, so none but of mandatory types")
    );
    assert_eq!(
        before.digest.as_ref().unwrap().next_due,
        Some(monday(0) - TimeDelta::minutes(30))
    );
    assert_eq!(
        fates(&before),
        [
            ("a1".to_owned(), false, Why::NoDigest),
            ("a2".to_owned(), true, Why::NextDigest)
        ]
    );
    assert_eq!(after.digest.as_ref().unwrap().next_due, None);
    let place = |at: usize| match &after.events[at].covered {
        Some(By::Mail { place, .. }) => *place,
        other => panic!("{other:?}"),
    };
    assert_eq!((place(1), place(0)), (Place::LeftOut, Place::Shown));
}
