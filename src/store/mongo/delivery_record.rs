//! A row of the ledger as a document.
//!
//! The rule: only an open row has a slot and a lease. A lease that names nobody keeps everybody off
//! until it ends; one that ended before time began is none. [`super::deliveries`] has the verbs.

use bson::{Bson, Document, doc};
use chrono::{DateTime, Utc};

use super::record::{Record, date, lease, oid, put};
use crate::domain::{Delivery, DeliveryId, Feedback, Occasion, StackId, UserId, Watermarks};
use crate::store::Result;

pub(super) fn record_of(delivery: &Delivery) -> Document {
    let mut row = doc! {
        "_id": delivery.id.as_str(),
        "tag": delivery.id.tag().as_str(),
        "user": delivery.user.as_str(),
        "state": delivery.state.as_str(),
        "covers": watermarks(&delivery.watermarks),
        "marker": oid(delivery.marker),
        "attempts": i64::from(delivery.attempts),
        "refusals": i64::from(delivery.refusals),
        "reopened": i64::from(delivery.reopened),
        "items": i64::from(delivery.items),
        "created": date(delivery.created),
    };
    match &delivery.occasion {
        Occasion::Digest { cadence, period } => {
            row.extend(doc! {"cadence": cadence.as_str(), "period": period});
        }
        Occasion::Batch { batch, turn } => {
            row.extend(doc! {"batch": oid(*batch), "turn": date(*turn)});
        }
    }
    if delivery.open {
        row.insert("slot", delivery.slot());
        let free = || match delivery.not_before {
            Some(time) => doc! {"until": date(time)}.into(),
            None => lease(None),
        };
        let held = delivery.lease.as_ref().map(|held| lease(Some(held)));
        row.insert("lease", held.unwrap_or_else(free));
    }
    let due_on = delivery.due_on.map(|date| date.to_string());
    put(&mut row, "due_on", due_on);
    put(&mut row, "call", delivery.call.as_deref());
    put(&mut row, "tried", delivery.tried.map(date));
    put(&mut row, "settled", delivery.settled.map(date));
    put(&mut row, "provider_id", delivery.provider_id.as_deref());
    put(&mut row, "reason", delivery.reason.as_deref());
    put(&mut row, "feedback", delivery.feedback.map(feedback));
    row
}

/// How far a mail reaches, as it stands in its row.
pub(super) fn watermarks(watermarks: &Watermarks) -> Vec<Bson> {
    let cover =
        |(stack, n): &(StackId, u32)| Bson::from(doc! {"s": stack.to_string(), "n": i64::from(*n)});
    watermarks.iter().map(cover).collect()
}

/// What was reported of a mail, as it stands in its row.
pub(super) fn feedback(feedback: Feedback) -> Document {
    doc! {"news": feedback.news.as_str(), "at": date(feedback.at)}
}

fn feedback_of(delivery: &Record<'_>) -> Result<Option<Feedback>> {
    let Some(feedback) = delivery.record("feedback")? else {
        return Ok(None);
    };
    Ok(Some(Feedback {
        news: feedback.needs("news", feedback.parsed("news")?)?,
        at: feedback.needs("at", feedback.time("at")?)?,
    }))
}

pub(super) fn delivery_of(row: &Document) -> Result<Delivery> {
    let delivery = Record::new("delivery", row);
    let text = |field| Ok(delivery.text(field)?.map(str::to_owned));
    Ok(Delivery {
        id: DeliveryId::stored(delivery.needs("_id", delivery.text("_id")?)?),
        user: UserId::stored(delivery.needs("user", delivery.text("user")?)?),
        occasion: occasion_of(&delivery)?,
        state: delivery.needs("state", delivery.parsed("state")?)?,
        open: delivery.text("slot")?.is_some(),
        watermarks: watermarks_of(&delivery)?,
        marker: delivery.needs("marker", delivery.id("marker")?)?,
        lease: delivery.lease("lease")?,
        not_before: not_before(&delivery)?,
        due_on: delivery.parsed("due_on")?,
        attempts: delivery.count32("attempts")?.unwrap_or(0),
        refusals: delivery.count32("refusals")?.unwrap_or(0),
        reopened: delivery.count32("reopened")?.unwrap_or(0),
        call: text("call")?,
        tried: delivery.time("tried")?,
        items: delivery.count32("items")?.unwrap_or(0),
        created: delivery.needs("created", delivery.time("created")?)?,
        settled: delivery.time("settled")?,
        provider_id: text("provider_id")?,
        reason: text("reason")?,
        feedback: feedback_of(&delivery)?,
    })
}

