//! Tests of the records of accumulators and batches.

use bson::{Bson, Document, RawDocumentBuf, doc};
use serde_json::json;

use super::*;
use crate::domain::{EventType, Lease, ObjectId, UserId};
use crate::store::record::{read_bson, write_bson};

fn id(byte: u8) -> Id {
    Id::from_bytes([byte; 12])
}

fn oid(byte: u8) -> bson::oid::ObjectId {
    bson::oid::ObjectId::from_bytes([byte; 12])
}

fn batch(led: Vec<Id>) -> Batch {
    let at = |millis| DateTime::from_timestamp_millis(millis).unwrap();
    let (kind, object) = (EventType::stored("T"), ObjectId::stored("$o.1"));
    let item = BatchItem { fanout_id: id(1), kind, object };
    Batch {
        id: id(9),
        user: UserId::stored("$ne"),
        key: "type:T".parse().unwrap(),
        state: BatchState::Closing,
        opened_at: at(1),
        last_event_at: at(2),
        closes_at: at(3),
        deferred: true,
        lead_fanouts: led,
        events: BatchEvents { count: 7, items: vec![item.clone()] },
        policy: "p".into(),
        joined: vec![id(1), id(2)],
        removed: vec![item],
        settled: Some(at(4)),
    }
}

fn two_batches() -> [Batch; 2] {
    [Vec::new(), vec![id(3)]].map(batch)
}

#[test]
fn a_batch_round_trips() {
    for batch in two_batches() {
        let document = write_bson("testing", &BatchRecord::for_filed_batch(&batch)).unwrap();
        assert_eq!(read_bson::<BatchRecord>(&document).unwrap(), batch);
        let json = serde_json::to_value(BatchRecord::for_filed_batch(&batch)).unwrap();
        let record: BatchRecord = serde_json::from_value(json).unwrap();
        assert_eq!(record.value().unwrap(), batch);
    }
}

fn full_accumulator() -> Accumulator {
    let [open, ended] = two_batches();
    let id_of_both = AccumulatorId { user: open.user.clone(), key: open.key.clone() };
    Accumulator {
        open: Some(open),
        ended: vec![ended],
        filed_fanouts: vec![FiledFanouts { at: DateTime::UNIX_EPOCH, joined: vec![id(5)] }],
        queue_position: Some(DateTime::UNIX_EPOCH),
        lease: Some(Lease { owner: "me".into(), until: DateTime::UNIX_EPOCH }),
        revision: Some(id(4)),
        ..Accumulator::new(id_of_both)
    }
}

/// Returns the document with its `_id`, which an upsert takes from its query.
fn document_of(accumulator: &Accumulator) -> Document {
    let document = AccumulatorRecord::for_document(accumulator, id(4));
    let mut document = Document::try_from(write_bson("testing", &document).unwrap()).unwrap();
    document.insert("_id", doc! {"u": "$ne", "k": "type:T"});
    document
}

fn read(document: &Document) -> crate::store::Result<Accumulator> {
    read_bson::<AccumulatorRecord>(&RawDocumentBuf::try_from(document).unwrap())
}

#[test]
fn an_accumulator_round_trips() {
    let empty = Accumulator { revision: Some(id(4)), ..Accumulator::new(full_accumulator().id) };
    for accumulator in [full_accumulator(), empty] {
        assert_eq!(read(&document_of(&accumulator)).unwrap(), accumulator);
        let json = serde_json::to_value(AccumulatorRecord::for_row(&accumulator, id(4))).unwrap();
        let record: AccumulatorRecord = serde_json::from_value(json).unwrap();
        assert_eq!(record.value().unwrap(), accumulator);
    }
}

#[test]
fn a_batch_of_an_older_version_is_not_deferred() {
    for batch in two_batches() {
        let document = write_bson("testing", &BatchRecord::for_filed_batch(&batch)).unwrap();
        let mut document = Document::try_from(document).unwrap();
        document.remove("deferred");
        let raw = RawDocumentBuf::try_from(&document).unwrap();
        let expected = Batch { deferred: false, ..batch };
        assert_eq!(read_bson::<BatchRecord>(&raw).unwrap(), expected);
    }
}

#[test]
fn the_stored_form_of_a_batch_is_unchanged() {
    let [_, batch] = two_batches();
    let date = bson::DateTime::from_millis;
    let document = write_bson("testing", &BatchRecord::for_filed_batch(&batch)).unwrap();
    let document = Document::try_from(document).unwrap();
    let expected = doc! {
        "_id": oid(9), "user": "$ne", "key": "type:T", "state": "closing", "opened": date(1), "last": date(2),
        "closes": date(3), "deferred": true, "count": 7_i64, "items": [{"t": "T", "o": "$o.1", "i": oid(1)}], "policy": "p",
        "joined": [oid(1), oid(2)], "led": [oid(3)],
        "taken": [{"t": "T", "o": "$o.1", "i": oid(1)}], "settled": date(4),
    };
    for (field, value) in &expected {
        assert_eq!(document.get(field), Some(value), "{field}");
    }
    assert_eq!(document.len(), expected.len());

    let hex = |byte: u8| id(byte).to_string();
    let item = json!({"i": hex(1), "t": "T", "o": "$o.1"});
    let expected = json!({
        "id": hex(9), "state": "closing", "settled": 4, "opened": 1, "last": 2, "closes": 3, "deferred": true, "policy": "p",
        "count": 7, "items": [item], "joined": hex(1) + &hex(2),
        "led": hex(3), "taken": [item],
    });
    let json = serde_json::to_value(BatchRecord::from_value(&batch)).unwrap();
    assert_eq!(json, expected);
}

