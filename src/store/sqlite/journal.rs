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
use super::rows::{Fields, RowTable, Statements as _, millis, read_json_column, skip_unreadable};
use crate::domain::coordination::MAX_LEASE;
use crate::domain::{Audience, Details, Event, Fanout, FanoutProgress, Id, Lease, UserId};
use crate::store::record::fanout::{DetailsRecord, FanoutRecord};
use crate::store::record::to_json;
use crate::store::record::values::StoredForm;
use crate::store::{
    Acceptance, ClaimLimit, ClaimedFanouts, Error, Journal, PendingFanouts, Result,
    UnreadableFanout,
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
        limits: ClaimLimit,
    ) -> Result<ClaimedFanouts> {
        let lease = lease.clone();
        self.write(move |transaction| {
            let mut claimed = ClaimedFanouts::default();
            for id in claimable_ids(transaction, now, limits)? {
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
                claimed.bad.push(UnreadableFanout { id, reason });
            }
            Ok(claimed)
        })
        .await
    }

    async fn save_fanouts(
        &self,
        lease: &Lease,
        progress: &[(Id, FanoutProgress)],
    ) -> Result<Vec<bool>> {
        let lease = lease.clone();
        self.change_each(progress, move |transaction, (id, progress)| {
            let sql = "UPDATE fanouts SET state = ?3, cursor = coalesce(?4, cursor),
                           people = ?5, pushed = ?6, capped = ?7, owner = ?8, until = ?9
                       WHERE id = ?1 AND owner = ?2";
            let (state, kept_lease) =
                if progress.done { ("done", None) } else { ("pending", Some(&lease)) };
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
                    kept_lease.map(|lease| &lease.owner),
                    kept_lease.map(|lease| millis(lease.until)),
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
            let id = [id.to_string()];
            skip_unreadable(DETAILS.find_one::<DetailsRecord>(transaction, "fanout = ?1", id))
        })
        .await
    }

    async fn newest_events(&self, limit: usize) -> Result<Vec<Vec<Event>>> {
        self.read(move |transaction| {
            let sql = "SELECT fanouts.*, coalesce(objects, '[]') AS objects, NULL AS details
                       FROM fanouts LEFT JOIN audiences ON fanout = id ORDER BY id DESC LIMIT ?1";
            let mut statement = transaction.prepare_cached(sql)?;
            let (mut rows, mut events) = (statement.query([limit as i64])?, Vec::new());
            while let Some(row) = rows.next()? {
                let fanout = skip_unreadable(read_without_audience(row).map(Some))?;
                events.extend(fanout.map(|fanout| fanout.entries_per_user().collect::<Vec<_>>()));
            }
            Ok(events)
        })
        .await
    }

    async fn pending(&self, limit: usize) -> Result<PendingFanouts> {
        let oldest_of_days: Vec<(String, String)> = self
            .read(move |transaction| {
                let sql = "SELECT day, min(id) FROM (SELECT day, id FROM fanouts
                               WHERE state = 'pending' ORDER BY at, id LIMIT ?1) GROUP BY day";
                // An unreadable day or id must not hide the others. It becomes an empty text.
                transaction.query_all(sql, [limit as i64], |row| {
                    Ok((row.get(0).unwrap_or_default(), row.get(1).unwrap_or_default()))
                })
            })
            .await?;
        let mut pending = PendingFanouts::default();
        for (day, oldest) in oldest_of_days {
            pending.add(&day, oldest.parse::<Id>().ok().map(Id::time));
        }
        Ok(pending)
    }
}

fn accept(transaction: &Transaction<'_>, fanout: &Fanout) -> Result<Acceptance> {
    if FANOUTS.insert_new(transaction, &FanoutRecord::from_value(fanout))? {
        insert_parts(transaction, fanout)?;
        return Ok(Acceptance::New);
    }
    match find(transaction, "key", &fanout.key)? {
        Some(stored) => Ok(Acceptance::Duplicate(Box::new(stored))),
        None => Err(Error::corrupt(format!("audience of fan-out {}", fanout.key), "it is missing")),
    }
}

