//! The API accepts exactly the requests that its description allows.
//!
//! A null is accepted only where it is described, and means the same as omitting the field.
//! Schemathesis (`tests/api`) checks this again with generated values.

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::{Value, json};
use tidings::domain::feed_page::FeedCursor;
use tidings::domain::{Address, BatchKey, Category, ChosenKey, Day, ModelName, Position, UserId};
use tidings::wire::OPENAPI;

use super::{Api, answer};
use crate::support::Fresh;

on_sqlite! {
    an_undescribed_null_is_rejected_with_its_field_name
    a_described_null_means_the_same_as_an_omitted_field
    list_limits_count_duplicates
    the_actor_does_not_count_toward_the_limit_of_except
    an_empty_audience_list_is_rejected_beside_another_audience
}

fn event(fields: Value) -> Value {
    let mut event = json!({"type": "Loan", "objects": ["a1"], "to": ["ada"]});
    let fields = fields.as_object().unwrap().clone();
    event.as_object_mut().unwrap().extend(fields);
    event
}

async fn an_undescribed_null_is_rejected_with_its_field_name(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let (events, marks) = ("/v1/events", "/v1/users/ada/feed/marks");
    for (path, body, name) in [
        (events, event(json!({"key": null})), "key"),
        (events, event(json!({"actor": null})), "actor"),
        (events, event(json!({"near": null})), "near"),
        (events, event(json!({"except": null})), "except"),
        (events, event(json!({"batch_key": null})), "batch_key"),
        (marks, json!({"mark": "read", "to": "c", "type": null}), "type"),
        (marks, json!({"mark": "read", "to": "c", "category": null}), "category"),
        (marks, json!({"mark": "read", "to": "c", "day": null}), "day"),
        (marks, json!({"mark": "read", "to": "c", "about": null}), "about"),
        (marks, json!({"mark": "read", "to": "c", "ids": null}), "ids"),
        (marks, json!({"mark": "read", "ids": ["20140419.0"], "to": null}), "to"),
    ] {
        let refused = api.post(path, body).await;

        let problem = (refused.status, refused.code());
        assert_eq!(problem, (400, "invalid_body"), "{name}: {}", refused.body);
        let place = refused.body["location"].as_str().unwrap();
        assert!(place.starts_with(&format!("{name} (")), "{name}: {place}");
    }
    api.stop().await;
}

async fn a_described_null_means_the_same_as_an_omitted_field(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let actor = json!({"id": "bob", "name": null, "url": null, "image": null});
    let with_nulls = event(json!({"actor": actor, "text": null, "at": null, "data": null}));
    let address = json!({"address": "eve@example.org", "at": null, "source": null, "detail": null});

    let accepted = api.post("/v1/events", with_nulls).await;
    let suppressed = api.post("/v1/suppressions", address).await;
    api.fan_out().await;
    let page = api.get("/v1/users/ada/feed").await;

    assert_eq!(accepted.status, 202, "{}", accepted.body);
    assert_eq!(suppressed.status, 200, "{}", suppressed.body);
    assert_eq!(page.body["items"][0]["actor"], json!({"id": "bob"}));
    api.stop().await;
}

async fn list_limits_count_duplicates(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let same = |count: usize| json!(vec!["a1"; count]);

    for field in ["objects", "followers_of"] {
        let fields = |count| match field {
            "objects" => event(json!({"objects": same(count)})),
            _ => json!({"type": "Loan", "objects": "a1", "followers_of": same(count)}),
        };
        let most = api.post("/v1/events", fields(100)).await;
        let more = api.post("/v1/events", fields(101)).await;
        assert_eq!(most.status, 202, "{field}: {}", most.body);
        let problem = (more.status, more.code());
        assert_eq!(problem, (413, "limit_exceeded"), "{field}: {}", more.body);
    }
    let back = |count| {
        api.ask("DELETE", "/v1/events").json(&json!({"type": "Loan", "objects": same(count)}))
    };
    let (most, more) = (answer(back(100)).await, answer(back(101)).await);
    assert_eq!(most.status, 200, "{}", most.body);
    assert_eq!((more.status, more.code()), (413, "limit_exceeded"));
    let people = api.post("/v1/events", event(json!({"to": same(100_001)}))).await;
    assert_eq!((people.status, people.code()), (413, "limit_exceeded"));
    api.stop().await;
}

async fn the_actor_does_not_count_toward_the_limit_of_except(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let people = |count: usize| -> Vec<String> { (0..count).map(|n| n.to_string()).collect() };
    let except = |count| event(json!({"actor": "bob", "except": people(count)}));

    let most = api.post("/v1/events", except(10_000)).await;
    let more = api.post("/v1/events", except(10_001)).await;
    let same = api.post("/v1/events", event(json!({"except": vec!["eve"; 10_001]}))).await;

    assert_eq!(most.status, 202, "{}", most.body);
    assert_eq!((more.status, more.code()), (413, "limit_exceeded"));
    assert_eq!((same.status, same.code()), (413, "limit_exceeded"));
    api.stop().await;
}

async fn an_empty_audience_list_is_rejected_beside_another_audience(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let keyed = json!({"type": "Loan", "objects": "a1", "followers_of": "artist:1", "to": []});
    for (body, name) in [(keyed, "to"), (event(json!({"followers_of": []})), "followers_of")] {
        let refused = api.post("/v1/events", body).await;

        let problem = (refused.status, refused.code());
        assert_eq!(problem, (400, "invalid_body"), "{name}: {}", refused.body);
        let place = refused.body["location"].as_str().unwrap();
        assert!(place.starts_with(&format!("{name} (")), "{name}: {place}");
    }
    api.stop().await;
}

static DESCRIPTION: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(OPENAPI).unwrap());

