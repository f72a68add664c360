//! Muted subjects (P7): their events are in no email and no backlog, and count as read in the feed.
//!
//! The end of a mute does not email the events that it covered. Mandatory types cannot be muted.

use chrono::TimeDelta;
use tidings::clock::Clock;
use tidings::domain::mutes_and_quiet_hours::Title;
use tidings::domain::{Audience, Day, DeliveryState, FollowKey, Object, ObjectKey, Subject, User};
use tidings::engine::users::input::MuteInput;
use tidings::wire::explanation::{CoveredBy, EmailPlace, EventStatus};

use super::mandatory::happens;
use crate::support::town::{Town, busy, followers_of, monday, mostly_on_sqlite, to};
use crate::support::{Fresh, user};

mostly_on_sqlite! {
    a_digest_excludes_muted_subjects
    a_batch_excludes_muted_subjects_and_is_canceled_if_nothing_is_left
    a_deferred_email_excludes_subjects_that_were_muted_meanwhile
    muting_a_topic_mutes_every_object_about_it
    an_event_from_followed_keys_is_muted_only_if_all_are_muted
    unmuting_a_subject_does_not_email_its_earlier_events
    an_expired_mute_does_not_email_its_earlier_events
    mandatory_events_are_never_muted
    muted_events_are_in_neither_the_backlog_nor_the_flush_count
    muted_items_count_as_read_in_the_feed
    explain_reports_a_mute_before_and_after_the_email
    explain_reports_events_from_before_an_unmute
    replacing_a_user_record_keeps_its_mutes
    a_user_mutes_at_most_a_thousand_subjects
    mutes_that_ended_long_ago_are_deleted
    the_total_of_a_batch_excludes_muted_events
}

const BATCH: &str = r#"
[types.ArtworkPublished]
route = "batch"
window = "5m"
"#;

fn subject(name: &str) -> Subject {
    Subject::new(name).unwrap()
}

async fn mute(town: &Town, person: &str, name: &str) {
    let people = town.process().users();
    let (user, subject) = (user(person), subject(name));
    let muted = people.mute(&user, &subject, MuteInput::default()).await;
    assert!(muted.unwrap().is_some());
}

async fn unmute(town: &Town, person: &str, name: &str) {
    let people = town.process().users();
    let user = people.unmute(&user(person), &subject(name)).await.unwrap();
    assert_eq!(user.unwrap().mutes.current(town.clock.now()).count(), 0);
}

async fn a_digest_excludes_muted_subjects(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1", "a2"], to(&["ada", "ben"])).await;
    town.happens(&["a1"], to(&["cem"])).await;
    for person in ["ada", "cem"] {
        mute(&town, person, "a1").await;
    }

    let report = town.digests_at(monday(0)).await;

    assert_eq!(report.due.users, 2);
    assert_eq!(report.due.events, 3);
    assert_eq!(report.users.pending, 2);
    assert_eq!(town.emailed_to("ada"), ["a2"]);
    assert_eq!(town.emailed_to("ben"), ["a1", "a2"]);
    assert_eq!(town.emailed_to("cem"), [""; 0]);
    // The marker covers the muted event, too.
    let stacks = fresh.stacks_of(&user("ada")).await;
    let is_left = |stack: &tidings::domain::Stack| stack.uncovered().next().is_some();
    assert!(!stacks.iter().any(is_left));
}

async fn a_batch_excludes_muted_subjects_and_is_canceled_if_nothing_is_left(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCH).await;
    mute(&town, "ada", "a1").await;
    mute(&town, "ben", "a1").await;
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;
    town.happens(&["a2"], to(&["ada"])).await;

    town.send_due_in(6).await;

    assert_eq!(town.emails().len(), 2);
    let text = |n: usize| town.emails()[n].fill_links().text;
    let texts = [text(0), text(1)];
    let ada = texts.iter().find(|text| text.contains("Work a2.")).unwrap();
    let cem = texts.iter().find(|text| text.contains("Work a1.")).unwrap();
    assert!(!ada.contains("Work a1.") && !cem.contains("Work a2."));
    let row = town.deliveries_of("ben").await.remove(0);
    assert_eq!(row.state, DeliveryState::Canceled);
    // The canceled batch has settled its event: no later email includes it.
    unmute(&town, "ben", "a1").await;
    town.send_due_in(6).await;
    town.digests_at(monday(0)).await;
    assert_eq!(town.emails().len(), 2);
}

