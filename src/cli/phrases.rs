//! Formats counts, times and files, and parses times.

use std::path::Path;

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use indicatif::HumanCount;

use crate::wire::delivery::DeliveryRow;

/// Formats the path of a file from the command line; `-` is standard input.
pub(super) fn file(path: &Path) -> String {
    match path.to_str() {
        Some("-") => "standard input".to_owned(),
        _ => path.display().to_string(),
    }
}

/// Formats a number, such as `1,234`.
pub(super) fn number(n: u64) -> String {
    HumanCount(n).to_string()
}

/// Formats a count with its noun, such as `1 event` or `2 events`.
pub(super) fn count(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", number(n), if n == 1 { one } else { many })
}

/// Formats a count with its noun. Returns `None` for zero.
pub(super) fn nonzero_count(n: u64, one: &str, many: &str) -> Option<String> {
    (n > 0).then(|| count(n, one, many))
}

/// Formats a number of events.
pub(super) fn events(n: u64) -> String {
    count(n, "event", "events")
}

/// Formats a number of users.
pub(super) fn users(n: u64) -> String {
    count(n, "user", "users")
}

/// Formats a number of emails.
pub(super) fn emails(n: u64) -> String {
    count(n, "email", "emails")
}

/// Formats a number of stacks.
pub(super) fn stacks(n: u64) -> String {
    count(n, "stack", "stacks")
}

/// Formats a time to the minute in UTC, such as `2014-04-28 09:00`.
pub(super) fn minute(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M").to_string()
}

/// Formats a time to the second, such as `09:00:14 UTC`. Includes the date unless that is today.
pub(super) fn second(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let is_today = at.date_naive() == now.date_naive();
    at.format(if is_today { "%H:%M:%S UTC" } else { "%Y-%m-%d %H:%M:%S UTC" }).to_string()
}

/// Joins the parts with commas, without those that are `None` or empty.
pub(super) fn list(parts: impl IntoIterator<Item = Option<String>>) -> String {
    join(parts.into_iter().flatten(), ", ")
}

/// Joins the clauses with semicolons, without empty ones.
pub(super) fn clauses(parts: impl IntoIterator<Item = String>) -> String {
    join(parts.into_iter(), "; ")
}

fn join(parts: impl Iterator<Item = String>, separator: &str) -> String {
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(separator)
}

/// Formats a count such as `1,234 what`. Returns `None` for zero.
pub(super) fn nonzero(n: u64, what: &str) -> Option<String> {
    (n > 0).then(|| format!("{} {what}", number(n)))
}

/// Formats a state with the provider's report and the brand, if any: `sent, bounced, acme`.
pub(super) fn delivery_state(row: &DeliveryRow) -> String {
    let report = row.feedback.map(|report| report.to_string());
    let brand = row.brand.as_ref().map(ToString::to_string);
    list([Some(row.state.as_str().to_owned()), report, brand])
}

/// Cuts a list after `limit` rows. Returns the note below it, or `None` if nothing was cut.
/// `filters` names the options that filter the list.
pub(super) fn cut<T>(rows: &mut Vec<T>, limit: usize, filters: &str) -> Option<String> {
    let is_cut = rows.len() > limit;
    rows.truncate(limit);
    is_cut
        .then(|| format!("there are more rows; use --limit (up to 1,000), or filter by {filters}"))
}

/// Parses RFC 3339, `YYYY-MM-DD HH:MM` with optional seconds in UTC, or a date, which is its
/// midnight in UTC. Accepts 1970 to February 2106, the range of times in ids.
pub(super) fn parse_time(text: &str) -> Result<DateTime<Utc>, String> {
    let with_t = text.replace(' ', "T");
    let exact = || DateTime::parse_from_rfc3339(text).ok().map(|at| at.to_utc());
    let time = |form| Some(NaiveDateTime::parse_from_str(&with_t, form).ok()?.and_utc());
    let date = || NaiveDate::parse_from_str(text, "%Y-%m-%d").ok();
    let midnight = || Some(date()?.and_time(NaiveTime::MIN).and_utc());
    let at = exact()
        .or_else(|| time("%Y-%m-%dT%H:%M"))
        .or_else(|| time("%Y-%m-%dT%H:%M:%S"))
        .or_else(midnight)
        .ok_or(
            "not a time such as 2014-04-28, \"2014-04-28 09:00\" (both UTC) or \
             2014-04-28T09:00:00+02:00",
        )?;
    match u32::try_from(at.timestamp()) {
        Ok(_) => Ok(at),
        Err(_) => Err("not between 1970 and 2106".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        let formatted = [0, 12, 999, 1_000, 12_345, 1_234_567].map(number);
        assert_eq!(formatted, ["0", "12", "999", "1,000", "12,345", "1,234,567"]);
    }

    #[test]
    fn a_time_has_four_accepted_forms() {
        for text in [
            "2014-04-28T11:00:00+02:00",
            "2014-04-28T09:00:00Z",
            "2014-04-28 09:00",
            "2014-04-28T09:00",
        ] {
            assert_eq!(
                parse_time(text).unwrap().to_rfc3339(),
                "2014-04-28T09:00:00+00:00",
                "{text}"
            );
        }
        assert_eq!(parse_time("2014-04-28").unwrap().to_rfc3339(), "2014-04-28T00:00:00+00:00");
    }

    #[test]
    fn invalid_times_and_times_outside_the_id_range_are_rejected() {
        for text in ["", "tomorrow", "28.4.2014", "2014-02-30", "2014-04-28 25:00"] {
            assert!(parse_time(text).unwrap_err().contains("such as 2014-04-28"), "{text}");
        }
        for text in ["1969-12-31", "2106-03-01"] {
            assert!(parse_time(text).unwrap_err().contains("1970"), "{text}");
        }
    }
}
