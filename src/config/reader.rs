//! Reads options from a merged table, and collects all problems instead of stopping at the first.
//!
//! Options that no code read are unknown, and unknown options are errors. Start with [`TableReader`].

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use chrono::TimeDelta;
use toml::{Table, Value};

use super::redact;
use crate::domain::text_checks::{check_link, is_unseen};
use crate::domain::{Address, durations, nearest};

/// An invalid option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The path, such as `digest.hour`, or the name of an invalid file or variable.
    pub option: String,
    /// The problem, as a clause that follows the option.
    pub what: String,
}

/// A valid setting that is probably a mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The path, such as `batch.cooldown`.
    pub option: String,
    /// The doubt, as a clause that follows the option.
    pub what: String,
    /// What to do about it.
    pub advice: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}; {}", self.option, self.what, self.advice)
    }
}

/// All problems of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<ConfigProblem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => f.write_str("the configuration has a problem:")?,
            many => write!(f, "the configuration has {many} problems:")?,
        }
        for ConfigProblem { option, what } in &self.0 {
            write!(f, "\n  {option}: {what}")?;
        }
        Ok(())
    }
}

/// Replaces a dot inside a name, because dots separate the parts of a path.
const DOT: &str = "\u{2}";

/// A reader of one table. For an invalid value it adds a problem and returns the default or another
/// placeholder, which never leaves [`super::Config::check`].
pub(super) struct TableReader<'a> {
    table: &'a Table,
    defaults: &'a Table,
    /// The options that were read.
    read: BTreeSet<String>,
    /// The options that are read only if they are set.
    optional: BTreeSet<String>,
    problems: Vec<ConfigProblem>,
    warnings: Vec<Warning>,
    /// Files with nothing but a secret.
    pub(super) secret_files: Vec<PathBuf>,
}

impl<'a> TableReader<'a> {
    pub(super) fn new(table: &'a Table, defaults: &'a Table, problems: Vec<ConfigProblem>) -> Self {
        Self {
            table,
            defaults,
            read: BTreeSet::new(),
            optional: BTreeSet::new(),
            problems,
            warnings: Vec::new(),
            secret_files: Vec::new(),
        }
    }

    /// Adds a problem of an option.
    pub(super) fn problem(&mut self, option: &str, what: impl Into<String>) {
        self.problems.push(ConfigProblem { option: option.replace(DOT, "."), what: what.into() });
    }

    /// Returns whether this option has a problem, so that consequences are not reported as well.
    pub(super) fn is_wrong(&self, option: &str) -> bool {
        let option = option.replace(DOT, ".");
        self.problems.iter().any(|known| known.option == option)
    }

    /// Adds a warning for a valid setting that is probably a mistake.
    pub(super) fn warn(
        &mut self,
        option: &str,
        what: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.warnings.push(Warning {
            option: option.replace(DOT, "."),
            what: what.into(),
            advice: advice.into(),
        });
    }

    /// Returns the warnings, or all problems including unknown options.
    pub(super) fn finish(mut self) -> Result<Vec<Warning>, Problems> {
        let mut unknown = Vec::new();
        collect_unread(self.table, "", &self.read, &mut unknown);
        let known = self.read.union(&self.optional);
        let known: Vec<String> = known.map(|known| known.replace(DOT, ".")).collect();
        for option in unknown {
            let what = match nearest(&option, known.iter().map(String::as_str)) {
                Some(meant) => format!("is not an option; did you mean {meant}?"),
                None => "is not an option; `tidings config` lists all".to_owned(),
            };
            self.problem(&option, what);
        }
        match self.problems.is_empty() {
            true => Ok(self.warnings),
            false => Err(Problems(self.problems)),
        }
    }

