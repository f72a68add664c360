//! Tests of the module `schedule`.

mod cadence {
    //! Tests of periods and due times: time zones, clock changes, and users who change their zone.

    use super::super::*;
    use chrono::{DateTime, TimeDelta, Utc, Weekday};
    use chrono_tz::Tz;
    use proptest::prelude::*;

    fn utc(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn daily(hour: u8, tz: Tz) -> Schedule {
        Schedule { cadence: Cadence::Daily, weekday: Weekday::Mon, hour, tz }
    }

    fn weekly(weekday: Weekday, hour: u8, tz: Tz) -> Schedule {
        Schedule { cadence: Cadence::Weekly, weekday, hour, tz }
    }

    fn period(schedule: Schedule, now: &str) -> String {
        schedule.last_due(utc(now)).unwrap().period
    }

    #[test]
    fn a_daily_digest_is_due_at_the_local_hour() {
        let schedule = daily(9, Tz::America__New_York);
        assert_eq!(period(schedule, "2014-04-22T12:59:59Z"), "2014-04-21");
        assert_eq!(period(schedule, "2014-04-22T13:00:00Z"), "2014-04-22");
    }

    #[test]
    fn a_weekly_digest_is_due_once_per_iso_week() {
        let schedule = weekly(Weekday::Mon, 9, Tz::UTC);
        assert_eq!(period(schedule, "2014-04-21T08:59:59Z"), "2014-W16");
        assert_eq!(period(schedule, "2014-04-21T09:00:00Z"), "2014-W17");
        assert_eq!(period(schedule, "2014-04-28T08:59:59Z"), "2014-W17");
        assert_eq!(
            schedule.next_due(utc("2014-04-21T09:00:00Z")).unwrap().at,
            utc("2014-04-28T09:00:00Z")
        );
    }

    #[test]
    fn the_week_of_new_year_has_its_iso_name() {
        assert_eq!(period(weekly(Weekday::Wed, 0, Tz::UTC), "2014-12-31T00:00:00Z"), "2015-W01");
    }

    #[test]
    fn an_hour_skipped_in_spring_is_due_at_the_first_moment_after_it() {
        let schedule = daily(2, Tz::Europe__Berlin);
        let due = schedule.last_due(utc("2014-03-30T12:00:00Z")).unwrap();
        assert_eq!((due.at, due.period), (utc("2014-03-30T01:00:00Z"), "2014-03-30".into()));
    }

    #[test]
    fn an_hour_repeated_in_autumn_is_due_once_at_its_first_occurrence() {
        let schedule = daily(2, Tz::Europe__Berlin);
        assert_eq!(
            schedule.last_due(utc("2014-10-26T00:30:00Z")).unwrap().at,
            utc("2014-10-26T00:00:00Z")
        );
        assert_eq!(
            period(schedule, "2014-10-26T00:30:00Z"),
            period(schedule, "2014-10-26T01:30:00Z")
        );
    }

    #[test]
    fn a_skipped_local_day_does_not_stop_digests() {
        // Samoa went from 29 to 31 December 2011.
        let schedule = daily(9, Tz::Pacific__Apia);
        assert_eq!(period(schedule, "2011-12-30T19:30:00Z"), "2011-12-31");
        assert_eq!(period(schedule, "2011-12-29T19:30:00Z"), "2011-12-29");
    }

    #[test]
    fn moving_west_between_two_digests_does_not_repeat_the_local_day() {
        let (tokyo, angeles) = (daily(9, Tz::Asia__Tokyo), daily(9, Tz::America__Los_Angeles));
        // Sent in Tokyo at 09:00 on the 22nd. In Los Angeles the 22nd comes later, under the same
        // name.
        assert_eq!(period(tokyo, "2014-04-22T00:00:00Z"), "2014-04-22");
        assert_eq!(period(angeles, "2014-04-22T16:00:00Z"), "2014-04-22");
    }

    #[test]
    fn changing_the_weekday_within_a_week_does_not_repeat_the_week() {
        assert_eq!(period(weekly(Weekday::Mon, 9, Tz::UTC), "2014-04-21T10:00:00Z"), "2014-W17");
        assert_eq!(period(weekly(Weekday::Fri, 9, Tz::UTC), "2014-04-25T10:00:00Z"), "2014-W17");
    }

    #[test]
    fn a_user_without_digests_is_never_due() {
        let never = Schedule { cadence: Cadence::Never, ..daily(9, Tz::UTC) };
        assert_eq!(
            (
                never.last_due(utc("2014-04-22T12:00:00Z")),
                never.next_due(utc("2014-04-22T12:00:00Z"))
            ),
            (None, None)
        );
    }

    fn schedules() -> impl Strategy<Value = Schedule> {
        let zones = prop::sample::select(chrono_tz::TZ_VARIANTS.to_vec());
        let days = prop::sample::select(vec![Weekday::Mon, Weekday::Wed, Weekday::Sun]);
        (any::<bool>(), days, 0u8..24, zones).prop_map(|(daily, weekday, hour, tz)| {
            let cadence = if daily { Cadence::Daily } else { Cadence::Weekly };
            Schedule { cadence, weekday, hour, tz }
        })
    }

    proptest! {
        #[test]
        fn the_last_and_next_due_times_enclose_the_current_time(
            schedule in schedules(), seconds in 0i64..2_000_000_000,
        ) {
            let now = DateTime::from_timestamp(seconds, 0).unwrap();
            let (last, next) = (schedule.last_due(now).unwrap(), schedule.next_due(now).unwrap());
            prop_assert!(last.at <= now && now < next.at);
            prop_assert_ne!(last.period, next.period);
        }

        #[test]
        fn every_period_of_a_year_is_due_once_and_in_order(
            schedule in schedules(), year in 1990i32..2030,
        ) {
            let mut now = utc(&format!("{year}-01-10T00:00:00Z"));
            let end = now + TimeDelta::days(370);
            let mut seen = std::collections::HashSet::new();
            while now < end {
                let due = schedule.next_due(now).unwrap();
                prop_assert!(seen.insert(due.period.clone()), "{} twice", due.period);
                let last = schedule.last_due(due.at);
                prop_assert_eq!(last.as_ref(), Some(&due));
                now = due.at;
            }
            let expected = if schedule.cadence == Cadence::Daily { 365..=375 } else { 52..=55 };
            prop_assert!(expected.contains(&seen.len()), "{} periods", seen.len());
        }
    }
}

mod due_choices {
    //! Compares the selection of due users with the schedule of each user.

