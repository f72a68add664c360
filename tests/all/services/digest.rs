//! Tests of digests: at most one email per user and period, with the wanted events that apply, and
//! no event twice.

use chrono::{DateTime, TimeDelta, Utc};
use tidings::clock::Clock;
use tidings::domain::delivery::Handover;
use tidings::domain::type_policy::Route;
use tidings::domain::user::TypePreference;
use tidings::domain::{Cadence, DeliveryState};
use tidings::email::Outcome;
use tidings::engine::NoProgress;
use tidings::engine::digest::DigestRequest;

use crate::support::town::{
    Town, busy, followers_of, monday, mostly_on_sqlite, refused, request, saturday, to,
};
use crate::support::{Fresh, Shorthand, kind, user};

mostly_on_sqlite! {
    a_digest_includes_pending_events_and_is_sent_once
    an_event_after_the_digest_hour_is_in_the_next_period
    timing_now_ignores_the_digest_hour_but_sends_once_per_period
    a_dry_run_counts_digests_and_writes_nothing
    an_event_between_read_and_flush_is_in_the_next_digest
    a_digest_excludes_withdrawn_works
    a_withdrawal_before_the_send_cancels_the_email_and_marks_nothing
    turning_digests_off_before_the_send_cancels_the_email
    unconfirmed_and_suppressed_users_get_no_email_and_are_counted
    the_events_of_a_rejected_email_are_in_the_next_digest
    the_emails_of_a_call_rejected_as_a_whole_are_sent_one_by_one
    a_deferred_email_is_sent_later
    an_email_with_an_unknown_outcome_and_its_events_are_not_resent
    concurrent_schedulers_send_one_email_per_user
    a_change_from_weekly_to_daily_repeats_no_event
    an_event_from_before_its_route_was_chosen_is_not_emailed
    a_template_error_fails_one_delivery_and_no_other
    a_limit_ends_the_run_and_the_next_one_continues
    a_send_lost_in_a_crash_is_repeated_only_if_that_is_safe
}

async fn a_digest_includes_pending_events_and_is_sent_once(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1", "a2"], followers_of("artist:1")).await;

    let first = town.digests_at(monday(0)).await;
    let second = town.digests_at(monday(0)).await;

    assert_eq!(first.due.users, 2);
    assert_eq!(first.emails.sent, 2);
    assert_eq!(first.emails.events, 4);
    assert_eq!((second.due.users, second.emails.sent), (0, 0));
    assert_eq!(town.emailed_to("ada"), ["a1", "a2"]);
    let rows = town.deliveries_of("ada").await;
    assert_eq!(rows[0].id.as_str(), "digest:ada:weekly:2014-W17");
    assert_eq!(rows[0].state, DeliveryState::Sent);
    assert_eq!(rows[0].outcome.items, 2);
}

async fn an_event_after_the_digest_hour_is_in_the_next_period(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.clock.set(monday(0));
    town.happens(&["a1"], to(&["ada"])).await;

    let today = town.digests_at(monday(0) + TimeDelta::hours(2)).await;
    let next = town.digests_at(monday(1)).await;

    assert_eq!((today.due.users, today.users.waiting), (0, 1));
    assert_eq!(
        today.users.next_due,
        Some("2014-04-28T09:00:00Z".parse::<DateTime<Utc>>().unwrap())
    );
    assert_eq!(next.emails.sent, 1);
}

async fn timing_now_ignores_the_digest_hour_but_sends_once_per_period(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada"])).await;
    let now = DigestRequest { ignore_hours: true, ..DigestRequest::default() };

    let first = town.process().digests().run(&now, &NoProgress).await.unwrap();
    town.happens(&["a2"], to(&["ada"])).await;
    let second = town.process().digests().run(&now, &NoProgress).await.unwrap();
    town.digests_at(monday(0)).await;

    assert_eq!(first.emails.sent, 1);
    assert_eq!(second.emails.sent, 0);
    assert_eq!(second.users.emailed_already, 1);
    let sent: Vec<_> = town.emails().iter().map(|email| email.delivery.to_string()).collect();
    assert_eq!(sent, ["digest:ada:weekly:2014-W16", "digest:ada:weekly:2014-W17"]);
}

async fn a_dry_run_counts_digests_and_writes_nothing(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], followers_of("artist:1")).await;
    town.clock.set(monday(0));
    let request = DigestRequest { dry_run: true, ..DigestRequest::default() };

    let report = town.process().digests().run(&request, &NoProgress).await.unwrap();

    assert_eq!(report.due.users, 2);
    assert_eq!(report.due.events, 2);
    assert_eq!(report.emails.sent, 0);
    assert!(town.emails().is_empty() && town.deliveries_of("ada").await.is_empty());
    assert_eq!(town.digests_at(monday(0)).await.emails.sent, 2);
}

