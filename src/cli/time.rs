//! Parses times that users type.

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};

/// Parses RFC 3339, `YYYY-MM-DD HH:MM` with optional seconds in UTC, or a date, which is its
/// midnight in UTC. Accepts 1970 to February 2106, the range of times in ids.
pub(super) fn parse(text: &str) -> Result<DateTime<Utc>, String> {
    let plain = [
        "%Y-%m-%d %H:%M",
        "%Y-%m-%d %H:%M:%S",
        "%Y-%m-%dT%H:%M",
        "%Y-%m-%dT%H:%M:%S",
    ];
    let at = DateTime::parse_from_rfc3339(text)
        .map(|at| at.with_timezone(&Utc))
        .ok()
        .or_else(|| {
            plain
                .iter()
                .find_map(|format| NaiveDateTime::parse_from_str(text, format).ok())
                .map(|at| at.and_utc())
        })
        .or_else(|| {
            let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?;
            Some(date.and_time(NaiveTime::MIN).and_utc())
        })
        .ok_or(
            "not a time such as 2014-04-28, \"2014-04-28 09:00\" (both UTC) or 2014-04-28T09:00:00+02:00",
        )?;
    let seconds = at.timestamp();
    if (0..=i64::from(u32::MAX)).contains(&seconds) {
        Ok(at)
    } else {
        Err("not between 1970 and 2106".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_four_accepted_forms() {
        for text in [
            "2014-04-28T11:00:00+02:00",
            "2014-04-28T09:00:00Z",
            "2014-04-28 09:00",
            "2014-04-28T09:00",
        ] {
            assert_eq!(
                parse(text).unwrap().to_rfc3339(),
                "2014-04-28T09:00:00+00:00",
                "{text}"
            );
        }
        assert_eq!(
            parse("2014-04-28").unwrap().to_rfc3339(),
            "2014-04-28T00:00:00+00:00"
        );
    }

    #[test]
    fn invalid_times_and_times_outside_the_id_range_are_rejected() {
        for text in [
            "",
            "tomorrow",
            "28.4.2014",
            "2014-02-30",
            "2014-04-28 25:00",
        ] {
            assert!(
                parse(text).unwrap_err().contains("such as 2014-04-28"),
                "{text}"
            );
        }
        for text in ["1969-12-31", "2106-03-01"] {
            assert!(parse(text).unwrap_err().contains("1970"), "{text}");
        }
    }
}
