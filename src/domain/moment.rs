//! Deserializes times in RFC 3339: `2014-04-22T09:00:00Z`, or with another offset.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer};

use super::name::Invalid;

/// Deserializes a time.
pub fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DateTime<Utc>, D::Error> {
    parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

/// Deserializes a time or `null`.
pub fn read_if_any<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<DateTime<Utc>>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    let moment = text.as_deref().map(parse).transpose();
    moment.map_err(serde::de::Error::custom)
}

fn parse(text: &str) -> Result<DateTime<Utc>, Invalid> {
    let why = "is not a moment such as 2014-04-22T09:00:00Z";
    text.parse().map_err(|_| Invalid::new("time", text, why))
}
