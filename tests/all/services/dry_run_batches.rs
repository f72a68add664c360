//! Dry runs count and show the emails that open batches will send, and write nothing.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use tidings::domain::User;
use tidings::email::Place;
use tidings::engine::Silent;
use tidings::engine::digest::Request;
use tidings::engine::directory::input::MuteInput;
use tidings::operate::preview::Kind;
use tidings::render::report::{DryRunEmails, EmailSummary};
use tidings::wire::digest::{BatchesAhead, Report};

use super::brands::{WORDS, brand, by_postbox, comment, three};
use super::mandatory::happens;
use crate::support::town::{Town, monday, mostly_on_sqlite, saturday, to};
use crate::support::{FailingStore, Fresh, user};

mostly_on_sqlite! {
    a_dry_run_shows_the_emails_that_batches_send
    a_dry_run_of_batches_only_reads
    excluded_batches_are_counted_with_the_reason
    batches_are_counted_for_given_users_but_not_by_cadence_or_limit
    batch_emails_are_counted_and_shown_in_their_brand
    batches_beyond_one_step_are_all_counted
    unknown_objects_in_batches_are_named
    a_preview_for_a_user_finds_open_batches_behind_sent_ones
}

pub(super) const CONFIG: &str = r#"
server.public_url = "https://news.example.org"
[types.ArtworkPublished]
route = "batch"
window = "5m"
keep = "last 2"
[types.Show]
route = "batch"
window = "1h"
[types.Lead]
route = "batch"
window = "1h"
leading = true
[types.Notice]
route = "batch"
window = "5m"
mandatory = true
[types.Alarm]
route = "immediate"
[types.First]
route = "batch"
window = "1h"
leading = true
mandatory = true
batch_key = "one"
[types.Next]
route = "batch"
window = "1h"
leading = true
batch_key = "one"
"#;

pub(super) async fn dry_run_of(town: &Town, request: &Request) -> (Report, DryRunEmails) {
    let dry_run = town.process().dry_run();
    let (report, page) = dry_run.run(request, &Silent).await.unwrap();
    let counted = dry_run.count(request, &Silent).await.unwrap();
    assert_eq!(
        counted.dry_run.batches, report.dry_run.batches,
        "whether looked at or counted"
    );
    (report, page)
}

pub(super) async fn ahead(town: &Town) -> (BatchesAhead, EmailSummary) {
    let (report, page) = dry_run_of(town, &Request::default()).await;
    (report.dry_run.batches.unwrap(), page.batches.unwrap())
}

pub(super) fn after(minutes: i64) -> DateTime<Utc> {
    saturday() + TimeDelta::minutes(minutes)
}

async fn a_dry_run_shows_the_emails_that_batches_send(fresh: Fresh) {
    let town = Town::found(&fresh, true, CONFIG).await;
    // Two events are in no batch email: a9 is withdrawn, and `Elsewhere` goes into a digest.
    town.change("cem", |cem| cem.name = Some("Cem".into()))
        .await;
    for work in ["a1", "a2", "a3"] {
        town.happens(&[work], to(&["ada", "ben"])).await;
    }
    happens(&town, "Show", &["a4", "a9"], to(&["ada", "cem"])).await;
    happens(&town, "Elsewhere", &["a5"], to(&["ben"])).await;

    let (ahead, page) = ahead(&town).await;
    town.send_due_at(after(61)).await;

    let mails = town.mails();
    assert_eq!(
        (ahead.batches, ahead.mails, ahead.events),
        (4, 4, 8),
        "{ahead:?}"
    );
    assert_eq!((page.mails, page.events), (ahead.mails, ahead.events));
    let sent: u64 = mails.len() as u64;
    assert_eq!(sent, ahead.mails);
    assert_eq!(page.samples.len(), 4);
    let mut left: BTreeMap<(String, String), _> = mails
        .iter()
        .map(|mail| {
            let shown = mail.content.with(Place::nowhere);
            ((mail.to.to_string(), shown.subject.clone()), (shown, mail))
        })
        .collect();
    for sample in &page.samples {
        let name = (sample.to.clone(), sample.subject.clone());
        let (shown, mail) = left.remove(&name).expect("it is one of those that left");
        assert_eq!((&sample.html, &sample.text), (&shown.html, &shown.text));
        assert_eq!(sample.bytes as usize, mail.filled().html.len());
    }
}