    /// Returns the value of an option, and marks it as read.
    pub(super) fn value(&mut self, option: &str) -> Option<&'a Value> {
        self.read.insert(option.to_owned());
        get(self.table, option)
    }

    /// Returns whether the option is set.
    pub(super) fn is_set(&mut self, option: &str) -> bool {
        self.optional.insert(option.to_owned());
        get(self.table, option).is_some()
    }

    /// Reads an option if it is set.
    pub(super) fn if_set<T>(
        &mut self,
        option: &str,
        read: impl FnOnce(&mut Self, &str) -> T,
    ) -> Option<T> {
        self.is_set(option).then(|| read(self, option))
    }

    /// Returns the text of an option, empty if it is not set. Returns `None` for other types, with
    /// a problem.
    fn text(&mut self, option: &str) -> Option<String> {
        match self.value(option) {
            Some(Value::String(text)) => match stray(text) {
                None => Some(text.clone()),
                Some(odd) => {
                    let what = format!("begins or ends with an invisible character ({odd})");
                    self.problem(option, format!("{what}; remove it"));
                    None
                }
            },
            Some(other) => {
                let shown = match redact::is_secret(option) || other.is_table() || other.is_array()
                {
                    true => format!("a value of type {}", other.type_str()),
                    false => other.to_string(),
                };
                let what = format!("{shown} is not text in quotes");
                self.problem(option, what);
                None
            }
            None => Some(String::new()),
        }
    }

    /// Reads text that must not be empty.
    pub(super) fn string(&mut self, option: &str) -> String {
        let text = self.text(option);
        if text.as_deref() == Some("") {
            self.problem(option, "must not be empty");
        }
        text.unwrap_or_default()
    }

    /// Reads text; `None` if it is empty.
    pub(super) fn optional(&mut self, option: &str) -> Option<String> {
        self.text(option).filter(|text| !text.is_empty())
    }

    /// Parses text; an invalid one is a problem and counts as the default. `wanted` describes valid
    /// values.
    pub(super) fn parse_with<T>(
        &mut self,
        option: &str,
        wanted: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> T {
        let given = self.text(option).and_then(|text| {
            let value = parse(&text);
            self.check(option, wanted, &text, value)
        });
        given.unwrap_or_else(|| {
            let default = get(self.defaults, option).and_then(Value::as_str);
            default.and_then(parse).expect("the defaults are valid; a test reads them")
        })
    }

    /// Parses text as [`Self::parse_with`] does, by the type's own rule.
    pub(super) fn parse<T: FromStr>(&mut self, option: &str, wanted: &str) -> T {
        self.parse_with(option, wanted, |text| text.parse().ok())
    }

    /// Parses text; `None` if it is empty, or invalid, which is a problem.
    pub(super) fn optional_with<T>(
        &mut self,
        option: &str,
        wanted: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.optional(option)?;
        self.check(option, wanted, &text, parse(&text))
    }

    /// Parses text as [`Self::optional_with`] does, by the type's own rule.
    pub(super) fn optional_parse<T: FromStr>(&mut self, option: &str, wanted: &str) -> Option<T> {
        self.optional_with(option, wanted, |text| text.parse().ok())
    }

    fn check<T>(&mut self, option: &str, wanted: &str, text: &str, value: Option<T>) -> Option<T> {
        if value.is_none() {
            let shown = redact::shown(option, text);
            self.problem(option, format!("{shown} is not {wanted}"));
        }
        value
    }

    /// Adds the problem of a value that has the wrong type or is out of range.
    fn reject(&mut self, option: &str, value: Option<&Value>, wanted: &str) {
        let shown = value.map_or("nothing".to_owned(), ToString::to_string);
        self.problem(option, format!("{shown} is not {wanted}"));
    }

    /// Reads a boolean. Environment variables supply it as text.
    pub(super) fn flag(&mut self, option: &str) -> bool {
        match self.value(option) {
            Some(Value::Boolean(flag)) => *flag,
            Some(Value::String(text)) if text == "true" => true,
            Some(Value::String(text)) if text == "false" => false,
            other => {
                self.reject(option, other, "true or false");
                false
            }
        }
    }

    /// Reads a whole number in a range of numbers that `T` can hold.
    pub(super) fn number<T: TryFrom<i64>>(
        &mut self,
        option: &str,
        range: RangeInclusive<i64>,
    ) -> T {
        let value = self.value(option);
        let given = value.and_then(Value::as_integer);
        let given = given.filter(|number| range.contains(number));
        let (least, most) = range.into_inner();
        let number = given.unwrap_or_else(|| {
            self.reject(option, value, &format!("a whole number from {least} to {most}"));
            least
        });
        match T::try_from(number) {
            Ok(number) => number,
            Err(_) => unreachable!("the range of {option} fits its type"),
        }
    }

    /// Reads a duration in a range.
    pub(super) fn duration(&mut self, option: &str, range: RangeInclusive<TimeDelta>) -> TimeDelta {
        let given = self.value(option);
        let text = given.and_then(Value::as_str).unwrap_or_default();
        durations::duration_within(text, &range).unwrap_or_else(|why| {
            // A number has no unit, so the problem shows it unquoted.
            let shown = given.map_or("\"\"".to_owned(), ToString::to_string);
            self.problem(option, format!("{shown} {why}"));
            *range.start()
        })
    }

    /// Reads an optional `http` or `https` URL.
    pub(super) fn link(&mut self, option: &str) -> Option<String> {
        let wanted = "a web address: https:// or http://, a host, no user or password";
        self.optional_with(option, wanted, |text| check_link(text).is_ok().then(|| text.to_owned()))
    }

    /// Reads an email address. The problem of an invalid one does not show it in full.
    pub(super) fn address(&mut self, option: &str) -> Option<Address> {
        let address = Address::new(self.optional(option)?);
        address.map_err(|error| self.problem(option, error.to_string())).ok()
    }

    /// Reads a secret from an option, or from the file that the option with `_file` names.
    pub(super) fn secret(&mut self, option: &str) -> Option<String> {
        let file_option = &*format!("{option}_file");
        let given = self.optional(option);
        let file = self.optional(file_option);
        let (secret, option) = match (given, file) {
            (Some(_), Some(_)) => {
                self.problem(file_option, format!("cannot be set together with {option}"));
                return None;
            }
            (given, None) => (given?, option),
            (None, Some(file)) => {
                let secret = self.key_file(file_option, &file)?;
                self.secret_files.push(file.into());
                (secret, file_option)
            }
        };
        match flaw(&secret) {
            Some(what) => {
                self.problem(option, what);
                None
            }
            None => Some(secret),
        }
    }

    /// Reads a key file without surrounding white space. A byte order mark is rejected, because the
    /// other side would not have it in its key.
    pub(super) fn key_file(&mut self, option: &str, file: &str) -> Option<String> {
        let what = match std::fs::read_to_string(file) {
            Ok(text) => match text.trim() {
                "" => format!("{file} is empty"),
                text if text.starts_with('\u{feff}') => {
                    format!("{file} begins with a byte order mark; save it as UTF-8 without one")
                }
                text => return Some(text.to_owned()),
            },
            Err(error) => format!("{file} cannot be read: {error}"),
        };
        self.problem(option, what);
        None
    }

    /// Reads a list of texts, or one text with commas as the environment supplies it.
    pub(super) fn list(&mut self, option: &str) -> Vec<String> {
        match self.value(option) {
            None => Vec::new(),
            Some(Value::String(text)) => {
                let parts = text.split(',').map(str::trim);
                let parts = parts.filter(|part| !part.is_empty());
                parts.map(str::to_owned).collect()
            }
            Some(Value::Array(values)) if values.iter().all(Value::is_str) => {
                let texts = values.iter().filter_map(Value::as_str);
                texts.map(str::to_owned).collect()
            }
            other => {
                self.reject(option, other, "a list such as [\"one\", \"two\"]");
                Vec::new()
            }
        }
    }

    /// Reads a table without interpreting it.
    pub(super) fn table(&mut self, option: &str) -> Table {
        match self.value(option) {
            None => Table::new(),
            Some(Value::Table(table)) => table.clone(),
            other => {
                self.reject(option, other, "a table such as { published = true }");
                Table::new()
            }
        }
    }

    /// Reads the tables inside a table, in the order of the file; `read` receives each name and
    /// path.
    pub(super) fn each<N, T>(
        &mut self,
        option: &str,
        mut read: impl FnMut(&mut Self, &N, &str) -> T,
    ) -> Vec<(N, T)>
    where
        N: FromStr,
        N::Err: fmt::Display,
    {
        let Some(value) = get(self.table, option) else {
            return Vec::new();
        };
        let Some(table) = value.as_table() else {
            self.problem(option, format!("is not a table of tables [{option}.NAME]"));
            self.read.insert(option.to_owned());
            return Vec::new();
        };
        let mut all = Vec::new();
        for (name, value) in table {
            let path = format!("{option}.{}", name.replace('.', DOT));
            let what = match name.parse() {
                _ if !value.is_table() => "is not a table".to_owned(),
                Err(why) => N::Err::to_string(&why),
                Ok(name) => {
                    let value = read(self, &name, &path);
                    all.push((name, value));
                    continue;
                }
            };
            self.read.insert(path.clone());
            self.problem(&path, what);
        }
        all
    }
}

