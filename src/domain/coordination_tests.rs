//! Tests of the module `coordination`.

mod leases {
    use super::super::*;

    #[test]
    fn a_lease_is_valid_until_it_expires_unless_it_ends_too_far_ahead() {
        let now = DateTime::from_timestamp(1_398_124_800, 0).unwrap();
        let holds = |until| {
            let owner = "me".to_owned();
            Lease { owner, until }.is_valid_at(now)
        };

        assert!(holds(now + TimeDelta::milliseconds(1)) && holds(now + MAX_LEASE));
        assert!(!holds(now) && !holds(now + MAX_LEASE + TimeDelta::milliseconds(1)));
    }
}

mod change_notices {
    use super::super::*;

    #[test]
    fn keys_are_the_same_in_every_version() {
        assert_eq!(NoticeKey::from_name(""), NoticeKey(0x4fd0_bfc1));
        assert_ne!(NoticeKey::from_name("ada"), NoticeKey::from_name("adb"));
    }

    #[test]
    fn a_change_notice_round_trips_and_an_unreadable_one_means_everything() {
        for notice in [ChangeNotice::users(["ada", "ben"]), ChangeNotice::objects(["Artwork:1"])] {
            let (about, keys) = notice.to_stored();
            assert_eq!(ChangeNotice::from_stored(about, &keys), notice);
            assert_eq!(ChangeNotice::from_stored(about, &keys[1..]), ChangeNotice::All);
        }
        let (about, keys) = ChangeNotice::All.to_stored();
        assert_eq!(ChangeNotice::from_stored(about, &keys), ChangeNotice::All);
        assert_eq!(ChangeNotice::from_stored("places", &[]), ChangeNotice::All);
    }
}
