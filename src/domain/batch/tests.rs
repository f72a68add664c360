//! Tests that a batch counts each event once, has exact totals, and tolerates wrong clocks.

use chrono::TimeDelta;
use proptest::prelude::*;

use super::*;

impl Batch {
    /// Returns whether a worker has to act. A closing batch is due at any time.
    pub(crate) fn is_due(&self, now: DateTime<Utc>) -> bool {
        match self.state {
            BatchState::Open => now >= self.closes_at,
            BatchState::Closing => true,
            BatchState::Closed | BatchState::Canceled => false,
        }
    }
}

pub(super) fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_398_124_800 + seconds, 0).unwrap()
}

pub(super) fn minutes(minutes: i64) -> TimeDelta {
    TimeDelta::minutes(minutes)
}

pub(super) fn comment(fanout: u32, object: &str) -> BatchItem {
    let (kind, object) = (EventType::stored("Comment"), ObjectId::stored(object));
    BatchItem { fanout_id: fanout_id(fanout), kind, object }
}

fn fanout_id(fanout: u32) -> Id {
    let [a, b, c, d] = fanout.to_be_bytes();
    Id::at(at(0), [0, 0, 0, 0, a, b, c, d])
}

pub(super) fn five_minutes() -> BatchPolicy {
    BatchPolicy { window: minutes(5), ..BatchPolicy::IMMEDIATE }
}

pub(super) fn opened(items: &[BatchItem], at: DateTime<Utc>, policy: &BatchPolicy) -> Batch {
    let key = BatchKey::Type(EventType::stored("Comment"));
    let id = Id::from_bytes([1; 12]);
    Batch::open(id, UserId::stored("mara"), key, items, at, policy)
}

pub(super) fn objects(contents: &BatchEvents) -> Vec<&str> {
    contents.items.iter().map(|item| item.object.as_str()).collect()
}

#[test]
fn joining_a_fan_out_again_changes_nothing_in_any_state() {
    let policy = five_minutes();
    let mut batch = opened(&[comment(1, "a")], at(0), &policy);
    let added = batch.join(&[comment(2, "b"), comment(2, "c")], at(9), &policy);
    assert_eq!(added, Some(2));

    for ending in [BatchState::Open, BatchState::Closing, BatchState::Closed] {
        let mut batch = Batch { state: ending, ..batch.clone() };
        let before = batch.clone();
        let again = batch.join(&[comment(2, "b"), comment(2, "c")], at(99), &policy);
        assert_eq!((again, &batch), (Some(0), &before));
    }
}

#[test]
fn an_event_that_arrives_while_a_batch_closes_joins_the_next_one() {
    let policy = five_minutes();
    let mut batch = opened(&[comment(1, "a")], at(0), &policy);
    batch.end(EndAction::Close, at(60)).unwrap();
    let before = batch.clone();

    let refused = batch.join(&[comment(2, "b")], at(61), &policy);

    assert_eq!((refused, &batch), (None, &before));
    assert!(batch.has_joined(fanout_id(1)) && !batch.has_joined(fanout_id(2)));
}

#[test]
fn the_first_or_last_items_are_kept_with_an_exact_total() {
    for (keep, kept) in [(Keep::First(2), ["0", "1"]), (Keep::Last(2), ["98", "99"])] {
        let policy = BatchPolicy { keep, ..five_minutes() };
        let mut batch = opened(&[comment(0, "0")], at(0), &policy);
        for n in 1..100 {
            batch.join(&[comment(n, &n.to_string())], at(1), &policy);
        }
        assert_eq!(objects(&batch.events), kept);
        assert_eq!((batch.events.count, batch.events.omitted_count()), (100, 98));
    }
}

#[test]
fn withdrawn_items_reduce_the_total_and_omitted_events_stay_counted() {
    let policy = BatchPolicy { keep: Keep::Last(3), ..five_minutes() };
    let mut batch = opened(&[comment(0, "a")], at(0), &policy);
    for (n, object) in ["b", "a", "c", "b"].into_iter().enumerate() {
        batch.join(&[comment(n as u32 + 1, object)], at(1), &policy);
    }

    let b = [ObjectId::stored("b")];
    let other = batch.remove_events(&EventType::stored("Like"), &b, None);
    let out = batch.remove_events(&EventType::stored("Comment"), &b, None);

    assert_eq!((other.removed, out.removed, out.omitted), (0, 1, 2));
    assert_eq!((batch.events.count, objects(&batch.events)), (4, vec!["a", "c"]));
}

#[test]
fn a_batch_whose_items_are_all_withdrawn_is_canceled() {
    let mut batch = opened(&[comment(1, "a")], at(0), &five_minutes());

    batch.remove_events(&EventType::stored("Comment"), &[ObjectId::stored("a")], None);

    assert_eq!(batch.state, BatchState::Canceled);
    assert_eq!(batch.join(&[comment(2, "b")], at(9), &five_minutes()), None);
}

