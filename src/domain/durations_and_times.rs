//! Parses and formats durations and times in the configuration, the API and the store.
//!
//! A duration is one whole number and one unit, so every reader understands it alike: `500ms`,
//! `90s`, `5m`, `2h`, `30d`. A time is in RFC 3339: `2014-04-22T09:00:00Z`, or with another offset.

use std::ops::RangeInclusive;

use chrono::{DateTime, TimeDelta, Utc, Weekday};
use serde::{Deserialize, Deserializer, Serializer};

use super::name::InvalidValue;

/// Parses a duration such as `500ms`, `90s`, `5m`, `2h` or `30d`.
pub fn parse_duration(text: &str) -> Option<TimeDelta> {
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
pub fn parse_duration_within(
    text: &str,
    range: &RangeInclusive<TimeDelta>,
) -> Result<TimeDelta, String> {
    let (from, to) = (format_duration(*range.start()), format_duration(*range.end()));
    match parse_duration(text) {
        Some(duration) if range.contains(&duration) => Ok(duration),
        Some(duration) if duration > *range.end() => Err(format!("is longer than {to}")),
        Some(_) => Err(format!("is shorter than {from}")),
        None => Err(format!("is not a duration such as 90s, 5m, 2h or 30d, from {from} to {to}")),
    }
}

/// Formats a duration in whole milliseconds, with the largest unit that divides it.
pub fn format_duration(duration: TimeDelta) -> String {
    let ms = duration.num_milliseconds();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let unit = units.into_iter().find(|(size, _)| ms % size == 0 && ms >= *size);
    unit.map_or_else(|| format!("{ms}ms"), |(size, name)| format!("{}{name}", ms / size))
}

/// Deserializes a time.
pub fn deserialize_time<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<DateTime<Utc>, D::Error> {
    parse_time(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

/// Deserializes a time or `null`.
pub fn deserialize_optional_time<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<DateTime<Utc>>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.as_deref().map(parse_time).transpose().map_err(serde::de::Error::custom)
}

/// Serializes a weekday as `mon` to `sun`.
pub fn write_weekday<S: Serializer>(day: &Weekday, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&day.to_string().to_lowercase())
}

fn parse_time(text: &str) -> Result<DateTime<Utc>, InvalidValue> {
    let why = "is not a moment such as 2014-04-22T09:00:00Z";
    text.parse().map_err(|_| InvalidValue::new("time", text, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_round_trips() {
        for text in ["0ms", "1500ms", "90s", "5m", "25h", "30d"] {
            assert_eq!(parse_duration(text).map(format_duration).as_deref(), Some(text));
        }
        assert_eq!(parse_duration("60m"), parse_duration("1h"));
        assert_eq!(parse_duration("24h").map(format_duration).as_deref(), Some("1d"));
    }

    #[test]
    fn malformed_text_is_not_a_duration() {
        let most = format!("{}d", i64::MAX);
        for text in ["", "5", "m", "1.5h", "-1h", "1 h", "1h30m", "1H", "٣h", &most] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
