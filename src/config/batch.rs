//! Reads batch policies: `[batch]`, and the overrides of event types and named policies.
//!
//! `window`, `cooldown` and `max_wait` are inherited together or not at all, so that a policy can
//! be read in one place. The other options are inherited one by one. Start with [`read`].

use std::num::NonZeroU64;

use chrono::TimeDelta;
use toml::Table;

use super::layers::{defaults, overlay, read_table};
use super::problem::{Problems, Warning};
use super::reader::Reader;
use crate::domain::batch::{BatchPolicy, ChosenKey, Keep};

/// The options that are inherited together.
const TIMES: [&str; 3] = ["window", "cooldown", "max_wait"];
/// The options that are inherited one by one.
const REST: [&str; 3] = ["close_at", "keep", "leading"];

/// Returns whether any batch option is set at this path.
fn says_anything(r: &Reader<'_>, path: &str) -> bool {
    let mut options = TIMES.iter().chain(&REST);
    options.any(|option| r.is_set(&format!("{path}.{option}")))
}

pub(super) fn standard(r: &mut Reader<'_>) -> BatchPolicy {
    read(r, "batch", &BatchPolicy::IMMEDIATE)
}

/// Reads the options at this path over `standard`. Adds a warning for each combination that is
/// probably a mistake.
pub(super) fn read(r: &mut Reader<'_>, path: &str, standard: &BatchPolicy) -> BatchPolicy {
    for option in TIMES.iter().chain(&REST) {
        r.knows(format!("{path}.{option}"));
    }
    if !says_anything(r, path) {
        return *standard;
    }
    let policy = over(r, path, standard);
    for doubt in policy.doubts() {
        // An inherited option is not at this path, and an invalid one is a problem already.
        r.warn(&format!("{path}.{}", doubt.option), doubt.why, doubt.advice);
    }
    policy
}

fn over(r: &mut Reader<'_>, path: &str, standard: &BatchPolicy) -> BatchPolicy {
    let month = TimeDelta::days(30);
    let option = |name: &str| format!("{path}.{name}");
    let mut policy = *standard;
    if TIMES.iter().any(|name| r.is_set(&option(name))) {
        let mut time = |name: &str| match r.is_set(&option(name)) {
            true => r.duration(&option(name), TimeDelta::zero()..=month),
            false => TimeDelta::zero(),
        };
        (policy.window, policy.cooldown) = (time("window"), time("cooldown"));
        policy.max_wait = max_wait(r, &option("max_wait"), month);
    }
    if r.is_set(&option("close_at")) {
        policy.close_at = NonZeroU64::new(r.number(&option("close_at"), 0..=1_000_000) as u64);
    }
    let wanted = "first or last and a number from 1 to 100, such as \"last 10\"";
    let keep = r.optional_parse(&option("keep"), wanted, |text| text.parse::<Keep>().ok());
    policy.keep = keep.unwrap_or(policy.keep);
    if r.is_set(&option("leading")) {
        policy.leading = r.flag(&option("leading"));
    }
    policy
}

/// The value of `max_wait` for no limit.
const NO_LONGEST: &str = "none";

fn max_wait(r: &mut Reader<'_>, option: &str, month: TimeDelta) -> Option<TimeDelta> {
    if !r.is_set(option) || r.is_text(option, NO_LONGEST) {
        return None;
    }
    Some(r.duration(option, TimeDelta::seconds(1)..=month))
}

/// Reads the batch key of a type: the key of events that have none of their own.
pub(super) fn key(r: &mut Reader<'_>, path: &str) -> Option<ChosenKey> {
    let (option, former) = (format!("{path}.batch_key"), format!("{path}.key"));
    let wanted = "a batch key: 1 to 256 bytes without control characters";
    let mut read = |option: &str| r.optional_parse(option, wanted, |text| text.parse().ok());
    let (key, of_before) = (read(&option), read(&former));
    match (key, of_before) {
        (Some(_), Some(_)) => {
            r.problem(
                &former,
                "is the former name of batch_key, which is there too",
            );
            None
        }
        (None, Some(key)) => {
            r.warn(&former, "is called batch_key now", "rename it");
            Some(key)
        }
        (key, None) => key,
    }
}

/// A named policy to compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// `NAME` of its table `[policies.NAME]`.
    pub name: String,
    /// The policy. Options that the table omits come from `[batch]`.
    pub policy: BatchPolicy,
    /// The key of events that have none of their own.
    pub key: Option<ChosenKey>,
}

/// Policies to compare, in the order of their file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidates {
    /// At least one.
    pub policies: Vec<Candidate>,
    /// Valid settings that are probably a mistake.
    pub warnings: Vec<Warning>,
}

impl Candidates {
    /// Reads a file of tables `[policies.NAME]`, with defaults in `[batch]`.
    ///
    /// # Errors
    ///
    /// Returns all problems of the file.
    pub fn load(file: &std::path::Path) -> Result<Self, Problems> {
        Self::check(read_table(file).map_err(|problem| Problems(vec![problem]))?)
    }

    pub(super) fn check(file: Table) -> Result<Self, Problems> {
        let mut merged = defaults();
        merged.retain(|section, _| section == "batch");
        overlay(&mut merged, file);
        let mut r = Reader::new(&merged, Vec::new());
        let standard = standard(&mut r);
        let policies = r.each("policies", |r, name, path| {
            let (policy, key) = (read(r, path, &standard), key(r, path));
            let name = name.to_owned();
            Some(Candidate { name, policy, key })
        });
        if policies.is_empty() {
            r.problem("policies", "has no policy; write one as [policies.NAME]");
        }
        r.finish().map(|warnings| Self { policies, warnings })
    }
}
