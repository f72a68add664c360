//! Compares the rule with an independent model in 100,000 random cases. Among several reasons, the
//! first in the order of the enum wins.

use chrono::TimeDelta;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use super::*;
use crate::domain::user::TypePreference;
use crate::domain::{EventType, Policy, Route, UserId};

const ROUTES: [Route; 4] = [Route::Never, Route::Immediate, Route::Batch, Route::Digest];

fn at(hour: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_398_124_800, 0).unwrap() + TimeDelta::hours(hour)
}

/// A random case with everything that the decision may depend on.
#[derive(Debug, Clone)]
struct Case {
    facts: EligibilityFacts,
    type_route: Route,
    is_mandatory: bool,
    has_feed: bool,
    /// The route that the user chose, and the time of the choice.
    chosen: Option<(Route, i64)>,
    digests_since: Option<i64>,
    has_record: bool,
    at: i64,
    purpose: Purpose,
}

fn cases() -> impl Strategy<Value = Case> {
    let route = || prop::sample::select(&ROUTES[..]);
    let object = prop::sample::select(vec![
        ObjectState::NotLoaded,
        ObjectState::Unknown,
        ObjectState::Withdrawn,
        ObjectState::Notifiable,
        ObjectState::Notifiable,
        ObjectState::Notifiable,
    ]);
    let rare = || prop::bool::weighted(0.15);
    let facts = (rare(), rare(), rare(), object, rare());
    let facts = facts.prop_map(|(before_start, retracted, muted, object, seen)| EligibilityFacts {
        before_start,
        retracted,
        muted,
        object,
        seen,
    });
    let scope = || prop::sample::select(vec![EmailScope::All, EmailScope::MandatoryOnly]);
    let purpose = prop_oneof![
        scope().prop_map(Purpose::Digest),
        scope().prop_map(Purpose::Batch),
        Just(Purpose::Email),
        Just(Purpose::Feed),
    ];
    let of_type = (route(), rare(), prop::bool::weighted(0.8));
    let of_user = (
        prop::option::of((route(), 0..10_i64)),
        prop::option::of(0..10_i64),
        prop::bool::weighted(0.8),
    );
    (facts, of_type, of_user, 0..10_i64, purpose).prop_map(
        |(facts, (type_route, is_mandatory, has_feed), of_user, at, purpose)| Case {
            facts,
            type_route,
            is_mandatory,
            has_feed,
            chosen: of_user.0,
            digests_since: of_user.1,
            has_record: of_user.2,
            at,
            purpose,
        },
    )
}

fn decide(case: &Case) -> Option<Exclusion> {
    let kind = EventType::stored("Work");
    let policy = Policy {
        route: case.type_route,
        mandatory: case.is_mandatory.then(Default::default),
        feed: case.has_feed,
        ..Policy::default()
    };
    let policies = Policies::new([(kind.clone(), policy)]);
    let mut user = User::new(UserId::stored("ada"));
    if let Some((route, since)) = case.chosen {
        let chosen = TypePreference::new(route, at(since));
        user.types.insert(kind.clone(), chosen);
    }
    user.digest.since = case.digests_since.map(at);
    let user = case.has_record.then_some(&user);
    classify(&kind, || at(case.at), case.facts, user, &policies, case.purpose)
}

/// Returns all reasons that exclude the event, each tested separately.
fn reasons(case: &Case) -> Vec<Exclusion> {
    let mut reasons = Vec::new();
    let mut add = |holds: bool, reason| reasons.extend(holds.then_some(reason));
    let is_feed = case.purpose == Purpose::Feed;
    let route = match case.chosen {
        Some((_, since)) if !case.is_mandatory && case.at < since => Route::Never,
        Some((route, _)) if !case.is_mandatory => route,
        _ => case.type_route,
    };
    let is_before_digests = case.digests_since.is_some_and(|since| case.at < since);
    let has_route = match case.purpose {
        Purpose::Digest(_) => route == Route::Digest && (case.is_mandatory || !is_before_digests),
        Purpose::Batch(_) => matches!(route, Route::Batch | Route::Immediate),
        Purpose::Email | Purpose::Feed => true,
    };
    let is_limited = matches!(
        case.purpose,
        Purpose::Digest(EmailScope::MandatoryOnly) | Purpose::Batch(EmailScope::MandatoryOnly)
    );
    add(case.facts.before_start, Exclusion::BeforeStart);
    add(case.facts.retracted, Exclusion::Retracted);
    add(is_feed && !case.has_feed, Exclusion::NotInFeed);
    let is_muted = case.facts.muted && !case.is_mandatory;
    add(!is_feed && is_muted, Exclusion::Muted);
    add(case.facts.object == ObjectState::Unknown, Exclusion::UnknownObject);
    add(case.facts.object == ObjectState::Withdrawn, Exclusion::Withdrawn);
    add(case.has_record && !has_route, Exclusion::OtherRoute);
    let skips_seen = matches!(case.purpose, Purpose::Digest(_) | Purpose::Email);
    add(skips_seen && case.facts.seen, Exclusion::Seen);
    add(is_limited && !case.is_mandatory, Exclusion::NotMandatory);
    reasons
}

#[test]
fn the_rule_agrees_with_an_independent_model() {
    let config = Config {
        cases: 100_000,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(32),
        ..Config::default()
    };
    let decided = TestRunner::new(config).run(&cases(), |case| {
        let first = reasons(&case).into_iter().min();
        prop_assert_eq!(decide(&case), first);
        Ok(())
    });
    decided.unwrap();
}

#[test]
fn a_fact_that_is_not_loaded_excludes_nothing() {
    let case = Case {
        facts: EligibilityFacts::default(),
        type_route: Route::Digest,
        is_mandatory: false,
        has_feed: true,
        chosen: None,
        digests_since: None,
        has_record: true,
        at: 0,
        purpose: Purpose::Digest(EmailScope::All),
    };

    assert_eq!(decide(&case), None);
}
