//! What a seat promises: one open batch, an event joins once whatever became of its batch, and
//! nothing is forgotten too early.

use proptest::prelude::*;

use super::super::Keep;
use super::*;
use crate::domain::batch::ChosenKey;

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_398_124_800 + seconds, 0).unwrap()
}

fn id(n: u32) -> Id {
    let [a, b, c, d] = n.to_be_bytes();
    Id::at(at(0), [0, 0, 0, 0, a, b, c, d])
}

fn item(fanout: u32, object: &str) -> Item {
    Item {
        i: id(fanout),
        t: EventType::stored("T"),
        o: ObjectId::stored(object),
    }
}

fn seat() -> Seat {
    Seat::new(SeatId {
        user: UserId::stored("ada"),
        key: BatchKey::Chosen(ChosenKey::new("k").unwrap()),
    })
}

fn policy(window: i64) -> BatchPolicy {
    BatchPolicy {
        window: TimeDelta::seconds(window),
        ..BatchPolicy::IMMEDIATE
    }
}

/// Ids of batches, from a thousand on.
fn ids() -> impl FnMut() -> Id {
    let mut next = 1_000;
    move || {
        next += 1;
        id(next)
    }
}

#[test]
fn each_fan_out_of_an_immediate_route_is_a_batch_of_its_own() {
    let (mut seat, mut ids) = (seat(), ids());

    let items = [item(1, "a"), item(1, "b"), item(2, "a")];
    let added = seat.join(&items, at(0), &policy(0), &mut ids);

    let counts: Vec<u64> = seat
        .ended
        .iter()
        .map(|batch| batch.contents.count)
        .collect();
    assert_eq!((added, counts, seat.open.is_none()), (3, vec![2, 1], true));
    assert_eq!(seat.due(), Some(at(0)));
}

#[test]
fn what_joined_a_batch_that_was_handed_on_does_not_join_the_next() {
    let (mut seat, mut ids) = (seat(), ids());
    seat.join(&[item(1, "a")], at(0), &policy(300), &mut ids);
    assert!(seat.advance(at(300), &mut ids));
    let handed = seat.ended[0].clone();
    assert!(seat.hand_on(&[handed], at(301)));

    assert_eq!(
        seat.join(&[item(1, "a")], at(302), &policy(300), &mut ids),
        0
    );
    assert_eq!((&seat.open, seat.due()), (&None, Some(at(301) + MEMORY)));

    assert!(!seat.advance(at(302), &mut ids) && !seat.is_empty());
    assert!(seat.advance(at(301) + MEMORY, &mut ids) && seat.is_empty());
}

#[test]
fn what_was_filed_with_other_events_is_not_forgotten() {
    let (mut seat, mut ids) = (seat(), ids());
    let cooling = BatchPolicy {
        cooldown: TimeDelta::seconds(60),
        keep: Keep::Last(2),
        ..policy(60)
    };
    for n in 1..=2 {
        seat.join(&[item(n, "a")], at(0), &cooling, &mut ids);
    }
    let mut older = seat.clone();
    for n in 3..=5 {
        seat.join(&[item(n, "b")], at(30), &cooling, &mut ids);
    }
    older.advance(at(60), &mut ids);
    seat.advance(at(90), &mut ids);
    let filed = older.ended[0].clone();

    assert!(!seat.hand_on(std::slice::from_ref(&filed), at(91)));
    assert!(seat.set_apart(&filed, id(7), at(91)));
    assert!(!seat.set_apart(&filed, id(8), at(91)));

    let [rest] = &seat.ended[..] else {
        panic!("{:?}", seat.ended)
    };
    assert_eq!((rest.id, rest.state), (id(7), BatchState::Closing));
    assert_eq!((rest.contents.count, rest.contents.more()), (3, 1));
    assert_eq!(rest.joined, [id(3), id(4), id(5)]);
    assert!((1..=5).all(|n| seat.has_joined(id(n))));
}

#[test]
fn what_was_filed_with_more_than_stands_here_leaves_nothing_behind() {
    let (mut seat, mut ids) = (seat(), ids());
    seat.join(&[item(1, "a")], at(0), &policy(60), &mut ids);
    let mut newer = seat.clone();
    newer.join(&[item(2, "b")], at(30), &policy(60), &mut ids);
    assert!(seat.advance(at(60), &mut ids) && newer.advance(at(60), &mut ids));

    assert!(seat.set_apart(&newer.ended[0], id(7), at(61)));

    assert_eq!(seat.ended, []);
    assert!(seat.has_joined(id(1)) && seat.has_joined(id(2)));
}

