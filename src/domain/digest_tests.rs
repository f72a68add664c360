//! Tests of the sections, order, limits and totals of a digest.

use std::sync::Arc;

use chrono::TimeDelta;
use proptest::prelude::*;

use super::*;
use crate::domain::{
    Day, Entry, EventType, Id, Object, ObjectId, ObjectKey, Policy, Stack, StackId, UserId,
};

fn day() -> Day {
    Day::from_ymd(2014, 4, 22).unwrap()
}

fn stacks(events: &[(&str, String)]) -> PersonStacks {
    let entry = |(index, (t, o)): (usize, &(&str, String))| {
        let at = day().start() + TimeDelta::seconds(index as i64);
        Entry::Event(Event {
            t: EventType::stored(t),
            o: ObjectId::stored(o),
            i: Some(Id::at(at, [0; 8])),
        })
    };
    let entries = events.iter().enumerate().map(entry).collect();
    PersonStacks {
        user: UserId::stored("ada"),
        stacks: vec![Stack::new(StackId::of(day()), entries)],
    }
}

fn works(count: usize) -> Vec<(&'static str, String)> {
    (0..count).map(|n| ("Work", n.to_string())).collect()
}

fn policies() -> Policies {
    let policy = |heading: &str| Policy {
        heading: Some(heading.into()),
        ..Policy::default()
    };
    Policies::new([
        (EventType::stored("Show"), policy("Shows near you")),
        (EventType::stored("Work"), policy("New works")),
    ])
}

fn all(event: &Event) -> Option<Arc<Object>> {
    Some(Arc::new(Object::bare(ObjectKey::stored(event.o.as_str()))))
}

#[test]
fn the_preselected_events_contain_all_events_that_a_digest_shows() {
    let many: Vec<(&str, String)> = (0..60)
        .map(|n| (["A", "B", "C"][n % 3], format!("o{n}")))
        .collect();
    let (stacks, policies, caps) = (stacks(&many), Policies::default(), Caps::default());
    let wanted = stacks.pending_that(|_, _| true);
    let applies = |event: &Event| !event.o.as_str().ends_with('7');

    let showable = showable(&wanted, caps, applies);

    let object = |event: &Event| {
        let bare = Object::bare(ObjectKey::stored(event.o.as_str()));
        applies(event).then(|| Arc::new(bare))
    };
    let content = assemble(&wanted, &policies, caps, object).unwrap();
    let can = |id: &ObjectId| showable.iter().any(|event| event.o == *id);
    assert!(content.items().all(|(_, item)| can(&item.id)));
    assert_eq!(showable.len(), 3 * caps.section);
}

#[test]
fn sections_follow_the_configured_order_and_then_their_names() {
    let person = stacks(&[
        ("Zebra", "1".into()),
        ("Work", "2".into()),
        ("Ant", "3".into()),
        ("Show", "4".into()),
    ]);
    let digest = assemble(&person.pending(), &policies(), Caps::default(), all).unwrap();
    let headings: Vec<_> = digest
        .sections
        .iter()
        .map(|section| section.heading.as_str())
        .collect();
    assert_eq!(headings, ["Shows near you", "New works", "Ant", "Zebra"]);
}

#[test]
fn a_capped_section_shows_the_newest_and_counts_the_rest() {
    let person = stacks(&works(30));
    let digest = assemble(
        &person.pending(),
        &policies(),
        Caps {
            section: 12,
            total: 40,
        },
        all,
    )
    .unwrap();
    let [section] = &digest.sections[..] else {
        panic!("{digest:?}")
    };
    assert_eq!((section.shown(), digest.more(), digest.total), (12, 18, 30));
    assert_eq!(section.groups[0].items[0].id.as_str(), "29");
}

#[test]
fn events_that_no_longer_apply_are_excluded_from_items_and_totals() {
    let person = stacks(&works(5));
    let applies = |event: &Event| {
        if event.o.as_str() == "3" {
            None
        } else {
            all(event)
        }
    };
    let digest = assemble(&person.pending(), &policies(), Caps::default(), applies).unwrap();
    assert_eq!(digest.total, 4);
}

#[test]
fn without_applicable_events_there_is_no_digest() {
    assert_eq!(
        assemble(
            &stacks(&works(5)).pending(),
            &policies(),
            Caps::default(),
            |_| None::<Told>
        ),
        None
    );
    assert_eq!(assemble(&[], &policies(), Caps::default(), all), None);
}

#[test]
fn a_digest_has_the_time_of_its_oldest_event() {
    let digest = assemble(
        &stacks(&works(3)).pending(),
        &policies(),
        Caps::default(),
        all,
    )
    .unwrap();
    assert_eq!(digest.oldest, day().start());
}

proptest! {
    #[test]
    fn totals_are_exact_under_any_limits(kinds in prop::collection::vec(0usize..4, 1..120), section in 1usize..20, total in 1usize..40) {
        let names = ["Work", "Show", "Ant", "Zebra"];
        let events: Vec<_> = kinds.iter().enumerate().map(|(n, kind)| (names[*kind], n.to_string())).collect();
        let person = stacks(&events);
        let digest = assemble(&person.pending(), &policies(), Caps { section, total }, all).unwrap();
        prop_assert_eq!(digest.total, events.len() as u64);
        prop_assert_eq!(digest.sections.iter().map(|s| s.total).sum::<u64>(), digest.total);
        prop_assert!(digest.shown() <= total as u64);
        prop_assert!(digest.sections.iter().all(|s| s.shown() <= section));
        for s in &digest.sections {
            let of_kind = events.iter().filter(|(kind, _)| *kind == s.kind.as_str()).count();
            prop_assert_eq!(s.total, of_kind as u64);
            prop_assert!(s.items().is_sorted_by_key(|item| Reverse(item.at)));
        }
    }
}
