//! How accumulators and batches are written and read.

use bson::{Document, doc};
use serde_json::json;

use super::*;
use crate::domain::{EventType, Lease, ObjectId};
use crate::store::record::{read_bson, write_bson};

fn id(byte: u8) -> Id {
    Id::from_bytes([byte; 12])
}

fn oid(byte: u8) -> bson::oid::ObjectId {
    bson::oid::ObjectId::from_bytes([byte; 12])
}

fn batch(lead: Lead) -> Batch {
    let at = |millis| DateTime::from_timestamp_millis(millis).unwrap();
    let item = Item {
        i: id(1),
        t: EventType::stored("T"),
        o: ObjectId::stored("$o.1"),
    };
    Batch {
        id: id(9),
        user: UserId::stored("$ne"),
        key: "type:T".parse().unwrap(),
        state: BatchState::Closing,
        opened_at: at(1),
        last_event_at: at(2),
        closes_at: at(3),
        lead,
        contents: Contents {
            count: 7,
            items: vec![item.clone()],
        },
        policy: "p".into(),
        joined: vec![id(1), id(2)],
        taken: vec![item],
        settled: Some(at(4)),
    }
}

fn leads() -> [Batch; 3] {
    let contents = Contents {
        count: 1,
        items: Vec::new(),
    };
    let joined = vec![id(3)];
    let waiting = Lead::Waiting {
        contents,
        joined: joined.clone(),
    };
    [Lead::None, Lead::Mailed { joined }, waiting].map(batch)
}

#[test]
fn a_batch_is_read_as_written() {
    for batch in leads() {
        let document = write_bson("testing", &BatchRecord::filed(&batch)).unwrap();
        assert_eq!(read_bson::<BatchRecord>(&document).unwrap(), batch);
        let json = serde_json::to_value(BatchRecord::row(&batch)).unwrap();
        let record: BatchRecord = serde_json::from_value(json).unwrap();
        assert_eq!(record.value().unwrap(), batch);
    }
}

#[test]
fn an_accumulator_is_read_as_written() {
    let [one, two, three] = leads();
    let of = AccumulatorId {
        user: one.user.clone(),
        key: one.key.clone(),
    };
    let whole = Accumulator {
        open: Some(one),
        ended: vec![two, three],
        memories: vec![Memory {
            at: DateTime::UNIX_EPOCH,
            joined: vec![id(5)],
        }],
        turn: Some(DateTime::UNIX_EPOCH),
        lease: Some(Lease {
            owner: "me".into(),
            until: DateTime::UNIX_EPOCH,
        }),
        revision: Some(id(4)),
        ..Accumulator::new(of.clone())
    };
    let empty = Accumulator {
        revision: Some(id(4)),
        ..Accumulator::new(of)
    };
    for accumulator in [whole, empty] {
        let document = AccumulatorRecord::document(&accumulator, id(4));
        let mut document = write_bson("testing", &document).unwrap();
        let of = doc! {"u": "$ne", "k": "type:T"};
        document.append(
            bson::raw::cstr!("_id"),
            bson::RawDocumentBuf::try_from(&of).unwrap(),
        );
        let read = read_bson::<AccumulatorRecord>(&document).unwrap();
        assert_eq!(read, accumulator);
        let json = serde_json::to_value(AccumulatorRecord::row(&accumulator, id(4))).unwrap();
        let record: AccumulatorRecord = serde_json::from_value(json).unwrap();
        assert_eq!(record.value().unwrap(), accumulator);
    }
}

#[test]
fn documents_and_json_are_written_as_ever() {
    let [_, _, batch] = leads();
    let date = bson::DateTime::from_millis;
    let document = write_bson("testing", &BatchRecord::filed(&batch)).unwrap();
    let document = Document::try_from(document).unwrap();
    let expected = doc! {
        "_id": oid(9), "user": "$ne", "key": "type:T", "state": "closing", "opened": date(1), "last": date(2),
        "closes": date(3), "count": 7_i64, "items": [{"t": "T", "o": "$o.1", "i": oid(1)}], "policy": "p",
        "joined": [oid(1), oid(2)], "lead": {"count": 1_i64, "items": [], "joined": [oid(3)]},
        "taken": [{"t": "T", "o": "$o.1", "i": oid(1)}], "settled": date(4),
    };
    for (field, value) in &expected {
        assert_eq!(document.get(field), Some(value), "{field}");
    }
    assert_eq!(document.len(), expected.len());

    let hex = |byte: u8| id(byte).to_string();
    let item = json!([hex(1), "T", "$o.1"]);
    let expected = json!({
        "id": hex(9), "state": "closing", "settled": 4, "opened": 1, "last": 2, "closes": 3, "policy": "p",
        "contents": {"count": 7, "items": [item], "joined": [hex(1), hex(2)]},
        "lead": {"count": 1, "items": [], "joined": [hex(3)]}, "taken": [item],
    });
    let json = serde_json::to_value(BatchRecord::keep(&batch).apart(&batch)).unwrap();
    assert_eq!(json, expected);
}
