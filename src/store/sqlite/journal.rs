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
use super::answer::{Answer, readable};
use super::codec::{Record, millis, to_json};
use super::columns::{Fields, Met, Table, fields};
use super::pokes::poke;
use crate::domain::coordination::furthest_lease;
use crate::domain::{Audience, ChangeNotice, Day, Details, Event, Fanout, Id, Progress, UserId};
use crate::store::record::fanout::{DetailsRecord, EventsRecord, FanoutRecord};
use crate::store::record::fields::As;
use crate::store::{Accepted, AtMost, BadFanout, Claimed, Error, Journal, Result};

const FANOUTS: Table = Table {
    name: "fanouts",
    columns: "id=_id key type batch_key day at state cursor people=counts.people
        pushed=counts.pushed capped=counts.capped owner=lease.owner until=lease.until",
};

/// The columns that describe the events of a fan-out.
const EVENTS: Table = Table {
    name: "fanouts JOIN audiences ON fanout = id",
    columns: "id=_id type objects:json",
};

#[async_trait]
impl Journal for Sqlite {
    async fn accept(&self, fanouts: &[Fanout]) -> Result<Vec<Accepted>> {
        self.change_each("accepting events", fanouts, accept).await
    }

    async fn claim_fanouts(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        most: AtMost,
    ) -> Result<Claimed> {
        let owner = owner.to_owned();
        let claim = move |transaction: &Transaction<'_>| {
            let free = free_fanouts(transaction, now, most)?;
            let sql = "UPDATE fanouts SET owner = ?2, until = ?3 WHERE id = ?1";
            let mut take = transaction.prepare_cached(sql)?;
            let mut claimed = Claimed::default();
            for id in free {
                take.execute((&id, &owner, millis(until)))?;
                let reason = match find(transaction, "id", &id) {
                    Ok(Some(fanout)) => {
                        claimed.fanouts.push(fanout);
                        continue;
                    }
                    Ok(None) => "its audience is missing".to_owned(),
                    Err(failure) if failure.is_unreadable() => failure.told(),
                    Err(failure) => return Err(failure),
                };
                claimed.bad.push(BadFanout { id, reason });
            }
            Ok(claimed)
        };
        self.connections.write("claiming fan-outs", claim).await
    }

    async fn save_fanouts(
        &self,
        owner: &str,
        until: DateTime<Utc>,
        progress: &[(Id, Progress)],
    ) -> Result<Vec<bool>> {
        let owner = owner.to_owned();
        let save = move |transaction: &Transaction<'_>, (id, progress): &(Id, Progress)| {
            save(transaction, &owner, until, *id, progress)
        };
        self.change_each("saving fan-outs", progress, save).await
    }

    async fn release_fanouts(&self, owner: &str) -> Result<()> {
        let owner = owner.to_owned();
        let release = move |transaction: &Transaction<'_>| {
            let sql = "UPDATE fanouts SET owner = NULL, until = NULL WHERE owner = ?1";
            transaction.prepare_cached(sql)?.execute([owner])?;
            Ok(())
        };
        self.connections.write("releasing fan-outs", release).await
    }

    async fn fanout(&self, id: Id) -> Result<Option<Fanout>> {
        let look = move |transaction: &Transaction<'_>| find(transaction, "id", &id.to_string());
        self.connections.read("reading a fan-out", look).await
    }

    async fn details(&self, ids: &[Id]) -> Result<Vec<Option<Details>>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids = ids.to_vec();
        let look = move |transaction: &Transaction<'_>| {
            let sql = "SELECT fanout, details FROM details WHERE fanout = ?1";
            let mut statement = transaction.prepare_cached(sql)?;
            let mut of = |id: &Id| {
                let mut rows = statement.query([id.to_string()])?;
                let details = rows.next()?.map(details_of).transpose();
                Ok(readable(details)?.flatten())
            };
            ids.iter().map(&mut of).collect()
        };
        let doing = "reading what is said of events";
        self.connections.read(doing, look).await
    }

    async fn forget_actor(&self, user: &UserId) -> Result<()> {
        let user = user.as_str().to_owned();
        let forget = move |transaction: &Transaction<'_>| {
            let sql =
                "UPDATE details SET details = json_remove(details, '$.actor', '$.text', '$.data')
                       WHERE json_valid(details) AND details ->> '$.actor.id' = ?1";
            transaction.prepare_cached(sql)?.execute([user])?;
            poke(transaction, &ChangeNotice::All)
        };
        self.connections.write("erasing an actor", forget).await
    }

    async fn newest(&self, limit: usize) -> Result<Vec<Vec<Event>>> {
        let look = move |transaction: &Transaction<'_>| {
            let sql = "SELECT id, type, objects FROM fanouts JOIN audiences ON fanout = id ORDER BY id DESC LIMIT ?1";
            let mut statement = transaction.prepare_cached(sql)?;
            let (mut rows, mut newest) = (statement.query([limit as i64])?, Vec::new());
            while let Some(row) = rows.next()? {
                newest.extend(readable(
                    EVENTS.read::<EventsRecord>(row, Fields::new()).map(Some),
                )?);
            }
            Ok(newest)
        };
        self.connections
            .read("reading the newest events", look)
            .await
    }

    async fn oldest_pending(&self) -> Result<Option<DateTime<Utc>>> {
        let look = |transaction: &Transaction<'_>| {
            let sql = "SELECT id FROM fanouts WHERE state = 'pending' ORDER BY at, id LIMIT 1";
            let mut statement = transaction.prepare_cached(sql)?;
            let mut rows = statement.query([])?;
            let Some(row) = rows.next()? else {
                return Ok(None);
            };
            let what = "the oldest pending fan-out";
            let id = Record { what, row }.parsed::<Id>("id");
            Ok(readable(id.map(Some))?.map(Id::time))
        };
        self.connections
            .read("looking for the oldest pending fan-out", look)
            .await
    }

    async fn busy_days(&self) -> Result<Vec<Day>> {
        let look = |transaction: &Transaction<'_>| {
            let sql = "SELECT DISTINCT day FROM fanouts WHERE state = 'pending' ORDER BY day";
            let mut statement = transaction.prepare_cached(sql)?;
            let (mut rows, mut days) = (statement.query([])?, Vec::new());
            while let Some(row) = rows.next()? {
                let what = "fan-outs of";
                let day = Record { what, row }.parsed::<Day>("day");
                days.extend(readable(day.map(Some))?);
            }
            Ok(days)
        };
        self.connections
            .read("looking for days with pending fan-outs", look)
            .await
    }
}

