//! Compares positions, markers and pending events with simple models.

use proptest::prelude::*;

use super::*;
use crate::domain::Id;

fn event(o: &str) -> Entry {
    Entry::Event(Event {
        kind: EventType::stored("T"),
        object: ObjectId::stored(o),
        fanout_id: None,
    })
}

fn marker(n: Option<u32>) -> Entry {
    Entry::DigestMarker(DigestMarker { id: None, n })
}

/// The marker id of the email under test.
const OWN: Id = Id::from_bytes([9; 12]);

fn own(n: u32) -> Entry {
    Entry::DigestMarker(DigestMarker { id: Some(OWN), n: Some(n) })
}

fn stack(day: &str, entries: Vec<Entry>) -> Stack {
    Stack::new(StackId::for_day(day.parse().unwrap()), entries)
}

fn user_stacks(stacks: Vec<Stack>) -> UserStacks {
    UserStacks { user: UserId::stored("ada"), stacks }
}

fn objects(pending: &[StackEvent<'_>]) -> Vec<String> {
    pending.iter().map(|pending| pending.event.object.to_string()).collect()
}

#[test]
fn a_marker_covers_exactly_its_count() {
    let arrived_between =
        stack("20140422", vec![event("a"), event("b"), event("c"), marker(Some(2))]);
    assert_eq!(objects(&user_stacks(vec![arrived_between]).pending()), ["c"]);
}

#[test]
fn a_bare_marker_covers_everything_before_it() {
    let old =
        stack("20140422", vec![event("a"), marker(None), event("b"), marker(None), event("c")]);
    assert_eq!(objects(&user_stacks(vec![old]).pending()), ["c"]);
}

#[test]
fn a_late_marker_with_a_smaller_count_uncovers_nothing() {
    let raced = stack("20140422", vec![event("a"), event("b"), marker(Some(2)), marker(Some(1))]);
    assert_eq!(raced.covered_count(), 2);
}

#[test]
fn the_count_of_a_marker_is_limited_to_the_stored_entries() {
    let broken = stack("20140422", vec![event("a"), marker(Some(99)), event("b")]);
    assert_eq!(broken.covered_count(), 3);
    assert_eq!(broken.uncovered().count(), 0);
}

#[test]
fn an_unknown_entry_keeps_its_position() {
    let odd = stack("20140422", vec![event("a"), Entry::Other, event("b")]);
    let positions: Vec<String> =
        odd.uncovered().map(|(position, _)| position.to_string()).collect();
    assert_eq!(positions, ["20140422.0", "20140422.2"]);
}

#[test]
fn the_same_event_on_two_days_is_pending_once_at_its_oldest_position() {
    let days = user_stacks(vec![
        stack("20140421", vec![event("a")]),
        stack("20140422", vec![event("b"), event("a")]),
    ]);
    let positions: Vec<String> = days.pending().iter().map(|p| p.position.to_string()).collect();
    assert_eq!(positions, ["20140421.0", "20140422.0"]);
}

#[test]
fn an_event_that_happens_again_after_its_email_is_pending_again() {
    let again = user_stacks(vec![
        stack("20140421", vec![event("a"), marker(Some(1))]),
        stack("20140422", vec![event("a")]),
    ]);
    assert_eq!(objects(&again.pending()), ["a"]);
}

#[test]
fn a_rebuilt_email_contains_the_events_within_its_watermarks() {
    let first = user_stacks(vec![stack("20140422", vec![event("a")])]);
    let watermarks = first.watermarks();
    let later = user_stacks(vec![
        stack("20140422", vec![event("a"), event("b")]),
        stack("20140423", vec![event("c")]),
    ]);
    assert_eq!(objects(&later.pending_below(&watermarks, OWN, |_, _| true)), ["a"]);
}

#[test]
fn without_pending_events_there_are_no_watermarks() {
    let flushed = user_stacks(vec![stack("20140422", vec![event("a"), marker(Some(1))])]);
    assert!(flushed.watermarks().is_empty());
}

#[test]
fn positions_round_trip_and_malformed_ones_are_rejected() {
    for text in ["20140422.17", "20140422o.0"] {
        assert_eq!(text.parse::<Position>().unwrap().to_string(), text);
    }
    for text in [
        "",
        "20140422",
        "20140422.",
        "20140422.-1",
        "20140422.+1",
        "2014042.1",
        "20140422.99999999999",
    ] {
        assert!(text.parse::<Position>().is_err(), "{text}");
    }
}

#[test]
fn an_event_has_the_time_of_its_id_or_the_start_of_its_day() {
    let day: Day = "20140422".parse().unwrap();
    let at = day.start() + chrono::TimeDelta::hours(5);
    let with = Event {
        kind: EventType::stored("T"),
        object: ObjectId::stored("a"),
        fanout_id: Some(Id::at(at, [0; 8])),
    };
    assert_eq!(with.time(day), at);
    assert_eq!(Event { fanout_id: None, ..with }.time(day), day.start());
}

/// Applies the rule of the original system: the events after the last `flushed`, deduplicated.
fn original(entries: &[Entry]) -> Vec<String> {
    let from = entries
        .iter()
        .rposition(|entry| matches!(entry, Entry::DigestMarker(_)))
        .map_or(0, |last| last + 1);
    let mut kept: Vec<String> = Vec::new();
    for entry in &entries[from..] {
        if let Entry::Event(event) = entry
            && !kept.contains(&event.object.to_string())
        {
            kept.push(event.object.to_string());
        }
    }
    kept
}

/// An action of a writer.
#[derive(Debug, Clone)]
enum Step {
    Push(u8),
    /// A reader notes the length, this number of events arrives, and then the marker is written.
    Flush(u8),
}

fn steps(between: std::ops::Range<u8>) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(
        prop_oneof![4 => (0u8..40).prop_map(Step::Push), 1 => between.prop_map(Step::Flush)],
        0..60,
    )
}