    use super::super::*;
    use crate::domain::User;
    use crate::domain::user::DigestPreference;
    use chrono::TimeDelta;
    use proptest::prelude::*;

    const CADENCES: [Option<Cadence>; 4] =
        [None, Some(Cadence::Never), Some(Cadence::Daily), Some(Cadence::Weekly)];
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

    fn is_in(user: &User, choices: &DueUserFilter) -> bool {
        choices.tz == user.tz
            && choices.cadences.contains(&user.digest.cadence)
            && choices.weekdays.contains(&user.digest.weekday)
            && choices.hour == user.digest.hour
    }

    /// Checks that exactly one result matches each due user, and none the others.
    fn check(common: &DigestDefaults, after: DateTime<Utc>, until: DateTime<Utc>) {
        let found: Vec<DueUserFilter> = ZONES
            .iter()
            .flat_map(|tz| DueUserFilter::due_between(*tz, common, after, until))
            .collect();
        for user in all_users() {
            let wants_none = user.schedule(&common.schedule).cadence == Cadence::Never;
            let due = user.digest_schedule(&common.schedule).0.last_due(until);
            let fell_due = due.as_ref().is_some_and(|due| due.at > after)
                && (common.sends_mandatory || !wants_none);
            let matching = found.iter().filter(|choices| is_in(&user, choices));
            assert_eq!(matching.count(), usize::from(fell_due), "{user:?} {due:?}");
        }
    }

    fn common(cadence: Cadence, mandatory: bool) -> DigestDefaults {
        DigestDefaults {
            schedule: Schedule { cadence, weekday: Weekday::Mon, hour: 9, tz: Tz::Europe__Berlin },
            sends_mandatory: mandatory,
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
}
