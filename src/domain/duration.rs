//! Parses and formats durations in the configuration, the API and the store: `500ms`, `90s`, `5m`,
//! `2h`, `30d`.
//!
//! A duration is one whole number and one unit, so every reader understands it alike.

use std::ops::RangeInclusive;

use chrono::TimeDelta;

/// Parses a duration such as `500ms`, `90s`, `5m`, `2h` or `30d`.
pub fn parse(text: &str) -> Option<TimeDelta> {
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(split);
    let number: i64 = number.parse().ok()?;
    match unit {
        "ms" => TimeDelta::try_milliseconds(number),
        "s" => TimeDelta::try_seconds(number),
        "m" => TimeDelta::try_minutes(number),
        "h" => TimeDelta::try_hours(number),
        "d" => TimeDelta::try_days(number),
        _ => None,
    }
}

/// Parses a duration and checks its range. The error continues a sentence about the value.
pub fn within(text: &str, range: &RangeInclusive<TimeDelta>) -> Result<TimeDelta, String> {
    let (from, to) = (show(*range.start()), show(*range.end()));
    match parse(text) {
        Some(duration) if range.contains(&duration) => Ok(duration),
        Some(duration) if duration > *range.end() => Err(format!("is longer than {to}")),
        Some(_) => Err(format!("is shorter than {from}")),
        None => Err(format!(
            "is not a duration such as 90s, 5m, 2h or 30d, from {from} to {to}"
        )),
    }
}

/// Formats a duration in whole milliseconds, with the largest unit that divides it.
pub fn show(duration: TimeDelta) -> String {
    let ms = duration.num_milliseconds();
    let units = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ];
    let unit = units
        .into_iter()
        .find(|(size, _)| ms % size == 0 && ms >= *size);
    unit.map_or_else(
        || format!("{ms}ms"),
        |(size, name)| format!("{}{name}", ms / size),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_round_trips() {
        for text in ["0ms", "1500ms", "90s", "5m", "25h", "30d"] {
            assert_eq!(parse(text).map(show).as_deref(), Some(text));
        }
        assert_eq!(parse("60m"), parse("1h"));
        assert_eq!(parse("24h").map(show).as_deref(), Some("1d"));
    }

    #[test]
    fn malformed_text_is_not_a_duration() {
        let most = format!("{}d", i64::MAX);
        for text in [
            "", "5", "m", "1.5h", "-1h", "1 h", "1h30m", "1H", "٣h", &most,
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
