//! Mandatory event types, which users cannot turn off (P7).
//!
//! Users who unsubscribed, or want no digest, get emails with only the mandatory events. A bounce,
//! an operator's suppression or an unconfirmed address still stops every email.

use chrono::{DateTime, TimeDelta, Utc};
use tidings::domain::user::TypePreference;
use tidings::domain::{
    Address, Audience, Cadence, DeliveryState, Route, Suppression, SuppressionReason, User,
};
use tidings::email::Message;
use tidings::engine::NoProgress;
use tidings::engine::archive::ArchiveRequest as Archive;
use tidings::engine::digest::DigestRequest;
use tidings::engine::ingest::NewEvent;
use tidings::wire::archive::DayFate;
use tidings::wire::explanation::{CoveredBy, EmailPlace, EventStatus};

use crate::support::town::{Town, busy, monday, mostly_on_sqlite, request, saturday, to};
use crate::support::{Fresh, Shorthand, kind, noon, user};

mostly_on_sqlite! {
    opted_out_users_get_a_digest_of_mandatory_events_only
    an_email_of_mandatory_events_only_has_no_unsubscribe_link
    mandatory_events_override_an_unsubscribe_but_not_a_bounce
    a_pending_digest_keeps_only_mandatory_events_after_an_opt_out
    opting_in_again_keeps_pending_mandatory_events
    a_batch_for_an_unsubscribed_user_has_mandatory_events_only
    a_route_that_a_user_chose_for_a_mandatory_type_is_ignored
    a_day_with_mandatory_events_for_unsubscribed_users_is_kept
    a_run_for_another_cadence_skips_digests_of_mandatory_events
    explain_marks_mandatory_events_and_says_why_others_are_excluded
}

/// Notices are mandatory, works are not.
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
    let request = NewEvent { kind: kind(name), ..request(objects, audience, None) };
    app.notify().accept(vec![request]).await.unwrap();
    app.fanouts().drain(&NoProgress).await.unwrap();
}

/// Accepts a work and a notice for all four users.
async fn both_happen(town: &Town, work: &str, notice: &str) {
    let all = || to(&["ada", "ben", "cem", "dee"]);
    happens(town, "ArtworkPublished", &[work], all()).await;
    happens(town, "Notice", &[notice], all()).await;
}

async fn unsubscribe(town: &Town, id: &str) {
    let left = town.process().users().unsubscribe(&user(id)).await;
    assert!(left.unwrap().is_some());
}

/// Returns a town where Ada unsubscribed, Ben wants no digest, Cem wants all emails, and Dee never
/// confirmed her address.
async fn town(fresh: &Fresh, config: &str) -> Town {
    let town = Town::found(fresh, true, config).await;
    unsubscribe(&town, "ada").await;
    town.change("ben", |ben| ben.digest.cadence = Some(Cadence::Never)).await;
    town
}

fn works_of(email: &Message) -> (String, Vec<&'static str>) {
    let text = email.fill_links().text;
    let works = ["a1", "a2", "a3", "a4"].into_iter();
    let works = works.filter(|work| text.contains(&format!("Work {work}.")));
    (email.to.to_string(), works.collect())
}

fn emailed_works(town: &Town) -> Vec<(String, Vec<&'static str>)> {
    let mut all: Vec<_> = town.emails().iter().map(works_of).collect();
    all.sort();
    all
}

fn masked(id: &str) -> String {
    let address = Address::new(format!("{id}@example.org")).unwrap();
    address.to_string()
}

async fn opted_out_users_get_a_digest_of_mandatory_events_only(fresh: Fresh) {
    let town = town(&fresh, DIGEST).await;
    both_happen(&town, "a1", "a2").await;

    let first = town.digests_at(monday(0)).await;
    let again = town.digests_at(monday(0)).await;

    assert_eq!(first.due.users, 3);
    assert_eq!(first.emails.sent, 3);
    assert_eq!(again.emails.sent, 0);
    assert_eq!((first.due.events, first.emails.events), (4, 4));
    let each = [
        (masked("ada"), vec!["a2"]),
        (masked("ben"), vec!["a2"]),
        (masked("cem"), vec!["a1", "a2"]),
    ];
    assert_eq!(emailed_works(&town), each);
    assert_eq!(
        first.users.unmailable.get("unconfirmed"),
        Some(&1),
        "dee never confirmed her address"
    );

    happens(&town, "ArtworkPublished", &["a3"], to(&["ada", "ben"])).await;
    let later = town.digests_at(monday(1)).await;
    assert_eq!(later.emails.sent, 0);
    assert_eq!((later.users.unsubscribed, later.users.turned_off), (1, 1));
}

