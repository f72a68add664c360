//! Tests the marks of feed items, and compares them with a model of number sets.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::domain::{Day, DigestMarker, Entry, Event, Stack, UserId};

const FIRST: u32 = 20;

fn day(n: u32) -> Day {
    format!("201404{}", FIRST + n).parse().unwrap()
}

fn position(day_of: u32, index: u32) -> Position {
    let stack = StackId::for_day(day(day_of));
    Position { stack, index }
}

fn window() -> DaySet {
    DaySet::ending(day(2), 2)
}

/// Creates stacks with these objects day by day; `None` creates a marker.
fn user_stacks(days: &[Vec<Option<u8>>]) -> UserStacks {
    let entry = |what: &Option<u8>| match what {
        Some(object) => Entry::Event(Event {
            kind: EventType::stored(["A", "B"][usize::from(object % 2)]),
            object: ObjectId::stored(format!("o{object}")),
            fanout_id: None,
        }),
        None => Entry::DigestMarker(DigestMarker { id: None, n: None }),
    };
    let stack = |(n, entries): (usize, &Vec<Option<u8>>)| Stack {
        id: StackId::for_day(day(n as u32)),
        entries: entries.iter().map(entry).collect(),
        defect: None,
    };
    UserStacks { user: UserId::stored("ada"), stacks: days.iter().enumerate().map(stack).collect() }
}

fn now() -> DateTime<Utc> {
    "2014-04-22T12:00:00Z".parse().unwrap()
}

fn inbox() -> Inbox {
    Inbox::empty(UserId::stored("ada"))
}

fn items(places: impl IntoIterator<Item = (u32, u32)>) -> MarkTargets {
    MarkTargets::Items(places.into_iter().map(|(day, index)| position(day, index)).collect())
}

#[test]
fn a_mark_by_id_covers_every_occurrence() {
    let user_stacks = user_stacks(&[vec![Some(1), Some(2)], vec![Some(1)], vec![Some(2), Some(1)]]);
    for marked_by in [(0, 0), (1, 0), (2, 1)] {
        let mut inbox = inbox();

        inbox.mark(&user_stacks, &window(), &items([marked_by]), Mark::Read, now());

        let read = |(day, index)| inbox.state(position(day, index)) == ItemState::Read;
        assert!([(0, 0), (1, 0), (2, 1)].into_iter().all(read));
        assert!(![(0, 1), (2, 0)].into_iter().any(read));
    }
}

#[test]
fn a_cursor_marks_only_items_that_were_shown() {
    let (before, after) = (vec![Some(1)], vec![Some(1), Some(2)]);
    let cursor = FeedCursor::at_end_of(&user_stacks(&[before]));
    let later = user_stacks(&[after, vec![Some(3)]]);
    let mut inbox = inbox();

    inbox.mark(
        &later,
        &window(),
        &MarkTargets::UpTo(cursor, KindFilter::default()),
        Mark::Read,
        now(),
    );

    let states = [(0, 0), (0, 1), (1, 0)].map(|(day, index)| inbox.state(position(day, index)));
    assert_eq!(states, [ItemState::Read, ItemState::Unseen, ItemState::Unseen]);
}

#[test]
fn a_cursor_beyond_the_stored_entries_marks_no_later_ones() {
    let cursor: FeedCursor = "c20140420.900-20140421.900".parse().unwrap();
    let mut inbox = inbox();

    inbox.mark(
        &user_stacks(&[vec![Some(1)]]),
        &window(),
        &MarkTargets::UpTo(cursor, KindFilter::default()),
        Mark::Seen,
        now(),
    );

    assert_eq!(inbox.state(position(0, 0)), ItemState::Seen);
    assert_eq!(inbox.state(position(0, 1)), ItemState::Unseen);
    assert_eq!(inbox.state(position(1, 0)), ItemState::Unseen);
}

#[test]
fn a_repeated_event_keeps_its_state_even_after_its_first_day_expires() {
    let mut inbox = inbox();
    let before = user_stacks(&[vec![Some(1)], vec![Some(2)]]);
    inbox.mark(&before, &window(), &items([(0, 0)]), Mark::Read, now());

    let again = user_stacks(&[vec![Some(1)], vec![Some(2), Some(1)]]);
    let opened = MarkTargets::UpTo(FeedCursor::at_end_of(&again), KindFilter::default());
    inbox.mark(&again, &window(), &opened, Mark::Seen, now());

    assert_eq!(inbox.state(position(1, 1)), ItemState::Read);
    assert_eq!(inbox.state(position(1, 0)), ItemState::Seen);
}

#[test]
fn marking_again_reports_no_change() {
    let user_stacks = user_stacks(&[vec![Some(1)]]);
    let (mut inbox, later) = (inbox(), now() + chrono::TimeDelta::hours(1));
    let all = MarkTargets::UpTo(FeedCursor::at_end_of(&user_stacks), KindFilter::default());

    let first = inbox.mark(&user_stacks, &window(), &all, Mark::Seen, now());
    let again = inbox.mark(&user_stacks, &window(), &all, Mark::Seen, later);

    assert!(first && !again);
    assert_eq!(inbox.changed, now());
}