async fn a_dry_run_of_batches_only_reads(fresh: Fresh) {
    let town = Town::found(&fresh, true, CONFIG).await;
    for work in ["a1", "a2", "a3", "a9"] {
        town.happens(&[work], to(&["ada"])).await;
    }
    happens(&town, "Lead", &["a4"], to(&["ada"])).await;
    town.clock.set(after(5));
    let watched = FailingStore::counting(town.store.clone());
    let store: std::sync::Arc<dyn tidings::store::Store> = watched.clone();

    let dry_run = town.process_on(&store).dry_run();
    let (report, page) = dry_run.run(&Request::default(), &Silent).await.unwrap();

    let counts = report.dry_run.batches.unwrap();
    assert_eq!((counts.due, counts.closing), (1, 1));
    assert!(page.batches.unwrap().samples.len() == 2);
    let reading = [
        "scan",
        "users",
        "address_states",
        "deliveries",
        "find_deliveries",
        "objects",
        "details",
        "retractions",
        "windows",
        "find_batches",
        "note",
        "notes",
        "days",
        "count",
    ];
    let reading = BTreeSet::from(reading);
    let verbs = watched.verbs();
    assert!(
        verbs.is_subset(&reading) && verbs.contains("find_batches"),
        "{verbs:?}"
    );
    assert_eq!(town.store.note("link_secret").await.unwrap(), None);
    assert!(town.mails().is_empty());
}

async fn excluded_batches_are_counted_with_the_reason(fresh: Fresh) {
    let town = Town::found(&fresh, true, CONFIG).await;
    let more = ["eva", "fay", "gil", "hal"].map(|id| User {
        email: tidings::domain::Address::new(format!("{id}@example.org")).ok(),
        confirmed: true,
        ..User::new(user(id))
    });
    town.store.put_users(&more).await.unwrap();
    let all = ["ada", "ben", "cem", "dee", "eva", "fay", "gil", "hal"];
    town.happens(&["a1", "a2"], to(&all)).await;
    happens(&town, "Notice", &["a3"], to(&["fay", "gil"])).await;
    town.put_works(&["a1"], |_| false).await;
    let people = town.process().people();
    let mute = |id: &'static str, what: &'static str| {
        let (people, subject) = (&people, tidings::domain::Subject::new(what).unwrap());
        async move {
            people
                .mute(&user(id), &subject, MuteInput::default())
                .await
                .unwrap()
                .unwrap();
        }
    };
    mute("ada", "a2").await;
    mute("ben", "a1").await;
    town.change("cem", |cem| cem.email = None).await;
    town.change("eva", |eva| eva.suppressed = Some(saturday()))
        .await;
    for id in ["fay", "hal"] {
        people.unsubscribe(&user(id)).await.unwrap();
    }

    let (ahead, page) = ahead(&town).await;
    town.send_due_at(after(6)).await;

    // Gil gets two emails, Fay only the mandatory one, and Ben the event that he did not mute.
    assert_eq!((ahead.mails, ahead.events), (4, 4), "{ahead:?}");
    assert_eq!(town.mails().len(), 4);
    assert_eq!((page.mails, ahead.later), (4, 4));
    assert_eq!(ahead.withdrawn, 1);
    let reasons = [
        ("suppressed", 1),
        ("unconfirmed", 1),
        ("unsubscribed", 2),
        ("without address", 1),
    ];
    assert_eq!(ahead.unmailable, BTreeMap::from(reasons));
    assert_eq!(ahead.batches, 10);
}

async fn batches_are_counted_for_given_users_but_not_by_cadence_or_limit(fresh: Fresh) {
    let town = Town::found(&fresh, true, CONFIG).await;
    let crowd = town.crowd(40).await;
    let crowd: Vec<&str> = crowd.iter().map(String::as_str).collect();
    town.happens(&["a1"], to(&crowd)).await;
    let of = |request: Request| {
        let town = &town;
        async move { dry_run_of(town, &request).await.0.dry_run.batches }
    };

    let users = ["p1", "p2", "p1", "ada"].map(user).to_vec();
    let theirs = of(Request {
        users: Some(users),
        ..Request::default()
    })
    .await;
    let share: tidings::domain::Share = "50%".parse().unwrap();
    let part = of(Request {
        sample: Some(share),
        ..Request::default()
    })
    .await;
    let weekly = of(Request {
        cadence: Some(tidings::domain::Cadence::Weekly),
        ..Request::default()
    })
    .await;
    let few = of(Request {
        limit: Some(3),
        ..Request::default()
    })
    .await;

    assert_eq!(theirs.unwrap().mails, 2);
    let within = crowd.iter().filter(|id| share.includes(&user(id))).count() as u64;
    assert_eq!(part.unwrap().mails, within);
    assert!((1..40).contains(&within));
    assert_eq!((weekly, few), (None, None));
}

