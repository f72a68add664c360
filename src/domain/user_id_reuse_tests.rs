//! Tests of where a user's record starts, and which entries that hides.

use super::*;
use crate::domain::day_stack::Entry;
use crate::domain::{EventType, ObjectId, Stack, StackId};

const NOON: i64 = 1_398_168_000;

fn time(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(NOON + seconds, 0).unwrap()
}

fn id(seconds: i64, process: u8, n: u8) -> Id {
    Id::at(time(seconds), [0, 0, 0, 0, process, 0, 0, n])
}

fn event(i: Option<Id>) -> Event {
    Event { kind: EventType::stored("Published"), object: ObjectId::stored("1"), fanout_id: i }
}

fn user_stacks(days_ago: i64, events: Vec<Option<Id>>) -> UserStacks {
    let day = Day::of(time(-86_400 * days_ago));
    let entries = events.into_iter().map(|i| Entry::Event(event(i)));
    UserStacks {
        user: UserId::stored("ada"),
        stacks: vec![Stack::new(StackId::for_day(day), entries.collect())],
    }
}

fn shown(mut user_stacks: UserStacks, start: RecordStart) -> Vec<u32> {
    user_stacks.hide_before_start(Some(start));
    let events = user_stacks.stacks.iter().flat_map(Stack::events);
    events.map(|(place, _)| place.index).collect()
}

#[test]
fn a_start_hides_earlier_entries_and_shows_later_ones_of_the_same_second() {
    let before = user_stacks(0, vec![Some(id(0, 1, 1)), Some(id(0, 2, 9)), None]);
    let start = RecordStart::new(time(-5), id(0, 1, 5), Some(&before));
    let after = [Some(id(0, 1, 6)), Some(id(0, 2, 1)), Some(id(1, 3, 0)), None];
    let late = [Some(id(-1, 3, 0)), Some(id(0, 1, 4))];
    let mut events = vec![Some(id(0, 1, 1)), Some(id(0, 2, 9)), None];
    events.extend(after.into_iter().chain(late));

    assert_eq!(shown(user_stacks(0, events), start), [3, 4, 5, 6]);
    assert_eq!(shown(user_stacks(1, vec![None, Some(id(-86_400, 1, 1))]), start), [0; 0]);
    assert_eq!(shown(user_stacks(-1, vec![None]), start), [0]);
}

#[test]
fn links_and_tokens_from_before_a_start_are_invalid() {
    let later = RecordStart::new(time(-60), id(0, 1, 1), None);
    let at_once = RecordStart::new(time(0), id(0, 1, 1), None);

    assert!(
        later.invalidates(time(-61)) && later.invalidates(time(-1)) && !later.invalidates(time(0))
    );
    assert!(at_once.invalidates(time(0)) && !at_once.invalidates(time(1)));
    for start in [later, at_once] {
        assert!(!start.invalidates(start.earliest_valid_issue_time(time(0))));
        assert_eq!(start.earliest_valid_issue_time(time(9)), time(9));
    }
}

#[test]
fn a_start_and_an_erasure_note_round_trip() {
    let start = RecordStart {
        entries: 3,
        entries_by_object_id: 2,
        ..RecordStart::new(time(-60), id(0, 1, 1), None)
    };
    for done in [false, true] {
        let erasure = Erasure { start, done };
        assert_eq!(erasure.to_string().parse(), Ok(erasure));
    }
    for text in ["", "1 2", "done", "over 1 2 3 4", "done 1398168000 x 1 2"] {
        assert!(text.parse::<Erasure>().is_err(), "{text}");
    }
    let name = erasure_note_name(&UserId::stored("ada"));
    assert!(name.starts_with("erased:") && !name.contains("ada"), "{name}");
}
