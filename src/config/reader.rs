//! Reads options from a merged table, and collects all problems instead of stopping at the first.
//!
//! Options that no code read are unknown, and unknown options are errors. Start with [`Reader`].

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use chrono::TimeDelta;
use toml::{Table, Value};

use super::hidden;
use super::problem::{Problem, Problems, Warning};
use super::store_url::StoreUrl;
use crate::domain::text;
use crate::domain::text::is_unseen;
use crate::domain::{Address, Invalid, nearest, time};

/// Replaces a dot inside a name, because dots separate the parts of a path.
const DOT: &str = "\u{2}";

/// A reader of one table. For an invalid value it adds a problem and returns a placeholder, which
/// never leaves [`super::Config::check`].
pub struct Reader<'a> {
    table: &'a Table,
    taken: BTreeSet<String>,
    /// Options that are read only if they are set.
    known: BTreeSet<String>,
    problems: Vec<Problem>,
    warnings: Vec<Warning>,
    /// Files with nothing but a secret.
    pub secret_files: Vec<PathBuf>,
}

impl<'a> Reader<'a> {
    pub fn new(table: &'a Table, problems: Vec<Problem>) -> Self {
        Self {
            table,
            taken: BTreeSet::new(),
            known: BTreeSet::new(),
            problems,
            warnings: Vec::new(),
            secret_files: Vec::new(),
        }
    }

    /// Adds a problem of an option.
    pub fn problem(&mut self, option: &str, what: impl Into<String>) {
        self.problems.push(Problem {
            option: option.replace(DOT, "."),
            what: what.into(),
        });
    }

    /// Returns whether this option has a problem, so that consequences are not reported as well.
    pub fn is_wrong(&self, option: &str) -> bool {
        let option = option.replace(DOT, ".");
        self.problems.iter().any(|known| known.option == option)
    }

    /// Adds a warning for a valid setting that is probably a mistake.
    pub fn warn(&mut self, option: &str, what: impl Into<String>, advice: impl Into<String>) {
        self.warnings.push(Warning {
            option: option.replace(DOT, "."),
            what: what.into(),
            advice: advice.into(),
        });
    }

    /// Returns the warnings, or all problems including unknown options.
    pub fn finish(mut self) -> Result<Vec<Warning>, Problems> {
        let mut left = Vec::new();
        collect(self.table, "", &self.taken, &mut left);
        for option in left {
            let known = self
                .taken
                .union(&self.known)
                .map(|known| known.replace(DOT, "."));
            let known: Vec<String> = known.collect();
            let meant = nearest(&option, known.iter().map(String::as_str));
            let what = match meant {
                Some(meant) => format!("is not an option; did you mean {meant}?"),
                None => "is not an option; `tidings config` lists all".to_owned(),
            };
            self.problem(&option, what);
        }
        if self.problems.is_empty() {
            Ok(self.warnings)
        } else {
            Err(Problems(self.problems))
        }
    }

