//! Merges the sources of the configuration: the defaults, files, environment variables and flags.
//!
//! Paths in a file, and the defaults, are relative to the folder of that file. Commands therefore
//! do not depend on the current folder. Paths in variables and flags are relative to the current
//! folder. A variable with our prefix that sets no option is an error, because it is probably a
//! typo.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use toml::{Table, Value};

use super::reader::{ConfigProblem, get};
use super::redact;
use crate::domain::{Address, most_similar};

/// The location of all data.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// A SQLite file. A relative path refers to the current folder.
    Sqlite(PathBuf),
    /// A MongoDB connection string. It may contain a password.
    Mongo(String),
}

impl StoreUrl {
    /// Parses `sqlite:PATH`, `mongodb://…` or `mongodb+srv://…`.
    pub fn parse(text: &str) -> Option<Self> {
        if text.trim() != text || text.contains(char::is_control) {
            return None;
        }
        if text.starts_with("mongodb://") || text.starts_with("mongodb+srv://") {
            return Some(Self::Mongo(text.to_owned()));
        }
        text.strip_prefix("sqlite:")
            // Reject a URL after `sqlite:`, because it may contain a password.
            .filter(|path| !path.is_empty() && !path.starts_with("//"))
            .filter(|path| !path.contains("://") && !path.starts_with("mongodb:"))
            .map(|path| Self::Sqlite(path.into()))
    }
}

impl fmt::Debug for StoreUrl {
    /// Writes the URL without its secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Mongo(url) => f.write_str(&redact::redact_url(url)),
        }
    }
}

/// All options, with documentation and default values.
pub const DEFAULTS: &str = include_str!("../config.default.toml");

/// The default values.
pub(super) static DEFAULT_TABLE: LazyLock<Table> = LazyLock::new(|| {
    let defaults = DEFAULTS.parse();
    defaults.expect("the defaults are TOML; a test reads them")
});

pub(super) const PREFIX: &str = "TIDINGS_";

/// Variables with the prefix that are not options.
const OTHER_VARIABLES: [&str; 7] = [
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
const OTHER_PREFIXES: [&str; 6] = [
    "TIDINGS_BUILD_",
    "TIDINGS_TEST_",
    "TIDINGS_MONGO_",
    "TIDINGS_BENCH_",
    "TIDINGS_SERVICE_",
    "TIDINGS_PORT_",
];

pub(super) fn read_table(file: &Path) -> Result<Table, ConfigProblem> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| ConfigProblem {
        option: name.clone(),
        what: format!("cannot be read: {error}"),
    })?;
    text.parse().map_err(|error| syntax_problem(&name, &text, &error))
}

/// Returns a syntax error with its position, but without the line, which may contain a secret.
pub(super) fn syntax_problem(name: &str, text: &str, error: &toml::de::Error) -> ConfigProblem {
    let position = error.span().map_or(String::new(), |span| {
        let before = text.get(..span.start).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let line_start = before.rsplit('\n').next().unwrap_or_default();
        format!(" at line {line}, column {}", line_start.chars().count() + 1)
    });
    let reason = error.message().lines().collect::<Vec<_>>().join("; ");
    ConfigProblem { option: name.to_owned(), what: format!("is not TOML{position}: {reason}") }
}

/// Merges `overrides` into `base`: tables are merged, values replaced.
pub(super) fn overlay(base: &mut Table, overrides: Table) {
    for (key, value) in overrides {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(base)), Value::Table(overrides)) => overlay(base, overrides),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// Sets an option from text. It becomes a number if the option's default is one.
pub(super) fn set_option(table: &mut Table, option: &str, text: &str) {
    let value = match (get(&DEFAULT_TABLE, option), text.parse()) {
        (Some(Value::Integer(_)), Ok(number)) => Value::Integer(number),
        _ => Value::String(text.to_owned()),
    };
    let Some((section, key)) = option.split_once('.') else {
        table.insert(option.to_owned(), value);
        return;
    };
    let new_table = || Value::Table(Table::new());
    if let Value::Table(section) = table.entry(section).or_insert_with(new_table) {
        section.insert(key.to_owned(), value);
    }
}

/// Returns all options that a variable can set.
fn options() -> impl Iterator<Item = String> {
    DEFAULT_TABLE.iter().flat_map(|(key, value)| match value {
        Value::Table(table) => table.keys().map(|inner| format!("{key}.{inner}")).collect(),
        _ => vec![key.clone()],
    })
}