async fn an_email_of_mandatory_events_only_has_no_unsubscribe_link(fresh: Fresh) {
    let town = town(&fresh, DIGEST).await;
    both_happen(&town, "a1", "a2").await;
    happens(&town, "Notice", &["a3"], to(&["cem"])).await;
    let rehearse = DigestRequest { dry_run: true, at: Some(monday(0)), ..DigestRequest::default() };
    let run = town.process().digests();
    assert_eq!(run.run(&rehearse, &NoProgress).await.unwrap().due.users, 3);
    town.digests_at(monday(0)).await;
    // Cem has not opted out, but this digest has only a notice.
    happens(&town, "Notice", &["a4"], to(&["cem"])).await;
    town.digests_at(monday(1)).await;

    let emails = town.emails();
    let offers = |email: &Message| {
        let (headers, filled) = (email.headers(), email.fill_links());
        let header = headers.iter().any(|(name, _)| name == "List-Unsubscribe");
        let post = headers.iter().any(|(name, _)| name == "List-Unsubscribe-Post");
        let text = filled.text.contains("Unsubscribe from this digest:");
        let html = filled.html.contains(">Unsubscribe from this digest</a>");
        assert!(filled.html.contains("/preferences\""), "all lead to the preferences");
        assert!([post, text, html].iter().all(|is| *is == header));
        header
    };
    let offers: Vec<_> = emails.iter().map(|email| (works_of(email), offers(email))).collect();
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

async fn mandatory_events_override_an_unsubscribe_but_not_a_bounce(fresh: Fresh) {
    let town = Town::found(&fresh, true, DIGEST).await;
    let news = |id: &str, reason, minutes| {
        let address = Address::new(format!("{id}@example.org")).unwrap();
        Suppression::new(&address, reason, noon() + TimeDelta::minutes(minutes), "esp")
    };
    let all = [
        news("ada", SuppressionReason::Unsubscribe, 0),
        // The unsubscribe does not replace the operator's suppression.
        news("ben", SuppressionReason::Manual, 0),
        news("ben", SuppressionReason::Unsubscribe, 1),
        news("cem", SuppressionReason::HardBounce, 0),
        news("cem", SuppressionReason::Unsubscribe, 1),
    ];
    for one in all {
        fresh.suppress(&[one]).await;
    }
    // Both unsubscribe, but get no email anyway: Cem's address bounced, and Dee never confirmed.
    unsubscribe(&town, "cem").await;
    unsubscribe(&town, "dee").await;
    town.crowd(1).await;
    town.change("p0", |other| {
        other.suppressed = Some(noon());
        other.unsubscribed = Some(noon());
    })
    .await;
    both_happen(&town, "a1", "a2").await;
    happens(&town, "Notice", &["a2"], to(&["p0"])).await;

    let report = town.digests_at(monday(0)).await;

    assert_eq!(emailed_works(&town), [(masked("ada"), vec!["a2"])]);
    assert_eq!(report.users.unmailable["suppressed by an operator"], 1);
    assert_eq!(report.users.unmailable["suppressed"], 1);
    assert_eq!(report.users.unsubscribed, 2);
}

async fn a_pending_digest_keeps_only_mandatory_events_after_an_opt_out(fresh: Fresh) {
    let town = Town::found(&fresh, true, DIGEST).await;
    both_happen(&town, "a1", "a2").await;
    happens(&town, "ArtworkPublished", &["a3"], to(&["dee"])).await;
    town.answer([busy(), busy(), busy()]);
    let busy = town.digests_at(monday(0)).await;
    unsubscribe(&town, "ada").await;
    unsubscribe(&town, "ben").await;
    let story = async |id: &str| {
        let row = town.deliveries_of(id).await.remove(0);
        let preview = town.process().compose().describe_delivery(row).await.unwrap();
        let titles =
            preview.email.map(|email| email.items.into_iter().map(|item| item.title.unwrap()));
        (titles.map_or(Vec::new(), Iterator::collect::<Vec<_>>), preview.send_obstacle)
    };
    let before = story("ada").await;
    town.postbox.takes_everything();
    town.clock.advance(TimeDelta::minutes(10));

    town.digests_at(monday(0)).await;

    assert_eq!(busy.emails.deferred, 3);
    assert_eq!(before, (vec!["Work a2.".to_owned()], None));
    let each = [
        (masked("ada"), vec!["a2"]),
        (masked("ben"), vec!["a2"]),
        (masked("cem"), vec!["a1", "a2"]),
    ];
    assert_eq!(emailed_works(&town), each);
    let row = town.deliveries_of("ada").await.remove(0);
    assert_eq!((row.state, row.outcome.items), (DeliveryState::Sent, 1));
    assert_eq!(story("ada").await.0, ["Work a2."]);
    assert_eq!(story("cem").await.0.len(), 2);
    unsubscribe(&town, "cem").await;
    assert_eq!(story("cem").await.0.len(), 2, "it was emailed as a whole");
}

async fn opting_in_again_keeps_pending_mandatory_events(fresh: Fresh) {
    let town = town(&fresh, DIGEST).await;
    both_happen(&town, "a1", "a2").await;
    town.clock.advance(TimeDelta::hours(1));
    let back = serde_json::from_str(r#"{"digest": {"cadence": "weekly"}}"#).unwrap();
    let people = town.process().users();
    let ben = people.change_preferences(&user("ben"), back).await.unwrap().unwrap();

    town.digests_at(monday(0)).await;

    assert_eq!(ben.digest.since, Some(saturday() + TimeDelta::hours(1)));
    assert!(emailed_works(&town).contains(&(masked("ben"), vec!["a2"])));
}

/// Sets the clock to this many minutes after the start, closes due batches, and sends.
async fn send_after(town: &Town, minutes: i64) {
    town.send_due_at(saturday() + TimeDelta::minutes(minutes)).await;
}

async fn a_batch_for_an_unsubscribed_user_has_mandatory_events_only(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCH).await;
    town.change("dee", |dee| dee.confirmed = true).await;
    both_happen(&town, "a1", "a2").await;
    happens(&town, "ArtworkPublished", &["a3"], to(&["ada"])).await;
    // Their events are already in the batches.
    unsubscribe(&town, "ada").await;
    unsubscribe(&town, "ben").await;
    // Dee unsubscribes at the provider, which leaves her user record unchanged.
    let dee = Address::new("dee@example.org").unwrap();
    let news = Suppression::new(&dee, SuppressionReason::Unsubscribe, noon(), "esp");
    fresh.suppress(&[news]).await;

    send_after(&town, 5).await;
    both_happen(&town, "a3", "a4").await;
    send_after(&town, 15).await;

    let offers = |email: &Message| {
        let mut names = email.headers().into_iter().map(|(name, _)| name);
        names.any(|name| name == "List-Unsubscribe")
    };
    let mut all: Vec<_> =
        town.emails().iter().map(|email| (works_of(email), offers(email))).collect();
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

async fn a_route_that_a_user_chose_for_a_mandatory_type_is_ignored(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCH).await;
    let choose = |route, since: DateTime<Utc>| {
        move |person: &mut User| {
            let chosen = TypePreference { route, since, window: Some(TimeDelta::hours(9)) };
            person.types.insert(kind("Notice"), chosen);
        }
    };
    town.change("ada", choose(Route::Never, saturday())).await;
    town.change("ben", choose(Route::Digest, saturday())).await;
    let later = saturday() + TimeDelta::days(1);
    town.change("cem", choose(Route::Batch, later)).await;
    happens(&town, "Notice", &["a2"], to(&["ada", "ben", "cem"])).await;

    send_after(&town, 5).await;

    assert_eq!(town.emails().len(), 3);
    assert_eq!(town.digests_at(monday(0)).await.emails.sent, 0);
}

async fn a_day_with_mandatory_events_for_unsubscribed_users_is_kept(fresh: Fresh) {
    let town = town(&fresh, DIGEST).await;
    both_happen(&town, "a1", "a2").await;
    town.change("ben", |ben| ben.confirmed = false).await;
    town.change("cem", |cem| cem.confirmed = false).await;
    town.clock.set(monday(8));
    let request = Archive { keep: TimeDelta::days(30), export: None, dry_run: true, force: false };
    let mut days = Vec::new();
    let archive = town.process().archive();
    archive.run(&request, &NoProgress, &mut days).await.unwrap();

    assert_eq!(
        days.remove(0).fate,
        DayFate::NotEmailed { users: 4, events: 6 },
        "the notices of ada and ben, who want no more, and all of cem and dee, who may confirm"
    );
}

async fn a_run_for_another_cadence_skips_digests_of_mandatory_events(fresh: Fresh) {
    let town = town(&fresh, DIGEST).await;
    both_happen(&town, "a1", "a2").await;
    town.clock.set(monday(0));
    let run = async |cadence| {
        let request = DigestRequest { cadence: Some(cadence), ..DigestRequest::default() };
        let run = town.process().digests();
        run.run(&request, &NoProgress).await.unwrap().emails.sent
    };

    assert_eq!(run(Cadence::Daily).await, 0);
    assert_eq!(run(Cadence::Weekly).await, 3);
}

async fn explain_marks_mandatory_events_and_says_why_others_are_excluded(fresh: Fresh) {
    let town = town(&fresh, DIGEST).await;
    both_happen(&town, "a1", "a2").await;
    let explained = async || {
        let explanation = town.process().explain().user(&user("ada"), None).await;
        explanation.unwrap()
    };
    let fates = |explanation: &tidings::wire::explanation::Explanation| -> Vec<_> {
        let fates = explanation.events.iter().rev();
        fates.map(|fate| (fate.object.to_string(), fate.mandatory, fate.status)).collect()
    };

    let before = explained().await;
    town.digests_at(monday(0)).await;
    let after = explained().await;

    assert_eq!(
        before.unmailable.as_deref(),
        Some("they are unsubscribed, so none but of mandatory types")
    );
    assert_eq!(before.digest.as_ref().unwrap().next_due, Some(monday(0) - TimeDelta::minutes(30)));
    assert_eq!(
        fates(&before),
        [
            ("a1".to_owned(), false, EventStatus::NoDigest),
            ("a2".to_owned(), true, EventStatus::NextDigest)
        ]
    );
    assert_eq!(after.digest.as_ref().unwrap().next_due, None);
    let place = |at: usize| match &after.events[at].covered {
        Some(CoveredBy::Email { place, .. }) => *place,
        other => panic!("{other:?}"),
    };
    assert_eq!((place(1), place(0)), (EmailPlace::Excluded, EmailPlace::Shown));
}