    fn take(&mut self, option: &str) -> Option<&'a Value> {
        self.taken.insert(option.to_owned());
        self.look(option)
    }

    /// Registers an optional option, so that it is suggested for similar unknown ones.
    pub fn knows(&mut self, option: String) {
        self.known.insert(option);
    }

    /// Returns whether the option is set.
    pub fn is_set(&self, option: &str) -> bool {
        self.look(option).is_some()
    }

    fn look(&self, option: &str) -> Option<&'a Value> {
        let mut parts = option.split('.');
        let first = self.table.get(parts.next()?)?;
        parts.try_fold(first, |value, part| match value {
            // Paths count from 1.
            Value::Array(values) => values.get(part.parse::<usize>().ok()?.checked_sub(1)?),
            value => value.as_table()?.get(&part.replace(DOT, ".")),
        })
    }

    /// Returns the text of an option, empty if it is not set. Returns `None` for other types, with
    /// a problem.
    fn text(&mut self, option: &str) -> Option<String> {
        match self.take(option) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(other) => {
                let shown = match hidden::is_secret(option) || other.is_table() || other.is_array()
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
    pub fn string(&mut self, option: &str) -> String {
        let text = self.text(option);
        if text.as_deref() == Some("") {
            self.problem(option, "must not be empty");
        }
        text.unwrap_or_default()
    }

    /// Reads text; `None` if it is empty.
    pub fn optional(&mut self, option: &str) -> Option<String> {
        self.text(option).filter(|text| !text.is_empty())
    }

    /// Reads and parses text. `wanted` describes a valid value in the problem.
    pub fn parse<T: Stand>(
        &mut self,
        option: &str,
        wanted: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> T {
        let Some(text) = self.text(option) else {
            return T::stand_in();
        };
        parse(&text).unwrap_or_else(|| {
            let shown = hidden::shown(option, &text);
            self.problem(option, format!("{shown} is not {wanted}"));
            T::stand_in()
        })
    }

    /// Like [`Self::parse`], but the option may be empty.
    pub fn optional_parse<T>(
        &mut self,
        option: &str,
        wanted: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.optional(option)?;
        let value = parse(&text);
        if value.is_none() {
            let shown = hidden::shown(option, &text);
            self.problem(option, format!("{shown} is not {wanted}"));
        }
        value
    }

    /// Returns whether the option is exactly this text, and marks it as read if so.
    pub fn is_text(&mut self, option: &str, text: &str) -> bool {
        let there = self.look(option).and_then(Value::as_str) == Some(text);
        if there {
            self.taken.insert(option.to_owned());
        }
        there
    }

    /// Returns whether [`Self::flag`] can read the value.
    pub fn is_flag(&self, option: &str) -> bool {
        match self.look(option) {
            Some(Value::String(text)) => matches!(text.as_str(), "true" | "false"),
            value => value.is_some_and(Value::is_bool),
        }
    }

    /// Reads a boolean. Environment variables supply it as text.
    pub fn flag(&mut self, option: &str) -> bool {
        match self.take(option) {
            Some(Value::Boolean(flag)) => *flag,
            Some(Value::String(text)) if text == "true" => true,
            Some(Value::String(text)) if text == "false" => false,
            other => {
                let shown = other.map_or("nothing".to_owned(), ToString::to_string);
                self.problem(option, format!("{shown} is not true or false"));
                false
            }
        }
    }

    /// Reads a whole number in a range.
    pub fn number(&mut self, option: &str, range: RangeInclusive<i64>) -> i64 {
        match self.take(option) {
            Some(Value::Integer(number)) if range.contains(number) => *number,
            other => {
                let shown = other.map_or("nothing".to_owned(), ToString::to_string);
                self.problem(
                    option,
                    format!(
                        "{shown} is not a whole number from {} to {}",
                        range.start(),
                        range.end()
                    ),
                );
                *range.start()
            }
        }
    }

    /// Reads a duration in a range.
    pub fn duration(&mut self, option: &str, range: RangeInclusive<TimeDelta>) -> TimeDelta {
        let given = self.take(option);
        let text = given.and_then(Value::as_str).unwrap_or_default();
        time::duration_within(text, &range).unwrap_or_else(|why| {
            // A number has no unit, so the problem shows it unquoted.
            let shown = given.map_or("\"\"".to_owned(), ToString::to_string);
            self.problem(option, format!("{shown} {why}"));
            *range.start()
        })
    }

    /// Reads an optional `http` or `https` URL.
    pub fn link(&mut self, option: &str) -> Option<String> {
        self.optional_parse(
            option,
            "a web address: https:// or http://, a host, no user or password",
            |text| text::check_link(text).is_ok().then(|| text.to_owned()),
        )
    }

    pub fn address(&mut self, option: &str) -> Address {
        self.optional_address(option).unwrap_or_else(|| {
            if !self.is_wrong(option) {
                self.problem(option, "must be an e-mail address");
            }
            Address::stand_in()
        })
    }

    pub fn optional_address(&mut self, option: &str) -> Option<Address> {
        let text = self.optional(option)?;
        Address::new(text)
            .map_err(|error| self.problem(option, error.to_string()))
            .ok()
    }

    /// Reads a secret from an option, or from the file that another option names.
    pub fn secret(&mut self, option: &str, file_option: &str) -> Option<String> {
        let given = self.optional(option);
        let file = self.optional(file_option);
        let (secret, option) = match (given, file) {
            (Some(_), Some(_)) => {
                self.problem(file_option, format!("cannot be set together with {option}"));
                return None;
            }
            (given, None) => (given?, option),
            (None, Some(_)) => (self.secret_file(file_option)?, file_option),
        };
        match flaw(&secret) {
            Some(what) => {
                self.problem(option, what);
                None
            }
            None => Some(secret),
        }
    }

    /// Reads a secret of any number of lines from the file that an option names; `None` if there is
    /// no file.
    pub fn secret_file(&mut self, file_option: &str) -> Option<String> {
        let file = self.optional(file_option)?;
        let text = self.key_file(file_option, &file)?;
        self.secret_files.push(file.into());
        Some(text)
    }

    /// Reads a key file without surrounding white space. A byte order mark is rejected, because the
    /// other side would not have it in its key.
    pub fn key_file(&mut self, option: &str, file: &str) -> Option<String> {
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
    pub fn list(&mut self, option: &str) -> Vec<String> {
        let parts = |text: &str| {
            let parts = text.split(',').map(str::trim);
            parts
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect()
        };
        match self.take(option) {
            Some(Value::String(text)) => parts(text),
            Some(Value::Array(values)) if values.iter().all(Value::is_str) => values
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            Some(other) => {
                let what = format!("{other} is not a list such as [\"one\", \"two\"]");
                self.problem(option, what);
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    /// Reads a table without interpreting it.
    pub fn table(&mut self, option: &str) -> Table {
        match self.take(option) {
            Some(Value::Table(table)) => table.clone(),
            Some(other) => {
                let what = format!("{other} is not a table such as {{ published = true }}");
                self.problem(option, what);
                Table::new()
            }
            None => Table::new(),
        }
    }

    /// Reads the tables inside a table, in the order of the file; `read` receives each name and
    /// path.
    pub fn each<T>(
        &mut self,
        option: &str,
        mut read: impl FnMut(&mut Self, &str, &str) -> Option<T>,
    ) -> Vec<T> {
        let Some(value) = self.table.get(option) else {
            return Vec::new();
        };
        let Some(table) = value.as_table() else {
            self.problem(option, "is not a table of tables");
            self.taken.insert(option.to_owned());
            return Vec::new();
        };
        let mut out = Vec::new();
        for (name, value) in table {
            let path = format!("{option}.{}", name.replace('.', DOT));
            if value.is_table() {
                out.extend(read(self, name, &path));
            } else {
                self.taken.insert(path.clone());
                self.problem(&path, "is not a table");
            }
        }
        out
    }

    /// Reads the tables of an array, in the order of the file; `read` receives each path, such as
    /// `tokens.keys.1`.
    pub fn each_of_list<T>(
        &mut self,
        option: &str,
        mut read: impl FnMut(&mut Self, &str) -> Option<T>,
    ) -> Vec<T> {
        let tables = match self.look(option) {
            None => return Vec::new(),
            Some(Value::Array(values)) if values.iter().all(Value::is_table) => values.len(),
            Some(other) => {
                self.taken.insert(option.to_owned());
                let what = format!("is of type {} and no list of tables", other.type_str());
                self.problem(option, format!("{what}; write [[{option}]] above each"));
                return Vec::new();
            }
        };
        let paths = (1..=tables).map(|number| format!("{option}.{number}"));
        paths.filter_map(|path| read(self, &path)).collect()
    }

    /// Parses a name that is the key of a table.
    pub fn name<T: std::str::FromStr<Err = Invalid>>(
        &mut self,
        name: &str,
        path: &str,
    ) -> Option<T> {
        name.parse()
            .map_err(|error: Invalid| self.problem(path, error.to_string()))
            .ok()
    }
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
    let is_odd = |c: &char| is_unseen(*c) || c.is_control() || (c.is_whitespace() && *c != ' ');
    let odd = secret.chars().find(is_odd).map(u32::from)?;
    Some(format!(
        "holds a character that cannot be seen (U+{odd:04X}); remove it"
    ))
}

/// Collects the options below this table that no code read.
fn collect(table: &Table, prefix: &str, taken: &BTreeSet<String>, left: &mut Vec<String>) {
    for (key, value) in table {
        let path = format!("{prefix}{}", key.replace('.', DOT));
        match value {
            _ if taken.contains(&path) => {}
            Value::Table(inner) => collect(inner, &format!("{path}."), taken, left),
            Value::Array(values) if values.iter().any(Value::is_table) => {
                for (number, value) in (1..).zip(values) {
                    let inner = value.as_table().into_iter();
                    inner.for_each(|inner| {
                        collect(inner, &format!("{path}.{number}."), taken, left)
                    });
                }
            }
            _ => left.push(path.replace(DOT, ".")),
        }
    }
}

/// A placeholder for an invalid value, until the problems are reported.
pub trait Stand {
    fn stand_in() -> Self;
}

macro_rules! stand_ins {
    ($($type:ty => $value:expr;)*) => {$(impl Stand for $type { fn stand_in() -> Self { $value } })*};
}

stand_ins! {
    () => ();
    String => String::new();
    StoreUrl => StoreUrl::Sqlite(PathBuf::new());
    std::net::SocketAddr => std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    crate::domain::Cadence => crate::domain::Cadence::Never;
    crate::domain::Share => crate::domain::Share::NONE;
    crate::domain::delivery::Guarantee => crate::domain::delivery::Guarantee::AtMostOnce;
    chrono::Weekday => chrono::Weekday::Mon;
    chrono_tz::Tz => chrono_tz::Tz::UTC;
    Address => Address::new("nobody@localhost.localdomain").expect("this is an address");
}
