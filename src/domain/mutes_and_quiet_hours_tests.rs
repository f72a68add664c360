//! Tests of the module `mutes_and_quiet_hours`.

mod mute {
    //! Tests of the scope, start and end of mutes.

    use super::super::*;
    use chrono::TimeDelta;
    use serde_json::json;

    fn at(minutes: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_398_124_800, 0).unwrap() + TimeDelta::minutes(minutes)
    }

    fn subject(name: &str) -> Subject {
        Subject::new(name).unwrap()
    }

    fn thread() -> Subject {
        subject("Thread:9")
    }

    /// Returns whether an event about the thread is muted if it happened at that time.
    fn covers(mutes: &Mutes, minutes: i64) -> bool {
        let key = ObjectKey::stored("Thread:9");
        mutes.covering_start(at(minutes), &key, None, None, None).is_some()
    }

    #[test]
    fn events_from_during_a_mute_stay_muted_after_it_ends() {
        let mut mutes = Mutes::default();
        mutes.mute(thread(), None, None, at(10));
        assert!(covers(&mutes, 0) && covers(&mutes, 10_000));

        mutes.unmute(&thread(), at(20));
        mutes.unmute(&thread(), at(30));

        assert!(covers(&mutes, 19) && !covers(&mutes, 20) && !covers(&mutes, 25));
        assert_eq!(mutes.current(at(20)).count(), 0);
        assert!(mutes.may_cover(at(19)) && !mutes.may_cover(at(20)));
    }

    #[test]
    fn a_mute_with_an_end_time_expires() {
        let mut mutes = Mutes::default();
        mutes.mute(thread(), Some(at(60)), None, at(0));

        assert!(covers(&mutes, 59) && !covers(&mutes, 60));
        assert_eq!(mutes.current(at(59)).count(), 1);
        assert_eq!(mutes.current(at(60)).count(), 0);
        assert!(!mutes.is_muted_forever(&thread()));
    }

    #[test]
    fn muting_again_changes_the_end_and_not_the_start() {
        let mut mutes = Mutes::default();
        mutes.mute(thread(), Some(at(60)), Title::cut("Budget"), at(0));
        mutes.mute(thread(), None, None, at(5));
        let (_, mute) = mutes.iter().next().unwrap();
        assert_eq!((mute.at, mute.until), (at(0), None));
        assert_eq!(mute.title, Title::cut("Budget"));

        // An end in the past ends the mute of a muted subject, and mutes no other subject.
        mutes.mute(thread(), Some(at(1)), None, at(7));
        mutes.mute(subject("Thread:10"), Some(at(7)), None, at(7));
        assert!(covers(&mutes, 6) && !covers(&mutes, 7));
        assert_eq!(mutes.len(), 1);

        // A mute that has ended starts again.
        mutes.mute(thread(), None, None, at(9));
        assert_eq!(mutes.iter().next().unwrap().1.at, at(9));
    }

    #[test]
    fn mutes_as_of_a_time_exclude_later_ones() {
        let mut mutes = Mutes::default();
        mutes.mute(thread(), None, None, at(10));
        mutes.mute(subject("artist:7"), None, None, at(20));
        let details = Details { reason: Some("follows artist:7".into()), ..Details::default() };
        let since = |mutes: &Mutes, key: &str| {
            let key = ObjectKey::stored(key);
            mutes.covering_start(at(0), &key, None, None, Some(&details))
        };
        assert_eq!(since(&mutes, "Thread:9"), Some(at(10)));
        assert_eq!(since(&mutes, "Thread:8"), Some(at(20)));

        mutes.remove_started_after(at(15));

        assert_eq!(since(&mutes, "Thread:9"), Some(at(10)));
        assert_eq!(since(&mutes, "Thread:8"), None);
    }

    #[test]
    fn expired_mutes_are_deleted_and_current_ones_are_not() {
        let mut mutes = Mutes::default();
        for (name, until) in [("a", Some(10)), ("b", Some(20)), ("c", None)] {
            mutes.mute(subject(name), until.map(at), None, at(0));
        }

        mutes.remove_ended(at(10));

        let left: Vec<&str> = mutes.iter().map(|(subject, _)| subject.as_str()).collect();
        assert_eq!(left, ["b", "c"]);
    }

    #[test]
    fn a_user_has_at_most_1000_mutes() {
        let mut mutes = Mutes::default();
        for n in 0..Mutes::MAX {
            mutes.mute(subject(&format!("Thread:{n}")), None, None, at(0));
        }
        assert!(mutes.check().is_ok());

        mutes.mute(subject("one more"), None, None, at(0));

        let error = mutes.check().unwrap_err().to_string();
        assert!(error.contains("1001") && error.contains("1000"), "{error}");
    }

    #[test]
    fn a_subject_is_an_object_its_topic_or_a_follow_key() {
        let phrase: Phrase = "commented on".parse().unwrap();
        let key = ObjectKey::stored("Comment:c1");
        let object = |title: &str, url: &str, data: serde_json::Value| Object {
            title: Some(title.into()),
            url: Some(url.into()),
            by: Some("Ada".into()),
            data: data.into(),
            ..Object::without_data(key.clone())
        };
        let said = object("Re: Budget", "https://a.example/1#c1", json!({"about": "Budget"}));
        let linked = json!({"about": {"title": "Budget", "url": "https://a.example/1"}});
        let linked = object("Re: Budget", "https://a.example/1#c1", linked);
        let plain = object("Budget", "https://a.example/1#c1", json!(null));
        let follows = |reason: &str| Details { reason: Some(reason.into()), ..Details::default() };
        let is_muted = |name: &str, object: Option<&Object>, phrased: bool, reason: &str| {
            let mut mutes = Mutes::default();
            mutes.mute(subject(name), None, None, at(0));
            let phrase = Some(&phrase).filter(|_| phrased);
            let details = follows(reason);
            mutes.covering_start(at(0), &key, object, phrase, Some(&details)).is_some()
        };

        assert!(is_muted("Comment:c1", None, false, "named"));
        assert!(is_muted("Comment:c1", Some(&said), true, "named"));
        assert!(is_muted("Budget", Some(&said), false, "named"));
        assert!(is_muted("https://a.example/1", Some(&linked), false, "named"));
        assert!(is_muted("https://a.example/1", Some(&plain), true, "named"));
        assert!(is_muted("artist:7", Some(&plain), false, "follows artist:7"));
        // A topic with a URL is muted by that URL. Without a phrase, an object is its own topic.
        assert!(!is_muted("Budget", Some(&linked), false, "named"));
        assert!(!is_muted("https://a.example/1", Some(&plain), false, "named"));
        // With several follow keys it is unknown which one applies. An author is not a subject.
        assert!(!is_muted("artist:7", Some(&plain), false, "follows"));
        assert!(!is_muted("artist:7", Some(&plain), false, "follows artist:70"));
        assert!(!is_muted("Ada", Some(&plain), true, "named"));
    }

    #[test]
    fn a_title_is_one_line_that_fits_into_a_link() {
        let cut = |text: &str| Title::cut(text).map(|title| title.as_str().to_owned());
        assert_eq!(cut(" Budget\n 2014\t"), Some("Budget 2014".into()));
        assert_eq!(cut(" \n"), None);
        let long = cut(&"ä".repeat(100)).unwrap();
        assert!(long.len() <= Title::MAX_BYTES && long.ends_with('…'), "{long}");

        for refused in ["", " ", "a\nb"] {
            assert!(refused.parse::<Title>().is_err(), "{refused:?}");
        }
        let error = "x".repeat(121).parse::<Title>().unwrap_err().to_string();
        assert!(error.contains("121") && error.contains("120"), "{error}");
        assert_eq!(" Budget ".parse::<Title>().unwrap().as_str(), "Budget");
    }
}