async fn a_deferred_email_excludes_subjects_that_were_muted_meanwhile(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCH).await;
    happens(&town, "Loan", &["a3", "a4"], to(&["ada"])).await;
    town.happens(&["a1", "a2"], to(&["ada"])).await;
    town.answer([busy()]);
    town.send_due_in(6).await;
    assert_eq!(town.emails().len(), 0);
    mute(&town, "ada", "a1").await;
    town.clock.advance(TimeDelta::minutes(10));
    town.process().sender().drain().await.unwrap();
    town.answer([busy()]);
    town.digests_at(monday(0)).await;
    mute(&town, "ada", "a3").await;

    town.clock.advance(TimeDelta::minutes(10));
    town.process().sender().drain().await.unwrap();

    let emails = town.emails();
    let includes =
        |n: usize, work: &str| emails[n].fill_links().text.contains(&format!("Work {work}."));
    assert_eq!(emails.len(), 2);
    assert!(includes(0, "a2") && !includes(0, "a1"));
    assert!(includes(1, "a4") && !includes(1, "a3"));
}

async fn muting_a_topic_mutes_every_object_about_it(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let about = |key: &str, about: serde_json::Value| Object {
        title: Some(format!("Work {key}.")),
        data: serde_json::json!({"about": about}).into(),
        ..Object::without_data(ObjectKey::stored(key))
    };
    let linked = serde_json::json!({"title": "Show", "url": "https://a.example/show"});
    let works = [
        about("a1", "Budget".into()),
        about("a2", "Budget".into()),
        about("a3", linked.clone()),
        about("a4", linked),
    ];
    town.store.put_objects(&works).await.unwrap();
    town.happens(&["a1", "a2", "a3", "a4", "a5"], to(&["ada", "ben"])).await;
    mute(&town, "ada", "Budget").await;
    mute(&town, "ben", "https://a.example/show").await;

    town.digests_at(monday(0)).await;

    assert_eq!(town.emailed_to("ada"), ["a3", "a4", "a5"]);
    assert_eq!(town.emailed_to("ben"), ["a1", "a2", "a5"]);
}

async fn an_event_from_followed_keys_is_muted_only_if_all_are_muted(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    mute(&town, "ada", "artist:1").await;
    let both = ["artist:1", "artist:2"].map(FollowKey::stored);
    town.happens(&["a1"], followers_of("artist:1")).await;
    town.happens(&["a2"], followers_of("artist:2")).await;
    town.happens(&["a3"], Audience::followers_of(both).unwrap()).await;
    town.happens(&["a4"], to(&["ada"])).await;

    town.digests_at(monday(0)).await;

    assert_eq!(town.emailed_to("ada"), ["a2", "a3", "a4"]);
    assert_eq!(town.emailed_to("ben"), ["a1", "a3"]);
}

async fn unmuting_a_subject_does_not_email_its_earlier_events(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada"])).await;
    mute(&town, "ada", "a1").await;
    town.digests_at(monday(0)).await;
    town.clock.advance(TimeDelta::minutes(1));
    unmute(&town, "ada", "a1").await;

    let nothing = town.digests_at(monday(1)).await;
    assert_eq!((nothing.due.users, town.emails().len()), (0, 0));

    town.happens(&["a1"], to(&["ada"])).await;
    let report = town.digests_at(monday(2)).await;
    assert_eq!((report.due.events, town.emails().len()), (1, 1));
    assert_eq!(town.emailed_to("ada"), ["a1"]);
}

async fn an_expired_mute_does_not_email_its_earlier_events(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let until = Some(town.clock.now() + TimeDelta::hours(2));
    let input = MuteInput { until, title: None };
    let people = town.process().users();
    people.mute(&user("ada"), &subject("artist:1"), input).await.unwrap();
    town.happens(&["a1"], followers_of("artist:1")).await;
    town.clock.advance(TimeDelta::hours(3));
    town.happens(&["a2"], followers_of("artist:1")).await;

    town.digests_at(monday(0)).await;

    assert_eq!(town.emailed_to("ada"), ["a2"]);
    assert_eq!(town.emailed_to("ben"), ["a1", "a2"]);
}

