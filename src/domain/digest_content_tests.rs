//! Tests of the module `digest_content`.

mod assembling {
    //! Tests of the sections, order, limits and totals of a digest.

    use super::super::*;
    use crate::domain::{
        Day, Entry, EventType, Id, Object, ObjectId, ObjectKey, Policy, Stack, StackId, UserId,
    };
    use chrono::TimeDelta;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn day() -> Day {
        "20140422".parse().unwrap()
    }

    fn stacks(events: &[(&str, String)]) -> UserStacks {
        let entry = |(index, (t, o)): (usize, &(&str, String))| {
            let at = day().start() + TimeDelta::seconds(index as i64);
            Entry::Event(Event {
                kind: EventType::stored(t),
                object: ObjectId::stored(o),
                fanout_id: Some(Id::at(at, [0; 8])),
            })
        };
        let entries = events.iter().enumerate().map(entry).collect();
        UserStacks {
            user: UserId::stored("ada"),
            stacks: vec![Stack::new(StackId::for_day(day()), entries)],
        }
    }

    fn works(count: usize) -> Vec<(&'static str, String)> {
        (0..count).map(|n| ("Work", n.to_string())).collect()
    }

    fn policies() -> Policies {
        let policy = |heading: &str| Policy { heading: Some(heading.into()), ..Policy::default() };
        Policies::new([
            (EventType::stored("Show"), policy("Shows near you")),
            (EventType::stored("Work"), policy("New works")),
        ])
    }

    fn all(event: &Event) -> Option<DisplayData> {
        let bare = Object::without_data(ObjectKey::stored(event.object.as_str()));
        Some(DisplayData { object: Arc::new(bare), details: None })
    }

    #[test]
    fn the_preselected_events_contain_all_events_that_a_digest_shows() {
        let many: Vec<(&str, String)> =
            (0..60).map(|n| (["A", "B", "C"][n % 3], format!("o{n}"))).collect();
        let (stacks, policies, caps) = (stacks(&many), Policies::default(), ItemLimits::default());
        let wanted = stacks.pending_where(|_, _| true);
        let applies = |event: &Event| !event.object.as_str().ends_with('7');

        let showable = events_to_show(&wanted, caps, applies);

        let object = |event: &Event| all(event).filter(|_| applies(event));
        let content = build_digest_content(&wanted, &policies, caps, object).unwrap();
        let can = |id: &ObjectId| showable.iter().any(|event| event.object == *id);
        assert!(content.items().all(|(_, item)| can(&item.id)));
        assert_eq!(showable.len(), 3 * caps.section);
    }

    #[test]
    fn sections_follow_the_configured_order_and_then_their_names() {
        let user_stacks = stacks(&[
            ("Zebra", "1".into()),
            ("Work", "2".into()),
            ("Ant", "3".into()),
            ("Show", "4".into()),
        ]);
        let digest =
            build_digest_content(&user_stacks.pending(), &policies(), ItemLimits::default(), all)
                .unwrap();
        let headings: Vec<_> =
            digest.sections.iter().map(|section| section.heading.as_str()).collect();
        assert_eq!(headings, ["Shows near you", "New works", "Ant", "Zebra"]);
    }

    #[test]
    fn a_capped_section_shows_the_newest_and_counts_the_rest() {
        let user_stacks = stacks(&works(30));
        let digest = build_digest_content(
            &user_stacks.pending(),
            &policies(),
            ItemLimits { section: 12, total: 40 },
            all,
        )
        .unwrap();
        let [section] = &digest.sections[..] else { panic!("{digest:?}") };
        assert_eq!((section.shown_count(), digest.hidden_count(), digest.total), (12, 18, 30));
        assert_eq!(section.groups[0].items[0].id.as_str(), "29");
    }

    #[test]
    fn events_that_no_longer_apply_are_excluded_from_items_and_totals() {
        let user_stacks = stacks(&works(5));
        let applies = |event: &Event| {
            if event.object.as_str() == "3" { None } else { all(event) }
        };
        let digest = build_digest_content(
            &user_stacks.pending(),
            &policies(),
            ItemLimits::default(),
            applies,
        )
        .unwrap();
        assert_eq!(digest.total, 4);
    }

    #[test]
    fn without_applicable_events_there_is_no_digest() {
        assert_eq!(
            build_digest_content(
                &stacks(&works(5)).pending(),
                &policies(),
                ItemLimits::default(),
                |_| None
            ),
            None
        );
        assert_eq!(build_digest_content(&[], &policies(), ItemLimits::default(), all), None);
    }

    #[test]
    fn a_digest_has_the_time_of_its_oldest_event() {
        let digest = build_digest_content(
            &stacks(&works(3)).pending(),
            &policies(),
            ItemLimits::default(),
            all,
        )
        .unwrap();
        assert_eq!(digest.oldest, day().start());
    }

    proptest! {
        #[test]
        fn totals_are_exact_under_any_limits(
            kinds in prop::collection::vec(0usize..4, 1..120),
            section in 1usize..20,
            total in 1usize..40,
        ) {
            let names = ["Work", "Show", "Ant", "Zebra"];
            let event = |(n, kind): (usize, &usize)| (names[*kind], n.to_string());
            let events: Vec<_> = kinds.iter().enumerate().map(event).collect();
            let (user_stacks, caps) = (stacks(&events), ItemLimits { section, total });
            let digest = build_digest_content(&user_stacks.pending(), &policies(), caps, all).unwrap();
            prop_assert_eq!(digest.total, events.len() as u64);
            prop_assert_eq!(digest.sections.iter().map(|s| s.total).sum::<u64>(), digest.total);
            prop_assert!(digest.shown_count() <= total as u64);
            prop_assert!(digest.sections.iter().all(|s| s.shown_count() <= section));
            for s in &digest.sections {
                let of_kind = events.iter().filter(|(kind, _)| *kind == s.kind.as_str()).count();
                prop_assert_eq!(s.total, of_kind as u64);
                prop_assert!(s.items().is_sorted_by_key(|item| Reverse(item.at)));
            }
        }
    }
}

mod retries {
    //! Tests of when a failed digest is retried.

    use super::super::*;
    use crate::domain::{Cadence, DeliveryId, DeliverySource, Id, UserId};

    #[test]
    fn the_retry_interval_of_a_failed_digest_doubles_each_time() {
        let at = DateTime::UNIX_EPOCH;
        let failed = |reopened| {
            let occasion = DeliverySource::Digest(Cadence::Weekly, "2026-W47".to_owned());
            let (id, marker) = (DeliveryId::stored("x"), Id::from_bytes([1; 12]));
            let mut row = Delivery::new(id, UserId::stored("ada"), occasion, marker, at);
            (row.state, row.open) = (DeliveryState::Failed, false);
            (row.outcome.settled, row.attempts.reopened) = (Some(at), reopened);
            row
        };
        let hours = |row: &Delivery| next_retry_at(row).map(|again| (again - at).num_hours());

        let waits: Vec<_> = [0, 1, 2, 4, 5, 99].map(|n| hours(&failed(n))).to_vec();

        assert_eq!(waits, [1, 2, 4, 16, 24, 24].map(Some));
        let closing = Delivery { open: true, ..failed(1) };
        let sent = Delivery { state: DeliveryState::Sent, ..failed(1) };
        assert_eq!((hours(&closing), hours(&sent)), (None, None));
    }
}
