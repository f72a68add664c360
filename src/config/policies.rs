//! Reads the policies of event types, `[types.NAME]`, and batch policies.
//!
//! `window`, `cooldown` and `max_wait` are inherited from `[batch]` together or not at all, so that
//! a policy can be read in one place. The other batch options are inherited one by one. Start with
//! [`read_types`].

use std::num::NonZeroU64;

use chrono::TimeDelta;
use toml::{Table, Value};

use super::reader::{ConfigProblems, ConfigWarning, TableReader};
use super::sources::{DEFAULT_TABLE, overlay, read_table};
use crate::domain::batch::{BatchPolicy, ChosenKey};
use crate::domain::{EventType, Mandate, ModelName, Policies, Policy, Route};

/// The batch options that are inherited together.
const TIME_OPTIONS: [&str; 3] = ["window", "cooldown", "max_wait"];
/// The batch options that are inherited one by one.
const SINGLE_OPTIONS: [&str; 3] = ["close_at", "keep", "leading"];

/// Reads the policies of event types. Batch options that a type omits come from `standard`.
pub(super) fn read_types(r: &mut TableReader<'_>, standard: &BatchPolicy) -> Policies {
    let types: Vec<(EventType, Policy)> =
        r.each("types", |r, _: &EventType, path| policy(r, path, standard));
    for (index, (name, policy)) in types.iter().enumerate() {
        // One warning per type is enough: the first difference.
        let differs = |other: &Policy| {
            other.batch_key.is_some()
                && other.batch_key == policy.batch_key
                && other.batch != policy.batch
        };
        if let Some((other, _)) = types[..index].iter().find(|(_, other)| differs(other)) {
            r.warn(
                &format!("types.{name}.batch_key"),
                format!("is also that of types.{other}, whose batches gather otherwise: the event that joined last determines when both close"),
                "give both the same window, cooldown, max_wait, close_at, keep and leading",
            );
        }
    }
    Policies::new(types).with_batches(*standard)
}

fn policy(r: &mut TableReader<'_>, path: &str, batch: &BatchPolicy) -> Policy {
    let standard = Policy::default();
    let option = |name: &str| format!("{path}.{name}");
    let routes = "never, immediate, batch or digest";
    let phrase = "a phrase such as \"commented on\": one line of 1 to 60 characters";
    let category = "a name such as \"Community\": one line of 1 to 60 characters";
    let policy = Policy {
        route: r.parse_non_empty(&option("route"), routes).unwrap_or(standard.route),
        model: r.parse_non_empty_with(&option("model"), "the name of a model", |text| {
            let name = ModelName::new(text).ok();
            name.filter(|name| !name.as_str().contains(':'))
        }),
        unknown_objects: r
            .parse_non_empty(&option("unknown_objects"), "skip or mail")
            .unwrap_or(standard.unknown_objects),
        heading: r.non_empty(&option("heading")),
        phrase: r.parse_non_empty(&option("phrase"), phrase),
        batch: read_batch(r, path, batch),
        batch_key: batch_key(r, path),
        category: r.parse_non_empty(&option("category"), category),
        mandatory: mandate(r, &option("mandatory")),
        feed: r.if_set(&option("feed"), TableReader::flag).unwrap_or(standard.feed),
        branded: r.if_set(&option("branded"), TableReader::flag).unwrap_or(standard.branded),
    };
    if policy.branded && policy.route == Route::Digest {
        r.add_problem(
            &option("branded"),
            "needs another route than digest, as a digest has one brand: set route = \"batch\", \"immediate\" or \"never\"",
        );
    }
    if policy.route == Route::Never && !policy.feed {
        r.warn(
            &option("feed"),
            "is false, and the route is never: no user is notified of its events",
            "set another route, or feed = true",
        );
    }
    if policy.route == Route::Batch && policy.batch.is_immediate() {
        r.warn(
            &option("route"),
            "is batch, but neither window nor cooldown is longer than 0s: nothing is gathered",
            "set one of them, or route = \"immediate\"",
        );
    }
    policy
}

/// Reads the reason as text, or `true` for the general reason. `false` means not mandatory.
fn mandate(r: &mut TableReader<'_>, option: &str) -> Option<Mandate> {
    if let Some(Value::Boolean(flag)) = r.value(option) {
        return flag.then(Mandate::default);
    }
    let wanted = "true, false, or the reason that people read: one line of 1 to 120 characters";
    let parse = |text: &str| match text {
        "true" => Some(Some(Mandate::default())),
        "false" => Some(None),
        reason => reason.parse().ok().map(Some),
    };
    r.parse_non_empty_with(option, wanted, parse).flatten()
}