async fn mandatory_events_are_never_muted(fresh: Fresh) {
    let config = format!(
        "server.public_url = \"https://news.example.org\"\n{BATCH}
        [types.Notice]\nmandatory = true\n
        [types.Alarm]\nmandatory = true\nroute = \"immediate\"\n"
    );
    let town = Town::found(&fresh, true, &config).await;
    mute(&town, "ada", "a1").await;
    for name in ["Notice", "Alarm", "ArtworkPublished"] {
        happens(&town, name, &["a1"], to(&["ada", "ben"])).await;
    }

    town.send_due_in(6).await;
    let alone = town.emails();
    town.digests_at(monday(0)).await;

    let of = |person: &str, emails: &[tidings::email::Message]| {
        let masked = tidings::domain::Address::new(format!("{person}@example.org")).unwrap();
        let theirs = emails.iter().filter(|email| email.to == masked);
        theirs.map(|email| email.fill_links().text).collect::<Vec<_>>()
    };
    assert_eq!((of("ada", &alone).len(), of("ben", &alone).len()), (1, 2));
    assert_eq!(of("ada", &town.emails()).len(), 2);
    let offers = |text: &&String| text.contains("Mute Work a1.");
    assert_eq!(of("ada", &alone).iter().filter(offers).count(), 0);
    assert_eq!(of("ben", &alone).iter().filter(offers).count(), 1);
}

async fn muted_events_are_in_neither_the_backlog_nor_the_flush_count(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    town.happens(&["a2"], to(&["cem"])).await;
    mute(&town, "ada", "a1").await;
    let day = Day::of(town.clock.now());

    let backlog = town.mailable_backlog(day).await;
    let flushed = town.process().backlog().flush(&user("ada")).await.unwrap();
    town.clock.advance(TimeDelta::days(9));
    let later = town.mailable_backlog(day).await;
    let report = town.digests_at(monday(2)).await;

    assert_eq!((backlog.users, backlog.events, flushed), (2, 2, 0));
    assert_eq!((later.users, later.events), (2, 2));
    assert_eq!(report.backlog.backlog.users, 2);
    assert_eq!(report.backlog.backlog.events, 2);
    assert_eq!(town.emailed_to("ada"), [""; 0]);
}

async fn muted_items_count_as_read_in_the_feed(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1", "a2"], to(&["ada"])).await;
    let before = town.feed("ada").await.counts;

    mute(&town, "ada", "a1").await;
    let page = town.feed("ada").await;
    town.clock.advance(TimeDelta::minutes(1));
    unmute(&town, "ada", "a1").await;
    town.clock.advance(TimeDelta::minutes(1));
    town.happens(&["a3"], to(&["ada"])).await;
    let after = town.feed("ada").await.counts;

    assert_eq!((before.unseen, before.unread), (2, 2));
    assert_eq!((page.counts.unseen, page.counts.unread), (1, 1));
    let items = page.items.iter();
    let mut states: Vec<_> =
        items.map(|item| (item.object_id.as_str(), item.state.as_str())).collect();
    states.sort_unstable();
    assert_eq!(states, [("a1", "read"), ("a2", "unseen")]);
    assert_eq!((after.unseen, after.unread), (2, 2), "what it was stays read");
}

async fn explain_reports_events_from_before_an_unmute(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCH).await;
    mute(&town, "ada", "a1").await;
    happens(&town, "Loan", &["a1", "a2"], to(&["ada"])).await;
    town.clock.advance(TimeDelta::minutes(1));

    unmute(&town, "ada", "a1").await;
    mute(&town, "ada", "a2").await;

    let explanation = town.process().explain().user(&user("ada"), None).await;
    let fates = explanation.unwrap().events.into_iter();
    let mut whys: Vec<_> = fates.map(|of| (of.object.to_string(), of.status)).collect();
    whys.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [("a1", EventStatus::WasMuted), ("a2", EventStatus::Muted)];
    assert_eq!(whys, expected.map(|(object, why)| (object.to_owned(), why)));
    assert_eq!(
        EventStatus::WasMuted.sentence(),
        "happened before they unmuted its subject, so it is not emailed"
    );
}

async fn explain_reports_a_mute_before_and_after_the_email(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCH).await;
    happens(&town, "Loan", &["a1", "a2"], to(&["ada"])).await;
    town.happens(&["a1", "a3"], to(&["ada"])).await;
    let fates = async || {
        let explained = town.process().explain().user(&user("ada"), None).await;
        let fates = explained.unwrap().events.into_iter();
        let mut fates: Vec<_> = fates
            .map(|fate| {
                let excluded = match fate.covered {
                    Some(CoveredBy::Email { place: EmailPlace::Excluded, excluded, .. }) => {
                        excluded
                    }
                    _ => None,
                };
                (fate.kind, fate.object.to_string(), fate.status, excluded)
            })
            .collect();
        fates.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        let fates = fates.into_iter();
        fates.map(|(_, _, why, excluded)| (why, excluded)).collect::<Vec<_>>()
    };

    mute(&town, "ada", "a1").await;
    let before = fates().await;
    town.send_due_in(6).await;
    town.digests_at(monday(0)).await;
    let after = fates().await;

    let muted = Some(EventStatus::Muted);
    assert_eq!(
        before,
        [
            (EventStatus::Muted, None),
            (EventStatus::InOpenBatch, None),
            (EventStatus::Muted, None),
            (EventStatus::NextDigest, None),
        ]
    );
    assert_eq!(
        after,
        [
            (EventStatus::Excluded, muted),
            (EventStatus::Emailed, None),
            (EventStatus::Covered, muted),
            (EventStatus::Covered, None),
        ]
    );
    // Later mutes do not change the explanation of a sent email.
    town.clock.advance(TimeDelta::minutes(1));
    mute(&town, "ada", "a2").await;
    mute(&town, "ada", "a3").await;
    assert_eq!(fates().await, after);
    for row in town.deliveries_of("ada").await {
        let story = town.process().compose().describe_delivery(row).await.unwrap();
        assert_eq!(story.email.unwrap().items.len(), 1);
    }
}

