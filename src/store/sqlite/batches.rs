//! Accumulators and batches, one row each: JSON, with columns for the searchable fields.
//!
//! An accumulator is replaced only if its revision is unchanged. The rows that index its batches
//! and objects change in the same transaction.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use rusqlite::types::Value;
use rusqlite::{Transaction, params_from_iter};

use super::Sqlite;
use super::rows::{RowTable, Statements as _, json_list, millis};
use crate::domain::batch::{Accumulator, AccumulatorId, BatchAppend};
use crate::domain::coordination::MAX_LEASE;
use crate::domain::{Batch, BatchState, Id, ObjectId};
use crate::store::record::batch::{AccumulatorRecord, BatchRecord};
use crate::store::types::newest_page;
use crate::store::{AccumulatorFilter, BatchFilter, Batches, Result};

pub(super) const ACCUMULATORS: RowTable = RowTable {
    name: "accumulators",
    columns: "user=_id.u key=_id.k stamp due owner=lease.owner until=lease.until turn open:json
        ended:json memories:json",
};

pub(super) const BATCHES: RowTable =
    RowTable { name: "batches", columns: "id=_id user key state settled gathered:rest" };

#[async_trait]
impl Batches for Sqlite {
    async fn put_accumulators(
        &self,
        accumulators: &[Accumulator],
        revision: Id,
    ) -> Result<Vec<bool>> {
        self.change_each(accumulators, move |transaction, accumulator| {
            put_accumulator(transaction, accumulator, revision)
        })
        .await
    }

    /// Always declines: here reading an accumulator costs no more than checking its conditions.
    async fn add_to_open(
        &self,
        _accumulators: &[(AccumulatorId, usize)],
        _additions: &[BatchAppend],
        _revision: Id,
    ) -> Result<bool> {
        Ok(false)
    }

    async fn accumulators(&self, ids: &[AccumulatorId]) -> Result<Vec<Option<Accumulator>>> {
        self.read_each(ids, |transaction, id| {
            let condition = "user = ?1 AND key = ?2";
            ACCUMULATORS.find_one::<AccumulatorRecord>(transaction, condition, id_columns(id))
        })
        .await
    }

    async fn find_accumulators(
        &self,
        filter: &AccumulatorFilter<'_>,
        limit: usize,
    ) -> Result<Vec<Accumulator>> {
        let (condition, mut values): (_, Vec<Value>) = match *filter {
            AccumulatorFilter::Due(now) => (
                "due <= ?2 AND (coalesce(until, 0) <= ?2 OR until > ?3) ORDER BY due LIMIT ?1",
                vec![millis(now).into(), millis(now + MAX_LEASE).into()],
            ),
            AccumulatorFilter::WithBatch(batch) => (
                "(user, key) IN (SELECT user, key FROM accumulator_batches WHERE batch = ?2)
                 LIMIT ?1",
                vec![batch.to_string().into()],
            ),
            AccumulatorFilter::WithEvent(kind, objects, after) => {
                let objects = json_list(objects.iter().map(ObjectId::as_str));
                let (user, key) = after.map_or_else(Default::default, id_columns);
                let values = [kind.to_string(), objects, user, key];
                let condition = "(user, key) IN (
                        SELECT DISTINCT user, key FROM accumulator_objects
                        WHERE type = ?2 AND object IN (SELECT value FROM json_each(?3))
                            AND (user, key) > (?4, ?5)
                        ORDER BY user, key LIMIT ?1
                    ) ORDER BY user, key";
                (condition, values.map(Value::from).into())
            }
        };
        values.insert(0, (limit as i64).into());
        self.read(move |transaction| {
            let values = params_from_iter(values);
            ACCUMULATORS.find::<AccumulatorRecord>(transaction, condition, values)
        })
        .await
    }

    async fn file_batches(&self, batches: &[Batch]) -> Result<Vec<bool>> {
        self.change_each(batches, |transaction, batch| {
            if BATCHES.insert_new(transaction, &BatchRecord::for_filed_batch(batch))? {
                return Ok(true);
            }
            let stored = find_filed_batch(transaction, batch.id)?;
            Ok(stored.is_some_and(|stored| stored.has_same_events(batch)))
        })
        .await
    }

    async fn settle_batches(&self, settled: &[(Id, BatchState)], now: DateTime<Utc>) -> Result<()> {
        self.change_each(settled, move |transaction, (id, state)| {
            let sql =
                "UPDATE batches SET state = ?2, settled = ?3 WHERE id = ?1 AND state = 'closing'";
            transaction.run(sql, (id.to_string(), state.as_str(), millis(now)))
        })
        .await
        .map(drop)
    }

    async fn filed_batches(&self, ids: &[Id]) -> Result<Vec<Option<Batch>>> {
        self.read_each(ids, |transaction, id| find_filed_batch(transaction, *id)).await
    }

    async fn find_batches(&self, filter: &BatchFilter, limit: usize) -> Result<Vec<Batch>> {
        let filter = filter.clone();
        self.read(move |transaction| find_batches(transaction, &filter, limit)).await
    }
}

