//! Compares the selection of due users with the schedule of each user.

use chrono::TimeDelta;
use proptest::prelude::*;

use super::*;
use crate::domain::User;
use crate::domain::user::DigestPreference;

const CADENCES: [Option<Cadence>; 4] = [
    None,
    Some(Cadence::Never),
    Some(Cadence::Daily),
    Some(Cadence::Weekly),
];
/// Zones with offsets of whole hours and quarter hours, on both sides of the date line, and one
/// that skipped a day.
const ZONES: [Option<Tz>; 8] = [
    None,
    Some(Tz::UTC),
    Some(Tz::Europe__Berlin),
    Some(Tz::America__New_York),
    Some(Tz::Asia__Kathmandu),
    Some(Tz::Australia__Lord_Howe),
    Some(Tz::Pacific__Apia),
    Some(Tz::Pacific__Kiritimati),
];

fn all_users() -> impl Iterator<Item = User> {
    let weekdays = WEEK.into_iter().map(Some).chain([None]);
    let hours = (0..24).map(Some).chain([None]);
    let choices = weekdays.flat_map(move |weekday| {
        let hours = hours.clone();
        CADENCES.into_iter().flat_map(move |cadence| {
            hours.clone().map(move |hour| DigestPreference {
                cadence,
                weekday,
                hour,
                since: None,
            })
        })
    });
    choices.flat_map(|digest| {
        ZONES.into_iter().map(move |tz| User {
            tz,
            digest,
            ..User::new("ada".parse().unwrap())
        })
    })
}

fn is_in(user: &User, choices: &DueChoices) -> bool {
    choices.tz == user.tz
        && choices.cadences.contains(&user.digest.cadence)
        && choices.weekdays.contains(&user.digest.weekday)
        && choices.hour == user.digest.hour
}

/// Checks that exactly one result matches each due user, and none the others.
fn check(common: &Common, after: DateTime<Utc>, until: DateTime<Utc>) {
    let found: Vec<DueChoices> = ZONES
        .iter()
        .flat_map(|tz| DueChoices::between(*tz, common, after, until))
        .collect();
    for user in all_users() {
        let wants_none = user.schedule(&common.schedule).cadence == Cadence::Never;
        let due = user.digests(&common.schedule).0.last_due(until);
        let fell_due = due.is_some_and(|due| due.at > after) && (common.mandatory || !wants_none);
        let answers = found.iter().filter(|choices| is_in(&user, choices));
        assert_eq!(answers.count(), usize::from(fell_due), "{user:?} {due:?}");
    }
}

fn common(cadence: Cadence, mandatory: bool) -> Common {
    Common {
        schedule: Schedule {
            cadence,
            weekday: Weekday::Mon,
            hour: 9,
            tz: Tz::Europe__Berlin,
        },
        mandatory,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn each_due_user_matches_exactly_one_result_and_no_other_user_does(
        quarter in 0..4 * 24 * 400_i64,
        quarters in 0..40_i64,
        cadence in prop::sample::select(vec![Cadence::Never, Cadence::Daily, Cadence::Weekly]),
        mandatory: bool,
    ) {
        let start: DateTime<Utc> = "2025-12-01T00:00:00Z".parse().unwrap();
        let after = start + TimeDelta::minutes(15 * quarter);
        let until = after + TimeDelta::minutes(15 * quarters);
        check(&common(cadence, mandatory), after, until);
    }
}

#[test]
fn an_hour_skipped_by_the_clock_is_due_after_it() {
    let common = common(Cadence::Daily, false);
    for (after, until) in [
        ("2026-03-29T00:45:00Z", "2026-03-29T01:00:00Z"),
        ("2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z"),
        ("2011-12-30T08:00:00Z", "2011-12-30T11:00:00Z"),
        ("2011-12-29T08:00:00Z", "2012-01-01T11:00:00Z"),
    ] {
        check(&common, after.parse().unwrap(), until.parse().unwrap());
    }
}
