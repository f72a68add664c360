//! Dry runs count and show the emails that a real run would send. They write nothing, and their
//! reports are safe to share.

use std::collections::BTreeSet;

use tidings::domain::type_policy::Route;
use tidings::domain::user::TypePreference;
use tidings::domain::{Address, BrandName, Cadence, Object, User};
use tidings::email::LinkPlaceholder;
use tidings::engine::NoProgress;
use tidings::engine::digest::DigestRequest;
use tidings::render::dry_run_page::{DryRunEmails, DryRunPage};
use tidings::wire::run_report::DigestReport;

use crate::support::town::{Town, followers_of, monday, mostly_on_sqlite, request, saturday, to};
use crate::support::{FailingStore, Fresh, kind, user};

mostly_on_sqlite! {
    a_dry_run_shows_the_emails_that_a_run_sends
    a_dry_run_only_reads
    each_excluded_user_is_counted_once_with_the_reason
    a_report_contains_no_address_and_no_working_link
    the_first_emails_are_rendered_and_counts_stay_exact
    the_sizes_of_emails_are_measured
    a_limit_bounds_the_emails
    users_of_a_missing_brand_are_counted_separately
}

const LINKS: &str = "server.public_url = \"https://news.example.org\"\n";

async fn dry_run(town: &Town, request: &DigestRequest) -> (DigestReport, DryRunEmails) {
    let dry_run = town.process().dry_run();
    dry_run.run(request, &NoProgress).await.unwrap()
}

/// Accepts a `ShowOpened` event about these objects for these users, and fans it out.
async fn show(town: &Town, objects: &[&str], people: &[&str]) {
    let app = town.process();
    town.put_works(objects, |_| true).await;
    let mut event = request(objects, to(people), None);
    event.kind = kind("ShowOpened");
    app.notify().accept(vec![event]).await.unwrap();
    app.fanouts().drain(&NoProgress).await.unwrap();
}

async fn a_dry_run_shows_the_emails_that_a_run_sends(fresh: Fresh) {
    let town = Town::found(&fresh, true, LINKS).await;
    town.happens(&["a1", "a2", "a9"], followers_of("artist:1")).await;
    town.happens(&["a9"], to(&["cem"])).await;
    show(&town, &["s1"], &["ada"]).await;
    town.clock.set(monday(0));

    let (report, found) = dry_run(&town, &DigestRequest::default()).await;
    let ran = town.digests_at(monday(0)).await;

    assert_eq!(
        (found.total, found.emails.iter().map(|email| email.events).sum::<u64>()),
        (ran.emails.sent, ran.emails.events)
    );
    assert_eq!(report.due.users, ran.due.users);
    assert_eq!(report.users.withdrawn, ran.users.withdrawn);
    assert_eq!(report.users.scanned, ran.users.scanned);
    assert_eq!(report.users.withdrawn, 1);
    let shown = town.emails().into_iter().map(|email| {
        let shown = email.content.fill_with(LinkPlaceholder::preview_url);
        (shown.subject, Some(shown.html))
    });
    let found = found.emails.into_iter();
    let found: BTreeSet<_> = found.map(|email| (email.subject, email.html)).collect();
    assert_eq!(found, shown.collect());
}

async fn a_dry_run_only_reads(fresh: Fresh) {
    let town = Town::found(&fresh, true, LINKS).await;
    town.happens(&["a1"], followers_of("artist:1")).await;
    town.clock.set(monday(0));
    let watched = FailingStore::counting(town.store.clone());
    let store: std::sync::Arc<dyn tidings::store::Store> = watched.clone();

    let dry_run = town.process_on(&store).dry_run();
    let (report, _) = dry_run.run(&DigestRequest::default(), &NoProgress).await.unwrap();

    assert_eq!(report.due.users, 2);
    let reading = [
        "scan",
        "details",
        "users",
        "address_states",
        "deliveries",
        "find_deliveries",
        "objects",
        "retractions",
        "note",
        "notes",
        "days",
        "count",
    ];
    let (verbs, reading) = (watched.verbs(), BTreeSet::from(reading));
    assert!(verbs.is_subset(&reading) && verbs.contains("scan"), "{verbs:?}");
    assert!(town.emails().is_empty());
    assert_eq!(town.store.note("link_secret").await.unwrap(), None);
}

async fn each_excluded_user_is_counted_once_with_the_reason(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let more = ["eva", "fay", "gil", "hal"].map(|id| User {
        email: Address::new(format!("{id}@example.org")).ok(),
        confirmed: true,
        ..User::new(user(id))
    });
    town.store.put_users(&more).await.unwrap();
    town.change("ben", |ben| ben.email = None).await;
    town.change("eva", |eva| eva.suppressed = Some(saturday())).await;
    let policies = Default::default();
    town.change("fay", |fay| fay.unsubscribe(&policies, saturday())).await;
    town.change("gil", |gil| gil.digest.cadence = Some(Cadence::Never)).await;
    let never = TypePreference::new(Route::Never, saturday());
    town.change("hal", |hal| {
        hal.types.insert(kind("ArtworkPublished"), never);
    })
    .await;
    let all_users = ["ada", "ben", "cem", "dee", "eva", "fay", "gil", "hal", "nobody"];
    town.happens(&["a1"], to(&all_users)).await;
    town.digests_at(monday(0)).await;
    town.clock.set(monday(1) - chrono::TimeDelta::days(1));
    town.happens(&["a2"], to(&all_users)).await;
    town.change("cem", |cem| cem.digest.cadence = Some(Cadence::Daily)).await;
    town.clock.set(monday(1));

    let (report, found) = dry_run(&town, &DigestRequest::default()).await;

    let users = &report.users;
    assert_eq!((found.total, report.due.users), (2, 2));
    let mut unmailable = users.unmailable.clone();
    let unsubscribed = unmailable.remove("unsubscribed").unwrap_or(0);
    assert_eq!(users.unsubscribed + unsubscribed, 1);
    assert_eq!(users.turned_off, 1);
    let reasons = ["suppressed", "unconfirmed", "unknown", "without address"];
    assert_eq!(unmailable, reasons.map(|why| (why, 1)).into());
}

