//! Tests of who may be emailed, and how changed preferences affect past events.

use serde_json::json;

use super::*;
use crate::domain::{Id, Mute, Policy, Subject};

fn at(hours: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_398_124_800 + hours * 3_600, 0).unwrap()
}

fn kind() -> EventType {
    EventType::stored("Work")
}

fn policies() -> Policies {
    Policies::new([(
        EventType::stored("Quiet"),
        Policy { route: Route::Never, ..Policy::default() },
    )])
}

fn schedule() -> Schedule {
    Schedule { cadence: Cadence::Weekly, weekday: Weekday::Mon, hour: 9, tz: Tz::UTC }
}

fn ada() -> User {
    User {
        email: Address::new("ada@example.org").ok(),
        confirmed: true,
        ..User::new(UserId::stored("ada"))
    }
}

fn with_route(route: Route) -> User {
    let mut user = ada();
    user.types.insert(kind(), TypePreference::new(route, DateTime::UNIX_EPOCH));
    user
}

fn with_cadence(cadence: Cadence) -> User {
    let mut user = ada();
    user.digest.cadence = Some(cadence);
    user
}

/// Returns the record after these changes, an hour apart. The first record is a new one.
fn after(changes: Vec<User>) -> User {
    let mut hours = 0..;
    changes
        .into_iter()
        .fold(None, |before: Option<User>, next| {
            let now = at(hours.next().unwrap());
            Some(next.into_replacement_of(before.as_ref(), &schedule(), &policies(), now))
        })
        .unwrap()
}

#[test]
fn only_a_confirmed_unsuppressed_address_is_emailed() {
    assert!(ada().mailable_address().is_ok());
    assert_eq!(
        User { confirmed: false, ..ada() }.mailable_address(),
        Err(UnmailableReason::Unconfirmed)
    );
    assert_eq!(User { email: None, ..ada() }.mailable_address(), Err(UnmailableReason::NoAddress));
    assert_eq!(
        User { suppressed: Some(at(0)), ..ada() }.mailable_address(),
        Err(UnmailableReason::Suppressed)
    );
}

#[test]
fn turning_a_type_off_and_on_sends_no_older_events() {
    let user = after(vec![ada(), with_route(Route::Never), with_route(Route::Digest)]);
    assert!(!user.gets_in_digest(&kind(), || at(1), &policies()));
    assert!(user.gets_in_digest(&kind(), || at(2), &policies()));
}

fn with_window(route: Route, text: &str) -> User {
    let mut user = with_route(route);
    user.types.get_mut(&kind()).unwrap().window = Some(parse_window(text).unwrap());
    user
}

#[test]
fn another_window_does_not_restart_the_route() {
    let user = after(vec![
        ada(),
        with_route(Route::Batch),
        with_window(Route::Batch, "1h"),
        with_window(Route::Batch, "1d"),
    ]);

    let chosen = user.types[&kind()];
    assert_eq!(chosen.since, at(1));
    assert_eq!(chosen.window, Some(TimeDelta::days(1)));
}

#[test]
fn a_window_survives_a_stop_and_is_removed_with_its_preference() {
    let mut muted = with_window(Route::Batch, "1h");
    muted.unsubscribe(&policies(), at(0));
    let back = after(vec![ada(), with_window(Route::Batch, "1h"), ada()]);

    assert_eq!(muted.types[&kind()].window, Some(TimeDelta::hours(1)));
    assert_eq!(back.types[&kind()].window, None);
}

#[test]
fn batches_use_the_users_window_or_else_that_of_the_type() {
    let five = BatchPolicy {
        window: TimeDelta::minutes(5),
        max_wait: Some(TimeDelta::minutes(15)),
        ..BatchPolicy::IMMEDIATE
    };
    let policies = policies().with_batches(five);
    let theirs = |user: &User| user.batch_policy(&kind(), &policies);

    assert_eq!(theirs(&ada()), five);
    assert_eq!(theirs(&with_route(Route::Batch)), five);
    let hour = TimeDelta::hours(1);
    let slow = theirs(&with_window(Route::Batch, "1h"));
    assert_eq!((slow.window, slow.max_wait), (hour, Some(hour)));
    let other = EventType::stored("Other");
    let user = with_window(Route::Batch, "1h");
    assert_eq!(user.batch_policy(&other, &policies), five);
}