/// Returns the value at a path.
pub(super) fn get<'a>(table: &'a Table, option: &str) -> Option<&'a Value> {
    let mut parts = option.split('.');
    let first = table.get(parts.next()?)?;
    parts.try_fold(first, |value, part| value.as_table()?.get(&part.replace(DOT, ".")))
}

/// Returns an invisible character at the start or end of a text, such as `U+00A0` of a copied
/// value or the byte order mark of an editor. Plain spaces and line breaks are fine here.
fn stray(text: &str) -> Option<String> {
    let is_stray =
        |c: &char| matches!(c, '\u{feff}' | '\u{200b}') || (c.is_whitespace() && !c.is_ascii());
    let ends = [text.chars().next(), text.chars().next_back()];
    let odd = ends.into_iter().flatten().find(is_stray)?;
    Some(format!("U+{:04X}", u32::from(odd)))
}

/// Returns why a secret is probably not the intended one: the other side would not have these
/// characters.
fn flaw(secret: &str) -> Option<String> {
    if secret.contains("-----BEGIN ") {
        return Some("holds a PEM, such as a public key, and no secret on one line".into());
    }
    if secret.contains(['\n', '\r']) {
        return Some("holds a line break; a secret is one line".into());
    }
    if secret.trim() != secret {
        return Some("begins or ends with white space; remove it".into());
    }
    if secret.contains(char::REPLACEMENT_CHARACTER) {
        return Some("holds bytes that are not UTF-8; encode it, for example with base64".into());
    }
    let is_odd = |c: &char| is_unseen(*c) || c.is_control() || (c.is_whitespace() && *c != ' ');
    let odd = secret.chars().find(is_odd).map(u32::from)?;
    Some(format!("holds a character that cannot be seen (U+{odd:04X}); remove it"))
}

/// Collects the options below this table that no code read.
fn collect_unread(table: &Table, prefix: &str, read: &BTreeSet<String>, unknown: &mut Vec<String>) {
    for (key, value) in table {
        let path = format!("{prefix}{}", key.replace('.', DOT));
        match value {
            _ if read.contains(&path) => {}
            Value::Table(inner) => collect_unread(inner, &format!("{path}."), read, unknown),
            _ => unknown.push(path.replace(DOT, ".")),
        }
    }
}
