//! The journal: one row for each accepted event, unique by key and claimed oldest first.
//!
//! The immutable part of a fan-out is in `audiences` and `details`. Its progress is in `fanouts`,
//! so that saving it rewrites only a small row.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use rusqlite::types::ValueRef;
use rusqlite::{Row, Transaction, params};
use serde_json::json;

use super::Sqlite;
use super::rows::{Fields, RowTable, Statements as _, json, millis, readable};
use crate::domain::coordination::LONGEST_LEASE;
use crate::domain::{Audience, Details, Event, FanOutProgress, Fanout, Id, Lease, UserId};
use crate::store::record::fanout::{DetailsRecord, FanoutRecord};
use crate::store::record::to_json;
use crate::store::record::values::As;
use crate::store::{
    Acceptance, AtMost, BadFanout, Claimed, Error, Journal, PendingFanouts, Result,
};

pub(super) const FANOUTS: RowTable = RowTable {
    name: "fanouts",
    columns: "id=_id key type batch_key day at state cursor people=counts.people
        pushed=counts.pushed capped=counts.capped owner=lease.owner until=lease.until",
};

const DETAILS: RowTable = RowTable { name: "details", columns: "fanout details:rest" };

/// Fan-outs with their audiences and details, if these exist.
pub(super) const WITH_PARTS: &str = "fanouts LEFT JOIN audiences ON audiences.fanout = id
     LEFT JOIN details ON details.fanout = id";

#[async_trait]
impl Journal for Sqlite {
    async fn accept(&self, fanouts: &[Fanout]) -> Result<Vec<Acceptance>> {
        self.change_each(fanouts, accept).await
    }

    async fn claim_fanouts(
        &self,
        lease: &Lease,
        now: DateTime<Utc>,
        most: AtMost,
    ) -> Result<Claimed> {
        let lease = lease.clone();
        self.write(move |transaction| {
            let mut claimed = Claimed::default();
            for id in free_fanouts(transaction, now, most)? {
                let sql = "UPDATE fanouts SET owner = ?2, until = ?3 WHERE id = ?1";
                transaction.run(sql, (&id, &lease.owner, millis(lease.until)))?;
                let reason = match find(transaction, "id", &id) {
                    Ok(Some(fanout)) => {
                        claimed.fanouts.push(fanout);
                        continue;
                    }
                    Ok(None) => "its audience is missing".to_owned(),
                    Err(error) if error.is_outage() => return Err(error),
                    Err(error) => error.to_string(),
                };
                claimed.bad.push(BadFanout { id, reason });
            }
            Ok(claimed)
        })
        .await
    }

    async fn save_fanouts(
        &self,
        lease: &Lease,
        progress: &[(Id, FanOutProgress)],
    ) -> Result<Vec<bool>> {
        let lease = lease.clone();
        self.change_each(progress, move |transaction, (id, progress)| {
            let sql = "UPDATE fanouts SET state = ?3, cursor = coalesce(?4, cursor),
                           people = ?5, pushed = ?6, capped = ?7, owner = ?8, until = ?9
                       WHERE id = ?1 AND owner = ?2";
            let (state, held) = match progress.done {
                true => ("done", None),
                false => ("pending", Some(&lease)),
            };
            let saved = transaction.run(
                sql,
                params![
                    id.to_string(),
                    lease.owner,
                    state,
                    progress.cursor.as_ref().map(UserId::as_str),
                    progress.counts.people as i64,
                    progress.counts.pushed as i64,
                    progress.counts.capped as i64,
                    held.map(|lease| &lease.owner),
                    held.map(|lease| millis(lease.until)),
                ],
            )?;
            Ok(saved == 1)
        })
        .await
    }

    async fn fanout(&self, id: Id) -> Result<Option<Fanout>> {
        self.read(move |transaction| find(transaction, "id", &id.to_string())).await
    }

    async fn details(&self, ids: &[Id]) -> Result<Vec<Option<Details>>> {
        self.read_each(ids, |transaction, id| {
            let named = [id.to_string()];
            let found = DETAILS.find::<DetailsRecord>(transaction, "fanout = ?1", named);
            readable(found.map(|mut found| found.pop()))
        })
        .await
    }

    async fn newest_events(&self, limit: usize) -> Result<Vec<Vec<Event>>> {
        self.read(move |transaction| {
            let sql = "SELECT fanouts.*, coalesce(objects, '[]') AS objects, NULL AS details
                       FROM fanouts LEFT JOIN audiences ON fanout = id ORDER BY id DESC LIMIT ?1";
            let mut statement = transaction.prepare_cached(sql)?;
            let (mut rows, mut found) = (statement.query([limit as i64])?, Vec::new());
            while let Some(row) = rows.next()? {
                let fanout = readable(read_without_audience(row).map(Some))?;
                found.extend(fanout.map(|fanout| fanout.events().collect::<Vec<_>>()));
            }
            Ok(found)
        })
        .await
    }

