//! Tests that an accumulator has one open batch, counts each event once, and deduplicates events of
//! earlier batches.

use proptest::prelude::*;

use super::*;
use crate::domain::batch::ChosenKey;

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_398_124_800 + seconds, 0).unwrap()
}

fn id(n: u32) -> Id {
    let [a, b, c, d] = n.to_be_bytes();
    Id::at(at(0), [0, 0, 0, 0, a, b, c, d])
}

fn item(fanout: u32, object: &str) -> BatchItem {
    let (kind, object) = (EventType::stored("T"), ObjectId::stored(object));
    BatchItem { fanout_id: id(fanout), kind, object }
}

fn accumulator() -> Accumulator {
    Accumulator::new(AccumulatorId {
        user: UserId::stored("ada"),
        key: BatchKey::Chosen(ChosenKey::new("k").unwrap()),
    })
}

fn policy(window: i64) -> BatchPolicy {
    BatchPolicy { window: TimeDelta::seconds(window), ..BatchPolicy::IMMEDIATE }
}

/// Returns a source of batch ids above 1,000.
fn ids() -> impl FnMut() -> Id {
    let mut next = 1_000;
    move || {
        next += 1;
        id(next)
    }
}

#[test]
fn each_fan_out_of_an_immediate_route_is_its_own_batch() {
    let (mut accumulator, mut ids) = (accumulator(), ids());

    let items = [item(1, "a"), item(1, "b"), item(2, "a")];
    let of_fanouts = items.chunk_by(|a, b| a.fanout_id == b.fanout_id);
    let added: u64 =
        of_fanouts.map(|items| accumulator.join(items, at(0), &policy(0), &mut ids)).sum();

    let counts: Vec<u64> = accumulator.ended.iter().map(|batch| batch.events.count).collect();
    assert_eq!((added, counts, accumulator.open.is_none()), (3, vec![2, 1], true));
    assert_eq!(accumulator.next_due(), Some(at(0)));
}

#[test]
fn an_event_of_a_filed_batch_does_not_join_the_next_one() {
    let (mut accumulator, mut ids) = (accumulator(), ids());
    accumulator.join(&[item(1, "a")], at(0), &policy(300), &mut ids);
    assert!(accumulator.advance(at(300)));
    let filed = accumulator.ended[0].clone();
    assert!(accumulator.remove_filed(&[filed], at(301)));

    assert_eq!(accumulator.join(&[item(1, "a")], at(302), &policy(300), &mut ids), 0);
    assert_eq!(
        (&accumulator.open, accumulator.next_due()),
        (&None, Some(at(301) + FANOUT_RETENTION))
    );

    assert!(!accumulator.advance(at(302)) && !accumulator.is_empty());
    assert!(accumulator.advance(at(301) + FANOUT_RETENTION) && accumulator.is_empty());
}

#[test]
fn a_batch_that_was_filed_with_other_events_stays() {
    let (mut accumulator, mut ids) = (accumulator(), ids());
    accumulator.join(&[item(1, "a")], at(0), &policy(60), &mut ids);
    let mut older = accumulator.clone();
    accumulator.join(&[item(2, "b")], at(30), &policy(60), &mut ids);
    assert!(older.advance(at(60)) && accumulator.advance(at(60)));

    assert!(!accumulator.remove_filed(&older.ended, at(61)));

    assert_eq!(accumulator.ended[0].joined, [id(1), id(2)]);
}

#[test]
fn an_event_that_arrives_while_a_batch_closes_joins_the_next_one() {
    let (mut accumulator, mut ids) = (accumulator(), ids());
    accumulator.join(&[item(1, "a")], at(0), &policy(300), &mut ids);
    accumulator.advance(at(300));

    accumulator.join(&[item(2, "b")], at(300), &policy(300), &mut ids);

    assert_eq!(accumulator.ended[0].joined, [id(1)]);
    assert_eq!(accumulator.open.as_ref().unwrap().joined, [id(2)]);
}

