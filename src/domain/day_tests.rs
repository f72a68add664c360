//! Tests of the module `day`.

mod days {
    use super::super::*;

    #[test]
    fn the_window_is_a_day_and_the_seven_days_before_it() {
        let window = DaySet::ending("20140303".parse().unwrap(), 7);
        let days: Vec<_> = window.days().map(|day| day.to_string()).collect();
        assert_eq!(days.len(), 8);
        assert_eq!(days.first().unwrap(), "20140224");
        assert_eq!(days.last().unwrap(), "20140303");
        assert!(!window.contains("20140223".parse().unwrap()));
    }

    #[test]
    fn midnight_belongs_to_the_following_day() {
        let midnight = "20140422".parse::<Day>().unwrap().start();
        assert_eq!(Day::of(midnight).to_string(), "20140422");
        assert_eq!(Day::of(midnight - chrono::TimeDelta::nanoseconds(1)).to_string(), "20140421");
    }

    #[test]
    fn only_day_collections_have_a_day() {
        assert!(Day::from_collection("notifications_20140422").is_some());
        for name in [
            "notifications_20140432",
            "notifications_2014042",
            "notifications_+2014042",
            "users",
            "x_20140422",
        ] {
            assert_eq!(Day::from_collection(name), None, "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_day_round_trips(n in 0u32..2_000_000) {
            let first = "00010101".parse::<Day>().unwrap();
            let day = Day::of(first.start() + TimeDelta::days(n.into()));
            proptest::prop_assert_eq!(day.to_string().parse::<Day>().unwrap(), day);
            proptest::prop_assert_eq!(Day::from_collection(&day.collection_name()), Some(day));
        }
    }
}

mod acceptance {
    use super::super::*;

    fn check_at(at: &str) -> Result<(), String> {
        let now = "2014-04-19T10:00:00Z".parse().unwrap();
        let checked = check_event_time(at.parse().unwrap(), now, 7);
        checked.map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn an_event_time_may_lie_in_the_window_or_slightly_ahead() {
        for at in ["2014-04-12T00:00:00Z", "2014-04-19T10:00:00Z", "2014-04-19T10:05:00Z"] {
            assert_eq!(check_at(at), Ok(()), "{at}");
        }
    }

    #[test]
    fn a_time_outside_the_range_is_an_error_with_the_range_and_a_hint() {
        assert_eq!(
            check_at("2014-04-11T23:59:59.5Z").unwrap_err(),
            "time \"2014-04-11T23:59:59.500Z\" lies before the window, so it would not be shown or \
             emailed; events can be of 2014-04-12T00:00:00Z to 2014-04-19T10:05:00Z: give the time \
             in UTC or with its offset, or leave the time out where it happens now"
        );
        let future = check_at("2014-04-19T12:00:00Z").unwrap_err();
        assert!(future.contains("lies in the future"), "{future}");
    }

    #[test]
    fn mistaken_seconds_and_milliseconds_are_recognized() {
        let seconds = check_at("1970-01-17T04:18:00Z").unwrap_err();
        assert!(seconds.ends_with("(was a number of seconds read as milliseconds?)"), "{seconds}");
        let millis = check_at("+46267-01-20T00:00:00Z").unwrap_err();
        assert!(millis.ends_with("(was a number of milliseconds read as seconds?)"), "{millis}");
    }
}
