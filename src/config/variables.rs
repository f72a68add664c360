//! Maps environment variables to options.
//!
//! A variable with our prefix that sets no option is an error, because it is probably a typo.
//! Variables of other programs are ignored.

use toml::Value;

use super::layers::defaults;
use super::problem::Problem;
use crate::domain::nearest;

const PREFIX: &str = "TIDINGS_";

/// Variables with the prefix that are not options.
const OTHERS: [&str; 7] = [
    "TIDINGS_CONFIG",
    "TIDINGS_LOG",
    "TIDINGS_CACHE",
    "TIDINGS_CRASH",
    "TIDINGS_STOP",
    "TIDINGS_SLOW_COMMITS",
    "TIDINGS_PORT",
];

/// Prefixes of further variables that are not options. Kubernetes describes a service called
/// `tidings` to each container of the namespace: `TIDINGS_SERVICE_HOST`,
/// `TIDINGS_PORT_8080_TCP_ADDR` and others.
const OTHERS_BEGIN: [&str; 5] = [
    "TIDINGS_TEST_",
    "TIDINGS_MONGO_",
    "TIDINGS_BENCH_",
    "TIDINGS_SERVICE_",
    "TIDINGS_PORT_",
];

/// Returns all options that a variable can set.
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

/// Returns the option that a variable sets: `digest.hour` for `TIDINGS_DIGEST_HOUR`.
pub(super) fn option_of(name: &str) -> Option<String> {
    // Most variables belong to other programs, and listing the options is slow.
    if is_for_others(name) {
        return None;
    }
    options().find(|option| variable_of(option) == name)
}

/// Returns whether a variable lacks our prefix, or is known not to be an option.
pub(super) fn is_for_others(name: &str) -> bool {
    !name.starts_with(PREFIX)
        || OTHERS.contains(&name)
        || OTHERS_BEGIN.iter().any(|begin| name.starts_with(begin))
}

/// Returns the problem of a variable that sets no option.
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
