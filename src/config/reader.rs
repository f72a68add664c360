//! Reads options from a merged table, and collects all problems instead of stopping at the first.
//!
//! Options that no code read are unknown, and unknown options are errors. Start with
//! [`TableReader`].

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use chrono::TimeDelta;
use toml::{Table, Value};

use super::redact;
use crate::domain::text_checks::{check_link, is_invisible};
use crate::domain::{Address, durations_and_times, most_similar};

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
pub struct ConfigWarning {
    /// The path, such as `batch.cooldown`.
    pub option: String,
    /// The doubt, as a clause that follows the option.
    pub what: String,
    /// What to do about it.
    pub advice: String,
}

impl fmt::Display for ConfigWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}; {}", self.option, self.what, self.advice)
    }
}

/// All problems of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigProblems(pub Vec<ConfigProblem>);

impl fmt::Display for ConfigProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => f.write_str("the configuration has a problem:")?,
            count => write!(f, "the configuration has {count} problems:")?,
        }
        for ConfigProblem { option, what } in &self.0 {
            write!(f, "\n  {option}: {what}")?;
        }
        Ok(())
    }
}

/// Replaces a dot inside a name, because dots separate the parts of a path.
const ESCAPED_DOT: &str = "\u{2}";

/// A reader of one table. For an invalid value it adds a problem and returns the default or another
/// placeholder, which never leaves [`super::Config::check`].
pub(super) struct TableReader<'a> {
    table: &'a Table,
    defaults: &'a Table,
    /// The options that were read.
    read_options: BTreeSet<String>,
    /// The options that are read only if they are set.
    known_if_set: BTreeSet<String>,
    problems: Vec<ConfigProblem>,
    warnings: Vec<ConfigWarning>,
    /// Files with nothing but a secret.
    pub(super) secret_files: Vec<PathBuf>,
}

impl<'a> TableReader<'a> {
    pub(super) fn new(table: &'a Table, defaults: &'a Table, problems: Vec<ConfigProblem>) -> Self {
        Self {
            table,
            defaults,
            read_options: BTreeSet::new(),
            known_if_set: BTreeSet::new(),
            problems,
            warnings: Vec::new(),
            secret_files: Vec::new(),
        }
    }

    /// Adds a problem of an option.
    pub(super) fn add_problem(&mut self, option: &str, problem: impl Into<String>) {
        let option = option.replace(ESCAPED_DOT, ".");
        self.problems.push(ConfigProblem { option, what: problem.into() });
    }

    /// Returns whether this option has a problem, so that consequences are not reported as well.
    pub(super) fn has_problem(&self, option: &str) -> bool {
        let option = option.replace(ESCAPED_DOT, ".");
        self.problems.iter().any(|known| known.option == option)
    }

    /// Adds a warning for a valid setting that is probably a mistake.
    pub(super) fn warn(
        &mut self,
        option: &str,
        doubt: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.warnings.push(ConfigWarning {
            option: option.replace(ESCAPED_DOT, "."),
            what: doubt.into(),
            advice: advice.into(),
        });
    }

    /// Returns the warnings, or all problems including unknown options.
    pub(super) fn finish(mut self) -> Result<Vec<ConfigWarning>, ConfigProblems> {
        let mut unknown = Vec::new();
        collect_unread(self.table, "", &self.read_options, &mut unknown);
        let known: Vec<String> = self
            .read_options
            .union(&self.known_if_set)
            .map(|option| option.replace(ESCAPED_DOT, "."))
            .collect();
        for option in unknown {
            let problem = match most_similar(&option, known.iter().map(String::as_str)) {
                Some(meant) => format!("is not an option; did you mean {meant}?"),
                None => "is not an option; `tidings config` lists all".to_owned(),
            };
            self.add_problem(&option, problem);
        }
        if self.problems.is_empty() {
            Ok(self.warnings)
        } else {
            Err(ConfigProblems(self.problems))
        }
    }