#[test]
fn marks_outside_the_window_are_deleted() {
    let mut inbox = inbox();
    let old = user_stacks(&[vec![Some(1)], vec![Some(2)]]);
    inbox.mark(&old, &window(), &items([(0, 0), (1, 0)]), Mark::Read, now());

    let later = DaySet::ending(day(3), 2);
    inbox.mark(&old, &later, &items([]), Mark::Read, now());

    assert_eq!(inbox.stacks.keys().copied().collect::<Vec<_>>(), [StackId::for_day(day(1))]);
}

#[test]
fn unread_and_restored_items_stay_seen() {
    let user_stacks = user_stacks(&[vec![Some(1)]]);
    let mut inbox = inbox();
    let mut state = |mark| {
        inbox.mark(&user_stacks, &window(), &items([(0, 0)]), mark, now());
        inbox.state(position(0, 0))
    };

    assert_eq!(state(Mark::Unread), ItemState::Seen);
    assert_eq!(state(Mark::Read), ItemState::Read);
    assert_eq!(state(Mark::Archive), ItemState::Archived);
    assert_eq!(state(Mark::Restore), ItemState::Read);
    assert_eq!(state(Mark::Unread), ItemState::Seen);
}

#[test]
fn an_unseen_item_that_is_archived_and_restored_is_unseen() {
    let user_stacks = user_stacks(&[vec![Some(1), Some(2)]]);
    let mut inbox = inbox();
    for mark in [Mark::Archive, Mark::Restore] {
        let all = MarkTargets::Items(vec![position(0, 0), position(0, 1)]);
        inbox.mark(&user_stacks, &window(), &all, mark, now());
    }

    assert_eq!(inbox.state(position(0, 0)), ItemState::Unseen);
    assert_eq!(inbox.state(position(0, 1)), ItemState::Unseen);
    assert!(inbox.stacks.is_empty());
}

fn marks() -> impl Strategy<Value = Mark> {
    prop_oneof![
        Just(Mark::Seen),
        Just(Mark::Read),
        Just(Mark::Unread),
        Just(Mark::Archive),
        Just(Mark::Restore)
    ]
}

fn days() -> impl Strategy<Value = Vec<Vec<Option<u8>>>> {
    let entry = proptest::option::weighted(0.9, 0..6_u8);
    proptest::collection::vec(proptest::collection::vec(entry, 0..20), 3)
}

proptest! {
    #[test]
    fn states_agree_with_a_model_of_number_sets(
        days in days(),
        steps in proptest::collection::vec((marks(), 0..3_u32, 0..20_u32, any::<bool>()), 0..12),
    ) {
        let user_stacks = user_stacks(&days);
        let all: Vec<((u32, u32), u8)> = (0_u32..)
            .zip(&days)
            .flat_map(|(n, entries)| (0_u32..).zip(entries).map(move |(i, what)| ((n, i), *what)))
            .filter_map(|(position, what)| Some((position, what?)))
            .collect();
        let first = |what: u8| all.iter().find(|(_, other)| *other == what).unwrap().0;
        let (mut inbox, mut seen) = (inbox(), BTreeSet::new());
        let (mut read, mut archived) = (BTreeSet::new(), BTreeSet::new());
        for (mark, day_of, index, by_id) in steps {
            let (which, meant): (MarkTargets, BTreeSet<u8>) = if by_id {
                let named = all.iter().find(|(position, _)| *position == (day_of, index));
                (items([(day_of, index)]), named.map(|(_, what)| *what).into_iter().collect())
            } else {
                let cursor = format!("c{}.{index}", StackId::for_day(day(day_of)));
                let is_shown = |what: &u8| first(*what).0 == day_of && first(*what).1 < index;
                let shown = all.iter().map(|(_, what)| *what).filter(is_shown);
                (MarkTargets::UpTo(cursor.parse().unwrap(), KindFilter::default()), shown.collect())
            };
            inbox.mark(&user_stacks, &window(), &which, mark, now());
            for one in meant {
                if !matches!(mark, Mark::Archive | Mark::Restore) {
                    seen.insert(one);
                }
                match mark {
                    Mark::Seen => {}
                    Mark::Read => drop(read.insert(one)),
                    Mark::Unread => drop(read.remove(&one)),
                    Mark::Archive => drop(archived.insert(one)),
                    Mark::Restore => drop(archived.remove(&one)),
                }
            }
        }
        for ((n, i), what) in &all {
            let expected = match () {
                () if archived.contains(what) => ItemState::Archived,
                () if read.contains(what) => ItemState::Read,
                () if seen.contains(what) => ItemState::Seen,
                () => ItemState::Unseen,
            };
            prop_assert_eq!(inbox.state(position(*n, *i)), expected);
        }
        for (n, entries) in days.iter().enumerate() {
            let past = position(n as u32, entries.len() as u32);
            prop_assert_eq!(inbox.state(past), ItemState::Unseen);
        }
    }

    #[test]
    fn equal_sets_have_equal_bytes(
        steps in proptest::collection::vec((0..40_u32, any::<bool>()), 0..60),
    ) {
        let (mut entries, mut model) = (EntrySet::default(), BTreeSet::new());
        for (index, is_in) in steps {
            entries.set(index, is_in);
            if is_in { model.insert(index); } else { model.remove(&index); }
        }
        let mut anew = EntrySet::default();
        model.iter().for_each(|index| anew.set(*index, true));
        prop_assert_eq!(&entries, &anew);
        prop_assert_eq!(&EntrySet::stored([entries.bytes(), &[0, 0]].concat()), &anew);
    }
}