async fn batch_emails_are_counted_and_shown_in_their_brand(fresh: Fresh) {
    let town = Town::found(&fresh, true, "").await;
    town.change("cem", |cem| cem.locale = Some("xx".into()))
        .await;
    let app = by_postbox(&town, &three("http://127.0.0.1:9", "http://127.0.0.1:9"));
    town.change("ben", |ben| ben.brand = brand("gone")).await;
    let of_both = vec![
        comment("remark-1", &["ada"], brand(WORDS[1])),
        comment("remark-2", &["cem", "ben"], None),
    ];
    app.notify().accept(of_both).await.unwrap();
    app.fanouts().drain(&Silent).await.unwrap();

    let dry_run = app.dry_run();
    let (report, page) = dry_run.run(&Request::default(), &Silent).await.unwrap();

    let waits = "emails of the brand gone, which wait until it is configured: 1";
    assert_eq!(
        report.dry_run.brand_counts(),
        ["emails of the brand acmeish: 1", waits]
    );
    let locales = BTreeMap::from([("xx".to_owned(), 1)]);
    assert_eq!(report.dry_run.locales, locales);
    let batches = page.batches.unwrap();
    assert_eq!((batches.mails, batches.sizes.measured), (2, 2));
    assert_eq!(batches.events, 2);
    assert_eq!(report.dry_run.batches.unwrap().no_brand, 1);
    let samples = batches.samples;
    assert_eq!(samples.len(), 2);
    for sample in samples {
        let to_ada = sample.to.starts_with("a\u{2026}");
        let text = &sample.html;
        assert_eq!(text.contains(WORDS[1]), to_ada, "{text}");
        assert_eq!(text.contains(WORDS[0]), !to_ada, "{text}");
    }
}

async fn unknown_objects_in_batches_are_named(fresh: Fresh) {
    let town = Town::found(&fresh, true, CONFIG).await;
    happens(&town, "Show", &["a1", "nowhere"], to(&["ada"])).await;

    let (report, _) = dry_run_of(&town, &Request::default()).await;

    assert_eq!(report.not_known.events, 1);
    let warnings = report.not_known.warnings(&town.process().config.policies);
    assert!(
        warnings.iter().any(|warning| warning.contains("nowhere")),
        "{warnings:?}"
    );
    assert_eq!(report.dry_run.batches.unwrap().events, 1);
}

async fn a_preview_for_a_user_finds_open_batches_behind_sent_ones(fresh: Fresh) {
    let town = Town::found(&fresh, true, CONFIG).await;
    happens(&town, "Show", &["a1"], to(&["ada"])).await;
    for minute in 1..=25 {
        happens(&town, "Alarm", &["a2"], to(&["ada"])).await;
        town.send_due_at(after(minute)).await;
    }

    let app = town.process();
    let drafts = app.of_person().drafts(&user("ada"), None).await.unwrap();

    assert_eq!(town.mails().len(), 25);
    let batches = drafts.iter().filter(|draft| draft.kind() == Kind::Batch);
    assert_eq!(batches.count(), 1);
}

async fn batches_beyond_one_step_are_all_counted(fresh: Fresh) {
    let town = Town::found(&fresh, true, CONFIG).await;
    let crowd = town.crowd(700).await;
    let crowd: Vec<&str> = crowd.iter().map(String::as_str).collect();
    for crowd in crowd.chunks(350) {
        town.happens(&["a1"], to(crowd)).await;
    }
    town.clock.set(after(5));
    town.process().batches().step().await.unwrap();
    town.clock.set(monday(0));

    let mut dry_run = town.process().dry_run();
    dry_run.max_rendered = 100;
    let (report, page) = dry_run.run(&Request::default(), &Silent).await.unwrap();
    let (_, again) = dry_run.run(&Request::default(), &Silent).await.unwrap();

    let ahead = report.dry_run.batches.unwrap();
    let shown = page.batches.clone().unwrap();
    assert_eq!((ahead.batches, ahead.mails), (700, 700));
    assert_eq!((ahead.closing, ahead.due), (500, 200));
    assert_eq!(shown.sizes.measured, 100);
    assert_eq!(shown.samples.len(), 5);
    assert_eq!(page, again);
}