/// Returns the values of the columns `user` and `key`.
fn id_columns(id: &AccumulatorId) -> (String, String) {
    (id.user.to_string(), id.key.to_string())
}

/// Replaces an accumulator whose revision is unchanged. Returns whether it was.
fn put_accumulator(
    transaction: &Transaction<'_>,
    accumulator: &Accumulator,
    revision: Id,
) -> Result<bool> {
    let (user, key) = id_columns(&accumulator.id);
    let expected = accumulator.revision.map(|revision| revision.to_string());
    let sql = "SELECT stamp FROM accumulators WHERE user = ?1 AND key = ?2";
    let stored: Option<String> = transaction.query_first(sql, (&user, &key), |row| row.get(0))?;
    if stored != expected {
        return Ok(false);
    }
    replace_accumulator(transaction, accumulator, revision)?;
    Ok(true)
}

/// Replaces an accumulator regardless of its revision. Removes it if it is empty.
pub(super) fn replace_accumulator(
    transaction: &Transaction<'_>,
    accumulator: &Accumulator,
    revision: Id,
) -> Result<()> {
    let (user, key) = id_columns(&accumulator.id);
    for sql in [
        "DELETE FROM accumulator_batches WHERE user = ?1 AND key = ?2",
        "DELETE FROM accumulator_objects WHERE user = ?1 AND key = ?2",
    ] {
        transaction.run(sql, (&user, &key))?;
    }
    if accumulator.is_empty() {
        let sql = "DELETE FROM accumulators WHERE user = ?1 AND key = ?2";
        return transaction.run(sql, (&user, &key)).map(drop);
    }
    ACCUMULATORS.replace(transaction, &AccumulatorRecord::for_row(accumulator, revision))?;
    for batch in accumulator.open.iter().chain(&accumulator.ended) {
        let sql =
            "INSERT INTO accumulator_batches (batch, user, key, open) VALUES (?1, ?2, ?3, ?4)";
        let is_open = batch.state == BatchState::Open;
        transaction.run(sql, (batch.id.to_string(), &user, &key, is_open))?;
    }
    for item in accumulator.open.iter().flat_map(|open| &open.events.items) {
        let sql = "INSERT OR IGNORE INTO accumulator_objects (type, object, user, key)
                   VALUES (?1, ?2, ?3, ?4)";
        transaction.run(sql, (item.kind.as_str(), item.object.as_str(), &user, &key))?;
    }
    Ok(())
}

fn find_filed_batch(transaction: &Transaction<'_>, id: Id) -> Result<Option<Batch>> {
    BATCHES.find_one::<BatchRecord>(transaction, "id = ?1", [id.to_string()])
}

/// Returns open and filed batches. Accumulators contain open batches, and ended batches until these
/// are filed.
fn find_batches(
    transaction: &Transaction<'_>,
    filter: &BatchFilter,
    limit: usize,
) -> Result<Vec<Batch>> {
    // Returns the conditions on a table's columns, and their values.
    let conditions_and_values = |id_condition: &str, state_condition: Option<String>| {
        let user = filter.user.as_ref().map(|user| user.to_string());
        let key = filter.key.as_ref().map(|key| key.to_string());
        let before = filter.before.map(|before| before.to_string());
        let columns = [("user =", user), ("key =", key), (id_condition, before)];
        let (mut conditions, values): (Vec<String>, Vec<String>) = (columns.into_iter())
            .filter_map(|(condition, value)| Some((condition, value?)))
            .enumerate()
            .map(|(n, (condition, value))| (format!("{condition} ?{}", n + 1), value))
            .unzip();
        conditions.extend(state_condition);
        conditions.push("true".to_owned());
        (conditions.join(" AND "), params_from_iter(values))
    };
    // `usize::MAX` becomes -1, which SQLite reads as no limit.
    let sql_limit = limit as i64;
    let state = filter.state.map(|state| format!("open = {}", u8::from(state == BatchState::Open)));
    let (condition, values) = conditions_and_values("batch <", state);
    let in_accumulators = format!(
        "(user, key) IN (SELECT user, key FROM accumulator_batches
                         WHERE {condition} ORDER BY batch DESC LIMIT {sql_limit})"
    );
    let accumulators =
        ACCUMULATORS.find::<AccumulatorRecord>(transaction, &in_accumulators, values)?;
    let mut batches: Vec<Batch> = (accumulators.into_iter())
        .flat_map(|accumulator| accumulator.open.into_iter().chain(accumulator.ended))
        .filter(|batch| filter.state.is_none_or(|state| state == batch.state))
        .collect();
    if filter.state != Some(BatchState::Open) {
        let state = filter.state.map(|state| format!("state = '{state}'"));
        let (condition, values) = conditions_and_values("id <", state);
        let newest_first = format!("{condition} ORDER BY id DESC LIMIT {sql_limit}");
        batches.extend(BATCHES.find::<BatchRecord>(transaction, &newest_first, values)?);
    }
    Ok(newest_page(batches, filter.before, limit))
}
