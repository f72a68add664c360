//! Tests of the effect of each link, and which past events are emailed when the user turns it on
//! again.

use chrono::{DateTime, TimeDelta, Utc, Weekday};

use super::*;
use crate::domain::{Policy, UserId};

fn at(hours: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_398_124_800, 0).unwrap() + TimeDelta::hours(hours)
}

fn kind(name: &str) -> EventType {
    EventType::stored(name)
}

/// Works go to the digest, comments and replies are emailed as they happen, notices are mandatory.
fn policies() -> Policies {
    let policy = |name: &str, route, mandatory: bool| {
        let policy =
            Policy { route, mandatory: mandatory.then(Default::default), ..Policy::default() };
        (kind(name), policy)
    };
    Policies::new([
        policy("Work", Route::Digest, false),
        policy("Comment", Route::Batch, false),
        policy("Reply", Route::Immediate, false),
        policy("Notice", Route::Immediate, true),
    ])
}

fn weekly() -> Schedule {
    Schedule { cadence: Cadence::Weekly, weekday: Weekday::Mon, hour: 9, tz: chrono_tz::UTC }
}

fn ada() -> User {
    User::new(UserId::stored("ada"))
}

/// Applies the link in the same way as the services do.
fn stopped(before: &User, stop: &StopAction, now: DateTime<Utc>) -> User {
    let mut user = before.clone();
    user.apply_stop(stop, &policies(), now);
    user.into_replacement_of(Some(before), &weekly(), &policies(), now)
}

/// Returns the routes of events at that hour, by type, and whether a digest includes works.
fn routes_at(user: &User, hour: i64) -> ([Route; 4], bool) {
    let route = |name| user.route(&kind(name), at(hour), &policies());
    let routes = ["Work", "Comment", "Reply", "Notice"].map(route);
    let schedule = user.digest_schedule(&weekly()).1;
    let digest = user.gets_in_digest(&kind("Work"), || at(hour), &policies());
    (routes, digest && schedule == crate::domain::EmailScope::All)
}

#[test]
fn each_stop_affects_only_its_own_emails() {
    use Route::{Batch, Digest, Immediate, Never};
    let comments = StopAction::for_types([&kind("Comment")]);
    for (stop, routes, digest) in [
        (&comments, [Digest, Never, Immediate, Immediate], true),
        (&StopAction::Digest, [Digest, Batch, Immediate, Immediate], false),
        (&StopAction::OutsideDigest, [Digest, Never, Never, Immediate], true),
        (&StopAction::All, [Digest, Never, Never, Immediate], false),
    ] {
        assert!(!stop.is_in_effect(&ada(), true, &weekly(), &policies()), "{stop:?}");

        let user = stopped(&ada(), stop, at(0));

        assert_eq!(routes_at(&user, 1), (routes, digest), "{stop:?}");
        assert!(stop.is_in_effect(&user, true, &weekly(), &policies()), "{stop:?}");
        assert_eq!(stopped(&user, stop, at(5)), user, "again, {stop:?}");
        assert_eq!(user.unsubscribed.is_some(), *stop == StopAction::All);
    }
}

#[test]
fn turning_emails_on_again_sends_no_events_from_before() {
    for (stop, name) in
        [(StopAction::for_types([&kind("Comment")]), "Comment"), (StopAction::Digest, "Work")]
    {
        let off = stopped(&ada(), &stop, at(0));
        let mut on = off.clone();
        match &stop {
            StopAction::Digest => on.digest.cadence = Some(Cadence::Weekly),
            _ => on.types.get_mut(&kind(name)).unwrap().route = Route::Batch,
        }
        let on = on.into_replacement_of(Some(&off), &weekly(), &policies(), at(10));

        let wants = |hour| match &stop {
            StopAction::Digest => on.gets_in_digest(&kind(name), || at(hour), &policies()),
            _ => on.route(&kind(name), at(hour), &policies()) == Route::Batch,
        };
        assert_eq!([5, 10].map(wants), [false, true], "{stop:?}");
    }
}

#[test]
fn an_unconfigured_type_can_be_stopped() {
    let strange = StopAction::for_types([&kind("strange")]);

    let user = stopped(&ada(), &strange, at(0));

    assert!(!user.gets_in_digest(&kind("strange"), || at(1), &policies()));
    assert!(strange.is_in_effect(&user, true, &weekly(), &policies()));
}

#[test]
fn a_users_own_window_survives_a_stop() {
    let mut before = ada();
    let mut slow = TypePreference::new(Route::Batch, at(-9));
    slow.window = Some(TimeDelta::hours(1));
    before.types.insert(kind("Comment"), slow);

    let user = stopped(&before, &StopAction::for_types([&kind("Comment")]), at(0));

    let chosen = user.types[&kind("Comment")];
    assert_eq!((chosen.route, chosen.window), (Route::Never, Some(TimeDelta::hours(1))));
}

#[test]
fn too_many_types_for_a_link_stop_all_emails_outside_the_digest() {
    let many: Vec<EventType> = (0..40).map(|n| kind(&format!("Type{n:04}"))).collect();
    let longest = kind(&"x".repeat(crate::domain::name::MAX_NAME_BYTES));

    assert_eq!(StopAction::for_types(&many), StopAction::OutsideDigest);
    assert_eq!(StopAction::for_types([&longest]), StopAction::Types(vec![longest]));
}