    /// Returns the value of an option, and marks it as read.
    pub(super) fn value(&mut self, option: &str) -> Option<&'a Value> {
        self.read_options.insert(option.to_owned());
        get(self.table, option)
    }

    /// Returns whether the option is set.
    pub(super) fn is_set(&mut self, option: &str) -> bool {
        self.known_if_set.insert(option.to_owned());
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
        let problem = match self.value(option) {
            None => return Some(String::new()),
            Some(Value::String(text)) => match invisible_edge(text) {
                None => return Some(text.clone()),
                Some(code) => {
                    format!("begins or ends with an invisible character ({code}); remove it")
                }
            },
            Some(other) if redact::is_secret(option) || other.is_table() || other.is_array() => {
                format!("a value of type {} is not text in quotes", other.type_str())
            }
            Some(other) => format!("{other} is not text in quotes"),
        };
        self.add_problem(option, problem);
        None
    }

    /// Reads text that must not be empty.
    pub(super) fn string(&mut self, option: &str) -> String {
        let text = self.text(option);
        if text.as_deref() == Some("") {
            self.add_problem(option, "must not be empty");
        }
        text.unwrap_or_default()
    }

    /// Reads text; `None` if it is empty.
    pub(super) fn non_empty(&mut self, option: &str) -> Option<String> {
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
        let text = self.text(option);
        let value = text.and_then(|text| self.or_report(option, wanted, &text, parse(&text)));
        value.unwrap_or_else(|| {
            let default = get(self.defaults, option).and_then(Value::as_str);
            default.and_then(parse).expect("the defaults are valid; a test reads them")
        })
    }

    /// Parses text as [`Self::parse_with`] does, by the type's own rule.
    pub(super) fn parse<T: FromStr>(&mut self, option: &str, wanted: &str) -> T {
        self.parse_with(option, wanted, |text| text.parse().ok())
    }

    /// Parses text; `None` if it is empty, or invalid, which is a problem.
    pub(super) fn parse_non_empty_with<T>(
        &mut self,
        option: &str,
        wanted: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.non_empty(option)?;
        self.or_report(option, wanted, &text, parse(&text))
    }

    /// Parses text as [`Self::parse_non_empty_with`] does, by the type's own rule.
    pub(super) fn parse_non_empty<T: FromStr>(&mut self, option: &str, wanted: &str) -> Option<T> {
        self.parse_non_empty_with(option, wanted, |text| text.parse().ok())
    }

    /// Returns the parsed value of a text. Adds a problem if there is none.
    fn or_report<T>(
        &mut self,
        option: &str,
        wanted: &str,
        text: &str,
        value: Option<T>,
    ) -> Option<T> {
        if value.is_none() {
            let shown = redact::format_value(option, text);
            self.add_problem(option, format!("{shown} is not {wanted}"));
        }
        value
    }

    /// Adds the problem of a value that has the wrong type or is out of range.
    fn reject(&mut self, option: &str, value: Option<&Value>, wanted: &str) {
        let shown = value.map_or("nothing".to_owned(), ToString::to_string);
        self.add_problem(option, format!("{shown} is not {wanted}"));
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
        let valid = value.and_then(Value::as_integer).filter(|number| range.contains(number));
        let (min, max) = range.into_inner();
        let number = valid.unwrap_or_else(|| {
            self.reject(option, value, &format!("a whole number from {min} to {max}"));
            min
        });
        match T::try_from(number) {
            Ok(number) => number,
            Err(_) => unreachable!("the range of {option} fits its type"),
        }
    }

    /// Reads a duration in a range.
    pub(super) fn duration(&mut self, option: &str, range: RangeInclusive<TimeDelta>) -> TimeDelta {
        let value = self.value(option);
        let text = value.and_then(Value::as_str).unwrap_or_default();
        durations_and_times::parse_duration_within(text, &range).unwrap_or_else(|problem| {
            // A number has no unit, so the problem shows it unquoted.
            let shown = value.map_or("\"\"".to_owned(), ToString::to_string);
            self.add_problem(option, format!("{shown} {problem}"));
            *range.start()
        })
    }

    /// Reads an optional `http` or `https` URL.
    pub(super) fn link(&mut self, option: &str) -> Option<String> {
        let wanted = "a web address: https:// or http://, a host, no user or password";
        self.parse_non_empty_with(option, wanted, |text| {
            check_link(text).is_ok().then(|| text.to_owned())
        })
    }

    /// Reads an email address. The problem of an invalid one does not show it in full.
    pub(super) fn address(&mut self, option: &str) -> Option<Address> {
        let address = Address::new(self.non_empty(option)?);
        address.map_err(|error| self.add_problem(option, error.to_string())).ok()
    }

    /// Reads a secret from an option, or from the file that the option with `_file` names.
    pub(super) fn secret(&mut self, option: &str) -> Option<String> {
        let file_option = &*format!("{option}_file");
        let (value, file) = (self.non_empty(option), self.non_empty(file_option));
        let (secret, source) = match (value, file) {
            (Some(_), Some(_)) => {
                self.add_problem(file_option, format!("cannot be set together with {option}"));
                return None;
            }
            (value, None) => (value?, option),
            (None, Some(file)) => {
                let secret = self.key_file(file_option, &file)?;
                self.secret_files.push(file.into());
                (secret, file_option)
            }
        };
        if let Some(problem) = secret_problem(&secret) {
            self.add_problem(source, problem);
            return None;
        }
        Some(secret)
    }

    /// Reads a key file without surrounding white space. A byte order mark is rejected, because the
    /// other side would not have it in its key.
    pub(super) fn key_file(&mut self, option: &str, file: &str) -> Option<String> {
        let problem = match std::fs::read_to_string(file) {
            Ok(text) => match text.trim() {
                "" => format!("{file} is empty"),
                key if key.starts_with('\u{feff}') => {
                    format!("{file} begins with a byte order mark; save it as UTF-8 without one")
                }
                key => return Some(key.to_owned()),
            },
            Err(error) => format!("{file} cannot be read: {error}"),
        };
        self.add_problem(option, problem);
        None
    }

    /// Reads a list of texts, or one text with commas as the environment supplies it.
    pub(super) fn list(&mut self, option: &str) -> Vec<String> {
        match self.value(option) {
            None => Vec::new(),
            Some(Value::String(text)) => {
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                parts.map(str::to_owned).collect()
            }
            Some(Value::Array(values)) if values.iter().all(Value::is_str) => {
                values.iter().filter_map(Value::as_str).map(str::to_owned).collect()
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
            self.add_problem(option, format!("is not a table of tables [{option}.NAME]"));
            self.read_options.insert(option.to_owned());
            return Vec::new();
        };
        let mut named_values = Vec::new();
        for (name, value) in table {
            let path = format!("{option}.{}", name.replace('.', ESCAPED_DOT));
            let parsed_name: Result<N, String> = if value.is_table() {
                name.parse().map_err(|error: N::Err| error.to_string())
            } else {
                Err("is not a table".to_owned())
            };
            match parsed_name {
                Ok(name) => {
                    let value = read(self, &name, &path);
                    named_values.push((name, value));
                }
                Err(problem) => {
                    self.read_options.insert(path.clone());
                    self.add_problem(&path, problem);
                }
            }
        }
        named_values
    }
}