async fn an_event_between_read_and_flush_is_in_the_next_digest(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada"])).await;
    let bystander = town.process();
    town.meanwhile(move || {
        Box::pin(async move {
            bystander.notify().accept(vec![request(&["a2"], to(&["ada"]), None)]).await.unwrap();
            bystander.fanouts().drain(&NoProgress).await.unwrap();
        })
    });

    town.digests_at(monday(0)).await;
    assert_eq!(town.emailed_to("ada"), ["a1"]);
    town.digests_at(monday(1)).await;

    assert_eq!(town.emailed_to("ada"), ["a1", "a2"]);
    assert!(town.emailed().values().all(|times| *times == 1));
}

async fn a_digest_excludes_withdrawn_works(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1", "a9"], to(&["ada"])).await;
    town.happens(&["a9"], to(&["ben"])).await;

    let report = town.digests_at(monday(0)).await;

    assert_eq!(report.emails.sent, 1);
    assert_eq!(report.emails.events, 1);
    assert_eq!(report.users.withdrawn, 1);
    assert_eq!(town.emailed_to("ada"), ["a1"]);
    assert!(town.deliveries_of("ben").await.is_empty());
}

/// Leaves ada's delivery pending, ten minutes after the provider deferred it.
async fn with_a_deferred_email(town: &Town) {
    town.happens(&["a1"], to(&["ada"])).await;
    town.answer([busy()]);
    let report = town.digests_at(monday(0)).await;
    assert_eq!((report.emails.deferred, report.emails.sent), (1, 0));
    town.clock.advance(TimeDelta::minutes(10));
}

async fn a_withdrawal_before_the_send_cancels_the_email_and_marks_nothing(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    with_a_deferred_email(&town).await;
    town.put_works(&["a1"], |_| false).await;

    let report = town.digests_at(monday(0)).await;

    assert_eq!((report.emails.canceled, report.emails.sent), (1, 0));
    assert_eq!(town.deliveries_of("ada").await[0].state, DeliveryState::Canceled);
    town.put_works(&["a1"], |_| true).await;
    assert_eq!(town.digests_at("2014-04-26T09:00:00Z".parse().unwrap()).await.emails.sent, 0);
    town.clock.set("2014-04-26T12:00:00Z".parse().unwrap());
    town.happens(&["a2"], to(&["ada"])).await;
    town.digests_at(monday(1)).await;
    // a1 is nine days old and was never marked as emailed. It applies again, so it is in the
    // backlog.
    assert_eq!(town.emailed_to("ada"), ["a1", "a2"]);
}

async fn turning_digests_off_before_the_send_cancels_the_email(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    with_a_deferred_email(&town).await;
    town.change("ada", |ada| ada.digest.cadence = Some(Cadence::Never)).await;

    let report = town.digests_at(monday(0)).await;

    assert_eq!((report.emails.canceled, report.emails.sent), (1, 0));
    assert!(town.emails().is_empty());
}

async fn unconfirmed_and_suppressed_users_get_no_email_and_are_counted(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.change("ben", |ben| ben.suppressed = Some(saturday())).await;
    town.happens(&["a1"], to(&["ada", "ben", "dee", "zoe"])).await;

    let report = town.digests_at(monday(0)).await;

    assert_eq!(report.emails.sent, 1);
    let counted: Vec<_> = report.users.unmailable.into_iter().collect();
    assert_eq!(counted, [("suppressed", 1), ("unconfirmed", 1), ("unknown", 1)]);
}

async fn the_events_of_a_rejected_email_are_in_the_next_digest(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.clock.set(monday(0) - TimeDelta::hours(1));
    town.happens(&["a1"], to(&["ada"])).await;
    town.answer([refused("no such mailbox")]);

    let first = town.digests_at(monday(0)).await;
    let again = town.digests_at(monday(0)).await;
    let next = town.digests_at(monday(1)).await;

    assert_eq!((first.emails.failed, again.emails.settled(), next.emails.sent), (1, 0, 1));
    assert_eq!(first.emails.reasons, [("no such mailbox".to_owned(), 1)]);
    assert_eq!(town.emailed_to("ada"), ["a1"]);
}

async fn a_deferred_email_is_sent_later(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    with_a_deferred_email(&town).await;

    let report = town.digests_at(monday(0)).await;

    assert_eq!(report.emails.sent, 1);
    assert_eq!(town.emailed_to("ada"), ["a1"]);
    assert_eq!(town.deliveries_of("ada").await[0].attempts.made, 2);
}

async fn the_emails_of_a_call_rejected_as_a_whole_are_sent_one_by_one(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    let together = Outcome::RefusedTogether("another user's address".into());
    let alone = refused("no such mailbox");
    town.answer([together.clone(), together, alone]);

    let report = town.digests_at(monday(0)).await;

    assert_eq!((report.emails.failed, report.emails.sent), (1, 1));
    assert_eq!(town.emailed_to("ben"), ["a1"]);
}

async fn an_email_with_an_unknown_outcome_and_its_events_are_not_resent(fresh: Fresh) {
    let town = Town::found(&fresh, false, "").await;
    town.clock.set(monday(0) - TimeDelta::hours(1));
    town.happens(&["a1"], to(&["ada"])).await;
    town.answer([Outcome::Unknown("no answer in 30 s".into())]);

    let first = town.digests_at(monday(0)).await;
    town.clock.advance(TimeDelta::hours(1));
    let again = town.digests_at(monday(0)).await;
    let next = town.digests_at(monday(1)).await;

    assert_eq!((first.emails.unknown, again.emails.settled(), next.emails.settled()), (1, 0, 0));
    assert_eq!(town.emails().len(), 1);
}