async fn replacing_a_user_record_keeps_its_mutes(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    mute(&town, "ada", "a1").await;
    let people = town.process().users();
    let record = serde_json::json!({"id": "ada", "email": "ada@example.org", "confirmed": true});

    let record = serde_json::from_value(record).unwrap();
    people.put_users(vec![record]).await.unwrap();
    people.unsubscribe(&user("ada")).await.unwrap();
    let daily = serde_json::json!({"digest": {"cadence": "daily"}});
    let daily = serde_json::from_value(daily).unwrap();
    people.change_preferences(&user("ada"), daily).await.unwrap();

    let ada = people.user(&user("ada")).await.unwrap().unwrap();
    let muted = ada.mutes.current(town.clock.now());
    let muted: Vec<&str> = muted.map(|(subject, _)| subject.as_str()).collect();
    assert_eq!(muted, ["a1"]);
}

async fn a_user_mutes_at_most_a_thousand_subjects(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let now = town.clock.now();
    town.change("ada", |ada| {
        for n in 0..1_000 {
            let subject = subject(&format!("Thread:{n}"));
            ada.mutes.mute(subject, None, Title::cut("Thread"), now);
        }
    })
    .await;
    let people = town.process().users();
    let put = |name: &str| {
        let (people, name) = (town.process().users(), subject(name));
        async move { people.mute(&user("ada"), &name, MuteInput::default()).await }
    };

    let refused = put("one more").await.unwrap_err().to_string();
    let again = put("Thread:7").await;

    assert!(refused.contains("1000"), "{refused}");
    assert!(again.is_ok(), "who has them can change them");
    // An ended mute counts until none of the events that it covered may still be emailed.
    unmute_all(&town, &people.user(&user("ada")).await.unwrap().unwrap()).await;
    assert!(put("one more").await.is_err());
    town.clock.advance(TimeDelta::days(62));
    assert!(put("one more").await.is_ok());
}

async fn unmute_all(town: &Town, ada: &User) {
    let all: Vec<Subject> = ada.mutes.iter().map(|(subject, _)| subject.clone()).collect();
    let now = town.clock.now();
    town.change("ada", |ada| all.iter().for_each(|subject| ada.mutes.unmute(subject, now))).await;
}

async fn mutes_that_ended_long_ago_are_deleted(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    for name in ["a1", "a2"] {
        mute(&town, "ada", name).await;
    }
    let people = town.process().users();
    people.unmute(&user("ada"), &subject("a1")).await.unwrap();
    let count = async || {
        let ada = town.process().users().user(&user("ada")).await.unwrap();
        ada.unwrap().mutes.len()
    };
    assert_eq!(count().await, 2);

    town.clock.advance(TimeDelta::days(62));
    mute(&town, "ada", "a3").await;

    assert_eq!(count().await, 2, "a2, which stands, and a3");
}

async fn the_total_of_a_batch_excludes_muted_events(fresh: Fresh) {
    let config = format!("{BATCH}keep = \"last 2\"\n");
    let town = Town::found(&fresh, true, &config).await;
    for work in ["a1", "a2", "a3"] {
        town.happens(&[work], to(&["ada", "ben"])).await;
    }
    mute(&town, "ada", "a1").await;

    town.send_due_in(6).await;

    let items = async |person: &str| town.deliveries_of(person).await.remove(0).outcome.items;
    assert_eq!((items("ada").await, items("ben").await), (2, 3));
    let emails = town.emails();
    let ada = emails.iter().find(|email| email.to.reveal() == "ada@example.org");
    let text = ada.unwrap().fill_links().text;
    assert!(!text.contains("more"), "{text}");
}
