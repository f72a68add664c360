//! Tests of when quiet hours end, including nights with a clock change.

use chrono_tz::Europe::Berlin;
use chrono_tz::{Asia, Pacific, UTC};
use proptest::prelude::*;

use super::*;

fn quiet(from: &str, to: &str) -> Quiet {
    Quiet::new(from.parse().unwrap(), to.parse().unwrap()).unwrap()
}

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

#[test]
fn a_night_lasts_until_the_next_morning() {
    let night = quiet("22:00", "07:00");
    let ends = |text: &str| night.ends(at(text), UTC);
    let morning = Some(at("2014-04-20T07:00:00Z"));

    assert_eq!(ends("2014-04-19T21:59:59Z"), None);
    assert_eq!(ends("2014-04-19T22:00:00Z"), morning);
    assert_eq!(ends("2014-04-20T00:00:00Z"), morning);
    assert_eq!(ends("2014-04-20T06:59:59Z"), morning);
    assert_eq!(ends("2014-04-20T07:00:00Z"), None);
}

#[test]
fn quiet_hours_can_lie_within_one_day_and_in_another_zone() {
    let noon = quiet("12:00", "13:30");
    let end = Some(at("2014-04-20T13:30:00Z"));
    assert_eq!(noon.ends(at("2014-04-20T12:00:00Z"), UTC), end);
    assert_eq!(noon.ends(at("2014-04-20T13:30:00Z"), UTC), None);
    assert_eq!(noon.ends(at("2014-04-20T22:00:00Z"), UTC), None);

    let night = quiet("22:00", "07:00");
    let end = Some(at("2014-04-19T22:00:00Z"));
    assert_eq!(night.ends(at("2014-04-19T13:00:00Z"), Asia::Tokyo), end);
    assert_eq!(night.ends(at("2014-04-19T12:59:59Z"), Asia::Tokyo), None);
}

#[test]
fn quiet_hours_end_by_the_local_clock_on_nights_with_a_clock_change() {
    let night = quiet("22:00", "07:00");
    // The night before 30 March 2014 is an hour shorter, that before 26 October an hour longer.
    let spring = Some(at("2014-03-30T05:00:00Z"));
    let autumn = Some(at("2014-10-26T06:00:00Z"));
    assert_eq!(night.ends(at("2014-03-29T21:00:00Z"), Berlin), spring);
    assert_eq!(night.ends(at("2014-03-29T20:59:59Z"), Berlin), None);
    assert_eq!(night.ends(at("2014-10-25T20:00:00Z"), Berlin), autumn);
    assert_eq!(night.ends(at("2014-10-26T05:59:59Z"), Berlin), autumn);
}

#[test]
fn an_end_time_that_is_skipped_or_repeated_falls_after_the_change() {
    let short = quiet("00:00", "02:30");
    // 02:30 does not occur on 30 March: at 01:00 UTC the local time is 03:00.
    let skipped = Some(at("2014-03-30T01:00:00Z"));
    assert_eq!(short.ends(at("2014-03-29T23:30:00Z"), Berlin), skipped);
    // It occurs twice on 26 October, at 00:30 and 01:30 UTC.
    let twice = Some(at("2014-10-26T01:30:00Z"));
    assert_eq!(short.ends(at("2014-10-26T00:29:00Z"), Berlin), twice);
    assert_eq!(short.ends(at("2014-10-26T01:00:00Z"), Berlin), twice);
    // Quiet hours that start at a repeated time start at its first occurrence.
    let late = quiet("02:30", "05:00");
    let end = Some(at("2014-10-26T04:00:00Z"));
    assert_eq!(late.ends(at("2014-10-26T00:30:00Z"), Berlin), end);
    assert_eq!(late.ends(at("2014-10-26T00:29:59Z"), Berlin), None);
    // Samoa skipped the whole day of 30 December 2011.
    let night = quiet("22:00", "07:00");
    let ends = night
        .ends(at("2011-12-30T09:00:00Z"), Pacific::Apia)
        .unwrap();
    assert_eq!(ends, at("2011-12-30T17:00:00Z"));
}

#[test]
fn invalid_quiet_hours_are_rejected() {
    for text in [
        "", "7:00", "24:00", "22:60", "22:00:00", " 2:00", "22.00", "+2:00",
    ] {
        assert!(text.parse::<TimeOfDay>().is_err(), "{text}");
    }
    let time: TimeOfDay = "07:05".parse().unwrap();
    assert_eq!(time.to_string(), "07:05");
    let error = Quiet::new(time, time).unwrap_err().to_string();
    assert!(error.contains("07:05") && error.contains("null"), "{error}");
}

proptest! {
    #[test]
    fn quiet_hours_end_later_and_are_over_at_their_end(
        (from, to) in (0..1_440_u32, 0..1_440_u32),
        second in 1_300_000_000..1_500_000_000_i64,
        zone in prop::sample::select(vec![UTC, Berlin, Pacific::Apia, Asia::Kathmandu]),
    ) {
        let time = |minutes: u32| format!("{:02}:{:02}", minutes / 60, minutes % 60);
        prop_assume!(from != to);
        let quiet = quiet(&time(from), &time(to));
        let at = DateTime::from_timestamp(second, 0).unwrap();

        if let Some(ends) = quiet.ends(at, zone) {
            prop_assert!(ends > at && ends - at <= TimeDelta::hours(50));
            prop_assert_eq!(quiet.ends(ends - TimeDelta::seconds(1), zone), Some(ends));
        }
    }
}
