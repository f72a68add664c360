//! Tests of groups, people, order, limits and totals.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::domain::{Details, Id, Object, ObjectId, ObjectKey, Policy, UserId};

fn start() -> DateTime<Utc> {
    DateTime::from_timestamp(1_398_153_600, 0).unwrap()
}

/// Returns events that joined one minute apart.
fn kept(events: &[(&str, &str)]) -> Vec<BatchItem> {
    let item = |(minute, (kind, object)): (i64, &(&str, &str))| BatchItem {
        fanout_id: Id::at(start() + TimeDelta::minutes(minute), [0; 8]),
        kind: EventType::stored(kind),
        object: ObjectId::stored(object),
    };
    (0..).zip(events).map(item).collect()
}

fn policies() -> Policies {
    let policy = |heading: &str, phrase: Option<&str>| Policy {
        heading: Some(heading.into()),
        phrase: phrase.map(|phrase| phrase.parse().unwrap()),
        ..Policy::default()
    };
    Policies::new([
        (EventType::stored("Comment"), policy("New comments", Some("commented on"))),
        (EventType::stored("Work"), policy("New works", None)),
    ])
}

fn object(id: &str, title: &str, by: &str) -> Object {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Object { title: some(title), by: some(by), ..Object::without_data(ObjectKey::stored(id)) }
}

fn without_details(object: Object) -> DisplayData {
    DisplayData { object: Arc::new(object), details: None }
}

/// Returns the content of a batch under a chosen key, in which these objects apply.
fn content_of(events: &[(&str, &str)], omitted: u64, objects: &[Object]) -> Option<EmailContent> {
    let objects: BTreeMap<&str, &Object> =
        objects.iter().map(|object| (object.key.as_str(), object)).collect();
    let key = BatchKey::Chosen("all".parse().unwrap());
    build_batch_content(&key, &kept(events), omitted, &policies(), |event| {
        objects.get(event.object.as_str()).map(|object| without_details((*object).clone()))
    })
}

/// Returns the total and the people of each group.
fn groups_of(content: &EmailContent) -> Vec<(u64, Option<Vec<&str>>)> {
    let groups = content.sections.iter().flat_map(|section| &section.groups);
    groups.map(|group| (group.total, names(&group.authors))).collect()
}

fn names(people: &Authors) -> Option<Vec<&str>> {
    match people {
        Authors::Named(all) => Some(all.iter().map(|one| one.name.as_str()).collect()),
        Authors::Unknown => None,
    }
}