fn variable_of(prefix: &str, option: &str) -> String {
    format!("{prefix}{}", option.to_uppercase().replace('.', "_"))
}

/// Returns the option that a variable with this prefix sets: `digest.hour` for
/// `TIDINGS_DIGEST_HOUR`.
pub(super) fn option_of_variable(prefix: &str, name: &str) -> Option<String> {
    // Most variables belong to other programs, and listing the options is slow.
    if is_other_variable(name) || !name.starts_with(prefix) {
        return None;
    }
    options().find(|option| variable_of(prefix, option) == name)
}

/// Returns whether a variable lacks our prefix, or is known not to be an option.
pub(super) fn is_other_variable(name: &str) -> bool {
    !name.starts_with(PREFIX)
        || OTHER_VARIABLES.contains(&name)
        || OTHER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns the problem of a variable that sets no option.
pub(super) fn unknown_variable(name: &str) -> ConfigProblem {
    let variables: Vec<String> = options().map(|option| variable_of(PREFIX, &option)).collect();
    let advice = match most_similar(name, variables.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean {meant}?"),
        None => "`tidings config --defaults` lists all options".to_owned(),
    };
    ConfigProblem {
        option: name.to_owned(),
        what: format!("no option has this environment variable; {advice}"),
    }
}

/// Calls `change` for each text in the table, with its option. A brand's options have the names of
/// the default ones.
pub(super) fn for_each_text(table: &mut Table, change: &mut dyn FnMut(&str, &mut String)) {
    fn visit(path: &str, value: &mut Value, change: &mut dyn FnMut(&str, &mut String)) {
        match value {
            Value::String(text) => change(path, text),
            Value::Array(values) => values.iter_mut().for_each(|value| visit(path, value, change)),
            Value::Table(table) => {
                for (name, value) in table.iter_mut() {
                    match (path, &mut *value) {
                        ("brands", Value::Table(brand)) => for_each_text(brand, change),
                        _ => visit(&format!("{path}.{name}"), value, change),
                    }
                }
            }
            _ => {}
        }
    }
    for (name, value) in table.iter_mut() {
        visit(name, value, change);
    }
}

/// Resolves the relative paths of this table against a folder.
pub(super) fn resolve_paths(table: &mut Table, folder: &Path) {
    for_each_text(table, &mut |option, text| match option {
        "store" => {
            if let Some(StoreUrl::Sqlite(path)) = StoreUrl::parse(text) {
                *text = format!("sqlite:{}", folder.join(path).display());
            }
        }
        _ if is_path(option) && !text.is_empty() => {
            *text = folder.join(&*text).display().to_string();
        }
        _ => {}
    });
}

fn is_path(option: &str) -> bool {
    let section = option.split('.').next().unwrap_or_default();
    let may_have_file = ["server", "tokens", "mail", "hooks"].contains(&section);
    ["mail.outbox", "mail.templates"].contains(&option)
        || (may_have_file && option.ends_with("_file"))
}

/// Returns whether a file with these options must not be readable by other users.
pub(super) fn has_secrets(file: &Table) -> bool {
    let mut has_secret = false;
    for_each_text(&mut file.clone(), &mut |option, text| {
        has_secret |= match option {
            "store" => redact::has_secret(text),
            _ => redact::is_secret(option) && !text.is_empty(),
        };
    });
    has_secret
}

/// Returns the table as TOML. Redacts secrets, addresses, and the secrets in URLs.
pub(super) fn redact_table(mut table: Table) -> String {
    for_each_text(&mut table, &mut |option, text| match option {
        "store" => {
            if let Some(url) = StoreUrl::parse(text) {
                *text = format!("{url:?}");
            }
        }
        "mail.url" => *text = redact::redact_url(text),
        "mail.from" | "mail.reply_to" => {
            if let Ok(address) = Address::new(&**text) {
                *text = address.to_string();
            }
        }
        // They are not secret. Problems hide them, because a secret may be set there by mistake.
        "hooks.sendgrid_public_key" | "hooks.postmark_user" => {}
        _ if redact::is_secret(option) && !text.is_empty() => *text = redact::HIDDEN.to_owned(),
        _ => {}
    });
    table.to_string()
}
