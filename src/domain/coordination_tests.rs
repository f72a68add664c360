//! Tests of the module `coordination`.

mod leases {
    use super::super::*;

    #[test]
    fn a_lease_is_valid_until_it_expires_unless_it_ends_too_far_ahead() {
        let now = DateTime::from_timestamp(1_398_124_800, 0).unwrap();
        let holds = |until| {
            let owner = "me".to_owned();
            Lease { owner, until }.holds(now)
        };

        assert!(holds(now + TimeDelta::milliseconds(1)) && holds(now + LONGEST_LEASE));
        assert!(!holds(now) && !holds(now + LONGEST_LEASE + TimeDelta::milliseconds(1)));
    }
}

mod change_notices {
    use super::super::*;

    #[test]
    fn keys_are_the_same_in_every_version() {
        assert_eq!(NoticeKey::of(""), NoticeKey(0x4fd0_bfc1));
        assert_ne!(NoticeKey::of("ada"), NoticeKey::of("adb"));
    }

    #[test]
    fn a_change_notice_round_trips_and_an_unreadable_one_means_everything() {
        for notice in [ChangeNotice::people(["ada", "ben"]), ChangeNotice::objects(["Artwork:1"])] {
            let (about, keys) = notice.kept();
            assert_eq!(ChangeNotice::stored(about, &keys), notice);
            assert_eq!(ChangeNotice::stored(about, &keys[1..]), ChangeNotice::All);
        }
        let (about, keys) = ChangeNotice::All.kept();
        assert_eq!(ChangeNotice::stored(about, &keys), ChangeNotice::All);
        assert_eq!(ChangeNotice::stored("places", &[]), ChangeNotice::All);
    }
}
