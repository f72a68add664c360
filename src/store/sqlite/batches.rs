//! Accumulators and batches, one row each: JSON, with columns for the searchable fields.
//!
//! An accumulator is replaced only if its revision is unchanged. The rows that index its batches
//! and objects change in the same transaction.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use rusqlite::types::Value;
use rusqlite::{Transaction, params_from_iter};

use super::Sqlite;
use super::answer::Answer;
use super::codec::millis;
use super::columns::{Met, Table, fields};
use crate::domain::batch::{Accumulator, AccumulatorId, Addition};
use crate::domain::coordination::furthest_lease;
use crate::domain::{Batch, BatchState, Id, ObjectId};
use crate::store::record::batch::{AccumulatorRecord, BatchRecord};
use crate::store::types::page;
use crate::store::{AccumulatorFilter, BatchFilter, Batches, Result};

pub(super) const ACCUMULATORS: Table = Table {
    name: "seats",
    columns: "user=_id.u key=_id.k stamp due owner=lease.owner until=lease.until turn open:json
        ended:json memories:json",
};

pub(super) const FILED: Table = Table {
    name: "batches",
    columns: "id=_id user key state settled gathered:rest",
};

#[async_trait]
impl Batches for Sqlite {
    async fn accumulators(&self, ids: &[AccumulatorId]) -> Result<Vec<Option<Accumulator>>> {
        let read = |transaction: &Transaction<'_>, id: &AccumulatorId| {
            Ok(accumulators(transaction, "user = ?1 AND key = ?2", names(id))?.pop())
        };
        self.read_each("reading accumulators", ids, read).await
    }

    async fn put_accumulators(
        &self,
        accumulators: &[Accumulator],
        revision: Id,
    ) -> Result<Vec<bool>> {
        let put = move |transaction: &Transaction<'_>, accumulator: &Accumulator| {
            put(transaction, accumulator, revision)
        };
        self.change_each("putting accumulators", accumulators, put)
            .await
    }

    /// Always declines: here reading an accumulator costs no more than checking its conditions.
    async fn add_to_open(
        &self,
        _accumulators: &[(AccumulatorId, usize)],
        _additions: &[Addition],
        _revision: Id,
    ) -> Result<bool> {
        Ok(false)
    }

    async fn find_accumulators(
        &self,
        filter: &AccumulatorFilter<'_>,
        limit: usize,
    ) -> Result<Vec<Accumulator>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (which, mut values): (_, Vec<Value>) = match *filter {
            AccumulatorFilter::Due(now) => (
                "due <= ?2 AND (coalesce(until, 0) <= ?2 OR until > ?3) ORDER BY due LIMIT ?1",
                vec![millis(now).into(), millis(furthest_lease(now)).into()],
            ),
            AccumulatorFilter::Of(batch) => (
                "(user, key) IN (SELECT user, key FROM seat_batches WHERE batch = ?2) LIMIT ?1",
                vec![batch.to_string().into()],
            ),
            AccumulatorFilter::Holding {
                kind,
                objects,
                after,
            } => {
                let objects: Vec<&str> = objects.iter().map(ObjectId::as_str).collect();
                let objects = serde_json::Value::from(objects).to_string();
                let (user, key) = after.map_or_else(Default::default, names);
                let values = [kind.to_string(), objects, user, key];
                let holding = "(user, key) IN (
                        SELECT DISTINCT user, key FROM seat_objects
                        WHERE type = ?2 AND object IN (SELECT value FROM json_each(?3)) AND (user, key) > (?4, ?5)
                        ORDER BY user, key LIMIT ?1
                    ) ORDER BY user, key";
                (holding, values.map(Value::from).into())
            }
        };
        values.insert(0, limit.into());
        let read = move |transaction: &Transaction<'_>| {
            accumulators(transaction, which, params_from_iter(values))
        };
        let doing = "looking for accumulators";
        self.connections.read(doing, read).await
    }

    async fn file_batches(&self, batches: &[Batch]) -> Result<Vec<bool>> {
        let file = |transaction: &Transaction<'_>, batch: &Batch| {
            let new = FILED.insert(transaction, Met::Kept, &fields(&BatchRecord::row(batch))?)?;
            let standing = match new {
                1 => return Ok(true),
                _ => filed(transaction, "id = ?1", [batch.id.to_string()])?.pop(),
            };
            Ok(standing.is_some_and(|standing| standing.has_same_events(batch)))
        };
        self.change_each("filing batches", batches, file).await
    }

    async fn filed(&self, ids: &[Id]) -> Result<Vec<Option<Batch>>> {
        let read = |transaction: &Transaction<'_>, id: &Id| {
            Ok(filed(transaction, "id = ?1", [id.to_string()])?.pop())
        };
        self.read_each("reading batches", ids, read).await
    }

    async fn settle_batches(&self, settled: &[(Id, BatchState)], now: DateTime<Utc>) -> Result<()> {
        let settle = move |transaction: &Transaction<'_>, (id, state): &(Id, BatchState)| {
            let sql =
                "UPDATE batches SET state = ?2, settled = ?3 WHERE id = ?1 AND state = 'closing'";
            let mut statement = transaction.prepare_cached(sql)?;
            Ok(statement.execute((id.to_string(), state.as_str(), millis(now)))? == 1)
        };
        self.change_each("settling batches", settled, settle)
            .await?;
        Ok(())
    }

    async fn find_batches(
        &self,
        filter: &BatchFilter,
        before: Option<Id>,
        limit: usize,
    ) -> Result<Vec<Batch>> {
        let filter = filter.clone();
        let read = move |transaction: &Transaction<'_>| find(transaction, &filter, before, limit);
        self.connections.read("looking for batches", read).await
    }
}

