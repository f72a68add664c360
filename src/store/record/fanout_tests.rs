//! Tests of fan-out records.

use bson::{Document, RawDocumentBuf, doc};
use chrono::DateTime;
use serde_json::json;

use super::*;
use crate::domain::{EventType, FollowKey, Id, Lease, ObjectId, Point};
use crate::store::record::{Record, read_bson, write_bson};

/// Writes and reads a fan-out.
fn round_trip(fanout: &Fanout) -> Fanout {
    let document = write_bson("testing", &FanoutRecord::with_audience(fanout)).unwrap();
    read_bson::<FanoutRecord>(&document).unwrap()
}

#[test]
fn a_fan_out_round_trips() {
    let at = DateTime::from_timestamp(1_398_124_800, 0).unwrap();
    let user = UserId::stored("$alice");
    let audiences = [
        Audience::users([user.clone(), UserId::stored("b")]).unwrap().except([user.clone()]),
        Audience::followers_of([FollowKey::stored("artist:558")]).unwrap(),
        Audience::near(Point::new(13.4, 52.5).unwrap(), 0.5).unwrap(),
    ];
    for audience in audiences {
        let objects = vec![ObjectId::stored("1"), ObjectId::stored("0")];
        let id = Id::at(at, [1; 8]);
        let new = Fanout::new(id, None, EventType::stored("T"), objects, audience).unwrap();
        assert_eq!(round_trip(&new), new);
        let document = write_bson("testing", &FanoutRecord::with_audience(&new)).unwrap();
        let document = Document::try_from(document).unwrap();
        assert!(!document.contains_key("batch_key"));
        let new = Fanout { batch_key: "$a.b".parse().ok(), ..new };
        assert_eq!(round_trip(&new), new);
        let counts = FanoutCounts { people: 3, pushed: u64::from(u32::MAX) + 1, capped: 1 };
        let owner = "me".to_owned();
        let leased_fanout = Fanout {
            progress: FanoutProgress { cursor: Some(user.clone()), counts, done: true },
            state: FanoutState::Done,
            lease: Some(Lease { owner, until: at }),
            ..new
        };
        assert_eq!(round_trip(&leased_fanout), leased_fanout);
    }
}

/// Returns a leased fan-out with some progress.
fn leased_fanout(audience: Audience) -> Fanout {
    let at = DateTime::from_timestamp(1_398_124_800, 0).unwrap();
    let objects = vec![ObjectId::stored("1"), ObjectId::stored("0")];
    let key = Some("k1".to_owned());
    let new = Fanout::new(Id::at(at, [1; 8]), key, EventType::stored("T"), objects, audience);
    let counts = FanoutCounts { people: 3, pushed: 2, capped: 1 };
    Fanout {
        progress: FanoutProgress { cursor: Some(UserId::stored("b")), counts, done: false },
        lease: Some(Lease { owner: "me".into(), until: at }),
        batch_key: "$a.b".parse().ok(),
        ..new.unwrap()
    }
}

#[test]
fn the_stored_form_of_a_fan_out_is_unchanged() {
    let near = Audience::near(Point::new(13.4, 52.5).unwrap(), 0.5).unwrap();
    let details = Details {
        actor: Some(Actor { name: Some("Ben".into()), ..Actor::bare(UserId::stored("ben")) }),
        text: Some("so".into()),
        data: json!({"$a": 1}).into(),
        ..Details::default()
    };
    let fanout = leased_fanout(near.except([UserId::stored("$alice")]));
    let fanout = fanout.with_details(details).unwrap();
    let document = write_bson("testing", &FanoutRecord::with_audience(&fanout)).unwrap();
    let document = Document::try_from(document).unwrap();
    let date = bson::DateTime::from_millis(1_398_124_800_000);
    let counts = doc! {"people": 3_i64, "pushed": 2_i64, "capped": 1_i64};
    let point = doc! {"type": "Point", "coordinates": [13.4, 52.5]};
    let expected = doc! {
        "_id": bson::oid::ObjectId::from_bytes(fanout.id.bytes()), "key": "k1", "type": "T", "objects": ["1", "0"],
        "day": "20140422", "at": date, "state": "pending", "batch_key": "$a.b",
        "lease": {"owner": "me", "until": date}, "audience": {"near": {"point": point, "km": 0.5}},
        "except": ["$alice"], "counts": counts, "cursor": "b",
        "details": {"actor": {"id": "ben", "name": "Ben"}, "text": "so", "data": r#"{"$a":1}"#, "reason": "near"},
    };
    for (field, value) in &expected {
        assert_eq!(document.get(field), Some(value), "{field}");
    }
    assert_eq!(document.len(), expected.len());

    let json = serde_json::to_value(FanoutRecord::from_value(&fanout)).unwrap();
    let expected = json!({
        "_id": fanout.id.to_string(), "key": "k1", "type": "T", "objects": ["1", "0"], "day": "20140422",
        "at": 1_398_124_800_000_i64, "state": "pending", "batch_key": "$a.b", "cursor": "b",
        "lease": {"owner": "me", "until": 1_398_124_800_000_i64},
        "counts": {"people": 3, "pushed": 2, "capped": 1},
        "details": {"actor": {"id": "ben", "name": "Ben"}, "text": "so", "data": r#"{"$a":1}"#, "reason": "near"},
    });
    assert_eq!(json, expected);
}

#[test]
fn the_stored_form_of_an_audience_is_unchanged() {
    let audience = |audience: Audience| {
        let record = FanoutRecord::with_audience(&leased_fanout(audience));
        let document = Document::try_from(write_bson("testing", &record).unwrap()).unwrap();
        document.get_document("audience").unwrap().clone()
    };
    let users = Audience::users([UserId::stored("$a"), UserId::stored("b")]).unwrap();
    let followers = Audience::followers_of([FollowKey::stored("artist:558")]).unwrap();
    assert_eq!(audience(users), doc! {"users": ["$a", "b"]});
    assert_eq!(audience(followers), doc! {"followers_of": ["artist:558"]});
}

#[test]
fn users_beyond_the_limit_are_omitted_once_the_fan_out_is_done() {
    let users = |length: usize| {
        let ids = (0..100_000).map(|n| UserId::stored(format!("{n:0>length$}")));
        Selector::Users(ids.collect())
    };
    let read = |length, state| {
        let fanout = Fanout { state, ..leased_fanout(users(length).into()) };
        let line = serde_json::to_value(FanoutRecord::with_audience(&fanout)).unwrap();
        let record: FanoutRecord = serde_json::from_value(line).unwrap();
        record.value().unwrap().audience.named_users().len()
    };

    assert_eq!(read(100, FanoutState::Done), 100_000);
    assert_eq!(read(110, FanoutState::Pending), 100_000);
    assert_eq!(read(110, FanoutState::Done), 0);
}

#[test]
fn an_invalid_field_is_reported_by_name() {
    let users = Audience::users([UserId::stored("b")]).unwrap();
    let document =
        write_bson("testing", &FanoutRecord::with_audience(&leased_fanout(users))).unwrap();
    let mut document = Document::try_from(document).unwrap();
    let error = |document: &Document| {
        let raw = RawDocumentBuf::try_from(document).unwrap();
        read_bson::<FanoutRecord>(&raw).unwrap_err().to_string()
    };
    document.insert("batch_key", "");
    assert!(error(&document).contains("batch_key: batch key"), "{}", error(&document));

    document.insert("batch_key", "k");
    document.insert("lease", doc! {"owner": "me"});
    assert!(error(&document).ends_with("lease: until is missing"), "{}", error(&document));
}