fn comments(ids: &[&'static str]) -> Vec<(&'static str, &'static str)> {
    ids.iter().map(|id| ("Comment", *id)).collect()
}

#[test]
fn events_about_one_topic_form_one_group_with_each_person_once() {
    let objects = [
        object("1", "Budget", "Ada"),
        object("2", "Roadmap", "Ben"),
        object("3", "Budget", "Cyd"),
        object("4", " Budget ", " Ada "),
    ];

    let content = content_of(&comments(&["1", "2", "3", "4"]), 0, &objects).unwrap();

    assert_eq!(groups_of(&content), [(3, Some(vec!["Ada", "Cyd"])), (1, Some(vec!["Ben"]))]);
    assert_eq!(names(&content.sections[0].authors).unwrap(), ["Ada", "Cyd", "Ben"]);
    let ids = content.sections[0].groups[0].items.iter();
    assert_eq!(ids.map(|item| item.id.as_str()).collect::<Vec<_>>(), ["4", "3", "1"]);
    assert_eq!(content.oldest, start());
    assert_eq!(content.newest, start() + TimeDelta::minutes(3));
}

/// Returns the content of a batch of comments on one budget by these actors, given as id and name.
fn commented_by(actors: &[(&str, Option<&str>)]) -> EmailContent {
    let ids: Vec<String> = (0..actors.len()).map(|n| n.to_string()).collect();
    let ids: Vec<_> = ids.iter().map(|id| ("Comment", id.as_str())).collect();
    let key = BatchKey::Chosen("all".parse().unwrap());
    let applies = |event: &Event| {
        let (id, name) = actors[event.object.as_str().parse::<usize>().unwrap()];
        let actor = Actor { name: name.map(str::to_owned), ..Actor::bare(UserId::stored(id)) };
        let details = Details { actor: Some(actor), ..Details::default() };
        Some(DisplayData {
            object: Arc::new(object(event.object.as_str(), "Budget", "")),
            details: Some(Arc::new(details)),
        })
    };
    build_batch_content(&key, &kept(&ids), 0, &policies(), applies).unwrap()
}

#[test]
fn people_are_counted_by_id_and_shown_by_their_newest_name() {
    let content =
        commented_by(&[("a1", Some("Ada Old")), ("b1", Some("Ben")), ("a1", Some("Ada New"))]);
    let sams = commented_by(&[("s1", Some("Sam")), ("s2", Some("Sam"))]);

    assert_eq!(groups_of(&content), [(3, Some(vec!["Ada New", "Ben"]))]);
    let shown = content.items().map(|(_, item)| item.author_name().unwrap());
    assert_eq!(shown.collect::<Vec<_>>(), ["Ada New", "Ben", "Ada Old"]);
    assert_eq!(groups_of(&sams), [(2, Some(vec!["Sam", "Sam"]))]);
}

#[test]
fn a_stated_topic_groups_objects_with_different_titles() {
    let about = |id: &str, about: serde_json::Value| Object {
        data: json!({ "about": about }).into(),
        ..object(id, id, "Ada")
    };
    let objects = [
        about("1", json!("Budget")),
        about("2", json!({"title": "Budget"})),
        about("3", json!({"title": "Budget", "url": "https://a.example/b"})),
        about("4", json!({"title": "Budget", "url": "https://a.example/b", "x": 1})),
        about("5", json!({"title": "Budget", "url": "https://a.example/c"})),
        // These state no topic, so each object is its own.
        about("6", json!("")),
        about("7", json!({"url": "https://a.example/b"})),
        about("8", json!(["Budget"])),
    ];
    let ids = ["1", "2", "3", "4", "5", "6", "7", "8"];

    let comments = content_of(&comments(&ids), 0, &objects).unwrap();
    let works: Vec<_> = ids.iter().map(|id| ("Work", *id)).collect();
    let works = content_of(&works, 0, &objects).unwrap();

    let totals = |content| -> Vec<u64> { groups_of(content).iter().map(|group| group.0).collect() };
    assert_eq!(totals(&comments), [1, 1, 1, 1, 2, 2]);
    assert_eq!(totals(&works), totals(&comments));
}

#[test]
fn objects_on_one_page_share_a_topic_and_equally_named_pages_do_not() {
    let on =
        |id: &str, url: &str| Object { url: Some(url.into()), ..object(id, "Untitled", "Ada") };
    let objects = [
        on("1", "https://a.example/b#c1"),
        on("2", "https://a.example/b#c2"),
        on("3", "https://a.example/#/docs/1"),
        on("4", "https://a.example/#/docs/2"),
    ];

    let content = content_of(&comments(&["1", "2", "3", "4"]), 0, &objects).unwrap();

    let urls = content.sections[0].groups.iter();
    let urls: Vec<_> = urls.map(|group| group.url()).collect();
    assert_eq!(
        urls,
        [
            Some("https://a.example/#/docs/2"),
            Some("https://a.example/#/docs/1"),
            Some("https://a.example/b"),
        ]
    );
}

#[test]
fn a_page_is_identified_by_its_url_and_has_its_newest_title() {
    let on = |id: &str, about: serde_json::Value| Object {
        data: json!({"about": about}).into(),
        ..object(id, "", "Ada")
    };
    let url = "https://a.example/1";
    let objects = [
        on("1", json!({"title": "Budget", "url": url})),
        on("2", json!({"title": "Budget"})),
        on("3", json!({"title": "Budget 2027", "url": url})),
        on("4", json!("Budget")),
    ];

    let content = content_of(&comments(&["1", "2", "3", "4"]), 0, &objects).unwrap();

    let groups = content.sections[0].groups.iter();
    let groups: Vec<_> = groups.map(|group| (group.title(), group.total)).collect();
    assert_eq!(groups, [(Some("Budget"), 2), (Some("Budget 2027"), 2)]);
}

#[test]
fn an_email_about_one_topic_only_belongs_to_its_thread() {
    let budget = "https://a.example/budget";
    let on = |id: &str, title: &str, url: &str| Object {
        url: (!url.is_empty()).then(|| url.to_owned()),
        ..object(id, title, "Ada")
    };
    let objects = [
        on("1", "Budget", "https://a.example/budget#c1"),
        on("2", "Budget", "https://a.example/budget#c2"),
        on("3", "Roadmap", "https://a.example/roadmap#c3"),
        on("4", "Budget", ""),
        Object {
            data: json!({"about": {"title": "Budget, renamed", "url": budget}}).into(),
            ..on("5", "Note", "")
        },
        on("6", "Nocturne", "https://a.example/nocturne"),
    ];
    let of = |events: &[(&str, &str)], omitted| {
        let content = content_of(events, omitted, &objects).unwrap();
        content.common_topic().map(str::to_owned)
    };

    let comments = [("Comment", "1"), ("Comment", "2")];
    assert_eq!(of(&comments, 0).as_deref(), Some(budget));
    assert_eq!(of(&comments[..1], 0).as_deref(), Some(budget));
    assert_eq!(of(&[("Work", "5")], 0).as_deref(), Some(budget));
    let both = [("Comment", "1"), ("Work", "5")];
    assert_eq!(of(&both, 0).as_deref(), Some(budget));
    assert_eq!(of(&[("Comment", "4")], 0).as_deref(), Some("Budget"));
    let twice = [("Work", "6"), ("Sale", "6")];
    assert_eq!(of(&twice, 0).as_deref(), Some("6"));

    assert_eq!(of(&[("Comment", "1"), ("Comment", "3")], 0), None);
    assert_eq!(of(&[("Work", "5"), ("Work", "6")], 0), None);
    assert_eq!(of(&[("Comment", "1"), ("Work", "6")], 0), None);
    // The topic of the event that was not kept is unknown.
    assert_eq!(of(&comments, 1), None);
}

#[test]
fn events_without_a_phrase_or_title_are_not_grouped() {
    let objects = [object("1", "Untitled", "Ada"), object("2", "Untitled", "Ada")];

    let works = content_of(&[("Work", "1"), ("Work", "2")], 0, &objects).unwrap();
    let bare = [object("1", "", "Ada"), object("2", "", "Ada")];
    let comments = content_of(&comments(&["1", "2"]), 0, &bare).unwrap();

    assert_eq!(works.sections[0].groups.len(), 2);
    assert_eq!(comments.sections[0].groups.len(), 2);
}

#[test]
fn a_group_with_an_unknown_author_has_no_people() {
    let objects =
        [object("1", "Budget", "Ada"), object("2", "Budget", " "), object("3", "Roadmap", "Ben")];

    let content = content_of(&comments(&["1", "2", "3"]), 0, &objects).unwrap();

    assert_eq!(groups_of(&content), [(1, Some(vec!["Ben"])), (2, None)]);
    assert_eq!(content.sections[0].authors, Authors::Unknown);
}

#[test]
fn a_repeated_event_counts_once_at_its_latest_time() {
    let objects = [object("1", "Budget", "Ada"), object("2", "Roadmap", "Ben")];

    let events = [("Comment", "1"), ("Comment", "2"), ("Comment", "1"), ("Work", "1")];
    let content = content_of(&events, 0, &objects).unwrap();

    assert_eq!(content.total, 3);
    let comments = &content.sections[0];
    assert_eq!((comments.total, comments.topic_count), (2, 2));
    assert_eq!(comments.groups[0].items[0].at, start() + TimeDelta::minutes(2));
}

#[test]
fn events_that_no_longer_apply_are_excluded_from_items_and_totals() {
    let objects = [object("2", "Roadmap", "Ben")];

    let content = content_of(&comments(&["1", "2"]), 3, &objects).unwrap();

    assert_eq!((content.total, content.hidden_count()), (4, 3));
    assert_eq!(content_of(&comments(&["1"]), 3, &objects), None);
    assert_eq!(content_of(&[], 3, &objects), None);
}

#[test]
fn events_that_were_not_kept_belong_to_the_type_of_the_key() {
    let kind = EventType::stored("Comment");
    let of = |key: &BatchKey| {
        let applies = |_: &Event| Some(without_details(object("1", "Budget", "Ada")));
        build_batch_content(key, &kept(&[("Comment", "1")]), 12, &policies(), applies).unwrap()
    };

    let typed = of(&BatchKey::Type(kind.clone()));
    let chosen = of(&BatchKey::Chosen("replies".parse().unwrap()));

    for content in [&typed, &chosen] {
        assert_eq!((content.total, content.hidden_count(), content.omitted), (13, 12, 12));
        assert_eq!(content.only_kind(), Some(&kind));
    }
    assert_eq!((typed.sections[0].total, typed.sections[0].omitted), (13, 12));
    assert_eq!((chosen.sections[0].total, chosen.sections[0].omitted), (1, 0));
}

#[test]
fn sections_follow_the_configured_order_and_each_shows_an_item() {
    let ids: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let objects: Vec<Object> = ids.iter().map(|id| object(id, id, "Ada")).collect();
    let kind = |n: usize| ["Zebra", "Work", "Comment", "Comment"][n % 4];
    let events = ids.iter().enumerate();
    let events: Vec<_> = events.map(|(n, id)| (kind(n), id.as_str())).collect();

    let content = content_of(&events, 7, &objects).unwrap();

    let sections = content.sections.iter();
    let sections: Vec<_> = sections.map(|s| (s.kind.as_str(), s.total, s.shown_count())).collect();
    assert_eq!(sections, [("Comment", 50, 12), ("Work", 25, 12), ("Zebra", 25, 12)]);
    assert_eq!((content.total, content.hidden_count()), (107, 71));
}

proptest! {
    #[test]
    fn every_event_is_shown_or_counted(
        events in prop::collection::vec((0_u8..24, 0_u8..60), 0..120),
        omitted in 0_u64..1_000,
        typed in any::<bool>(),
    ) {
        let names: Vec<_> = events.iter().map(|(t, o)| (format!("T{t}"), o.to_string())).collect();
        let events: Vec<_> = names.iter().map(|(t, o)| (t.as_str(), o.as_str())).collect();
        // Every seventh object no longer applies, and every fifth has no author.
        let applies = |event: &Event| {
            let n: u8 = event.object.as_str().parse().unwrap();
            let by = if n.is_multiple_of(5) { "" } else { "Ada" };
            (!n.is_multiple_of(7)).then(|| without_details(object("x", &(n % 9).to_string(), by)))
        };
        let phrased = |n: u8| (EventType::stored(format!("T{n}")), Policy {
            phrase: n.is_multiple_of(2).then(|| "commented on".parse().unwrap()),
            ..Policy::default()
        });
        let key = if typed {
            BatchKey::Type(EventType::stored("T1"))
        } else {
            BatchKey::Chosen("all".parse().unwrap())
        };
        let kept = kept(&events);
        let expected: std::collections::HashSet<_> = kept
            .iter()
            .filter(|item| applies(&Event::from((*item).clone())).is_some())
            .map(|item| (item.kind.clone(), item.object.clone()))
            .collect();

        let content = build_batch_content(&key, &kept, omitted, &Policies::new((0..12).map(phrased)), applies);

        let Some(content) = content else {
            prop_assert!(expected.is_empty());
            return Ok(());
        };
        let shown: u64 = content.sections.iter().map(|section| section.shown_count() as u64).sum();
        prop_assert_eq!(content.total, expected.len() as u64 + omitted);
        prop_assert_eq!(shown + content.hidden_count(), content.total);
        prop_assert_eq!(shown, content.shown_count());
        prop_assert!(shown > 0 && shown <= ItemLimits::default().total as u64);
        for section in &content.sections {
            prop_assert!(section.shown_count() > 0);
            let totals: u64 = section.groups.iter().map(|group| group.total).sum();
            prop_assert!(totals <= section.total);
            if section.groups.len() == section.topic_count {
                prop_assert_eq!(totals + section.omitted, section.total);
            }
            for group in &section.groups {
                prop_assert!(group.items.len() as u64 <= group.total);
                prop_assert!(group.items.is_sorted_by_key(|item| Reverse(item.at)));
            }
        }
    }
}
