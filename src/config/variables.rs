//! The environment: which variable sets which option.
//!
//! The rule: a variable with our prefix that sets nothing is refused, as it was meant to set
//! something; but those that others put there are none of ours.

use toml::Value;

use super::layers::defaults;
use super::problem::Problem;
use crate::domain::nearest;

const PREFIX: &str = "TIDINGS_";

/// Variables that share the prefix but are no options.
const OTHERS: [&str; 7] = [
    "TIDINGS_CONFIG",
    "TIDINGS_LOG",
    "TIDINGS_CACHE",
    "TIDINGS_CRASH",
    "TIDINGS_STOP",
    "TIDINGS_SLOW_COMMITS",
    "TIDINGS_PORT",
];

/// The same of all that begin so. Kubernetes tells each container of a namespace where a service of
/// our name is: `TIDINGS_SERVICE_HOST`, `TIDINGS_PORT_8080_TCP_ADDR`, and more of these.
const OTHERS_BEGIN: [&str; 5] = [
    "TIDINGS_TEST_",
    "TIDINGS_MONGO_",
    "TIDINGS_BENCH_",
    "TIDINGS_SERVICE_",
    "TIDINGS_PORT_",
];

/// All options that a variable can set.
fn options() -> impl Iterator<Item = String> {
    defaults().into_iter().flat_map(|(key, value)| match value {
        Value::Table(table) => table
            .into_iter()
            .map(|(inner, _)| format!("{key}.{inner}"))
            .collect(),
        _ => vec![key],
    })
}

fn variable_of(option: &str) -> String {
    format!("{PREFIX}{}", option.to_uppercase().replace('.', "_"))
}

/// The option a variable sets: `TIDINGS_DIGEST_HOUR` is `digest.hour`.
pub(super) fn option_of(name: &str) -> Option<String> {
    // Most variables are others', and to list the options takes time.
    if is_for_others(name) {
        return None;
    }
    options().find(|option| variable_of(option) == name)
}

/// Whether it is none of ours, or is no option.
pub(super) fn is_for_others(name: &str) -> bool {
    !name.starts_with(PREFIX)
        || OTHERS.contains(&name)
        || OTHERS_BEGIN.iter().any(|begin| name.starts_with(begin))
}

/// What is wrong with one that sets nothing.
pub(super) fn unknown(name: &str) -> Problem {
    let variables: Vec<String> = options().map(|option| variable_of(&option)).collect();
    let meant = nearest(name, variables.iter().map(String::as_str));
    let what = match meant {
        Some(meant) => format!("no option has this environment variable; did you mean {meant}?"),
        None => "no option has this environment variable; `tidings config --defaults` lists all \
                 options"
            .to_owned(),
    };
    Problem {
        option: name.to_owned(),
        what,
    }
}