#[test]
fn an_operator_can_close_or_cancel_only_an_open_batch() {
    let mut batch = opened(&[comment(1, "a")], at(0), &five_minutes());
    assert!(!batch.is_due(at(10)));

    batch.end(EndAction::Close, at(10)).unwrap();

    assert!(batch.is_due(at(10)) && batch.closes_at == at(10));
    // It is due even if the clock has gone back since.
    assert!(batch.is_due(at(-10)));
    assert_eq!(batch.end(EndAction::Close, at(11)), Err(BatchState::Closing));
    assert_eq!(batch.end(EndAction::Cancel, at(11)), Err(BatchState::Closing));
    let mut unwanted = opened(&[comment(1, "a")], at(0), &five_minutes());
    unwanted.end(EndAction::Cancel, at(11)).unwrap();
    assert_eq!(unwanted.end(EndAction::Cancel, at(11)), Err(BatchState::Canceled));
}

#[test]
fn a_fan_out_beyond_the_capacity_closes_the_batch_and_opens_the_next() {
    let policy = five_minutes();
    let mut batch = opened(&[comment(0, "a")], at(0), &policy);
    for n in 1..MAX_FANOUTS as u32 {
        assert_eq!(batch.join(&[comment(n, "a")], at(1), &policy), Some(1));
    }

    let last = batch.join(&[comment(MAX_FANOUTS as u32, "a")], at(2), &policy);

    assert_eq!((last, batch.state), (None, BatchState::Closing));
    assert_eq!((batch.events.count, batch.joined.len()), (MAX_FANOUTS as u64, MAX_FANOUTS));
    assert_eq!(batch.join(&[comment(7, "a")], at(3), &policy), Some(0));
}

#[test]
fn times_at_the_end_of_time_do_not_overflow() {
    let end = DateTime::<Utc>::MAX_UTC;

    assert_eq!(five_minutes().closes_at(end, end), end);
}

/// An action on a batch.
#[derive(Debug, Clone)]
enum Act {
    Join { fanout: u32, second: i64 },
    Remove { object: u32 },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => (0..40u32, -600..3_600i64).prop_map(|(fanout, second)| Act::Join { fanout, second }),
        1 => (0..5u32).prop_map(|object| Act::Remove { object }),
    ];
    prop::collection::vec(act, 0..60)
}

pub(super) fn policies() -> impl Strategy<Value = BatchPolicy> {
    let time = || 0..600i64;
    let keep = prop_oneof![(1..5usize).prop_map(Keep::First), (1..5usize).prop_map(Keep::Last)];
    (time(), time(), prop::option::of(1..900i64), 0..12u64, keep).prop_map(
        |(window, cooldown, max_wait, close_at, keep)| BatchPolicy {
            window: TimeDelta::seconds(window),
            cooldown: TimeDelta::seconds(cooldown),
            max_wait: max_wait.map(TimeDelta::seconds),
            close_at: std::num::NonZeroU64::new(close_at),
            keep,
            leading: false,
            deferred_until: None,
        },
    )
}

proptest! {
    /// A fan-out's object is its number modulo 5, so that removals match several events.
    #[test]
    fn each_fan_out_counts_once_and_the_closing_time_stays_within_its_bounds(
        policy in policies(), acts in acts()
    ) {
        let item = |fanout: u32| comment(fanout, &(fanout % 5).to_string());
        let mut batch = opened(&[item(99)], at(0), &policy);
        let (mut joined, mut withdrawn) = (std::collections::BTreeSet::from([99]), 0);
        for act in acts {
            let before = batch.clone();
            match act {
                Act::Join { fanout, second } => {
                    let was_open = before.state == BatchState::Open;
                    match batch.join(&[item(fanout)], at(second), &policy) {
                        Some(1) => {
                            prop_assert!(joined.insert(fanout) && was_open);
                            if batch.state == BatchState::Open {
                                prop_assert!(batch.closes_at >= before.closes_at);
                            }
                        }
                        Some(new) => {
                            prop_assert_eq!(new, 0);
                            prop_assert!(joined.contains(&fanout));
                            prop_assert_eq!(&batch, &before);
                        }
                        None => {
                            prop_assert!(!joined.contains(&fanout) && !was_open);
                            prop_assert_eq!(&batch, &before);
                        }
                    }
                }
                Act::Remove { object } => {
                    let kind = EventType::stored("Comment");
                    let objects = [ObjectId::stored(object.to_string())];
                    withdrawn += batch.remove_events(&kind, &objects, None).removed;
                    prop_assert_eq!(batch.closes_at, before.closes_at);
                }
            }
            prop_assert_eq!(batch.events.count, joined.len() as u64 - withdrawn);
            prop_assert!(batch.events.items.len() as u64 <= batch.events.count);
            prop_assert_eq!(batch.opened_at, at(0));
            if let Some(longest) = policy.max_wait {
                prop_assert!(batch.closes_at <= at(0) + longest);
            }
        }
    }
}