#[test]
fn the_stored_form_of_an_accumulator_is_unchanged() {
    let date = bson::DateTime::from_millis;
    let mut document = document_of(&full_accumulator());
    let open = document.remove("open").unwrap();
    let ended = document.get_array("ended").unwrap();
    let ended = ended.iter().map(|batch| batch.as_document().unwrap());
    let ended: Vec<_> = ended.map(|batch| batch.get_object_id("id").unwrap()).collect();
    assert_eq!(ended, [oid(9)]);
    document.remove("ended");
    let expected = doc! {
        "_id": {"u": "$ne", "k": "type:T"}, "stamp": oid(4), "due": date(3), "turn": date(0),
        "lease": {"owner": "me", "until": date(0)}, "memories": [{"at": date(0), "joined": [oid(5)]}],
    };
    for (field, value) in &expected {
        assert_eq!(document.get(field), Some(value), "{field}");
    }
    assert_eq!(document.len(), expected.len());
    let expected = doc! {
        "id": oid(9), "state": "closing", "opened": date(1), "last": date(2), "closes": date(3), "policy": "p",
        "deferred": true, "settled": date(4), "count": 7_i64, "items": [{"t": "T", "o": "$o.1", "i": oid(1)}],
        "joined": [oid(1), oid(2)], "taken": [{"t": "T", "o": "$o.1", "i": oid(1)}],
    };
    let open = open.as_document().unwrap();
    for (field, value) in &expected {
        assert_eq!(open.get(field), Some(value), "{field}");
    }
    assert_eq!(open.len(), expected.len());

    let free = Accumulator { lease: None, ..full_accumulator() };
    let lease = document_of(&free).remove("lease");
    assert_eq!(lease, Some(Bson::from(doc! {"until": date(0)})));

    let hex = |byte: u8| id(byte).to_string();
    let mut json =
        serde_json::to_value(AccumulatorRecord::for_row(&full_accumulator(), id(4))).unwrap();
    let fields = json.as_object_mut().unwrap();
    let batches = (fields.remove("open").unwrap(), fields.remove("ended").unwrap());
    let expected = json!({
        "_id": {"u": "$ne", "k": "type:T"}, "stamp": hex(4), "due": 3, "turn": 0,
        "lease": {"owner": "me", "until": 0}, "memories": [{"at": 0, "joined": hex(5)}],
    });
    assert_eq!(json, expected);
    let expected =
        two_batches().map(|batch| serde_json::to_value(BatchRecord::from_value(&batch)).unwrap());
    let [open, mailed] = expected;
    assert_eq!(mailed["led"], json!(hex(3)));
    assert_eq!(batches, (open, json!([mailed])));
}

#[test]
fn lists_of_older_versions_are_readable() {
    let hex = |byte: u8| id(byte).to_string();
    let list = |digits: &str| -> serde_json::Value {
        let digits = digits.as_bytes().chunks(24);
        digits.map(|id| std::str::from_utf8(id).unwrap()).collect()
    };
    let mut json =
        serde_json::to_value(AccumulatorRecord::for_row(&full_accumulator(), id(4))).unwrap();
    json["memories"] = json!([[0, [hex(5)]]]);
    let open = json["open"].as_object_mut().unwrap();
    let contents = ["count", "items", "joined"].map(|name| (name, open.remove(name).unwrap()));
    let mut contents: serde_json::Map<_, _> =
        contents.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
    contents["items"] = json!([[hex(1), "T", "$o.1"]]);
    open.insert("contents".to_owned(), contents.into());
    for pointer in ["/open/contents/joined", "/ended/0/led"] {
        let joined = json.pointer_mut(pointer).unwrap();
        *joined = list(joined.as_str().unwrap());
    }

    let record: AccumulatorRecord = serde_json::from_value(json).unwrap();

    assert_eq!(record.value().unwrap(), full_accumulator());
}

#[test]
fn truncated_and_malformed_ids_are_rejected() {
    for (joined, why) in [("5353a4001c74b0d6d99ef4", "cut off"), ("no digits!", "Invalid")] {
        let read = serde_json::from_value::<FiledFanoutsRecord>(json!([0, joined]));
        let error = read.err().unwrap().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn an_unreadable_field_is_reported_with_its_accumulator() {
    let mut document = document_of(&full_accumulator());
    document.insert("turn", "soon");
    let error = read(&document).unwrap_err().to_string();
    let expected = "turn of accumulator $ne type:T in the store cannot be read";
    assert!(error.starts_with(expected), "{error}");

    let mut document = document_of(&full_accumulator());
    let open = document.get_document_mut("open").unwrap();
    open.remove("state");
    let error = read(&document).unwrap_err().to_string();
    assert!(error.ends_with("open: state is missing"), "{error}");
}

#[test]
fn a_lead_that_an_older_version_did_not_email_is_emailed_with_the_rest() {
    let [batch, _] = two_batches();
    let mut json = serde_json::to_value(BatchRecord::for_filed_batch(&batch)).unwrap();
    let lead = json!({"i": id(2).to_string(), "t": "T", "o": "b"});
    for (items, item_count) in [(json!([lead]), 2), (json!(null), 1)] {
        json["lead"] = json!({"count": 2, "items": items, "joined": id(2).to_string()});
        let record: BatchRecord = serde_json::from_value(json.clone()).unwrap();
        let read = record.value().unwrap();
        assert_eq!((read.events.count, read.events.items.len()), (9, item_count));
        assert_eq!((&read.joined, &read.lead_fanouts), (&batch.joined, &Vec::new()));
    }
}