async fn concurrent_schedulers_send_one_email_per_user(fresh: Fresh) {
    let town = Town::found(&fresh, false, "").await;
    town.happens(&["a1", "a2"], followers_of("artist:1")).await;
    town.happens(&["a3"], followers_of("artist:2")).await;
    town.clock.set(monday(0));

    let request = DigestRequest::default();
    let (a, b, c) = (town.process(), town.process_on(&fresh.second().handle()), town.process());
    let (a, b, c) = (a.digests(), b.digests(), c.digests());
    let reports = futures::try_join!(
        a.run(&request, &NoProgress),
        b.run(&request, &NoProgress),
        c.run(&request, &NoProgress)
    )
    .unwrap();

    assert_eq!(reports.0.emails.sent + reports.1.emails.sent + reports.2.emails.sent, 3);
    assert_eq!(town.emails().len(), 3);
    assert!(town.emailed().values().all(|times| *times == 1), "{:?}", town.emailed());
}

async fn a_change_from_weekly_to_daily_repeats_no_event(fresh: Fresh) {
    let town = Town::found(&fresh, false, "").await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.digests_at(monday(0)).await;
    town.change("ada", |ada| ada.digest.cadence = Some(Cadence::Daily)).await;

    let same_day = town.digests_at(monday(0) + TimeDelta::hours(1)).await;
    town.happens(&["a2"], to(&["ada"])).await;
    let next_day = town.digests_at(monday(0) + TimeDelta::days(1)).await;

    assert_eq!((same_day.emails.sent, next_day.emails.sent), (0, 1));
    let times: Vec<_> = town.emailed().into_values().collect();
    assert_eq!(
        (town.emailed_to("ada"), times),
        (vec!["a1".to_owned(), "a2".to_owned()], vec![1, 1])
    );
}

async fn an_event_from_before_its_route_was_chosen_is_not_emailed(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada"])).await;
    let since = saturday() + TimeDelta::hours(1);
    let chosen = TypePreference::new(Route::Digest, since);
    town.change("ada", |ada| {
        ada.types.insert(kind("ArtworkPublished"), chosen);
    })
    .await;
    town.clock.set(since);
    town.happens(&["a2"], to(&["ada"])).await;

    town.digests_at(monday(0)).await;

    assert_eq!(town.emailed_to("ada"), ["a2"]);
}

async fn a_template_error_fails_one_delivery_and_no_other(fresh: Fresh) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("digest")).unwrap();
    let poison = "{% if user.name == 'Poison' %}{{ 1 // 0 }}{% endif %}Hello";
    std::fs::write(folder.path().join("digest/subject.txt"), poison).unwrap();
    let config = format!("mail.templates = {:?}", folder.path());
    let town = Town::found(&fresh, true, &config).await;
    town.change("ben", |ben| ben.name = Some("Poison".into())).await;
    town.happens(&["a1"], followers_of("artist:1")).await;

    let report = town.digests_at(monday(0)).await;

    assert_eq!((report.emails.sent, report.emails.failed), (1, 1));
    let row = town.deliveries_of("ben").await.remove(0);
    assert!(row.outcome.reason.as_ref().unwrap().contains("subject.txt"), "{row:?}");
}

async fn a_limit_ends_the_run_and_the_next_one_continues(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;
    town.clock.set(monday(0));
    let request = DigestRequest { limit: Some(2), ..DigestRequest::default() };

    let first = town.process().digests().run(&request, &NoProgress).await.unwrap();
    let second = town.process().digests().run(&request, &NoProgress).await.unwrap();

    assert_eq!(
        (first.emails.sent, first.is_limited, second.emails.sent, second.is_limited),
        (2, true, 1, false)
    );
}

async fn a_send_lost_in_a_crash_is_repeated_only_if_that_is_safe(fresh: Fresh) {
    for safe in [true, false] {
        fresh.clear().await;
        let town = Town::found(&fresh, safe, "").await;
        with_a_deferred_email(&town).await;
        let until = town.clock.now() + TimeDelta::minutes(5);
        let rows = town.store.take("dead", town.clock.now(), until, 10).await;
        town.store
            .sending(
                "dead",
                town.clock.now(),
                until,
                &[Handover {
                    id: rows[0].id.clone(),
                    call: town.process().sender().throttle.account_prefix + "call",
                    items: 1,
                }],
            )
            .await;

        let early = town.digests_at(monday(0)).await;
        town.clock.advance(TimeDelta::minutes(6));
        let late = town.digests_at(monday(0)).await;

        assert_eq!(early.emails.settled(), 0, "the lease of the dead has not run out");
        let expected = if safe { (1, 0) } else { (0, 1) };
        assert_eq!((late.emails.sent, late.emails.unknown), expected);
        assert_eq!(town.store.users(&[user("ada")]).await.unwrap().len(), 1);
    }
}
