//! Tests of the module `feed`.

mod cursors {
    //! Tests that pages are stable and cursors miss no event.

    use super::super::*;
    use crate::domain::{Day, Entry, Event, ObjectId, Stack, UserId};
    use proptest::prelude::*;

    fn event(o: &str) -> Entry {
        Entry::Event(Event {
            kind: EventType::stored("T"),
            object: ObjectId::stored(o),
            fanout_id: None,
        })
    }

    fn user_stacks(days: &[&[&str]]) -> UserStacks {
        let first: Day = "20140420".parse().unwrap();
        let stack = |(n, objects): (usize, &&[&str])| {
            let entries = objects.iter().map(|o| event(o)).collect();
            let day = Day::of(first.start() + chrono::TimeDelta::days(n as i64));
            Stack::new(StackId::for_day(day), entries)
        };
        UserStacks {
            user: UserId::stored("ada"),
            stacks: days.iter().enumerate().map(stack).collect(),
        }
    }

    fn shown(user_stacks: &UserStacks, query: &FeedQuery) -> Vec<String> {
        select_events(user_stacks, query).iter().map(|item| item.event.object.to_string()).collect()
    }

    #[test]
    fn the_feed_is_newest_first() {
        assert_eq!(
            shown(&user_stacks(&[&["a", "b"], &["c"]]), &FeedQuery::default()),
            ["c", "b", "a"]
        );
    }

    #[test]
    fn flushed_events_stay_in_the_feed() {
        let mut flushed = user_stacks(&[&["a"]]);
        flushed.stacks[0]
            .entries
            .push(Entry::DigestMarker(crate::domain::DigestMarker { id: None, n: Some(1) }));
        assert_eq!(shown(&flushed, &FeedQuery::default()), ["a"]);
    }

    #[test]
    fn the_next_page_does_not_move_when_events_arrive() {
        let before = user_stacks(&[&["a", "b"], &["c", "d"]]);
        let third = select_events(&before, &FeedQuery::default())[1].position;
        let query = FeedQuery { before: Some(third), ..FeedQuery::default() };
        let after = user_stacks(&[&["a", "b"], &["c", "d", "e", "f"]]);
        assert_eq!(shown(&before, &query), shown(&after, &query));
    }

    #[test]
    fn a_cursor_finds_later_events_even_on_the_previous_day() {
        let cursor = FeedCursor::at_end_of(&user_stacks(&[&["a"], &["b"]]));
        let query = FeedQuery { after: Some(cursor), ..FeedQuery::default() };
        assert_eq!(
            shown(&user_stacks(&[&["a", "late"], &["b"], &["new"]]), &query),
            ["new", "late"]
        );
    }

    #[test]
    fn cursors_round_trip_and_malformed_ones_are_rejected() {
        let cursor = FeedCursor::at_end_of(&user_stacks(&[&["a"], &["b", "c"]]));
        assert_eq!(cursor.to_string(), "c20140420.1-20140421.2");
        assert_eq!(cursor.to_string().parse::<FeedCursor>().unwrap(), cursor);
        assert_eq!("c".parse::<FeedCursor>().unwrap(), FeedCursor::default());
        for text in ["", "20140420.1", "cx", "c20140420", "c20140420.1-$ne"] {
            assert!(text.parse::<FeedCursor>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_pages_together_are_the_whole_feed(
            counts in prop::collection::vec(0usize..20, 1..8), size in 1usize..7,
        ) {
            let name = |day: usize| move |n: usize| format!("{day}-{n}");
            let names: Vec<Vec<String>> = counts
                .iter()
                .enumerate()
                .map(|(day, count)| (0..*count).map(name(day)).collect())
                .collect();
            let borrowed: Vec<Vec<&str>> =
                names.iter().map(|day| day.iter().map(String::as_str).collect()).collect();
            let days: Vec<&[&str]> = borrowed.iter().map(Vec::as_slice).collect();
            let user_stacks = user_stacks(&days);
            let mut query = FeedQuery::default();
            let mut paged = Vec::new();
            loop {
                let rest = select_events(&user_stacks, &query);
                let page = &rest[..rest.len().min(size)];
                let Some(last) = page.last() else { break };
                paged.extend(page.iter().map(|item| item.event.object.to_string()));
                query.before = Some(last.position);
            }
            prop_assert_eq!(paged, shown(&user_stacks, &FeedQuery::default()));
        }
    }
}