fn accept(transaction: &Transaction<'_>, fanout: &Fanout) -> Answer<Accepted> {
    let record = fields(&FanoutRecord::keep(fanout))?;
    if FANOUTS.insert(transaction, Met::KeptBy("key"), &record)? == 0 {
        let known = find(transaction, "key", &fanout.key)?;
        let lost = || {
            Error::corrupt(
                format!("audience of fan-out {}", fanout.key),
                "it is missing",
            )
        };
        return Ok(Accepted::Known(Box::new(known.ok_or_else(lost)?)));
    }
    write_apart(transaction, fanout)?;
    Ok(Accepted::New)
}

/// Replaces the fan-out with this id.
pub(super) fn write(transaction: &Transaction<'_>, fanout: &Fanout) -> Answer<()> {
    let record = fields(&FanoutRecord::keep(fanout))?;
    FANOUTS.insert(transaction, Met::Replaced, &record)?;
    let id = fanout.id.to_string();
    for sql in [
        "DELETE FROM audiences WHERE fanout = ?1",
        "DELETE FROM details WHERE fanout = ?1",
    ] {
        transaction.prepare_cached(sql)?.execute([&id])?;
    }
    write_apart(transaction, fanout)
}

/// Writes the audience and details of a fan-out.
fn write_apart(transaction: &Transaction<'_>, fanout: &Fanout) -> Answer<()> {
    let sql = "INSERT INTO audiences (fanout, objects, audience) VALUES (?1, ?2, ?3)";
    let (objects, audience) = (to_json(&fanout.objects)?, to_json(&fanout.audience)?);
    transaction
        .prepare_cached(sql)?
        .execute((fanout.id.to_string(), objects, audience))?;
    if let Some(details) = &fanout.details {
        let sql = "INSERT INTO details (fanout, details) VALUES (?1, ?2)";
        let details = to_json(&DetailsRecord::keep(details))?;
        let mut insert = transaction.prepare_cached(sql)?;
        insert.execute((fanout.id.to_string(), details))?;
    }
    Ok(())
}