fn names(id: &AccumulatorId) -> (String, String) {
    (id.user.to_string(), id.key.to_string())
}

fn put(transaction: &Transaction<'_>, accumulator: &Accumulator, revision: Id) -> Answer<bool> {
    let (user, key) = names(&accumulator.id);
    let read = accumulator.revision.map(|revision| revision.to_string());
    let standing = "SELECT stamp FROM seats WHERE user = ?1 AND key = ?2";
    let mut standing = transaction.prepare_cached(standing)?;
    let mut found = standing.query((&user, &key))?;
    let found: Option<String> = match found.next()? {
        Some(row) => row.get(0)?,
        None => None,
    };
    if found != read {
        return Ok(false);
    }
    write(transaction, accumulator, revision)?;
    Ok(true)
}

/// Replaces an accumulator regardless of its revision. Removes it if it is empty.
pub(super) fn write(
    transaction: &Transaction<'_>,
    accumulator: &Accumulator,
    revision: Id,
) -> Answer<()> {
    let (user, key) = names(&accumulator.id);
    for sql in [
        "DELETE FROM seat_batches WHERE user = ?1 AND key = ?2",
        "DELETE FROM seat_objects WHERE user = ?1 AND key = ?2",
    ] {
        transaction.prepare_cached(sql)?.execute((&user, &key))?;
    }
    if accumulator.is_empty() {
        let sql = "DELETE FROM seats WHERE user = ?1 AND key = ?2";
        transaction.prepare_cached(sql)?.execute((&user, &key))?;
        return Ok(());
    }
    let record = fields(&AccumulatorRecord::row(accumulator, revision))?;
    ACCUMULATORS.insert(transaction, Met::Replaced, &record)?;
    let sql = "INSERT INTO seat_batches (batch, user, key, open) VALUES (?1, ?2, ?3, ?4)";
    let mut batches = transaction.prepare_cached(sql)?;
    for batch in accumulator.open.iter().chain(&accumulator.ended) {
        let open = batch.state == BatchState::Open;
        batches.execute((batch.id.to_string(), &user, &key, open))?;
    }
    let sql =
        "INSERT OR IGNORE INTO seat_objects (type, object, user, key) VALUES (?1, ?2, ?3, ?4)";
    let mut objects = transaction.prepare_cached(sql)?;
    for item in accumulator.open.iter().flat_map(Batch::kept) {
        objects.execute((item.t.as_str(), item.o.as_str(), &user, &key))?;
    }
    Ok(())
}

/// Returns the accumulators that match a condition.
fn accumulators(
    transaction: &Transaction<'_>,
    condition: &str,
    values: impl rusqlite::Params,
) -> Answer<Vec<Accumulator>> {
    ACCUMULATORS.find::<AccumulatorRecord>(transaction, condition, values)
}

/// Returns the filed batches that match a condition.
fn filed(
    transaction: &Transaction<'_>,
    condition: &str,
    values: impl rusqlite::Params,
) -> Answer<Vec<Batch>> {
    FILED.find::<BatchRecord>(transaction, condition, values)
}

/// Returns conditions on the columns that accumulators and filed batches share, and their values.
fn conditions(filter: &BatchFilter, id: &str, before: Option<Id>) -> (Vec<String>, Vec<Value>) {
    let asked = [
        (
            "user =".to_owned(),
            filter.user.as_ref().map(|user| user.to_string()),
        ),
        (
            "key =".to_owned(),
            filter.key.as_ref().map(|key| key.to_string()),
        ),
        (format!("{id} <"), before.map(|before| before.to_string())),
    ];
    let asked = asked
        .into_iter()
        .filter_map(|(what, value)| Some((what, value?)));
    let numbered = asked.enumerate();
    numbered
        .map(|(n, (what, value))| (format!("{what} ?{}", n + 1), Value::from(value)))
        .unzip()
}

fn find(
    transaction: &Transaction<'_>,
    filter: &BatchFilter,
    before: Option<Id>,
    limit: usize,
) -> Answer<Vec<Batch>> {
    let wanted = |batch: &Batch| filter.state.is_none_or(|wanted| wanted == batch.state);
    let (mut here, values) = conditions(filter, "batch", before);
    match filter.state {
        None => {}
        Some(BatchState::Open) => here.push("open = 1".into()),
        Some(_) => here.push("open = 0".into()),
    }
    here.push("true".into());
    let here = format!(
        "(user, key) IN (SELECT user, key FROM seat_batches WHERE {} ORDER BY batch DESC LIMIT {limit})",
        here.join(" AND ")
    );
    let accumulators = accumulators(transaction, &here, params_from_iter(values))?;
    let standing = accumulators
        .into_iter()
        .flat_map(|accumulator| accumulator.open.into_iter().chain(accumulator.ended));
    let mut found: Vec<Batch> = standing.filter(wanted).collect();
    if filter.state != Some(BatchState::Open) {
        let (mut conditions, values) = conditions(filter, "id", before);
        conditions.extend(
            filter
                .state
                .map(|state| format!("state = '{}'", state.as_str())),
        );
        conditions.push("true".into());
        let conditions = conditions.join(" AND ");
        let condition = format!("{conditions} ORDER BY id DESC LIMIT {limit}");
        found.extend(filed(transaction, &condition, params_from_iter(values))?);
    }
    Ok(page(found, before, limit))
}