#[test]
fn an_event_that_meets_a_batch_while_it_closes_goes_to_the_next() {
    let (mut seat, mut ids) = (seat(), ids());
    seat.join(&[item(1, "a")], at(0), &policy(300), &mut ids);
    seat.advance(at(300), &mut ids);

    seat.join(&[item(2, "b")], at(300), &policy(300), &mut ids);

    assert_eq!(seat.ended[0].joined, [id(1)]);
    assert_eq!(seat.open.as_ref().unwrap().joined, [id(2)]);
}

#[test]
fn a_lead_leaves_at_once_with_what_brought_it_and_an_empty_rest_is_canceled() {
    let (mut seat, mut ids) = (seat(), ids());
    let leading = BatchPolicy {
        leading: true,
        ..policy(300)
    };
    seat.join(&[item(1, "a")], at(0), &leading, &mut ids);
    assert_eq!(seat.due(), Some(at(0)));

    seat.join(&[item(2, "b")], at(1), &leading, &mut ids);
    assert!(seat.advance(at(2), &mut ids));

    let lead = &seat.ended[0];
    assert_eq!((lead.contents.count, &lead.joined[..]), (1, &[id(1)][..]));
    let open = seat.open.clone().unwrap();
    assert_eq!((open.contents.count, open.joined.len()), (1, 2));
    assert_eq!(seat.join(&[item(1, "a")], at(3), &leading, &mut ids), 0);

    let objects = [ObjectId::stored("b")];
    seat.take_out(&EventType::stored("T"), &objects, at(4));
    seat.advance(at(300), &mut ids);
    let rest = seat.ended.last().unwrap();
    assert_eq!(
        (rest.id, rest.state, rest.settled),
        (open.id, BatchState::Canceled, Some(at(300)))
    );
}

#[test]
fn a_lead_that_has_not_left_yet_is_mailed_whatever_ends_its_batch() {
    let leading = BatchPolicy {
        leading: true,
        close_at: std::num::NonZeroU64::new(2),
        ..policy(300)
    };
    let led = |rest: &[u32], by_hand: bool| {
        let (mut seat, mut ids) = (seat(), ids());
        seat.join(&[item(1, "a")], at(0), &leading, &mut ids);
        for fanout in rest {
            seat.join(&[item(*fanout, "b")], at(1), &leading, &mut ids);
        }
        if by_hand {
            let open = seat.open.as_ref().unwrap().id;
            seat.close_now(open, at(2)).unwrap();
        }
        assert!(seat.advance(at(3), &mut ids));
        assert!(!seat.advance(at(3), &mut ids), "once");
        let told = |batch: &Batch| (batch.state, batch.contents.count, batch.is_leading());
        seat.ended.iter().map(told).collect::<Vec<_>>()
    };
    let (closing, canceled) = (BatchState::Closing, BatchState::Canceled);

    let full = led(&[2, 3], false);
    let by_hand = led(&[2], true);
    let alone = led(&[], true);

    assert_eq!(full, [(closing, 1, false), (closing, 2, false)]);
    assert_eq!(by_hand, [(closing, 1, false), (closing, 1, false)]);
    assert_eq!(alone, [(closing, 1, false), (canceled, 0, false)]);
}

#[test]
fn a_batch_that_was_canceled_does_not_hold_up_what_ends_after_it() {
    let (mut seat, mut ids) = (seat(), ids());
    seat.join(&[item(1, "a")], at(0), &policy(300), &mut ids);
    let first = seat.open.as_ref().unwrap().id;
    seat.cancel(first, at(10)).unwrap();
    assert_eq!(seat.due(), Some(at(10)), "it is put away by the next round");

    seat.join(&[item(2, "b")], at(20), &policy(300), &mut ids);
    let next = seat.open.as_ref().unwrap().id;
    seat.close_now(next, at(30)).unwrap();

    assert_eq!(seat.due(), Some(at(10)));
    assert_eq!(seat.ended[0].closes_at, at(10));
}

#[test]
fn a_batch_whose_every_event_is_withdrawn_ends_canceled() {
    let (mut seat, mut ids) = (seat(), ids());
    seat.join(&[item(1, "a")], at(0), &policy(300), &mut ids);

    let out = seat.take_out(&EventType::stored("T"), &[ObjectId::stored("a")], at(9));

    assert_eq!((out.taken, seat.open.is_none()), (1, true));
    assert_eq!(seat.ended[0].state, BatchState::Canceled);
    assert_eq!(
        seat.join(&[item(1, "a")], at(10), &policy(300), &mut ids),
        0
    );
    assert_eq!(
        seat.join(&[item(2, "a")], at(10), &policy(300), &mut ids),
        1
    );
}

#[test]
fn only_the_open_batch_can_be_closed_or_canceled_by_hand() {
    let (mut seat, mut ids) = (seat(), ids());
    seat.join(&[item(1, "a")], at(0), &policy(300), &mut ids);
    let batch = seat.open.as_ref().unwrap().id;

    assert_eq!(seat.cancel(id(9), at(1)), Err(None));
    assert_eq!(seat.close_now(batch, at(1)), Ok(()));
    assert_eq!(seat.cancel(batch, at(2)), Err(Some(BatchState::Closing)));
}