/// Returns the value at a path.
pub(super) fn get<'a>(table: &'a Table, option: &str) -> Option<&'a Value> {
    let mut parts = option.split('.');
    let first = table.get(parts.next()?)?;
    parts.try_fold(first, |value, part| value.as_table()?.get(&part.replace(ESCAPED_DOT, ".")))
}

/// Returns the code of an invisible character at the start or end of a text, such as `U+00A0` of a
/// copied value or the byte order mark of an editor. Plain spaces and line breaks are fine here.
fn invisible_edge(text: &str) -> Option<String> {
    let is_invisible =
        |c: &char| matches!(c, '\u{feff}' | '\u{200b}') || (c.is_whitespace() && !c.is_ascii());
    let edges = [text.chars().next(), text.chars().next_back()];
    let invisible = edges.into_iter().flatten().find(is_invisible)?;
    Some(format!("U+{:04X}", u32::from(invisible)))
}

/// Returns why a secret looks damaged by copying: PEM text, a line break, surrounding white space
/// or invisible characters.
fn secret_problem(secret: &str) -> Option<String> {
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
    let is_invisible =
        |c: &char| is_invisible(*c) || c.is_control() || (c.is_whitespace() && *c != ' ');
    let code = secret.chars().find(is_invisible).map(u32::from)?;
    Some(format!("holds a character that cannot be seen (U+{code:04X}); remove it"))
}

/// Adds the options below this table that no code read to `unread`.
fn collect_unread(
    table: &Table,
    prefix: &str,
    read_options: &BTreeSet<String>,
    unread: &mut Vec<String>,
) {
    for (key, value) in table {
        let path = format!("{prefix}{}", key.replace('.', ESCAPED_DOT));
        match value {
            _ if read_options.contains(&path) => {}
            Value::Table(table) => collect_unread(table, &format!("{path}."), read_options, unread),
            _ => unread.push(path.replace(ESCAPED_DOT, ".")),
        }
    }
}
