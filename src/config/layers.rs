//! Merges the layers of the configuration: the defaults, tables, and texts of variables and flags.

use std::path::Path;

use toml::{Table, Value};

use super::problem::Problem;

/// All options, with documentation and default values.
pub const DEFAULTS: &str = include_str!("../config.default.toml");

pub(super) fn defaults() -> Table {
    DEFAULTS
        .parse()
        .expect("the defaults are TOML; a test reads them")
}

pub(super) fn read_table(file: &Path) -> Result<Table, Problem> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| Problem {
        option: name.clone(),
        what: format!("cannot be read: {error}"),
    })?;
    text.parse().map_err(|error| syntax(&name, &text, &error))
}

/// Returns a syntax error with its position, but without the line, which may contain a secret.
pub(super) fn syntax(name: &str, text: &str, error: &toml::de::Error) -> Problem {
    let place = error.span().map(|span| {
        let before = text.get(..span.start).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before
            .lines()
            .next_back()
            .map_or(0, |last| last.chars().count())
            + 1;
        match before.ends_with('\n') {
            true => format!(" at line {line}, column 1"),
            false => format!(" at line {line}, column {column}"),
        }
    });
    let why = error.message().lines().collect::<Vec<_>>().join("; ");
    Problem {
        option: name.to_owned(),
        what: format!("is not TOML{}: {why}", place.unwrap_or_default()),
    }
}

/// Merges `over` into `base`: tables are merged, values replaced.
pub(super) fn overlay(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => overlay(below, above),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// Sets an option from text. It becomes a number if the option's current value is one.
pub(super) fn set(table: &mut Table, option: &str, text: &str) {
    let (folder, key) = option
        .rsplit_once('.')
        .map_or((None, option), |(folder, key)| (Some(folder), key));
    let table = match folder {
        Some(folder) => match table
            .entry(folder)
            .or_insert_with(|| Value::Table(Table::new()))
        {
            Value::Table(inner) => inner,
            _ => return,
        },
        None => table,
    };
    let value = match (table.get(key), text.parse::<i64>()) {
        (Some(Value::Integer(_)), Ok(number)) => Value::Integer(number),
        _ => Value::String(text.to_owned()),
    };
    table.insert(key.to_owned(), value);
}