#[test]
fn a_lead_is_sent_at_once_and_an_empty_rest_is_canceled() {
    let (mut accumulator, mut ids) = (accumulator(), ids());
    let leading = BatchPolicy { leading: true, ..policy(300) };
    accumulator.join(&[item(1, "a")], at(0), &leading, &mut ids);
    assert_eq!(accumulator.next_due(), Some(at(0)));

    accumulator.join(&[item(2, "b")], at(1), &leading, &mut ids);

    let lead = &accumulator.ended[0];
    assert_eq!((lead.events.count, &lead.joined[..]), (1, &[id(1)][..]));
    let open = accumulator.open.clone().unwrap();
    assert_eq!((open.events.count, open.joined.len()), (1, 2));
    assert_eq!(accumulator.join(&[item(1, "a")], at(3), &leading, &mut ids), 0);

    let objects = [ObjectId::stored("a"), ObjectId::stored("b")];
    let out = accumulator.remove_events(&EventType::stored("T"), &objects, at(4), None);
    assert_eq!(out.removed, 1, "the lead may be on its way");
    assert!(!accumulator.advance(at(299)));
    accumulator.advance(at(300));
    let rest = accumulator.ended.last().unwrap();
    assert_eq!((rest.id, rest.state, rest.settled), (open.id, BatchState::Canceled, Some(at(300))));
}

#[test]
fn a_lead_is_emailed_however_its_batch_ends() {
    let leading =
        BatchPolicy { leading: true, close_at: std::num::NonZeroU64::new(2), ..policy(300) };
    let led = |rest: &[u32], by_hand: bool| {
        let (mut accumulator, mut ids) = (accumulator(), ids());
        accumulator.join(&[item(1, "a")], at(0), &leading, &mut ids);
        for fanout in rest {
            accumulator.join(&[item(*fanout, "b")], at(1), &leading, &mut ids);
        }
        if by_hand {
            let open = accumulator.open.as_ref().unwrap().id;
            accumulator.end(open, EndAction::Close, at(2)).unwrap();
        }
        assert!(!accumulator.advance(at(3)), "it has ended");
        let summary = |batch: &Batch| (batch.state, batch.events.count);
        accumulator.ended.iter().map(summary).collect::<Vec<_>>()
    };
    let (closing, canceled) = (BatchState::Closing, BatchState::Canceled);

    let full = led(&[2, 3], false);
    let by_hand = led(&[2], true);
    let alone = led(&[], true);

    assert_eq!(full, [(closing, 1), (closing, 2)]);
    assert_eq!(by_hand, [(closing, 1), (closing, 1)]);
    assert_eq!(alone, [(closing, 1), (canceled, 0)]);
}

#[test]
fn a_leading_batch_closes_at_the_same_time_as_any_other() {
    let open = |leading: bool| {
        let (mut accumulator, mut ids) = (accumulator(), ids());
        let policy = BatchPolicy { leading, cooldown: TimeDelta::seconds(60), ..policy(300) };
        for (fanout, second) in [(1, 0), (2, 100), (3, 280)] {
            accumulator.join(&[item(fanout, "a")], at(second), &policy, &mut ids);
        }
        accumulator.open.unwrap()
    };

    let (all, rest) = (open(false), open(true));

    assert_eq!((all.closes_at, rest.closes_at), (at(340), at(340)));
    assert_eq!((all.events.count, rest.events.count), (3, 2));
    let own: Vec<Id> = rest.fanouts_without_lead().collect();
    assert_eq!(own, [id(2), id(3)]);
}

#[test]
fn a_canceled_batch_does_not_delay_later_ones() {
    let (mut accumulator, mut ids) = (accumulator(), ids());
    accumulator.join(&[item(1, "a")], at(0), &policy(300), &mut ids);
    let first = accumulator.open.as_ref().unwrap().id;
    accumulator.end(first, EndAction::Cancel, at(10)).unwrap();
    assert_eq!(accumulator.next_due(), Some(at(10)), "it is put away by the next round");

    accumulator.join(&[item(2, "b")], at(20), &policy(300), &mut ids);
    let next = accumulator.open.as_ref().unwrap().id;
    accumulator.end(next, EndAction::Close, at(30)).unwrap();

    assert_eq!(accumulator.next_due(), Some(at(10)));
    assert_eq!(accumulator.ended[0].closes_at, at(10));
}