fn occasion_of(delivery: &Record<'_>) -> Result<Occasion> {
    if let Some(batch) = delivery.id("batch")? {
        let turn = delivery.needs("turn", delivery.time("turn")?)?;
        return Ok(Occasion::Batch { batch, turn });
    }
    let period = delivery.needs("period", delivery.text("period")?)?;
    Ok(Occasion::Digest {
        cadence: delivery.needs("cadence", delivery.parsed("cadence")?)?,
        period: period.to_owned(),
    })
}

/// When a lease that is nobody's ends; one that ended before time began keeps nobody off.
fn not_before(delivery: &Record<'_>) -> Result<Option<DateTime<Utc>>> {
    let Some(lease) = delivery.record("lease")? else {
        return Ok(None);
    };
    if lease.text("owner")?.is_some() {
        return Ok(None);
    }
    let until = lease.time("until")?;
    Ok(until.filter(|until| *until > DateTime::UNIX_EPOCH))
}

fn watermarks_of(delivery: &Record<'_>) -> Result<Watermarks> {
    let cover = |cover: &Bson| {
        let fields = cover
            .as_document()
            .ok_or_else(|| delivery.corrupt("covers", "it holds no documents"))?;
        let cover = Record::new("a delivery's covers", fields);
        let stack = cover.needs("s", cover.parsed("s")?)?;
        Ok((stack, cover.needs("n", cover.count32("n")?)?))
    };
    let watermarks = delivery.needs("covers", delivery.list("covers")?)?;
    watermarks.iter().map(cover).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Cadence, Day, DeliveryState, Form, Id, Lease, Period, ReportKind};

    fn row() -> Delivery {
        let created = DateTime::from_timestamp(1_398_124_800, 0).unwrap();
        let (user, day) = (UserId::stored("a.b"), Day::of(created));
        let period = Period::Day(created.date_naive());
        Delivery {
            id: DeliveryId::digest(&user, Cadence::Daily, period),
            user,
            occasion: Occasion::Digest {
                cadence: Cadence::Daily,
                period: period.to_string(),
            },
            state: DeliveryState::Pending,
            open: true,
            watermarks: vec![
                (
                    StackId {
                        day,
                        form: Form::ObjectId,
                    },
                    3,
                ),
                (StackId::of(day), u32::MAX),
            ],
            marker: Id::from_bytes([1; 12]),
            lease: Some(Lease {
                owner: "me".into(),
                until: created,
            }),
            not_before: None,
            due_on: Some(created.date_naive()),
            attempts: 0,
            refusals: 0,
            reopened: 0,
            call: None,
            tried: None,
            items: 0,
            created,
            settled: None,
            provider_id: None,
            reason: None,
            feedback: None,
        }
    }

    #[test]
    fn a_row_is_read_as_written() {
        let settled = Delivery {
            state: DeliveryState::Unknown,
            settled: Some(row().created),
            provider_id: Some("<1@example.org>".into()),
            reason: Some("time-out".into()),
            feedback: Some(Feedback {
                news: ReportKind::Bounced,
                at: row().created,
            }),
            attempts: 2,
            refusals: 1,
            reopened: 2,
            call: Some("c0ffee".into()),
            tried: Some(row().created),
            items: 7,
            ..row()
        };
        let waiting = Delivery {
            lease: None,
            not_before: Some(row().created),
            ..row()
        };
        let closed = Delivery {
            open: false,
            lease: None,
            ..settled.clone()
        };
        let free = Delivery {
            lease: None,
            ..row()
        };
        let of_batch = Delivery {
            occasion: Occasion::Batch {
                batch: Id::from_bytes([7; 12]),
                turn: row().created,
            },
            ..row()
        };
        for row in [row(), free, waiting, settled, closed, of_batch] {
            assert_eq!(delivery_of(&record_of(&row)).unwrap(), row);
        }
    }

    #[test]
    fn only_an_open_row_occupies_its_slot() {
        assert_eq!(record_of(&row()).get_str("slot").unwrap(), "digest:a.b");
        let closed = Delivery {
            open: false,
            ..row()
        };
        let record = record_of(&closed);
        assert!(!record.contains_key("slot") && !record.contains_key("lease"));
    }
}
