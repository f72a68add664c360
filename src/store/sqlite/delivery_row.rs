//! A row of the ledger, as the table `deliveries` has it.

use rusqlite::{Row, Transaction, params};

use super::codec::{Record, millis, to_json};
use super::connections::Answer;
use crate::domain::{Delivery, DeliveryId, Feedback, Occasion, StackId, UserId, Watermarks};

/// How far a mail reaches, as it is kept.
pub(super) fn watermarks(watermarks: &Watermarks) -> Answer<String> {
    let cover = |(stack, n): &(StackId, u32)| (stack.to_string(), *n);
    to_json(&watermarks.iter().map(cover).collect::<Vec<_>>())
}

/// Adds the row, unless its id or its slot is taken; says whether it did.
pub(super) fn open(transaction: &Transaction<'_>, row: &Delivery) -> Answer<bool> {
    let sql = "INSERT INTO deliveries (id, user, cadence, period, state, open, slot, covers, marker, owner, until,
                   attempts, items, created, settled, provider_id, reason, call, tried, tag, feedback, feedback_at, batch, turn,
                   due_on, refusals, reopened)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21,
                   ?22, ?23, ?24, ?25, ?26, ?27)
               ON CONFLICT DO NOTHING";
    let (digest, of_batch) = match &row.occasion {
        Occasion::Digest { cadence, period } => (Some((cadence.as_str(), period)), None),
        Occasion::Batch { batch, turn } => (None, Some((batch.to_string(), millis(*turn)))),
    };
    let inserted = transaction.prepare_cached(sql)?.execute(params![
        row.id.as_str(),
        row.user.as_str(),
        digest.map(|(cadence, _)| cadence),
        digest.map(|(_, period)| period),
        row.state.as_str(),
        row.open,
        row.slot(),
        watermarks(&row.watermarks)?,
        row.marker.to_string(),
        row.lease.as_ref().map(|lease| &lease.owner),
        row.lease
            .as_ref()
            .map(|lease| lease.until)
            .or(row.not_before)
            .map(millis),
        row.attempts,
        row.items,
        millis(row.created),
        row.settled.map(millis),
        row.provider_id,
        row.reason,
        row.call,
        row.tried.map(millis),
        row.id.tag().as_str(),
        row.feedback.map(|feedback| feedback.news.as_str()),
        row.feedback.map(|feedback| millis(feedback.at)),
        of_batch.as_ref().map(|(batch, _)| batch),
        of_batch.as_ref().map(|(_, turn)| turn),
        row.due_on.map(|date| date.to_string()),
        row.refusals,
        row.reopened,
    ])?;
    Ok(inserted == 1)
}

/// The rows that meet a condition.
pub(super) fn rows(
    transaction: &Transaction<'_>,
    condition: &str,
    values: impl rusqlite::Params,
) -> Answer<Vec<Delivery>> {
    let mut statement =
        transaction.prepare_cached(&format!("SELECT * FROM deliveries WHERE {condition}"))?;
    let (mut rows, mut found) = (statement.query(values)?, Vec::new());
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

fn feedback(record: &Record<'_>) -> Answer<Option<Feedback>> {
    let Some(news) = record.maybe_parsed("feedback")? else {
        return Ok(None);
    };
    let at = record.time("feedback_at")?;
    Ok(Some(Feedback { news, at }))
}

fn occasion(record: &Record<'_>) -> Answer<Occasion> {
    Ok(match record.maybe_parsed("batch")? {
        Some(batch) => Occasion::Batch {
            batch,
            turn: record.time("turn")?,
        },
        None => Occasion::Digest {
            cadence: record.parsed("cadence")?,
            period: record.get("period")?,
        },
    })
}

fn read(row: &Row<'_>) -> Answer<Delivery> {
    let record = Record {
        what: "delivery",
        row,
    };
    let watermarks: Vec<(String, u32)> = record.json("covers")?;
    let stack = |(stack, n): (String, u32)| match stack.parse::<StackId>() {
        Ok(stack) => Ok((stack, n)),
        Err(why) => record.corrupt("covers", why),
    };
    let lease = record.lease()?;
    // A time without an owner keeps everybody off until then.
    let not_before = match &lease {
        Some(_) => None,
        None => record.maybe_time("until")?,
    };
    Ok(Delivery {
        id: DeliveryId::stored(record.text("id")?),
        user: UserId::stored(record.text("user")?),
        occasion: occasion(&record)?,
        state: record.parsed("state")?,
        open: record.get("open")?,
        watermarks: watermarks.into_iter().map(stack).collect::<Answer<_>>()?,
        marker: record.parsed("marker")?,
        lease,
        not_before,
        due_on: record.maybe_parsed("due_on")?,
        attempts: record.get("attempts")?,
        refusals: record.get("refusals")?,
        reopened: record.get("reopened")?,
        call: record.get("call")?,
        tried: record.maybe_time("tried")?,
        items: record.get("items")?,
        created: record.time("created")?,
        settled: record.maybe_time("settled")?,
        provider_id: record.get("provider_id")?,
        reason: record.get("reason")?,
        feedback: feedback(&record)?,
    })
}