/// Returns a validator for one schema of the description.
fn schema(place: &str) -> Validator {
    let mut description = DESCRIPTION.clone();
    description["$ref"] = format!("#/components/schemas/{place}").into();
    jsonschema::draft202012::new(&description).unwrap()
}

/// Panics unless the description and the parser accept the same texts.
fn agree(name: &str, texts: impl IntoIterator<Item = String>, is_parsed: impl Fn(&str) -> bool) {
    let schema = schema(name);
    let (mut accepted, mut refused) = (0, 0);
    for text in texts {
        let is_described = schema.is_valid(&json!(text));
        assert_eq!(is_described, is_parsed(&text), "{name} {text:?}");
        match is_described {
            true => accepted += 1,
            false => refused += 1,
        }
    }
    assert!(accepted > 0 && refused > 0, "{name}: {accepted} {refused}");
}

fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).into()
}

#[test]
fn days_are_described_with_the_lengths_of_months() {
    let years = [0, 1, 4, 100, 400, 1900, 1970, 2000, 2014, 2024, 2100, 9999];
    let months = years.into_iter().flat_map(|year| {
        let month = move |month| (0..=32).map(move |day| format!("{year:04}{month:02}{day:02}"));
        (0..=13).flat_map(month)
    });
    let odd = texts(["", "2014042", "201404222", "2014042a", " 20140422", "20140422\n"]);

    agree("Day", months.chain(odd), |text| text.parse::<Day>().is_ok());
}

#[test]
fn positions_and_cursors_are_described_as_they_are_parsed() {
    let places = texts([
        "20140422.17",
        "20140422o.0",
        "20140422.000000001",
        "20140422.999999999",
        "20140422.1000000000",
        "20140422.",
        "20140431.1",
        "20140422",
        "20140422x.1",
        "20140422.-1",
    ]);
    let mut cursors = texts(["", "c", "c-", "c--", "d", "c20140422.1-", "c-20140422.1", "cc"]);
    for place in &places {
        cursors.extend([format!("c{place}"), format!("c20140421o.3-{place}")]);
    }
    // The longest cursors, and some that are too long.
    let long = |first: &str| format!("c{first}{}", "-20140422.1".repeat(363));
    cursors.extend([long("20140422"), long("20140422.")].map(|text| text.replacen("-", ".1-", 1)));
    for longest in [3_999, 4_000, 4_001] {
        let mut text = format!("c20140422.1{}", "-20140422.1".repeat(361));
        text.push_str(&format!("-20140422.{}", "1".repeat(longest - text.len() - 10)));
        cursors.push(text);
    }

    agree("Place", places, |text| text.parse::<Position>().is_ok());
    agree("CursorGiven", cursors, |text| text.parse::<FeedCursor>().is_ok());
}

#[test]
fn names_and_keys_are_described_as_they_are_parsed() {
    let odd = ["", " ", "a", "a b", " a", "a ", "a\u{a0}", "\u{85}", "a\nb", "a\u{7f}", "é", "a:b"];
    let mut names = texts(odd);
    names.extend(["a".repeat(256), "a".repeat(257)]);
    let kept: Vec<String> = names
        .iter()
        .flat_map(|name| ["type:", "key:", ""].map(|kind| format!("{kind}{name}")))
        .collect();
    let lines = names.iter().map(|name| name.chars().take(60).collect());
    let lines: Vec<String> =
        lines.chain(["a".repeat(61), format!("  {}  ", "a".repeat(60))]).collect();

    agree("Model", names.clone(), |text| ModelName::new(text).is_ok() && !text.contains(':'));
    agree("Name", names, |text| UserId::new(text).is_ok());
    agree("BatchKey", kept, |text| text.parse::<BatchKey>().is_ok());
    agree("Category", lines, |text| text.parse::<Category>().is_ok());
}

#[test]
fn the_keys_of_events_are_described_as_they_are_parsed() {
    let place = "Event/properties/batch_key";
    let keys = ["", " ", "0", "a\u{9f}", "a\u{a0}", "\n"];

    agree(place, texts(keys), |text| ChosenKey::new(text).is_ok());
    agree("Event/properties/key", texts(keys), |text| ChosenKey::new(text).is_ok());
}

#[test]
fn addresses_are_described_as_they_are_parsed() {
    // Apart from its structure, only its characters can make an address invalid.
    let planes = (0..0x2_0000).chain(0xd_fff0..0xe_1010);
    let odd = planes.filter_map(char::from_u32);
    let odd = odd.filter(|c| !c.is_alphanumeric());
    let mut addresses: Vec<String> = odd.map(|c| format!("a{c}@example.org")).collect();
    addresses.extend(texts([
        "a@b",
        "a@",
        "@b",
        "a@.b",
        "a@b.",
        "a@b..c",
        "a@b@c",
        "a",
        "",
        "ünal@müller.example",
        ".a@b.cd",
        "a.@b.cd",
        "a..b@c.de",
        "a.b@c-d.e_f.gh",
        "a@-b.cd",
        "a@b-.cd",
        "a@b$.cd",
        "a@b.c",
    ]));
    addresses.extend([64, 65].map(|n| format!("{}@b.cd", "a".repeat(n))));
    addresses.extend([63, 64].map(|n| format!("a@{}.cd", "b".repeat(n))));

    agree("Address", addresses, |text| Address::new(text).is_ok());
}

#[test]
fn every_time_zone_has_the_described_form() {
    let schema = schema("TimeZone");

    for zone in chrono_tz::TZ_VARIANTS {
        assert!(schema.is_valid(&json!(zone.name())), "{zone}");
    }
    assert!(!schema.is_valid(&json!("")) && !schema.is_valid(&json!("Europe/")));
}