async fn a_report_contains_no_address_and_no_working_link(fresh: Fresh) {
    let town = Town::found(&fresh, true, LINKS).await;
    town.happens(&["a1"], followers_of("artist:1")).await;
    town.clock.set(monday(0));

    let app = town.process();
    let dry_run = app.dry_run();
    let (_, found) = dry_run.run(&DigestRequest::default(), &NoProgress).await.unwrap();
    let contents =
        DryRunPage { at: String::new(), counts: Vec::new(), warnings: Vec::new(), dry_run: found };
    let page = contents.render(&app.config.site).unwrap();

    for hidden in ["ada@", "ben@", "dee@", "/u/", "https://news.example.org"] {
        assert!(!page.contains(hidden), "{hidden}");
    }
    for shown in [
        "<td>ada</td>",
        "<td>ben</td>",
        LinkPlaceholder::Unsubscribe.preview_url(),
        LinkPlaceholder::Preferences.preview_url(),
    ] {
        assert!(page.contains(shown), "{shown}");
    }
}

async fn the_first_emails_are_rendered_and_counts_stay_exact(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let crowd: Vec<String> = (0..60).map(|n| format!("p{n}")).collect();
    let people: Vec<User> = crowd
        .iter()
        .map(|id| User {
            email: Address::new(format!("{id}@example.org")).ok(),
            confirmed: true,
            ..User::new(user(id))
        })
        .collect();
    town.store.put_users(&people).await.unwrap();
    let crowd: Vec<&str> = crowd.iter().map(String::as_str).collect();
    town.happens(&["a1", "a2"], to(&crowd)).await;
    town.clock.set(monday(0));

    let mut dry_run = town.process().dry_run();
    dry_run.max_rendered = 20;
    let (report, found) = dry_run.run(&DigestRequest::default(), &NoProgress).await.unwrap();
    let (_, again) = dry_run.run(&DigestRequest::default(), &NoProgress).await.unwrap();

    assert_eq!((found.total, report.due.events), (60, 120));
    assert_eq!(found.emails.len(), 20);
    assert_eq!(found, again);
    let in_full = found.emails.iter().filter(|email| email.html.is_some());
    assert_eq!(in_full.count(), 5);
}

async fn the_sizes_of_emails_are_measured(fresh: Fresh) {
    let town = Town::found(&fresh, true, "digest.section_items = 200\ndigest.items = 500\n").await;
    let ids: Vec<String> = (0..200).map(|n| format!("long{n}")).collect();
    let works: Vec<Object> = ids
        .iter()
        .map(|id| Object {
            title: Some(format!("{id} {}", "a very long title ".repeat(8))),
            url: Some(format!("https://example.org/{id}/{}", "x".repeat(300))),
            ..Object::without_data(id.parse().unwrap())
        })
        .collect();
    town.store.put_objects(&works).await.unwrap();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    for ids in ids.chunks(100) {
        town.happens(ids, to(&["ada"])).await;
    }
    town.happens(&["a1"], to(&["ben"])).await;
    town.clock.set(monday(0));

    let (_, found) = dry_run(&town, &DigestRequest::default()).await;

    let sizes: Vec<usize> = found.emails.iter().map(|email| email.bytes).collect();
    let [ada, ben] = sizes[..] else {
        panic!("{sizes:?}");
    };
    assert!(ada > 70_000 && ben < 20_000, "{sizes:?}");
    assert_eq!((found.median, found.largest), (ada, ada));
}

async fn a_limit_bounds_the_emails(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;
    town.clock.set(monday(0));
    let limited = DigestRequest { limit: Some(2), ..DigestRequest::default() };

    let (report, found) = dry_run(&town, &limited).await;

    assert_eq!((found.total, report.is_limited), (2, true));
}

async fn users_of_a_missing_brand_are_counted_separately(fresh: Fresh) {
    let town = Town::found(&fresh, true, LINKS).await;
    town.happens(&["a1", "a2"], to(&["ada"])).await;
    town.happens(&["a3"], to(&["ben"])).await;
    town.change("ada", |ada| ada.brand = Some(BrandName::new("gone").unwrap())).await;
    town.clock.set(monday(0));

    let (report, found) = dry_run(&town, &DigestRequest::default()).await;

    assert_eq!((report.due.users, report.dry_run.waits_for_brand), (2, 1));
    assert_eq!((found.total, found.emails[0].events), (1, 1));
}