#[test]
fn a_batch_whose_events_are_all_withdrawn_is_canceled() {
    let (mut accumulator, mut ids) = (accumulator(), ids());
    accumulator.join(&[item(1, "a")], at(0), &policy(300), &mut ids);

    let out =
        accumulator.remove_events(&EventType::stored("T"), &[ObjectId::stored("a")], at(9), None);

    assert_eq!((out.removed, accumulator.open.is_none()), (1, true));
    assert_eq!(accumulator.ended[0].state, BatchState::Canceled);
    assert_eq!(accumulator.join(&[item(1, "a")], at(10), &policy(300), &mut ids), 0);
    assert_eq!(accumulator.join(&[item(2, "a")], at(10), &policy(300), &mut ids), 1);
}

#[test]
fn only_the_open_batch_can_be_closed_or_canceled_manually() {
    let (mut accumulator, mut ids) = (accumulator(), ids());
    accumulator.join(&[item(1, "a")], at(0), &policy(300), &mut ids);
    let batch = accumulator.open.as_ref().unwrap().id;

    assert_eq!(accumulator.end(id(9), EndAction::Cancel, at(1)), Err(None));
    assert_eq!(accumulator.end(batch, EndAction::Close, at(1)), Ok(()));
    assert_eq!(accumulator.end(batch, EndAction::Cancel, at(2)), Err(Some(BatchState::Closing)));
}

#[test]
fn emails_of_one_accumulator_get_successive_queue_positions() {
    let mut accumulator = accumulator();
    let positions = [0, 0, 1, 60].map(|second| accumulator.next_queue_position(at(second)));

    assert_eq!(positions, [0, 1, 2, 60].map(at));
}

#[test]
fn the_oldest_remembered_ids_are_dropped_first() {
    let mut accumulator = accumulator();
    let joined = |n: u32| (n * 10_000..(n + 1) * 10_000).map(id).collect::<Vec<_>>();
    for n in 0..3 {
        let batch = Batch {
            joined: joined(n),
            ..Batch::open(
                id(90_000 + n),
                accumulator.id.user.clone(),
                accumulator.id.key.clone(),
                &[item(n, "a")],
                at(0),
                &BatchPolicy::IMMEDIATE,
            )
        };
        accumulator.ended.push(batch.clone());
        accumulator.remove_filed(&[batch], at(0));
    }

    let known = |n: u32| accumulator.has_joined(id(n));
    assert_eq!([0, 19_999, 20_000, 29_999].map(known), [false, false, true, true]);
}

#[derive(Debug, Clone)]
enum Step {
    Join(u32, u8),
    Wait(u8),
    Advance,
    File,
    Withdraw(u8),
    Close,
    Cancel,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (0..12_u32, 0..4_u8).prop_map(|(fanout, object)| Step::Join(fanout, object)),
        2 => (0..200_u8).prop_map(Step::Wait),
        2 => Just(Step::Advance),
        2 => Just(Step::File),
        1 => (0..4_u8).prop_map(Step::Withdraw),
        1 => Just(Step::Close),
        1 => Just(Step::Cancel),
    ];
    prop::collection::vec(step, 0..60)
}

fn policies() -> impl Strategy<Value = BatchPolicy> {
    let times = (0..200_i64, 0..200_i64, prop::option::of(0..300_i64));
    let rest = (prop::option::of(1..5_u64), 1..4_usize, any::<bool>());
    (times, rest).prop_map(|((window, cooldown, longest), (full, keep, leading))| BatchPolicy {
        window: TimeDelta::seconds(window),
        cooldown: TimeDelta::seconds(cooldown),
        max_wait: longest.map(TimeDelta::seconds),
        close_at: full.and_then(std::num::NonZeroU64::new),
        keep: Keep::Last(keep),
        leading,
        deferred_until: None,
    })
}