#[test]
fn many_mails_of_one_seat_have_turns_one_after_the_other() {
    let mut seat = seat();
    let turns = [0, 0, 1, 60].map(|second| seat.next_turn(at(second)));

    assert_eq!(turns, [0, 1, 2, 60].map(at));
}

#[test]
fn the_oldest_memories_go_first_where_there_are_too_many() {
    let mut seat = seat();
    let joined = |n: u32| (n * 10_000..(n + 1) * 10_000).map(id).collect::<Vec<_>>();
    for n in 0..3 {
        let batch = Batch {
            joined: joined(n),
            ..Batch::open(
                id(90_000 + n),
                seat.id.user.clone(),
                seat.id.key.clone(),
                &[item(n, "a")],
                at(0),
                &BatchPolicy::IMMEDIATE,
            )
        };
        seat.ended.push(batch.clone());
        seat.hand_on(&[batch], at(0));
    }

    let known = |n: u32| seat.has_joined(id(n));
    assert_eq!(
        [0, 19_999, 20_000, 29_999].map(known),
        [false, false, true, true]
    );
}

#[derive(Debug, Clone)]
enum Step {
    Join(u32, u8),
    Wait(u8),
    Advance,
    HandOn,
    Withdraw(u8),
    Close,
    Cancel,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (0..12_u32, 0..4_u8).prop_map(|(fanout, object)| Step::Join(fanout, object)),
        2 => (0..200_u8).prop_map(Step::Wait),
        2 => Just(Step::Advance),
        2 => Just(Step::HandOn),
        1 => (0..4_u8).prop_map(Step::Withdraw),
        1 => Just(Step::Close),
        1 => Just(Step::Cancel),
    ];
    prop::collection::vec(step, 0..60)
}

fn policies() -> impl Strategy<Value = BatchPolicy> {
    let times = (0..200_i64, 0..200_i64, prop::option::of(0..300_i64));
    let rest = (prop::option::of(1..5_u64), 1..4_usize, any::<bool>());
    (times, rest).prop_map(
        |((window, cooldown, longest), (full, keep, leading))| BatchPolicy {
            window: TimeDelta::seconds(window),
            cooldown: TimeDelta::seconds(cooldown),
            max_wait: longest.map(TimeDelta::seconds),
            close_at: full.and_then(std::num::NonZeroU64::new),
            keep: Keep::Last(keep),
            leading,
        },
    )
}

proptest! {
    #[test]
    fn whatever_happens_an_event_is_in_one_batch_and_no_count_is_lost(
        steps in steps(),
        policy in policies(),
    ) {
        let (mut seat, mut ids) = (seat(), ids());
        let (mut now, mut left) = (0, Vec::<Batch>::new());
        let (mut joined, mut taken) = (0_u64, 0_u64);
        let mut first = std::collections::HashSet::new();
        for step in steps {
            match step {
                Step::Join(fanout, object) => {
                    let items = [item(fanout, &object.to_string())];
                    let new = seat.join(&items, at(now), &policy, &mut ids);
                    prop_assert_eq!(new, u64::from(first.insert(fanout)));
                    joined += new;
                }
                Step::Wait(seconds) => now += i64::from(seconds),
                Step::Advance => {
                    seat.advance(at(now), &mut ids);
                    prop_assert!(seat.open.as_ref().is_none_or(|open| !open.is_due(at(now))));
                    // Nothing that waits to be mailed goes unseen.
                    let waits = |batch: &Batch| batch.state == BatchState::Closing && batch.is_leading();
                    prop_assert!(!seat.ended.iter().any(waits));
                }
                Step::HandOn => {
                    let handed = seat.ended.clone();
                    seat.hand_on(&handed, at(now));
                    left.extend(handed);
                }
                Step::Withdraw(object) => {
                    let objects = [ObjectId::stored(object.to_string())];
                    taken += seat.take_out(&EventType::stored("T"), &objects, at(now)).taken;
                }
                Step::Close | Step::Cancel => {
                    let Some(open) = seat.open.as_ref().map(|open| open.id) else { continue };
                    let ended = match step {
                        Step::Close => seat.close_now(open, at(now)),
                        _ => seat.cancel(open, at(now)),
                    };
                    prop_assert_eq!(ended, Ok(()));
                }
            }
            let open = seat.open.iter();
            prop_assert!(open.clone().all(|open| open.state == BatchState::Open));
            prop_assert!(seat.ended.iter().all(|ended| ended.state != BatchState::Open));
            let all = left.iter().chain(&seat.ended).chain(open);
            let counted: u64 = all.map(Batch::joined_events).sum();
            prop_assert_eq!(counted + taken, joined);
        }
    }
}
