//! Tests of user records.

use bson::{Bson, Document, RawDocumentBuf, doc};
use chrono::{TimeDelta, Weekday};
use serde_json::json;

use super::*;
use crate::domain::{Id, Point};
use crate::store::record::{read_bson, write_bson};

fn user_of(document: &Document) -> crate::store::Result<User> {
    read_bson::<UserRecord>(&RawDocumentBuf::try_from(document).unwrap())
}

fn full_user() -> User {
    let time = DateTime::from_timestamp_millis(1_398_124_800_123).unwrap();
    let preference = |route| TypePreference {
        window: (route == Route::Batch).then(|| TimeDelta::minutes(90)),
        ..TypePreference::new(route, time)
    };
    let mute =
        |until, title: Option<&str>| Mute { at: time, until, title: title.map(Title::stored) };
    User {
        email: Some(Address::new("ada@example.org").unwrap()),
        name: Some("Ada".into()),
        confirmed: true,
        tz: Some(chrono_tz::Pacific::Apia),
        locale: Some("en-GB".into()),
        loc: Some(Point::new(-0.1, 51.5).unwrap()),
        digest: DigestPreference {
            cadence: Some(Cadence::Weekly),
            weekday: Some(Weekday::Wed),
            hour: Some(23),
            since: Some(time),
        },
        types: Route::ALL
            .map(|route| (EventType::stored(format!("$a.{route:?}")), preference(route)))
            .into(),
        mutes: Mutes::stored([
            (Subject::stored("$a.b"), mute(Some(time), Some("Budget"))),
            (Subject::stored("artist:7"), mute(None, None)),
        ]),
        quiet: serde_json::from_str(r#"{"from": "22:00", "to": "07:30"}"#).unwrap(),
        suppressed: Some(time),
        unsubscribed: Some(time),
        ..User::new(UserId::stored("$ne"))
    }
}

#[test]
fn a_user_round_trips() {
    for user in [full_user(), User::new(UserId::stored("0"))] {
        let record = UserRecord::from_value(&user);
        let document = write_bson("testing", &record).unwrap();
        assert_eq!(read_bson::<UserRecord>(&document).unwrap(), user);
        let json = serde_json::to_value(&record).unwrap();
        let record: UserRecord = serde_json::from_value(json).unwrap();
        assert_eq!(record.value().unwrap(), user);
    }
}

#[test]
fn an_unreadable_preference_is_an_error_that_names_it() {
    let broken = [
        doc! {"_id": "a", "digest": {"cadence": "sometimes"}},
        doc! {"_id": "a", "digest": {"hour": 24}},
        doc! {"_id": "a", "digest": {"weekday": "x"}},
        doc! {"_id": "a", "digest": "never"},
        doc! {"_id": "a", "types": [{"t": "T", "route": "maybe"}]},
        doc! {"_id": "a", "types": ["T"]},
        doc! {"_id": "a", "types": {"T": {"route": "batch", "window": "soon"}}},
        doc! {"_id": "a", "types": {"T": {"route": "batch", "window": 3600}}},
        doc! {"_id": "a", "confirmed": "yes"},
        doc! {"_id": "a", "mutes": [{"s": "Thread:9"}]},
        doc! {"_id": "a", "mutes": [{"at": Bson::DateTime(bson::DateTime::from_millis(0))}]},
        doc! {"_id": "a", "mutes": "Thread:9"},
        doc! {"_id": "a", "quiet": {"from": "22:00"}},
        doc! {"_id": "a", "quiet": {"from": "22:00", "to": "22:00"}},
        doc! {"_id": "a", "quiet": "22:00"},
    ];
    for record in broken {
        let error = user_of(&record).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{record}: {error}");
    }
}

#[test]
fn records_of_other_writers_are_readable() {
    let record = doc! {
        "_id": "a", "email": "nobody", "confirmed": Bson::Null, "suppressed": true, "loc": [1, 2.5], "digest": {"weekday": "mon"}
    };
    let user = user_of(&record).unwrap();
    assert_eq!((user.email, user.confirmed), (None, false));
    assert_eq!(user.suppressed, Some(DateTime::UNIX_EPOCH));
    assert_eq!(user.loc, Some(Point::new(1.0, 2.5).unwrap()));
    assert_eq!(user.digest.weekday, Some(Weekday::Mon));
    let preference_of = |choice: Document| {
        let user = user_of(&doc! {"_id": "a", "types": {"T": choice}}).unwrap();
        user.types[&EventType::stored("T")]
    };
    let never = preference_of(doc! {"route": "never"});
    assert_eq!((never.route, never.window), (Route::Never, None));
    let batch = preference_of(doc! {"route": "batch", "window": "60m"});
    assert_eq!(batch.window, Some(TimeDelta::hours(1)));
}

#[test]
fn the_stored_form_of_a_user_is_unchanged() {
    let time = bson::DateTime::from_millis(1_398_124_800_123);
    let preference = TypePreference {
        window: Some(TimeDelta::minutes(90)),
        ..TypePreference::new(Route::Batch, full_user().suppressed.unwrap())
    };
    let user =
        User { types: BTreeMap::from([(EventType::stored("$a.b"), preference)]), ..full_user() };
    let record = UserRecord::from_value(&user);
    let document = Document::try_from(write_bson("testing", &record).unwrap()).unwrap();
    let choice = doc! {"t": "$a.b", "route": "batch", "since": time, "window": "90m"};
    let expected = doc! {
        "_id": "$ne", "email": "ada@example.org", "name": "Ada", "confirmed": true, "tz": "Pacific/Apia",
        "locale": "en-GB", "loc": {"type": "Point", "coordinates": [-0.1, 51.5]},
        "digest": {"cadence": "weekly", "weekday": "wed", "hour": 23, "since": time},
        "types": [choice],
        "mutes": [{"at": time, "until": time, "title": "Budget", "s": "$a.b"}, {"at": time, "s": "artist:7"}],
        "quiet": {"from": "22:00", "to": "07:30"},
        "suppressed": time, "unsubscribed": time,
    };
    assert_eq!(document.len(), expected.len());
    for (field, value) in &expected {
        assert_eq!(document.get(field), Some(value), "{field}");
    }
    let json = serde_json::to_value(&record).unwrap();
    let at = 1_398_124_800_123_i64;
    let choice = json!({"t": "$a.b", "route": "batch", "since": at, "window": "90m"});
    assert_eq!(json["types"], json!([choice]));
    let budget = json!({"at": at, "until": at, "title": "Budget", "s": "$a.b"});
    assert_eq!(json["mutes"], json!([budget, {"at": at, "s": "artist:7"}]));
    assert_eq!(json["digest"]["weekday"], "Wed");
    assert_eq!(json["suppressed"], 1_398_124_800_123_i64);

    let mut older = json;
    older["types"] = json!({"$a.b": ["batch", at, "90m"]});
    older["mutes"] = json!({"$a.b": [at, at, "Budget"], "artist:7": [at, null, null]});
    let record: UserRecord = serde_json::from_value(older).unwrap();
    assert_eq!(record.value().unwrap(), user);
}

#[test]
fn an_error_about_a_misplaced_value_truncates_it() {
    let secret = format!("{}@example.org", "x".repeat(100));
    let broken = doc! {"_id": "a", "digest": {"cadence": &secret}};
    let error = user_of(&broken).unwrap_err().to_string();
    assert!(error.starts_with("digest.cadence of user a in the store"), "{error}");
    assert!(error.ends_with('…') && !error.contains("example.org"), "{error}");
}

#[test]
fn unreadable_fields_get_defaults_and_all_are_reported() {
    let document = doc! {
        "_id": "a", "email": "ada@example.org", "confirmed": true, "tz": "Mars/Base",
        "digest": {"cadence": "hourly", "hour": 7, "weekday": "payday"}, "suppressed": "soon",
        "types": [{"t": "T", "route": "pigeon"}, {"t": "U", "route": "never"}, {"t": "V"}],
        "mutes": {"Thread:9": {"at": "noon"}},
    };
    let raw = RawDocumentBuf::try_from(&document).unwrap();

    let user = StoredFields::from_document(&raw).unwrap().into_user().unwrap();

    let mut fields: Vec<&str> = user.unreadable.iter().map(|field| field.field.as_str()).collect();
    fields.sort_unstable();
    let expected = [
        "digest.cadence",
        "digest.weekday",
        "mutes.Thread:9",
        "suppressed",
        "types.T",
        "types.V",
        "tz",
    ];
    assert_eq!(fields, expected);
    assert_eq!((user.digest.hour, user.digest.cadence, user.tz), (Some(7), None, None));
    assert!(user.confirmed && user.email.is_some() && user.types.len() == 1);
    assert_eq!(user.suppressed, Some(DateTime::UNIX_EPOCH), "it still stops email");
}

#[test]
fn a_record_without_a_readable_id_stays_unreadable() {
    let raw = RawDocumentBuf::try_from(&doc! {"_id": 7, "tz": "Mars/Base"}).unwrap();

    let user = StoredFields::from_document(&raw).unwrap().into_user();

    assert!(user.is_none());
}

#[test]
fn an_unreadable_record_hides_all_events() {
    let error = Error::corrupt("user a", "it is damaged");

    let user = user_with_defaults(UserId::stored("a"), &error, None);

    let now = DateTime::from_timestamp_millis(1_398_124_800_123).unwrap();
    assert!(user.start.unwrap().is_after(Id::at(now, [0xff; 8])));
    assert_eq!(user.unreadable.len(), 1);
}