mod quiet {
    //! Tests of when quiet hours end, including nights with a clock change.

    use super::super::*;
    use chrono_tz::Europe::Berlin;
    use chrono_tz::{Asia, Pacific, UTC};
    use proptest::prelude::*;

    fn quiet(from: &str, to: &str) -> QuietHours {
        QuietHours::new(from.parse().unwrap(), to.parse().unwrap()).unwrap()
    }

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn a_night_lasts_until_the_next_morning() {
        let night = quiet("22:00", "07:00");
        let ends = |text: &str| night.end_at(at(text), UTC);
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
        assert_eq!(noon.end_at(at("2014-04-20T12:00:00Z"), UTC), end);
        assert_eq!(noon.end_at(at("2014-04-20T13:30:00Z"), UTC), None);
        assert_eq!(noon.end_at(at("2014-04-20T22:00:00Z"), UTC), None);

        let night = quiet("22:00", "07:00");
        let end = Some(at("2014-04-19T22:00:00Z"));
        assert_eq!(night.end_at(at("2014-04-19T13:00:00Z"), Asia::Tokyo), end);
        assert_eq!(night.end_at(at("2014-04-19T12:59:59Z"), Asia::Tokyo), None);
    }

    #[test]
    fn quiet_hours_end_by_the_local_clock_on_nights_with_a_clock_change() {
        let night = quiet("22:00", "07:00");
        // The night before 30 March 2014 is an hour shorter, that before 26 October an hour longer.
        let spring = Some(at("2014-03-30T05:00:00Z"));
        let autumn = Some(at("2014-10-26T06:00:00Z"));
        assert_eq!(night.end_at(at("2014-03-29T21:00:00Z"), Berlin), spring);
        assert_eq!(night.end_at(at("2014-03-29T20:59:59Z"), Berlin), None);
        assert_eq!(night.end_at(at("2014-10-25T20:00:00Z"), Berlin), autumn);
        assert_eq!(night.end_at(at("2014-10-26T05:59:59Z"), Berlin), autumn);
    }