    async fn pending(&self, limit: usize) -> Result<PendingFanouts> {
        let limit = limit as i64;
        let found = self.read(move |transaction| {
            let sql = "SELECT day, min(id) FROM (SELECT day, id FROM fanouts
                           WHERE state = 'pending' ORDER BY at, id LIMIT ?1) GROUP BY day";
            // An unreadable day or id must not hide the others. It becomes an empty text.
            transaction.all(sql, [limit], |row| {
                Ok((row.get(0).unwrap_or_default(), row.get(1).unwrap_or_default()))
            })
        });
        let found: Vec<(String, String)> = found.await?;
        let mut pending = PendingFanouts::default();
        for (day, id) in found {
            pending.add(&day, id.parse::<Id>().ok().map(Id::time));
        }
        Ok(pending)
    }
}

fn accept(transaction: &Transaction<'_>, fanout: &Fanout) -> Result<Acceptance> {
    if !FANOUTS.add(transaction, &FanoutRecord::from_value(fanout))? {
        let what = || format!("audience of fan-out {}", fanout.key);
        let known = find(transaction, "key", &fanout.key)?;
        let known = known.ok_or_else(|| Error::corrupt(what(), "it is missing"))?;
        return Ok(Acceptance::Known(Box::new(known)));
    }
    write_apart(transaction, fanout)?;
    Ok(Acceptance::New)
}

/// Replaces the fan-out with this id.
pub(super) fn write(transaction: &Transaction<'_>, fanout: &Fanout) -> Result<()> {
    FANOUTS.replace(transaction, &FanoutRecord::from_value(fanout))?;
    let id = fanout.id.to_string();
    for sql in ["DELETE FROM audiences WHERE fanout = ?1", "DELETE FROM details WHERE fanout = ?1"]
    {
        transaction.run(sql, [&id])?;
    }
    write_apart(transaction, fanout)
}

/// Writes the audience and details of a fan-out.
fn write_apart(transaction: &Transaction<'_>, fanout: &Fanout) -> Result<()> {
    let sql = "INSERT INTO audiences (fanout, objects, audience) VALUES (?1, ?2, ?3)";
    let (objects, audience) = (to_json(&fanout.objects)?, to_json(&fanout.audience)?);
    transaction.run(sql, (fanout.id.to_string(), objects, audience))?;
    if let Some(details) = &fanout.details {
        let sql = "INSERT INTO details (fanout, details) VALUES (?1, ?2)";
        let details = to_json(&DetailsRecord::from_value(details))?;
        transaction.run(sql, (fanout.id.to_string(), details))?;
    }
    Ok(())
}

/// Removes a user as an actor, and the text and data of the user's events.
pub(super) fn forget_actor(transaction: &Transaction<'_>, user: &str) -> Result<()> {
    let sql = "UPDATE details SET details = json_remove(details, '$.actor', '$.text', '$.data')
               WHERE json_valid(details) AND details ->> '$.actor.id' = ?1";
    transaction.run(sql, [user]).map(drop)
}

/// Maximum length of the JSON of a small audience, for ids of any length.
const SMALL_BYTES: i64 = 64 << 10;

/// Selects the oldest claimable fan-outs, followed by small ones up to the first that is not small.
fn free_fanouts(
    transaction: &Transaction<'_>,
    now: DateTime<Utc>,
    most: AtMost,
) -> Result<Vec<String>> {
    let sql = "SELECT id, CASE WHEN octet_length(audience) <= ?4 THEN audience END
         FROM fanouts LEFT JOIN audiences ON fanout = id
         WHERE state = 'pending' AND (until IS NULL OR until <= ?1 OR until > ?2)
         ORDER BY at, id LIMIT ?3";
    let (at, ahead) = (millis(now), millis(now + LONGEST_LEASE));
    let limit = (most.any + most.small) as i64;
    let mut free = transaction.prepare_cached(sql)?;
    let mut free = free.query((at, ahead, limit, SMALL_BYTES))?;
    let mut ids = Vec::new();
    while let Some(row) = free.next()? {
        if ids.len() >= most.any {
            let audience: Option<String> = row.get(1)?;
            // An unreadable audience is reported when its fan-out is among the oldest.
            let audience = audience.and_then(|json| serde_json::from_str::<Audience>(&json).ok());
            if !audience.is_some_and(|audience| audience.is_small()) {
                break;
            }
        }
        ids.push(row.get(0)?);
    }
    Ok(ids)
}

/// Returns the fan-out with this text in a unique column.
fn find(transaction: &Transaction<'_>, column: &str, text: &str) -> Result<Option<Fanout>> {
    let sql = format!("SELECT * FROM {WITH_PARTS} WHERE {column} = ?1 AND audience IS NOT NULL");
    let mut statement = transaction.prepare_cached(&sql)?;
    let mut rows = statement.query([text])?;
    rows.next()?.map(read).transpose()
}

pub(super) fn read(row: &Row<'_>) -> Result<Fanout> {
    let audience: Audience = json(row, "audience", "fan-out")?;
    let fanout = read_without_audience(row)?;
    Ok(Fanout { audience, ..fanout })
}

fn read_without_audience(row: &Row<'_>) -> Result<Fanout> {
    let mut apart = Fields::new();
    apart.insert("objects".to_owned(), json(row, "objects", "fan-out")?);
    // With parts, the record needs no users, which may be many.
    apart.insert("audience".to_owned(), json!({"parts": 0}));
    if row.get_ref("details")? != ValueRef::Null {
        apart.insert("details".to_owned(), json(row, "details", "fan-out")?);
    }
    FANOUTS.read::<FanoutRecord>(row, apart)
}
