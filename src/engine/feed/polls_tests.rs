//! Tests which entity tags are cached, and when they become invalid.

use super::*;
use crate::clock::ManualClock;

const TAG: Tag = [7; 16];

struct Case {
    clock: Arc<ManualClock>,
    polls: Arc<Polls>,
    ada: UserId,
}

impl Case {
    /// Caches a tag for Ada that depends on this object.
    fn with(object: &str) -> Self {
        let clock = Arc::new(ManualClock::at("2014-04-22T12:00:00Z".parse().unwrap()));
        let polls = Arc::new(Polls::new(clock.clone(), TimeDelta::seconds(30)));
        let ada = UserId::stored("ada");
        polls.hear(&ChangeNotice::All);
        let before = polls.glance(&ada);
        polls.keep(&ada, "limit=20", TAG, before, &[ObjectKey::stored(object)]);
        Self { clock, polls, ada }
    }

    fn is_cached(&self, question: &str) -> bool {
        let has = |tag: &Tag| *tag == TAG;
        self.polls.is_unchanged(&self.ada, question, has).is_some()
    }
}

#[test]
fn a_cached_tag_is_valid_for_its_user_and_query_only() {
    let case = Case::with("Artwork:1");

    assert!(case.is_cached("limit=20"));
    assert!(!case.is_cached("limit=21"));
    let ben = UserId::stored("ben");
    assert_eq!(case.polls.is_unchanged(&ben, "limit=20", |_| true), None);
    assert_eq!(
        case.polls.is_unchanged(&case.ada, "limit=20", |_| false),
        None
    );
}

#[test]
fn a_change_notice_invalidates_the_tags_of_its_users_and_objects() {
    let notices = [
        (ChangeNotice::people(["ada"]), false),
        (ChangeNotice::people(["ben"]), true),
        (ChangeNotice::objects(["Artwork:1"]), false),
        (ChangeNotice::objects(["Artwork:2"]), true),
        (ChangeNotice::All, false),
    ];
    for (notice, known) in notices {
        let case = Case::with("Artwork:1");

        case.polls.hear(&notice);

        assert_eq!(case.is_cached("limit=20"), known, "{notice:?}");
    }
}

#[test]
fn a_cached_tag_expires_after_feed_fresh_and_at_the_end_of_its_day() {
    let case = Case::with("Artwork:1");
    case.clock.advance(TimeDelta::seconds(29));
    assert!(case.is_cached("limit=20"));
    case.clock.advance(TimeDelta::seconds(1));
    assert!(!case.is_cached("limit=20"));

    let case = Case::with("Artwork:1");
    case.clock
        .advance(TimeDelta::hours(12) - TimeDelta::seconds(10));
    let before = case.polls.glance(&case.ada);
    case.polls.keep(&case.ada, "late", TAG, before, &[]);
    assert!(case.is_cached("late"));
    case.clock.advance(TimeDelta::seconds(10));
    assert!(!case.is_cached("late"));
}

#[test]
fn a_notice_that_arrives_during_the_read_prevents_caching() {
    for notice in [
        ChangeNotice::people(["ada"]),
        ChangeNotice::objects(["Artwork:1"]),
        ChangeNotice::All,
    ] {
        let case = Case::with("Artwork:9");
        let before = case.polls.glance(&case.ada);
        case.polls.hear(&notice);

        let about = [ObjectKey::stored("Artwork:1")];
        case.polls.keep(&case.ada, "days=1", TAG, before, &about);

        assert!(!case.is_cached("days=1"), "{notice:?}");
    }
}

#[test]
fn nothing_is_cached_before_change_notices_arrive() {
    let clock = Arc::new(ManualClock::at("2014-04-22T12:00:00Z".parse().unwrap()));
    let polls = Polls::new(clock, TimeDelta::seconds(30));
    let ada = UserId::stored("ada");
    let before = polls.glance(&ada);

    polls.keep(&ada, "limit=20", TAG, before, &[]);

    assert_eq!(polls.is_unchanged(&ada, "limit=20", |_| true), None);
}

#[test]
fn a_tag_that_depends_on_many_objects_is_invalidated_by_any_notice() {
    let case = Case::with("Artwork:1");
    let many: Vec<ObjectKey> = (0..4_000)
        .map(|n| ObjectKey::stored(format!("o{n}")))
        .collect();
    let before = case.polls.glance(&case.ada);
    case.polls.keep(&case.ada, "many", TAG, before, &many);
    assert!(case.is_cached("many"));

    case.polls.hear(&ChangeNotice::objects(["Nothing:1"]));

    assert!(!case.is_cached("many"));
}

#[test]
fn the_poll_interval_grows_while_the_store_is_slow() {
    let case = Case::with("Artwork:1");
    let people: Vec<UserId> = (0..50).map(|n| UserId::stored(format!("p{n}"))).collect();
    let intervals = || people.iter().map(|user| case.polls.interval(user));
    assert!(intervals().all(|seconds| (27..=33).contains(&seconds)));
    assert!(intervals().max() > intervals().min());

    (0..60).for_each(|_| case.polls.took(Duration::from_secs(1)));

    assert!(intervals().all(|seconds| (243..=297).contains(&seconds)));
}

#[test]
fn memory_is_bounded() {
    let case = Case::with("Artwork:1");
    for n in 0..300_000 {
        let before = case.polls.glance(&case.ada);
        case.polls.keep(&case.ada, &n.to_string(), TAG, before, &[]);
    }

    let (kept, bytes) = case.polls.answers.size();
    assert!(kept > 0 && bytes <= ANSWERS, "{kept} in {bytes}");
}

#[tokio::test]
async fn a_waiting_request_is_notified_and_then_removed() {
    let case = Case::with("Artwork:1");
    let waiting = case.polls.wait_for(&case.ada);
    let another = case.polls.wait_for(&UserId::stored("ben"));

    case.polls.hear(&ChangeNotice::people(["ada"]));
    waiting.news().await;

    let late = tokio::time::timeout(Duration::from_millis(20), another.news()).await;
    assert!(late.is_err());
    case.polls.hear(&ChangeNotice::All);
    another.news().await;
    drop((waiting, another));
    assert!(case.polls.waiting().is_empty());
}