#[test]
fn removing_a_preference_is_a_change() {
    let user = after(vec![with_route(Route::Never), ada()]);
    assert!(!user.gets_in_digest(&kind(), || at(0), &policies()));
    assert!(user.gets_in_digest(&kind(), || at(1), &policies()));
}

#[test]
fn repeating_a_preference_changes_nothing() {
    let user = after(vec![ada(), with_route(Route::Digest), with_route(Route::Digest), ada()]);
    assert!(user.gets_in_digest(&kind(), || at(-100), &policies()));
}

#[test]
fn a_type_that_is_off_by_default_starts_when_it_is_turned_on() {
    let mut loud = ada();
    let quiet = EventType::stored("Quiet");
    loud.types.insert(quiet.clone(), TypePreference::new(Route::Digest, DateTime::UNIX_EPOCH));
    let user = after(vec![ada(), loud]);
    assert!(!user.gets_in_digest(&quiet, || at(0), &policies()));
    assert!(user.gets_in_digest(&quiet, || at(1), &policies()));
}

#[test]
fn from_weekly_to_daily_to_never_to_weekly_no_older_event_is_emailed() {
    let changes = [Cadence::Weekly, Cadence::Daily, Cadence::Never, Cadence::Weekly];
    let user = after(changes.map(with_cadence).to_vec());
    assert!(!user.gets_in_digest(&kind(), || at(2), &policies()));
    assert!(user.gets_in_digest(&kind(), || at(3), &policies()));
}

#[test]
fn from_weekly_to_daily_no_event_is_lost() {
    let user = after(vec![with_cadence(Cadence::Weekly), with_cadence(Cadence::Daily)]);
    assert!(user.gets_in_digest(&kind(), || at(-100), &policies()));
}

#[test]
fn unset_preferences_come_from_the_configuration() {
    let mut user = ada();
    user.tz = Some(Tz::Asia__Tokyo);
    user.digest.hour = Some(7);
    assert_eq!(user.schedule(&schedule()), Schedule { hour: 7, tz: Tz::Asia__Tokyo, ..schedule() });
}

mod mandatory {
    //! Tests that mandatory types ignore the user's choices.

    use chrono::TimeDelta;
    use proptest::prelude::*;

    use super::*;
    use crate::domain::Mandate;

    const NAME: &str = "Notice";

    fn mandatory(route: Route) -> Policies {
        let policy = Policy { route, mandatory: Some(Mandate::default()), ..Policy::default() };
        Policies::new([(EventType::stored(NAME), policy), (kind(), Policy::default())])
    }

    fn routes() -> impl Strategy<Value = Route> {
        prop::sample::select(Route::ALL.to_vec())
    }

    fn choosers() -> impl Strategy<Value = User> {
        let cadences = [Cadence::Never, Cadence::Daily, Cadence::Weekly];
        let cadence = prop::option::of(prop::sample::select(cadences.to_vec()));
        let choice = prop::option::of((routes(), 0i64..100, prop::option::of(1i64..1_000)));
        let since = prop::option::of(0i64..100);
        (cadence, since, choice, any::<bool>()).prop_map(|(cadence, since, choice, leaves)| {
            let mut user = ada();
            user.digest.cadence = cadence;
            user.digest.since = since.map(at);
            if let Some((route, since, window)) = choice {
                let chosen = TypePreference {
                    route,
                    since: at(since),
                    window: window.map(TimeDelta::minutes),
                };
                user.types.insert(EventType::stored(NAME), chosen);
            }
            if leaves {
                user.unsubscribe(&mandatory(Route::Batch), at(50));
            }
            user
        })
    }

    proptest! {
        #[test]
        fn preferences_do_not_change_the_route_of_a_mandatory_type(
            user in choosers(), route in routes(), hours in 0i64..100,
        ) {
            let (policies, notice) = (mandatory(route), EventType::stored(NAME));

            prop_assert_eq!(user.route(&notice, at(hours), &policies), route);
            prop_assert_eq!(
                user.gets_in_digest(&notice, || at(hours), &policies),
                route == Route::Digest
            );
            prop_assert_eq!(
                user.batch_policy(&notice, &policies),
                policies.policy(&notice).batch
            );
        }

        #[test]
        fn digests_contain_all_chosen_types_or_only_mandatory_ones(user in choosers()) {
            let default = schedule();
            let (by, scope) = user.digest_schedule(&default);
            let policies = mandatory(Route::Digest);
            let wants = user.unsubscribed.is_none()
                && user.schedule(&default).cadence != Cadence::Never;

            prop_assert_ne!(by.cadence, Cadence::Never);
            prop_assert_eq!(scope.admits(&kind(), &policies), wants);
            prop_assert!(scope.admits(&EventType::stored(NAME), &policies));
        }
    }