fn save(
    transaction: &Transaction<'_>,
    owner: &str,
    until: DateTime<Utc>,
    id: Id,
    progress: &Progress,
) -> Answer<bool> {
    let sql = "UPDATE fanouts SET state = ?3, cursor = coalesce(?4, cursor),
                   people = ?5, pushed = ?6, capped = ?7, owner = ?8, until = ?9
               WHERE id = ?1 AND owner = ?2";
    let (state, lease) = match progress.done {
        true => ("done", None),
        false => ("pending", Some((owner, millis(until)))),
    };
    let saved = transaction.prepare_cached(sql)?.execute(params![
        id.to_string(),
        owner,
        state,
        progress.cursor.as_ref().map(UserId::as_str),
        progress.counts.people as i64,
        progress.counts.pushed as i64,
        progress.counts.capped as i64,
        lease.map(|(owner, _)| owner),
        lease.map(|(_, until)| until),
    ])?;
    Ok(saved == 1)
}

/// Maximum length of the JSON of a small audience, for ids of any length.
const SMALL_BYTES: i64 = 64 << 10;

/// Selects the oldest claimable fan-outs, followed by small ones up to the first that is not small.
fn free_fanouts(
    transaction: &Transaction<'_>,
    now: DateTime<Utc>,
    most: AtMost,
) -> Answer<Vec<String>> {
    let sql = "SELECT id, CASE WHEN octet_length(audience) <= ?4 THEN audience END
         FROM fanouts LEFT JOIN audiences ON fanout = id
         WHERE state = 'pending' AND (until IS NULL OR until <= ?1 OR until > ?2)
         ORDER BY at, id LIMIT ?3";
    let (at, ahead) = (millis(now), millis(furthest_lease(now)));
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
fn find(transaction: &Transaction<'_>, column: &str, text: &str) -> Answer<Option<Fanout>> {
    let sql = format!(
        "SELECT fanouts.*, objects, audience, details
         FROM fanouts JOIN audiences ON audiences.fanout = id LEFT JOIN details ON details.fanout = id
         WHERE {column} = ?1"
    );
    let mut statement = transaction.prepare_cached(&sql)?;
    let mut rows = statement.query([text])?;
    rows.next()?.map(read).transpose()
}

pub(super) fn read(row: &Row<'_>) -> Answer<Fanout> {
    let what = "fan-out";
    let record = Record { what, row };
    let audience: Audience = record.json("audience")?;
    let mut apart = Fields::new();
    apart.insert("objects".to_owned(), record.json("objects")?);
    apart.insert("audience".to_owned(), json!({"parts": 1}));
    let (fanout, _) = FANOUTS.read::<FanoutRecord>(row, apart)?;
    let details = details_of(row)?;
    Ok(Fanout {
        audience,
        details,
        ..fanout
    })
}

/// Returns the details of an event, if it has any.
fn details_of(row: &Row<'_>) -> Answer<Option<Details>> {
    let what = "fan-out";
    let record = Record { what, row };
    let details: Option<DetailsRecord> = match row.get_ref("details")? {
        ValueRef::Null => None,
        _ => Some(record.json("details")?),
    };
    let corrupt = |why| Error::corrupt(format!("details of {what}"), why);
    Ok(details.told().map_err(corrupt)?)
}
