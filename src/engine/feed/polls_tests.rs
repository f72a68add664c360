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
    /// Caches a tag of Ada's that depends on this object.
    fn with(object: &str) -> Self {
        let clock = Arc::new(ManualClock::at("2014-04-22T12:00:00Z".parse().unwrap()));
        let polls = Arc::new(Polls::new(clock.clone(), TimeDelta::seconds(30)));
        let ada = UserId::stored("ada");
        polls.hear(&Poke::All);
        let before = polls.glance(&ada);
        polls.keep(&ada, "limit=20", TAG, before, &[ObjectKey::stored(object)]);
        Self { clock, polls, ada }
    }

    fn knows(&self, question: &str) -> bool {
        let has = |tag: &Tag| *tag == TAG;
        self.polls.is_unchanged(&self.ada, question, has).is_some()
    }
}

#[test]
fn an_answer_is_known_to_its_reader_for_its_question_alone() {
    let case = Case::with("Artwork:1");

    assert!(case.knows("limit=20"));
    assert!(!case.knows("limit=21"));
    let ben = UserId::stored("ben");
    assert_eq!(case.polls.is_unchanged(&ben, "limit=20", |_| true), None);
    assert_eq!(
        case.polls.is_unchanged(&case.ada, "limit=20", |_| false),
        None
    );
}

#[test]
fn whoever_is_poked_is_looked_at_again() {
    let pokes = [
        (Poke::people(["ada"]), false),
        (Poke::people(["ben"]), true),
        (Poke::objects(["Artwork:1"]), false),
        (Poke::objects(["Artwork:2"]), true),
        (Poke::All, false),
    ];
    for (poke, known) in pokes {
        let case = Case::with("Artwork:1");

        case.polls.hear(&poke);

        assert_eq!(case.knows("limit=20"), known, "{poke:?}");
    }
}

#[test]
fn an_answer_grows_old_and_ends_with_its_day() {
    let case = Case::with("Artwork:1");
    case.clock.advance(TimeDelta::seconds(29));
    assert!(case.knows("limit=20"));
    case.clock.advance(TimeDelta::seconds(1));
    assert!(!case.knows("limit=20"));

    let case = Case::with("Artwork:1");
    case.clock
        .advance(TimeDelta::hours(12) - TimeDelta::seconds(10));
    let before = case.polls.glance(&case.ada);
    case.polls.keep(&case.ada, "late", TAG, before, &[]);
    assert!(case.knows("late"));
    case.clock.advance(TimeDelta::seconds(10));
    assert!(!case.knows("late"));
}

#[test]
fn what_was_poked_while_an_answer_was_made_is_not_believed() {
    for poke in [
        Poke::people(["ada"]),
        Poke::objects(["Artwork:1"]),
        Poke::All,
    ] {
        let case = Case::with("Artwork:9");
        let before = case.polls.glance(&case.ada);
        case.polls.hear(&poke);

        let about = [ObjectKey::stored("Artwork:1")];
        case.polls.keep(&case.ada, "days=1", TAG, before, &about);

        assert!(!case.knows("days=1"), "{poke:?}");
    }
}

#[test]
fn nothing_is_known_while_nobody_is_heard() {
    let clock = Arc::new(ManualClock::at("2014-04-22T12:00:00Z".parse().unwrap()));
    let polls = Polls::new(clock, TimeDelta::seconds(30));
    let ada = UserId::stored("ada");
    let before = polls.glance(&ada);

    polls.keep(&ada, "limit=20", TAG, before, &[]);

    assert_eq!(polls.is_unchanged(&ada, "limit=20", |_| true), None);
}

#[test]
fn an_answer_about_many_objects_is_looked_at_when_any_changes() {
    let case = Case::with("Artwork:1");
    let many: Vec<ObjectKey> = (0..4_000)
        .map(|n| ObjectKey::stored(format!("o{n}")))
        .collect();
    let before = case.polls.glance(&case.ada);
    case.polls.keep(&case.ada, "many", TAG, before, &many);
    assert!(case.knows("many"));

    case.polls.hear(&Poke::objects(["Nothing:1"]));

    assert!(!case.knows("many"));
}

#[test]
fn readers_of_a_slow_store_are_asked_to_wait_for_longer() {
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
async fn whoever_waits_is_told_and_leaves_nothing_behind() {
    let case = Case::with("Artwork:1");
    let waiting = case.polls.wait_for(&case.ada);
    let another = case.polls.wait_for(&UserId::stored("ben"));

    case.polls.hear(&Poke::people(["ada"]));
    waiting.news().await;

    let late = tokio::time::timeout(Duration::from_millis(20), another.news()).await;
    assert!(late.is_err());
    case.polls.hear(&Poke::All);
    another.news().await;
    drop((waiting, another));
    assert!(case.polls.waiting().is_empty());
}
