//! Checks every response in these tests against `openapi.json`.
//!
//! A response holds the described fields and no others. So a field that is renamed, removed or
//! added fails the tests that receive it until the description follows. Start with [`check`].

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use jsonschema::Validator;
use reqwest::Method;
use serde_json::{Map, Value, json};
use tidings::wire::OPENAPI;

use super::Answer;

/// The description, with every response schema closed to unknown fields.
static DESCRIPTION: LazyLock<Value> = LazyLock::new(|| {
    let mut description: Value = serde_json::from_str(OPENAPI).unwrap();
    close(&mut description, false);
    description
});

/// Keywords whose values hold schemas. The flag is true if the schema covers a whole value, so that
/// it can be closed to unknown fields.
const HOLDERS: [(&str, bool); 7] = [
    ("schema", true),
    ("schemas", false),
    ("properties", true),
    ("additionalProperties", true),
    ("items", true),
    ("oneOf", true),
    ("allOf", false),
];

/// Forbids unknown fields in every schema that covers a whole value.
fn close(value: &mut Value, whole: bool) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| close(value, whole)),
        Value::Object(fields) => {
            let names = ["$ref", "properties", "allOf"];
            if whole && names.iter().any(|name| fields.contains_key(*name)) {
                fields.insert("unevaluatedProperties".into(), false.into());
            }
            for (name, value) in fields {
                let holder = HOLDERS.iter().find(|(holder, _)| holder == name);
                match (holder, value) {
                    (Some((_, whole)), value) if name != "properties" && name != "schemas" => {
                        close(value, *whole);
                    }
                    (Some((_, whole)), Value::Object(named)) => {
                        named.values_mut().for_each(|value| close(value, *whole));
                    }
                    (_, value) => close(value, false),
                }
            }
        }
        _ => {}
    }
}

/// Returns the description at this JSON pointer, with references followed.
fn at(place: &str) -> Option<(String, &'static Value)> {
    let found = DESCRIPTION.pointer(place)?;
    match found["$ref"].as_str() {
        Some(elsewhere) => at(elsewhere.trim_start_matches('#')),
        None => Some((place.to_owned(), found)),
    }
}

/// Lists the differences between a value and the schema at this JSON pointer.
fn differences(place: &str, value: &Value) -> Vec<String> {
    static KNOWN: Mutex<Option<HashMap<String, Arc<Validator>>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap();
    let known = known.get_or_insert_default();
    let validator = known.entry(place.to_owned()).or_insert_with(|| {
        let mut schema = DESCRIPTION.clone();
        let place = place.replace('{', "%7B").replace('}', "%7D");
        schema["$ref"] = format!("#{place}").into();
        Arc::new(jsonschema::draft202012::new(&schema).unwrap())
    });
    let errors = validator.iter_errors(value);
    errors.map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// Returns the described path that matches a request path.
fn described_path(path: &str) -> Option<&'static str> {
    let requested: Vec<&str> = path.split('/').collect();
    let is_it = |described: &&String| {
        let named: Vec<&str> = described.split('/').collect();
        let mut pairs = named.iter().zip(&requested);
        named.len() == requested.len() && pairs.all(|(a, b)| a == b || a.starts_with('{'))
    };
    let paths = DESCRIPTION["paths"].as_object().unwrap();
    paths.keys().find(is_it).map(String::as_str)
}

/// Escapes a name for a JSON pointer (RFC 6901).
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Panics unless the response matches the description of its request.
pub fn check(method: &Method, path: &str, answer: &Answer) {
    let summary = || format!("{method} {path}: {} {}", answer.status, answer.body);
    let named = method.as_str().to_lowercase().replace("head", "get");
    let route = described_path(path).and_then(|path| {
        let place = format!("/paths/{}/{named}", escaped(path));
        at(&place).map(|(place, _)| place)
    });
    // Unknown paths get a problem response.
    let described = match route {
        None => at("/components/responses/Problem"),
        Some(route) => at(&format!("{route}/responses/{}", answer.status))
            .or_else(|| at(&format!("{route}/responses/default"))),
    };
    let (place, described) = described.unwrap_or_else(|| panic!("not described: {}", summary()));
    if answer.body == Value::Null && (*method == Method::HEAD || answer.status == 304) {
        return;
    }
    let empty = Map::new();
    let contents = described["content"].as_object().unwrap_or(&empty);
    let kind = answer.header("Content-Type");
    match contents.keys().find(|described| *described == kind) {
        None => assert!(
            contents.is_empty() && answer.body == Value::Null,
            "{kind:?} is not described: {}",
            summary()
        ),
        Some(kind) => {
            let place = format!("{place}/content/{}/schema", escaped(kind));
            let found = differences(&place, &answer.body);
            assert!(found.is_empty(), "{}\n  {}", summary(), found.join("\n  "));
        }
    }
}

#[test]
fn a_field_that_is_renamed_removed_or_added_is_a_difference() {
    let object = json!({
        "id": "Artwork:a1", "notifiable": true, "title": null, "url": null, "image": null,
        "by": null, "at": null, "place": [13.4, 52.5], "data": {"what": "ever"},
    });
    let item = json!({
        "id": "20140422.17", "type": "ArtworkPublished", "object": object,
        "at": "2014-04-22T10:00:00Z", "state": "unseen", "mailed": true,
    });
    let page = json!({"items": [item], "next": null, "unseen": 1, "unread": 1, "cursor": "c"});
    let batch = json!({
        "id": "535254a00000000000000001", "user": "ada", "key": "type:Comment", "state": "open",
        "count": 0, "items": [], "more": 0, "lead_sent": false, "opened_at": "2014-04-22T10:00:00Z",
        "last_event_at": "2014-04-22T10:00:00Z", "closes_at": "2014-04-22T10:00:00Z", "held_until": null,
        "settled_at": null, "delivery": null,
    });
    let described = |path: &str, value: &Value| {
        let answer = "get/responses/200/content/application~1json/schema";
        let place = format!("/paths/{}/{answer}", escaped(path));
        differences(&place, value).is_empty()
    };
    let (feed, one_batch) = ("/v1/users/{id}/feed", "/v1/batches/{id}");
    let with = |value: &Value, holder: &str, name: &str, held: Option<Value>| {
        let mut value = value.clone();
        let fields = value.pointer_mut(holder).unwrap().as_object_mut().unwrap();
        match held {
            Some(held) => fields.insert(name.to_owned(), held),
            None => fields.remove(name),
        };
        value
    };

    assert!(described(feed, &page) && described(one_batch, &batch));

    for (holder, name) in
        [("", "cursor"), ("", "unread"), ("/items/0", "at"), ("/items/0/object", "by")]
    {
        let without = with(&page, holder, name, None);
        let renamed = with(&without, holder, "other", Some(Value::Null));
        let beside = with(&page, holder, "other", Some(Value::Null));
        for changed in [&without, &renamed, &beside] {
            assert!(!described(feed, changed), "{changed}");
        }
    }
    let beside = with(&batch, "", "other", Some(Value::Null));
    assert!(!described(one_batch, &beside), "{beside}");
}
