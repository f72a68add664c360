//! Contract tests of `Objects`: records are read back completely, whether notifiable or not.

use chrono::TimeDelta;
use serde_json::json;
use tidings::domain::{Json, Object, ObjectKey, Point};

use crate::support::*;

pub(super) fn full(key: &str) -> Object {
    Object {
        key: ObjectKey::stored(key),
        notifiable: true,
        title: Some("Ophelia \"1851\"".into()),
        url: Some("https://example.org/ophelia".into()),
        image: Some("https://example.org/ophelia.jpg".into()),
        by: Some("Sir John Everett Millais, Bt".into()),
        at: Some(noon() + TimeDelta::milliseconds(250)),
        place: Some(Point::new(-0.1275, 51.491).unwrap()),
        data: json!({
            "medium": "oil on canvas", "year": 1851, "big": 9_007_199_254_740_993_i64, "ratio": 1.5, "": "nameless",
            "a.b": {"$ne": [1, "two", null, false, {"deep": ""}]}, "nothing": null, "zero": 0, "no": false, "list": []
        })
        .into(),
    }
}

pub async fn very_large_data_is_read_back_as_the_same_text(store: Fresh) {
    let text = format!("[{}[]]", r#"{"":0},"#.repeat(140_000));
    let data: Json = serde_json::from_str(&text).unwrap();
    let key = ObjectKey::stored("Artwork:1");
    let object = Object { data, ..Object::without_data(key.clone()) };

    store.put_objects(&[object]).await.unwrap();

    let found = store.objects(&[key]).await.unwrap().remove(0).unwrap();
    assert!(found.data.text() == text);
}

pub async fn an_object_is_read_back_with_every_field(store: Fresh) {
    let falsy = Object {
        notifiable: false,
        title: Some(String::new()),
        by: Some(String::new()),
        place: Some(Point::new(0.0, 0.0).unwrap()),
        data: json!({}).into(),
        ..Object::without_data(ObjectKey::stored("0"))
    };
    let objects =
        [full("Artwork:N01506"), falsy, Object::without_data(ObjectKey::stored("Show:1"))];

    store.put_objects(&objects).await.unwrap();

    let keys = objects.clone().map(|object| object.key);
    assert_eq!(store.objects(&keys).await.unwrap(), objects.map(Some));
}

pub async fn data_of_any_json_type_is_read_back(store: Fresh) {
    let shapes = [
        json!(null),
        json!(0),
        json!(""),
        json!(false),
        json!([]),
        json!({"a": {}}),
        json!("text"),
        json!(-1.5),
    ];
    let objects: Vec<_> = (0..)
        .zip(shapes)
        .map(|(n, data)| Object {
            data: data.into(),
            ..Object::without_data(ObjectKey::stored(format!("Artwork:{n}")))
        })
        .collect();

    store.put_objects(&objects).await.unwrap();

    let keys: Vec<_> = objects.iter().map(|object| object.key.clone()).collect();
    let found: Vec<_> = store.objects(&keys).await.unwrap().into_iter().flatten().collect();
    assert_eq!(found, objects);
}

pub async fn numbers_are_read_back_exactly(store: Fresh) {
    // An inexact decimal parser reads some of these as a neighboring double.
    let numbers =
        [31.245270191439438, 121.48791951161945, 0.1 + 0.2, f64::MIN_POSITIVE, 1e300, -0.0];
    let objects: Vec<_> = (0..)
        .zip(numbers)
        .map(|(n, number)| Object {
            place: Some(Point::new(number % 180.0, number % 90.0).unwrap()),
            data: json!([number, {"deep": number}]).into(),
            ..Object::without_data(ObjectKey::stored(format!("Artwork:{n}")))
        })
        .collect();

    store.put_objects(&objects).await.unwrap();

    let keys: Vec<_> = objects.iter().map(|object| object.key.clone()).collect();
    let found: Vec<_> = store.objects(&keys).await.unwrap().into_iter().flatten().collect();
    assert_eq!(found, objects);
}

pub async fn an_object_that_is_not_notifiable_is_returned(store: Fresh) {
    let withdrawn = Object { notifiable: false, ..full("Artwork:1") };

    store.put_objects(&[full("Artwork:1"), full("Artwork:2")]).await.unwrap();
    store.second().put_objects(std::slice::from_ref(&withdrawn)).await.unwrap();

    let keys = ["Artwork:1", "Artwork:2"].map(ObjectKey::stored);
    assert_eq!(store.objects(&keys).await.unwrap(), [Some(withdrawn), Some(full("Artwork:2"))]);
}

pub async fn objects_are_returned_in_the_order_of_the_request(store: Fresh) {
    let odd = ["Artwork:2", "0", "Artwork:a:b", "$ne", "Ärger:ü", "Artwork.x:1"];
    store.put_objects(&odd.map(full)).await.unwrap();
    store.put_objects(&[]).await.unwrap();

    let requested = ["Artwork:1", "Ärger:ü", "$ne", "Artwork:a:b", "0", "artwork:2", "0"]
        .map(ObjectKey::stored);
    let found = store.objects(&requested).await.unwrap();

    let expected =
        [None, Some("Ärger:ü"), Some("$ne"), Some("Artwork:a:b"), Some("0"), None, Some("0")];
    assert_eq!(found, expected.map(|key| key.map(full)));
    assert!(store.objects(&[]).await.unwrap().is_empty());
}

pub async fn many_objects_are_written_and_read_in_one_call(store: Fresh) {
    let objects: Vec<_> = (0..2_500)
        .map(|n| Object::without_data(ObjectKey::stored(format!("Artwork:{n:05}"))))
        .collect();

    store.put_objects(&objects).await.unwrap();

    let keys: Vec<_> = objects.iter().map(|object| object.key.clone()).collect();
    let found: Vec<_> = store.objects(&keys).await.unwrap().into_iter().flatten().collect();
    assert_eq!(found, objects);
}
