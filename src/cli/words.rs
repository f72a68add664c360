//! Formats counts, times and files.

use std::path::Path;

use chrono::{DateTime, Utc};

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
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a count with its noun, such as `1 event` or `2 events`.
pub(super) fn count(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", number(n), if n == 1 { one } else { many })
}

/// Formats a time to the minute in UTC, such as `2014-04-28 09:00`.
pub(super) fn minute(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M").to_string()
}

/// Formats a time to the second, such as `09:00:14 UTC`. Includes the date unless that is today.
pub(super) fn moment(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let form = match at.date_naive() == now.date_naive() {
        true => "%H:%M:%S UTC",
        false => "%Y-%m-%d %H:%M:%S UTC",
    };
    at.format(form).to_string()
}

/// Joins the parts with commas, without those that are `None`.
pub(super) fn list(parts: impl IntoIterator<Item = Option<String>>) -> String {
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Formats a count such as `1,234 what`. Returns `None` for zero.
pub(super) fn some(n: u64, what: &str) -> Option<String> {
    (n > 0).then(|| format!("{} {what}", number(n)))
}

/// Formats a duration with its two largest units: `0s`, `4m30s`, `2h5m`, `1d3h`.
pub(super) fn duration(seconds: u64) -> String {
    let (large, unit, small, rest) = match seconds {
        0..60 => return format!("{seconds}s"),
        60..3_600 => (seconds / 60, "m", seconds % 60, "s"),
        3_600..86_400 => (seconds / 3_600, "h", seconds % 3_600 / 60, "m"),
        _ => (seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    };
    if small == 0 {
        format!("{large}{unit}")
    } else {
        format!("{large}{unit}{small}{rest}")
    }
}

/// Formats a state with the provider's report and the brand, if any: `sent, bounced, acme`.
pub(super) fn delivery_state(row: &DeliveryRow) -> String {
    let heard = row.feedback.map(|heard| heard.to_string());
    let brand = row.brand.as_ref().map(ToString::to_string);
    list([Some(row.state.as_str().to_owned()), heard, brand])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        let written = [0, 12, 999, 1_000, 12_345, 1_234_567].map(number);
        assert_eq!(written, ["0", "12", "999", "1,000", "12,345", "1,234,567"]);
    }

    #[test]
    fn durations_show_their_two_largest_units() {
        let shown = [0, 59, 60, 270, 3_600, 7_530, 86_400, 98_000].map(duration);

        assert_eq!(
            shown,
            ["0s", "59s", "1m", "4m30s", "1h", "2h5m", "1d", "1d3h"]
        );
    }
}