/// Reads the section `[batch]`.
pub(super) fn standard_batch(r: &mut TableReader<'_>) -> BatchPolicy {
    read_batch(r, "batch", &BatchPolicy::IMMEDIATE)
}

/// Reads the batch options at this path over `standard`. Adds a warning for each combination that
/// is probably a mistake.
fn read_batch(r: &mut TableReader<'_>, path: &str, standard: &BatchPolicy) -> BatchPolicy {
    let month = TimeDelta::days(30);
    let option = |name: &str| format!("{path}.{name}");
    // All of them are marked as known, also after the first that is set.
    let mut has_any = |names: [&str; 3]| names.map(|name| r.is_set(&option(name))).contains(&true);
    let (has_times, has_single_options) = (has_any(TIME_OPTIONS), has_any(SINGLE_OPTIONS));
    if !has_times && !has_single_options {
        return *standard;
    }
    let mut policy = *standard;
    if has_times {
        let mut duration = |name: &str| {
            r.if_set(&option(name), |r, option| r.duration(option, TimeDelta::zero()..=month))
                .unwrap_or_default()
        };
        (policy.window, policy.cooldown) = (duration("window"), duration("cooldown"));
        let max_wait = r.if_set(&option("max_wait"), |r, option| {
            let is_none = r.value(option).and_then(Value::as_str) == Some("none");
            (!is_none).then(|| r.duration(option, TimeDelta::seconds(1)..=month))
        });
        policy.max_wait = max_wait.flatten();
    }
    if let Some(count) = r.if_set(&option("close_at"), |r, option| r.number(option, 0..=1_000_000))
    {
        policy.close_at = NonZeroU64::new(count);
    }
    let wanted = "first or last and a number from 1 to 100, such as \"last 10\"";
    policy.keep = r.parse_non_empty(&option("keep"), wanted).unwrap_or(policy.keep);
    policy.leading = r.if_set(&option("leading"), TableReader::flag).unwrap_or(policy.leading);
    for (name, doubt, advice) in policy.likely_mistakes() {
        // An inherited option is not at this path, and an invalid one is a problem already.
        r.warn(&option(name), doubt, advice);
    }
    policy
}

/// Reads the batch key of a type: the key of events that have none of their own.
fn batch_key(r: &mut TableReader<'_>, path: &str) -> Option<ChosenKey> {
    let wanted = "a batch key: 1 to 256 bytes without control characters";
    r.parse_non_empty(&format!("{path}.batch_key"), wanted)
}

/// A named policy to compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandidatePolicy {
    /// `NAME` of its table `[policies.NAME]`.
    pub name: String,
    /// The policy. Options that the table omits come from `[batch]`.
    pub policy: BatchPolicy,
    /// The key of events that have none of their own.
    pub key: Option<ChosenKey>,
}

/// Policies to compare, in the order of their file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandidatePolicies {
    /// At least one.
    pub policies: Vec<CandidatePolicy>,
    /// Valid settings that are probably a mistake.
    pub warnings: Vec<ConfigWarning>,
}

impl CandidatePolicies {
    /// Reads a file of tables `[policies.NAME]`, with defaults in `[batch]`.
    ///
    /// # Errors
    ///
    /// Returns all problems of the file.
    pub fn load(file: &std::path::Path) -> Result<Self, ConfigProblems> {
        Self::check(read_table(file).map_err(|problem| ConfigProblems(vec![problem]))?)
    }

    pub(super) fn check(file: Table) -> Result<Self, ConfigProblems> {
        let mut merged = DEFAULT_TABLE.clone();
        merged.retain(|section, _| section == "batch");
        overlay(&mut merged, file);
        let mut r = TableReader::new(&merged, &DEFAULT_TABLE, Vec::new());
        let standard = standard_batch(&mut r);
        let named_policies = r.each("policies", |r, name: &String, path| CandidatePolicy {
            name: name.clone(),
            policy: read_batch(r, path, &standard),
            key: batch_key(r, path),
        });
        let policies: Vec<_> = named_policies.into_iter().map(|(_, policy)| policy).collect();
        if policies.is_empty() {
            r.add_problem("policies", "has no policy; write one as [policies.NAME]");
        }
        r.finish().map(|warnings| Self { policies, warnings })
    }
}
