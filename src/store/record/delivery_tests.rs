//! Tests of delivery records.

use bson::Document;

use super::*;
use crate::domain::{Day, DeliveryId, Id, IdForm, Lease, UserId};
use crate::store::record::{Record, read_bson, write_bson};

fn record_of(row: &Delivery) -> Document {
    let document = write_bson("testing", &DeliveryRecord::for_document(row)).unwrap();
    Document::try_from(document).unwrap()
}

fn row() -> Delivery {
    let created = DateTime::from_timestamp(1_398_124_800, 0).unwrap();
    let (user, day) = (UserId::stored("a.b"), Day::of(created));
    let period = created.date_naive().to_string();
    let id = DeliveryId::digest(&user, Cadence::Daily, &period);
    let occasion = DeliverySource::Digest(Cadence::Daily, period);
    Delivery {
        watermarks: vec![
            (StackId { day, form: IdForm::ObjectId }, 3),
            (StackId::for_day(day), u32::MAX),
        ],
        lease: Some(Lease { owner: "me".into(), until: created }),
        ..Delivery::new(id, user, occasion, Id::from_bytes([1; 12]), created)
    }
}

#[test]
fn a_delivery_round_trips() {
    let settled = Delivery {
        state: DeliveryState::Unknown,
        attempts: DeliveryAttempts {
            made: 2,
            failed: 1,
            reopened: 2,
            call: Some("c0ffee".into()),
            called_at: Some(row().created),
            not_before: None,
        },
        outcome: DeliveryOutcome {
            items: 7,
            settled: Some(row().created),
            provider_id: Some("<1@example.org>".into()),
            reason: Some("time-out".into()),
            feedback: Some(Feedback { news: ReportKind::Bounced, at: row().created }),
        },
        ..row()
    };
    let mut deferred = row();
    deferred.lease = None;
    deferred.attempts.not_before = Some(row().created);
    let closed = Delivery { open: false, lease: None, ..settled.clone() };
    let free = Delivery { lease: None, ..row() };
    let of_batch =
        Delivery { source: DeliverySource::Batch(Id::from_bytes([7; 12]), row().created), ..row() };
    for row in [row(), free, deferred, settled, closed, of_batch] {
        let document = write_bson("testing", &DeliveryRecord::for_document(&row)).unwrap();
        assert_eq!(read_bson::<DeliveryRecord>(&document).unwrap(), row);
        let json = serde_json::to_value(DeliveryRecord::for_row(&row)).unwrap();
        let record: DeliveryRecord = serde_json::from_value(json).unwrap();
        assert_eq!(record.value().unwrap(), row);
    }
}

#[test]
fn only_an_open_delivery_occupies_its_slot() {
    assert_eq!(record_of(&row()).get_str("slot").unwrap(), "digest:a.b");
    let closed = Delivery { open: false, ..row() };
    let record = record_of(&closed);
    assert!(!record.contains_key("slot") && !record.contains_key("lease"));
}

#[test]
fn the_stored_form_of_a_delivery_is_unchanged() {
    let mut settled = row();
    settled.outcome.feedback = Some(Feedback { news: ReportKind::Bounced, at: row().created });
    let document = record_of(&settled);
    let date = bson::DateTime::from_millis(1_398_124_800_000);
    let expected = bson::doc! {
        "_id": "digest:a.b:daily:2014-04-22", "tag": settled.id.tag().as_str(), "user": "a.b", "state": "pending",
        "covers": [
            {"s": settled.watermarks[0].0.to_string(), "n": 3_i64},
            {"s": settled.watermarks[1].0.to_string(), "n": i64::from(u32::MAX)},
        ],
        "marker": bson::oid::ObjectId::from_bytes([1; 12]), "attempts": 0_i64, "refusals": 0_i64, "reopened": 0_i64,
        "items": 0_i64, "created": date, "cadence": "daily", "period": "2014-04-22", "slot": "digest:a.b",
        "lease": {"owner": "me", "until": date}, "feedback": {"news": "bounced", "at": date},
    };
    for (field, value) in &expected {
        assert_eq!(document.get(field), Some(value), "{field}");
    }
    assert_eq!(document.len(), expected.len());
}

#[test]
fn an_unreadable_field_is_reported_with_its_delivery() {
    let broken = [
        ("state", bson::Bson::from("lost"), "state of delivery"),
        ("created", bson::Bson::from("today"), "created of delivery"),
        ("lease", bson::doc! {"until": 5}.into(), "lease.until of delivery"),
        ("period", bson::Bson::Null, "delivery"),
    ];
    for (field, value, named) in broken {
        let mut document = record_of(&row());
        document.insert(field, value);
        let raw = bson::RawDocumentBuf::try_from(&document).unwrap();
        let error = read_bson::<DeliveryRecord>(&raw).unwrap_err().to_string();
        let expected = format!("{named} digest:a.b:daily:2014-04-22 in the store cannot be read");
        assert!(error.starts_with(&expected) && error.contains(field), "{error}");
    }
}