    #[test]
    fn without_a_default_digest_mandatory_events_get_none() {
        let none = Schedule { cadence: Cadence::Never, ..schedule() };
        let (by, scope) = ada().digest_schedule(&none);

        assert_eq!((by.cadence, scope), (Cadence::Never, EmailScope::MandatoryOnly));
        let (by, scope) = with_cadence(Cadence::Daily).digest_schedule(&none);
        assert_eq!((by.cadence, scope), (Cadence::Daily, EmailScope::All));
    }

    #[test]
    fn only_a_users_own_wish_is_overridden() {
        let mut user = ada();
        user.unsubscribe(&mandatory(Route::Digest), at(0));
        assert_eq!(user.mailable_address(), Err(UnmailableReason::Unsubscribed));
        assert!(user.reachable_address().is_ok());
        user.confirmed = false;
        assert_eq!(user.reachable_address(), Err(UnmailableReason::Unconfirmed));

        let wishes =
            SuppressionReason::ALL.map(|reason| UnmailableReason::Address(reason).is_own_choice());
        assert_eq!(wishes.iter().filter(|is| **is).count(), 1);
        assert!(UnmailableReason::Address(SuppressionReason::Unsubscribe).is_own_choice());
        assert!(UnmailableReason::Unsubscribed.is_own_choice());
        assert!(!UnmailableReason::Suppressed.is_own_choice());
    }
}

#[test]
fn a_branded_type_is_in_no_digest_despite_an_earlier_choice() {
    let branded = Policy { route: Route::Batch, branded: true, ..Policy::default() };
    let policies = Policies::new([(kind(), branded)]);
    let mut user = with_route(Route::Digest);

    assert_eq!(user.route(&kind(), at(1), &policies), Route::Batch);
    assert_eq!(user.chosen_route(&kind(), &policies), Route::Batch);
    assert!(!user.gets_in_digest(&kind(), || at(1), &policies));
    // A link that stops all emails outside the digest stops this type too.
    user.apply_stop(&crate::domain::StopAction::OutsideDigest, &policies, at(2));
    assert_eq!(user.route(&kind(), at(3), &policies), Route::Never);
}

#[test]
fn the_api_shows_only_the_public_fields_of_a_user() {
    let chosen =
        TypePreference { route: Route::Batch, since: at(1), window: Some(TimeDelta::hours(1)) };
    let mute = Mute { at: at(1), until: None, title: None };
    // With all fields, so that a new one must be added here.
    let user = User {
        id: UserId::stored("ada"),
        email: Address::new("ada@example.org").ok(),
        name: Some("Ada".into()),
        confirmed: true,
        tz: Some(Tz::UTC),
        quiet: QuietHours::new("22:00".parse().unwrap(), "07:00".parse().unwrap()).ok(),
        locale: Some("de".into()),
        brand: Some(BrandName::stored("art")),
        loc: Point::new(2.5, 48.5).ok(),
        digest: DigestPreference {
            cadence: Some(Cadence::Weekly),
            weekday: Some(Weekday::Fri),
            hour: Some(7),
            since: Some(at(1)),
        },
        types: [(kind(), chosen)].into(),
        mutes: Mutes::stored([(Subject::stored("Thread:9"), mute)]),
        suppressed: Some(at(1)),
        unsubscribed: Some(at(1)),
        start: Some(RecordStart::new(at(1), Id::at(at(1), [0; 8]), None)),
        unreadable: vec![UnreadableField::for_whole_record("odd")],
        revision: Revision(7),
    };

    assert_eq!(
        serde_json::to_value(user).unwrap(),
        json!({
            "id": "ada", "email": "a…@example.org", "name": "Ada", "confirmed": true, "tz": "UTC",
            "quiet": {"from": "22:00", "to": "07:00"}, "locale": "de", "brand": "art",
            "loc": [2.5, 48.5], "digest": {"cadence": "weekly", "weekday": "fri", "hour": 7},
            "types": {"Work": {"route": "batch", "window": "1h"}},
            "suppressed": true, "unsubscribed": true,
        }),
        "the API shows each serialized field to holders of keys and tokens: put #[serde(skip)] on \
         a private one; add a public one here and to UserView in src/wire/openapi.json"
    );
}