proptest! {
    #[test]
    fn an_event_is_in_exactly_one_batch_and_counts_are_exact(
        steps in steps(),
        policy in policies(),
    ) {
        let (mut accumulator, mut ids) = (accumulator(), ids());
        let (mut now, mut filed) = (0, Vec::<Batch>::new());
        let (mut joined, mut withdrawn) = (0_u64, 0_u64);
        let mut first = std::collections::HashSet::new();
        for step in steps {
            match step {
                Step::Join(fanout, object) => {
                    let items = [item(fanout, &object.to_string())];
                    let new = accumulator.join(&items, at(now), &policy, &mut ids);
                    prop_assert_eq!(new, u64::from(first.insert(fanout)));
                    joined += new;
                }
                Step::Wait(seconds) => now += i64::from(seconds),
                Step::Advance => {
                    accumulator.advance(at(now));
                    let open = accumulator.open.as_ref();
                    prop_assert!(open.is_none_or(|open| !open.is_due(at(now))));
                }
                Step::File => {
                    let ended = accumulator.ended.clone();
                    accumulator.remove_filed(&ended, at(now));
                    filed.extend(ended);
                }
                Step::Withdraw(object) => {
                    let objects = [ObjectId::stored(object.to_string())];
                    let kind = EventType::stored("T");
                    let outcome = accumulator.remove_events(&kind, &objects, at(now), None);
                    withdrawn += outcome.removed;
                }
                Step::Close | Step::Cancel => {
                    let Some(open) = &accumulator.open else { continue };
                    let batch = open.id;
                    let how = if matches!(step, Step::Close) { EndAction::Close } else { EndAction::Cancel };
                    prop_assert_eq!(accumulator.end(batch, how, at(now)), Ok(()));
                }
            }
            let open = accumulator.open.iter();
            prop_assert!(open.clone().all(|open| open.state == BatchState::Open));
            prop_assert!(accumulator.ended.iter().all(|ended| ended.state != BatchState::Open));
            let batches = filed.iter().chain(&accumulator.ended).chain(open);
            let counted: u64 = batches.map(|batch| batch.events.count).sum();
            prop_assert_eq!(counted + withdrawn, joined);
        }
    }
}

proptest! {
    #[test]
    fn an_addition_that_fits_has_the_same_effect_as_a_join(
        (window, longest) in (0..100_i64, prop::option::of(1..200_i64)),
        cooldown in prop_oneof![Just(0), 0..100_i64],
        (full, kept) in (prop::option::of(1..9_u64), 1..5_usize),
        before in prop::collection::vec((1..20_u8, 0..60_i64), 0..9),
        (fanouts, second) in (prop::collection::btree_set(1..30_u8, 1..3), 0..200_i64),
    ) {
        let policy = BatchPolicy {
            window: TimeDelta::seconds(window),
            cooldown: TimeDelta::seconds(cooldown),
            max_wait: longest.map(TimeDelta::seconds),
            close_at: full.and_then(std::num::NonZeroU64::new),
            keep: Keep::Last(kept),
            leading: false,
            deferred_until: None,
        };
        let (mut accumulator, mut next) = (accumulator(), ids());
        for (fanout, second) in before {
            accumulator.join(&[item(fanout.into(), "a")], at(second), &policy, &mut next);
        }
        let items: Vec<BatchItem> =
            fanouts.into_iter().map(|fanout| item(fanout.into(), "a")).collect();
        let Some(addition) = BatchAppend::new(items.clone(), at(second), &policy) else {
            prop_assert!(policy.is_immediate() || full.is_some());
            return Ok(());
        };
        if !addition.applies_to(&accumulator) {
            return Ok(());
        }

        let mut joined = accumulator.clone();
        for item in items.chunks(1) {
            joined.join(item, at(second), &policy, &mut next);
        }

        let open = accumulator.open.as_mut().unwrap();
        open.events.count += items.len() as u64;
        open.events.items.extend(items);
        let over = open.events.items.len().saturating_sub(kept);
        open.events.items.drain(..over);
        open.joined.extend(addition.fanouts);
        open.joined.sort_unstable();
        open.last_event_at = open.last_event_at.max(at(second));
        open.closes_at = open.closes_at.max(addition.min_closes_at);
        prop_assert_eq!(joined, accumulator);
    }
}