/// Replaces the fan-out with this id.
pub(super) fn replace_fanout(transaction: &Transaction<'_>, fanout: &Fanout) -> Result<()> {
    FANOUTS.replace(transaction, &FanoutRecord::from_value(fanout))?;
    let id = fanout.id.to_string();
    for sql in ["DELETE FROM audiences WHERE fanout = ?1", "DELETE FROM details WHERE fanout = ?1"]
    {
        transaction.run(sql, [&id])?;
    }
    insert_parts(transaction, fanout)
}

/// Inserts the audience and details of a fan-out.
fn insert_parts(transaction: &Transaction<'_>, fanout: &Fanout) -> Result<()> {
    let sql = "INSERT INTO audiences (fanout, objects, audience) VALUES (?1, ?2, ?3)";
    let (objects, audience) = (to_json(&fanout.objects)?, to_json(&fanout.audience)?);
    transaction.run(sql, (fanout.id.to_string(), objects, audience))?;
    if let Some(details) = &fanout.details {
        let sql = "INSERT INTO details (fanout, details) VALUES (?1, ?2)";
        let json = to_json(&DetailsRecord::from_value(details))?;
        transaction.run(sql, (fanout.id.to_string(), json))?;
    }
    Ok(())
}

/// Removes a user as an actor, and the text and data of the user's events.
pub(super) fn forget_actor(transaction: &Transaction<'_>, user: &str) -> Result<()> {
    let sql = "UPDATE details SET details = json_remove(details, '$.actor', '$.text', '$.data')
               WHERE json_valid(details) AND details ->> '$.actor.id' = ?1";
    transaction.run(sql, [user]).map(drop)
}

/// Maximum length of the JSON of a small audience, with ids of any length.
const MAX_SMALL_AUDIENCE_BYTES: i64 = 64 << 10;

/// Returns the ids of the oldest claimable fan-outs, then those of small ones. The first large one
/// after `limits.any` ends the list.
fn claimable_ids(
    transaction: &Transaction<'_>,
    now: DateTime<Utc>,
    limits: ClaimLimit,
) -> Result<Vec<String>> {
    let sql = "SELECT id, CASE WHEN octet_length(audience) <= ?4 THEN audience END
         FROM fanouts LEFT JOIN audiences ON fanout = id
         WHERE state = 'pending' AND (until IS NULL OR until <= ?1 OR until > ?2)
         ORDER BY at, id LIMIT ?3";
    let last_lease_end = millis(now + MAX_LEASE);
    let limit = (limits.any + limits.small) as i64;
    let mut statement = transaction.prepare_cached(sql)?;
    let mut rows =
        statement.query((millis(now), last_lease_end, limit, MAX_SMALL_AUDIENCE_BYTES))?;
    let mut ids = Vec::new();
    while let Some(row) = rows.next()? {
        if ids.len() >= limits.any {
            let json: Option<String> = row.get(1)?;
            // An unreadable audience is reported when its fan-out is among the oldest.
            let audience = json.and_then(|json| serde_json::from_str::<Audience>(&json).ok());
            if !audience.is_some_and(|audience| audience.is_small()) {
                break;
            }
        }
        ids.push(row.get(0)?);
    }
    Ok(ids)
}

/// Returns the fan-out with this text in a unique column. Returns `None` if it has no audience.
fn find(transaction: &Transaction<'_>, column: &str, text: &str) -> Result<Option<Fanout>> {
    let sql = format!("SELECT * FROM {WITH_PARTS} WHERE {column} = ?1 AND audience IS NOT NULL");
    let mut statement = transaction.prepare_cached(&sql)?;
    let mut rows = statement.query([text])?;
    rows.next()?.map(read_fanout).transpose()
}

pub(super) fn read_fanout(row: &Row<'_>) -> Result<Fanout> {
    let audience: Audience = read_json_column(row, "audience", "fan-out")?;
    let fanout = read_without_audience(row)?;
    Ok(Fanout { audience, ..fanout })
}

fn read_without_audience(row: &Row<'_>) -> Result<Fanout> {
    let mut parts = Fields::new();
    parts.insert("objects".to_owned(), read_json_column(row, "objects", "fan-out")?);
    // The record requires an audience. Parsing the stored one costs more: it may name many users.
    parts.insert("audience".to_owned(), json!({"parts": 0}));
    if row.get_ref("details")? != ValueRef::Null {
        parts.insert("details".to_owned(), read_json_column(row, "details", "fan-out")?);
    }
    FANOUTS.read::<FanoutRecord>(row, parts)
}
