//! The journal: a row for each accepted event, unique by key, claimed oldest first.
//!
//! The rule: what a fan-out is never changes and lies in `audiences`; how far it has come is small
//! and lies in `fanouts`.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use rusqlite::{Row, Transaction, params};

use super::Sqlite;
use super::codec::{Record, millis, to_json};
use super::connections::{Answer, readable};
use crate::domain::lease::furthest;
use crate::domain::{
    Audience, ChosenKey, Counts, Day, Event, EventType, Fanout, FanoutState, Id, ObjectId,
    Progress, UserId,
};
use crate::store::{Accepted, BadFanout, Claimed, Journal, Result};

#[async_trait]
impl Journal for Sqlite {
    async fn accept(&self, fanouts: &[Fanout]) -> Result<Vec<Accepted>> {
        if fanouts.is_empty() {
            return Ok(Vec::new());
        }
        let fanouts = fanouts.to_vec();
        let accept = move |transaction: &Transaction<'_>| {
            fanouts
                .iter()
                .map(|fanout| accept(transaction, fanout))
                .collect()
        };
        self.connections.write("accepting events", accept).await
    }

    async fn claim_fanouts(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        limit: usize,
    ) -> Result<Claimed> {
        let owner = owner.to_owned();
        let claim = move |transaction: &Transaction<'_>| {
            let sql = "SELECT id FROM fanouts
                 WHERE state = 'pending' AND (until IS NULL OR until <= ?1 OR until > ?3)
                 ORDER BY at, id LIMIT ?2";
            let mut free = transaction.prepare_cached(sql)?;
            let ahead = millis(furthest(now));
            let free = free.query_map((millis(now), limit as i64, ahead), |row| {
                row.get::<_, String>(0)
            })?;
            let free: Vec<_> = free.collect::<rusqlite::Result<_>>()?;
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
        if progress.is_empty() {
            return Ok(Vec::new());
        }
        let (owner, progress) = (owner.to_owned(), progress.to_vec());
        let save = move |transaction: &Transaction<'_>| {
            let save =
                |(id, progress): &(Id, Progress)| save(transaction, &owner, until, *id, progress);
            progress.iter().map(save).collect()
        };
        self.connections.write("saving fan-outs", save).await
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

    async fn newest(&self, limit: usize) -> Result<Vec<Vec<Event>>> {
        let look = move |transaction: &Transaction<'_>| {
            let sql = "SELECT id, type, objects FROM fanouts JOIN audiences ON fanout = id ORDER BY id DESC LIMIT ?1";
            let mut statement = transaction.prepare_cached(sql)?;
            let (mut rows, mut newest) = (statement.query([limit as i64])?, Vec::new());
            while let Some(row) = rows.next()? {
                newest.extend(readable(happened(row).map(Some))?);
            }
            Ok(newest)
        };
        self.connections
            .read("reading the newest events", look)
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

fn state_text(state: FanoutState) -> &'static str {
    match state {
        FanoutState::Pending => "pending",
        FanoutState::Done => "done",
    }
}

fn accept(transaction: &Transaction<'_>, fanout: &Fanout) -> Answer<Accepted> {
    let sql = "INSERT INTO fanouts (id, key, type, batch_key, day, at, state, cursor, people, pushed, capped, owner, until)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) ON CONFLICT (key) DO NOTHING";
    let id = fanout.id.to_string();
    let counts = fanout.progress.counts;
    let inserted = transaction.prepare_cached(sql)?.execute(params![
        id,
        fanout.key,
        fanout.kind.as_str(),
        fanout.batch_key.as_ref().map(ChosenKey::as_str),
        fanout.day.to_string(),
        millis(fanout.at),
        state_text(fanout.state),
        fanout.progress.cursor.as_ref().map(UserId::as_str),
        counts.people as i64,
        counts.pushed as i64,
        counts.capped as i64,
        fanout.lease.as_ref().map(|lease| &lease.owner),
        fanout.lease.as_ref().map(|lease| millis(lease.until)),
    ])?;
    if inserted == 0
        && let Some(known) = find(transaction, "key", &fanout.key)?
    {
        return Ok(Accepted::Known(Box::new(known)));
    }
    let sql = "INSERT INTO audiences (fanout, objects, audience) VALUES (?1, ?2, ?3)";
    let (objects, audience) = (to_json(&fanout.objects)?, to_json(&fanout.audience)?);
    transaction
        .prepare_cached(sql)?
        .execute((id, objects, audience))?;
    Ok(Accepted::New)
}

fn save(
    transaction: &Transaction<'_>,
    owner: &str,
    until: DateTime<Utc>,
    id: Id,
    progress: &Progress,
) -> Answer<bool> {
    let sql = "UPDATE fanouts SET state = ?3, cursor = ?4, people = ?5, pushed = ?6, capped = ?7, owner = ?8, until = ?9
               WHERE id = ?1 AND owner = ?2";
    let state = if progress.done {
        FanoutState::Done
    } else {
        FanoutState::Pending
    };
    let lease = (!progress.done).then_some((owner, millis(until)));
    let saved = transaction.prepare_cached(sql)?.execute(params![
        id.to_string(),
        owner,
        state_text(state),
        progress.cursor.as_ref().map(UserId::as_str),
        progress.counts.people as i64,
        progress.counts.pushed as i64,
        progress.counts.capped as i64,
        lease.map(|(owner, _)| owner),
        lease.map(|(_, until)| until),
    ])?;
    Ok(saved == 1)
}

/// What a fan-out says happened.
fn happened(row: &Row<'_>) -> Answer<Vec<Event>> {
    let record = Record {
        what: "fan-out",
        row,
    };
    let (i, objects): (Id, Vec<String>) = (record.parsed("id")?, record.json("objects")?);
    let t = EventType::stored(record.text("type")?);
    let event = |o: String| Event {
        t: t.clone(),
        o: ObjectId::stored(o),
        i: Some(i),
    };
    Ok(objects.into_iter().map(event).collect())
}

/// The fan-out with this text in this unique column.
fn find(transaction: &Transaction<'_>, column: &str, text: &str) -> Answer<Option<Fanout>> {
    let sql = format!("SELECT * FROM fanouts JOIN audiences ON fanout = id WHERE {column} = ?1");
    let mut statement = transaction.prepare_cached(&sql)?;
    let mut rows = statement.query([text])?;
    rows.next()?.map(read).transpose()
}

fn read(row: &Row<'_>) -> Answer<Fanout> {
    let record = Record {
        what: "fan-out",
        row,
    };
    let state = match record.text("state")? {
        "pending" => FanoutState::Pending,
        "done" => FanoutState::Done,
        other => return record.corrupt("state", format!("it is {other:?}")),
    };
    let count =
        |column| Ok::<_, super::connections::Failure>(record.get::<i64>(column)?.unsigned_abs());
    let counts = Counts {
        people: count("people")?,
        pushed: count("pushed")?,
        capped: count("capped")?,
    };
    let cursor: Option<String> = record.get("cursor")?;
    let objects: Vec<String> = record.json("objects")?;
    let audience: Audience = record.json("audience")?;
    Ok(Fanout {
        id: record.parsed("id")?,
        key: record.get("key")?,
        kind: EventType::stored(record.text("type")?),
        objects: objects.into_iter().map(ObjectId::stored).collect(),
        audience,
        batch_key: record.maybe_parsed("batch_key")?,
        day: record.parsed("day")?,
        at: record.time("at")?,
        state,
        progress: Progress {
            cursor: cursor.map(UserId::stored),
            counts,
            done: state == FanoutState::Done,
        },
        lease: record.lease()?,
    })
}