    #[test]
    fn an_end_time_that_is_skipped_or_repeated_falls_after_the_change() {
        let short = quiet("00:00", "02:30");
        // 02:30 does not occur on 30 March: at 01:00 UTC the local time is 03:00.
        let skipped = Some(at("2014-03-30T01:00:00Z"));
        assert_eq!(short.end_at(at("2014-03-29T23:30:00Z"), Berlin), skipped);
        // It occurs twice on 26 October, at 00:30 and 01:30 UTC.
        let twice = Some(at("2014-10-26T01:30:00Z"));
        assert_eq!(short.end_at(at("2014-10-26T00:29:00Z"), Berlin), twice);
        assert_eq!(short.end_at(at("2014-10-26T01:00:00Z"), Berlin), twice);
        // Quiet hours that start at a repeated time start at its first occurrence.
        let late = quiet("02:30", "05:00");
        let end = Some(at("2014-10-26T04:00:00Z"));
        assert_eq!(late.end_at(at("2014-10-26T00:30:00Z"), Berlin), end);
        assert_eq!(late.end_at(at("2014-10-26T00:29:59Z"), Berlin), None);
        // Samoa skipped the whole day of 30 December 2011.
        let night = quiet("22:00", "07:00");
        let ends = night.end_at(at("2011-12-30T09:00:00Z"), Pacific::Apia).unwrap();
        assert_eq!(ends, at("2011-12-30T17:00:00Z"));
    }

    #[test]
    fn invalid_quiet_hours_are_rejected() {
        for text in ["", "7:00", "24:00", "22:60", "22:00:00", " 2:00", "22.00", "+2:00"] {
            assert!(text.parse::<TimeOfDay>().is_err(), "{text}");
        }
        let time: TimeOfDay = "07:05".parse().unwrap();
        assert_eq!(time.to_string(), "07:05");
        let error = QuietHours::new(time, time).unwrap_err().to_string();
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

            if let Some(ends) = quiet.end_at(at, zone) {
                prop_assert!(ends > at && ends - at <= TimeDelta::hours(50));
                prop_assert_eq!(quiet.end_at(ends - TimeDelta::seconds(1), zone), Some(ends));
            }
        }
    }
}