fn play(steps: &[Step]) -> (Vec<Entry>, Vec<String>) {
    let (mut entries, mut pending) = (Vec::new(), Vec::new());
    for step in steps {
        match step {
            Step::Push(o) => {
                entries.push(event(&o.to_string()));
                pending.push(o.to_string());
            }
            Step::Flush(arriving) => {
                let n = entries.len() as u32;
                pending.clear();
                for arrival in 0..*arriving {
                    entries.push(event(&format!("late-{arrival}-{n}")));
                    pending.push(format!("late-{arrival}-{n}"));
                }
                entries.push(marker(Some(n)));
            }
        }
    }
    let mut unique = Vec::new();
    for o in pending {
        if !unique.contains(&o) {
            unique.push(o);
        }
    }
    (entries, unique)
}

proptest! {
    #[test]
    fn no_event_is_lost_between_read_and_flush(steps in steps(0..4)) {
        let (entries, expected) = play(&steps);
        let user_stacks = user_stacks(vec![stack("20140422", entries)]);
        prop_assert_eq!(objects(&user_stacks.pending()), expected);
    }

    #[test]
    fn the_original_rule_agrees_if_no_event_arrived_in_between(steps in steps(0..1)) {
        let (entries, _) = play(&steps);
        let expected = original(&entries);
        let user_stacks = user_stacks(vec![stack("20140422", entries)]);
        prop_assert_eq!(objects(&user_stacks.pending()), expected);
    }

    #[test]
    fn coverage_never_shrinks(
        entries in prop::collection::vec(
            prop_oneof![
                3 => (0u8..9).prop_map(|o| event(&o.to_string())),
                1 => prop::option::of(0u32..70).prop_map(marker),
            ],
            0..60,
        )
    ) {
        let mut before = 0;
        for end in 0..=entries.len() {
            let now = count_covered(&entries[..end]);
            prop_assert!(now >= before && now <= end);
            before = now;
        }
    }
}

#[test]
fn a_rebuilt_email_ignores_its_own_marker_and_respects_all_others() {
    // a was emailed before, b and c by the email under test, and d by the next email; e is new.
    let entries = vec![
        event("a"),
        marker(Some(1)),
        event("b"),
        event("c"),
        own(4),
        event("d"),
        marker(Some(6)),
        event("e"),
    ];
    let user_stacks = user_stacks(vec![stack("20140422", entries)]);
    let watermarks = vec![(StackId::for_day("20140422".parse().unwrap()), 4)];

    assert_eq!(objects(&user_stacks.pending_below(&watermarks, OWN, |_, _| true)), ["b", "c"]);
    assert_eq!(objects(&user_stacks.pending()), ["e"]);
}

mod retractions {
    //! Tests of the events that a retraction covers.

    use super::super::*;
    use chrono::TimeDelta;

    /// Creates the `n`th id of a process.
    fn id(at: DateTime<Utc>, process: u8, n: u8) -> Id {
        Id::at(at, [0, 0, 0, 0, process, 0, 0, n])
    }

    fn event(i: Option<Id>) -> Event {
        Event { kind: EventType::stored("Published"), object: ObjectId::stored("1"), fanout_id: i }
    }

    #[test]
    fn a_retraction_covers_earlier_events_and_no_later_ones() {
        let noon = DateTime::from_timestamp(1_398_124_800, 0).unwrap();
        let second = TimeDelta::seconds(1);
        let at = id(noon, 1, 5);
        let reached = |i: Id| retraction_covers(at, &event(Some(i)));

        assert!(reached(id(noon, 1, 4)) && !reached(id(noon, 1, 6)));
        assert!(reached(id(noon, 2, 4)) && reached(id(noon, 2, 6)));
        assert!(reached(id(noon, 0, 4)) && reached(id(noon, 0, 6)));
        assert!(reached(id(noon - second, 2, 9)) && !reached(id(noon + second, 0, 0)));
    }

    #[test]
    fn an_event_without_an_id_is_not_covered() {
        assert!(!retraction_covers(Id::MAX, &event(None)));
    }
}
