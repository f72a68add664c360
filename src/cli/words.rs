//! How counts, times and files are written for people.

use std::path::Path;

use chrono::{DateTime, Utc};

/// What a file is called that was named on the command line.
pub(super) fn file(path: &Path) -> String {
    match path.to_str() {
        Some("-") => "standard input".to_owned(),
        _ => path.display().to_string(),
    }
}

/// `1,234`.
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

/// `1 event`, `2 events`.
pub(super) fn count(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", number(n), if n == 1 { one } else { many })
}

/// `2014-04-28 09:00`.
pub(super) fn minute(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M").to_string()
}

/// `09:00:14 UTC`, with the date unless that is today.
pub(super) fn moment(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let form = match at.date_naive() == now.date_naive() {
        true => "%H:%M:%S UTC",
        false => "%Y-%m-%d %H:%M:%S UTC",
    };
    at.format(form).to_string()
}

/// The parts that are there, with commas between.
pub(super) fn list(parts: impl IntoIterator<Item = Option<String>>) -> String {
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// A part that is only there if something was counted.
pub(super) fn some(n: u64, what: &str) -> Option<String> {
    (n > 0).then(|| format!("{} {what}", number(n)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        let written = [0, 12, 999, 1_000, 12_345, 1_234_567].map(number);
        assert_eq!(written, ["0", "12", "999", "1,000", "12,345", "1,234,567"]);
    }
}
