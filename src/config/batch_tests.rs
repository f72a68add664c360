//! Tests of batch policies: inheritance, errors and warnings.

use super::*;
use crate::domain::EventType;
use crate::domain::batch::{BatchPolicy, Keep};

fn batch(text: &str, kind: &str) -> BatchPolicy {
    let config = Config::parse(text).unwrap();
    config.policies.policy(&EventType::new(kind).unwrap()).batch
}

fn warnings(text: &str) -> Vec<String> {
    let config = Config::parse(text).unwrap();
    config.warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_type_without_batch_options_inherits_the_batch_section() {
    let standard = BatchPolicy { window: TimeDelta::minutes(5), ..BatchPolicy::IMMEDIATE };

    assert_eq!(batch("", "Unknown"), standard);
    assert_eq!(batch("[types.Comment]\nroute = \"batch\"", "Comment"), standard);
    let hour = "[batch]\nwindow = \"1h\"\nkeep = \"first 3\"\n[types.Comment]\nclose_at = 7";
    for (kind, full) in [("Unknown", None), ("Comment", std::num::NonZeroU64::new(7))] {
        let policy = batch(hour, kind);
        assert_eq!((policy.window, policy.keep), (TimeDelta::hours(1), Keep::First(3)));
        assert_eq!(policy.close_at, full);
    }
    assert!(warnings(hour).is_empty());
}

#[test]
fn setting_one_duration_of_a_type_resets_the_other_two() {
    let text = "batch.leading = true\n[types.Comment]\ncooldown = \"4m\"\nmax_wait = \"15m\"";

    let policy = batch(text, "Comment");

    let (minute, expected) = (TimeDelta::minutes(1), (TimeDelta::zero(), true));
    assert_eq!((policy.window, policy.leading), expected);
    assert_eq!((policy.cooldown, policy.max_wait), (minute * 4, Some(minute * 15)));
    let none = batch("[types.Comment]\nwindow = \"1m\"\nmax_wait = \"none\"", "Comment");
    assert_eq!(none.max_wait, None);
}

#[test]
fn all_problems_of_batch_options_are_reported_at_once() {
    let text = r#"
        [batch]
        window = "5"
        leading = "maybe"
        [types.Comment]
        cooldown = "31d"
        max_wait = "0s"
        close_at = -1
        keep = "newest 10"
        batch_key = ""
        windows = "5m"
        [types.Like]
        keep = "last 101"
        batch_key = "a\tb"
        leading = 1
    "#;

    let problems = Config::parse(text).unwrap_err().to_string();

    for expected in [
        "batch.window: \"5\" is not a duration such as 90s, 5m, 2h or 30d, from 0ms to 30d",
        "batch.leading: \"maybe\" is not true or false",
        "types.Comment.cooldown: \"31d\" is longer than 30d",
        "types.Comment.max_wait: \"0s\" is shorter than 1s",
        "types.Comment.close_at: -1 is not a whole number from 0 to 1000000",
        "types.Comment.keep: \"newest 10\" is not first or last and a number from 1 to 100",
        "types.Comment.windows: is not an option",
        "types.Like.keep: \"last 101\" is not",
        "types.Like.batch_key: \"a\\tb\" is not a batch key",
        "types.Like.leading: 1 is not true or false",
    ] {
        assert!(problems.contains(expected), "{expected} in {problems}");
    }
}

#[test]
fn questionable_batch_options_cause_warnings_with_advice() {
    let text = r#"
        [types.Comment]
        route = "batch"
        cooldown = "4m"
        [types.Like]
        window = "1h"
        max_wait = "15m"
        [types."Odd.One"]
        window = "0s"
        route = "batch"
        [types.Reply]
        batch_key = "talk"
        window = "2m"
        [types.Mention]
        batch_key = "talk"
    "#;

    assert_eq!(
        warnings(text),
        [
            "types.Comment.cooldown has no max_wait beside it: while events keep coming within it, no email is sent; set max_wait",
            "types.Like.window is longer than max_wait, which always ends the batch before; make it at most max_wait",
            "types.Odd.One.route is batch, but neither window nor cooldown is longer than 0s: nothing is gathered; \
             set one of them, or route = \"immediate\"",
            "types.Mention.batch_key is also that of types.Reply, whose batches gather otherwise: the event that joined last determines \
             when both close; give both the same window, cooldown, max_wait, close_at, keep and leading",
        ]
    );
    assert!(Config::with_defaults().warnings.is_empty());
}

#[test]
fn environment_variables_set_batch_options() {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let config = Config::load(&Sources {
        environment: vec![
            pair("TIDINGS_BATCH_LEADING", "true"),
            pair("TIDINGS_BATCH_CLOSE_AT", "9"),
            pair("TIDINGS_BATCH_MAX_WAIT", "1h"),
        ],
        ..Sources::default()
    })
    .unwrap();

    let policy = config.policies.policy(&EventType::new("Any").unwrap()).batch;
    assert_eq!((policy.leading, policy.max_wait), (true, Some(TimeDelta::hours(1))));
    assert_eq!(policy.close_at.unwrap().get(), 9);
}

#[test]
fn candidate_policies_keep_the_file_order_and_inherit_its_defaults() {
    let text = r#"
        batch.keep = "first 2"
        [policies."5 minutes"]
        window = "5m"
        [policies.cool-down]
        cooldown = "4m"
        batch_key = "all"
    "#;

    let candidates = CandidatePolicies::check(text.parse().unwrap()).unwrap();

    let names: Vec<&str> = candidates.policies.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["5 minutes", "cool-down"]);
    assert_eq!(candidates.policies[0].policy.keep, Keep::First(2));
    assert_eq!(candidates.policies[1].policy.window, TimeDelta::zero());
    assert_eq!(candidates.policies[1].key.as_ref().unwrap().as_str(), "all");
    assert_eq!(candidates.warnings.len(), 1);
}

#[test]
fn missing_or_invalid_candidate_policies_are_rejected_with_all_problems() {
    let problems =
        |text: &str| CandidatePolicies::check(text.parse().unwrap()).unwrap_err().to_string();

    assert!(problems("").contains("policies: has no policy; write one as [policies.NAME]"));
    let wrong =
        problems("store = \"sqlite:x\"\n[policies.a]\nwindow = \"long\"\nroute = \"batch\"");
    for expected in ["store: is not an option", "policies.a.window: \"long\"", "policies.a.route"] {
        assert!(wrong.contains(expected), "{expected} in {wrong}");
    }
}
