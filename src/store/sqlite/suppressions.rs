//! Suppressed addresses: one row each, under the folded address.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use rusqlite::Transaction;

use super::Sqlite;
use super::answer::Answer;
use super::codec::millis;
use super::columns::{Met, Table, fields};
use crate::domain::{Address, DeliveryId, Suppression};
use crate::store::record::fields::As;
use crate::store::record::suppression::SuppressionRecord;
use crate::store::types::graver;
use crate::store::{Result, Suppressions};

pub(super) const SUPPRESSIONS: Table = Table {
    name: "suppressions",
    columns: "address=_id reason at source detail lifted",
};

/// Selects the rows that suppress an address now, as [`Suppression::is_lifted`] does.
pub(super) const NOT_LIFTED: &str = "(lifted IS NULL OR at > lifted)";

#[async_trait]
impl Suppressions for Sqlite {
    async fn suppress(&self, suppressions: &[Suppression]) -> Result<()> {
        self.change_each("suppressing addresses", suppressions, suppress)
            .await
            .map(drop)
    }

    async fn suppressed(&self, addresses: &[Address]) -> Result<Vec<Option<Suppression>>> {
        self.read_each("looking for suppressed addresses", addresses, find)
            .await
    }

    async fn suppressions(
        &self,
        after: Option<&Address>,
        limit: usize,
    ) -> Result<Vec<Suppression>> {
        let from = after.map_or_else(String::new, |after| after.lowered().reveal().to_owned());
        let look = move |transaction: &Transaction<'_>| {
            let after = format!("address > ?1 AND {NOT_LIFTED} ORDER BY address LIMIT ?2");
            found(transaction, &after, (from, limit as i64))
        };
        self.connections
            .read("listing suppressed addresses", look)
            .await
    }

    async fn lift(
        &self,
        address: &Address,
        at: DateTime<Utc>,
        expired: DateTime<Utc>,
    ) -> Result<bool> {
        let address = address.clone();
        let lift = move |transaction: &Transaction<'_>| {
            let stored = find(transaction, &address)?;
            let mut bounces =
                transaction.prepare_cached("DELETE FROM soft_bounces WHERE address = ?1")?;
            let mut spelled =
                transaction.prepare_cached("DELETE FROM suppressions WHERE address = ?1")?;
            for spelling in address.spellings() {
                bounces.execute([spelling.reveal()])?;
                if stored.is_some() {
                    spelled.execute([spelling.reveal()])?;
                }
            }
            let sql = format!("DELETE FROM suppressions WHERE lifted < ?1 AND NOT {NOT_LIFTED}");
            transaction.execute(&sql, [millis(expired)])?;
            let Some(stored) = stored else {
                return Ok(false);
            };
            let lifted = SuppressionRecord::keep(&Suppression {
                lifted: Some(at.max(stored.at)),
                ..stored
            });
            SUPPRESSIONS.insert(transaction, Met::Replaced, &fields(&lifted)?)?;
            Ok(true)
        };
        self.connections.write("lifting a suppression", lift).await
    }

    async fn lifts(&self, addresses: &[Address]) -> Result<Vec<Option<DateTime<Utc>>>> {
        let lifted = |transaction: &Transaction<'_>, address: &Address| {
            let stored = find_as(transaction, &address.folded())?;
            Ok(stored.and_then(|stored| stored.lifted))
        };
        self.read_each("looking for lifted suppressions", addresses, lifted)
            .await
    }

    async fn soft_bounce(
        &self,
        address: &Address,
        delivery: &DeliveryId,
        at: DateTime<Utc>,
        since: DateTime<Utc>,
    ) -> Result<u64> {
        let (address, delivery) = (address.folded(), delivery.clone());
        let note = move |transaction: &Transaction<'_>| {
            let address = address.reveal();
            let sql = "INSERT INTO soft_bounces (address, delivery, at) VALUES (?1, ?2, ?3)
                       ON CONFLICT (address, delivery) DO UPDATE SET at = min(at, excluded.at)";
            let row = (address, delivery.as_str(), millis(at));
            transaction.prepare_cached(sql)?.execute(row)?;
            let sql = "DELETE FROM soft_bounces WHERE address = ?1 AND at < ?2";
            transaction
                .prepare_cached(sql)?
                .execute((address, millis(since)))?;
            let sql = "SELECT count(*) FROM soft_bounces WHERE address = ?1";
            let mut statement = transaction.prepare_cached(sql)?;
            let count: i64 = statement.query_row([address], |row| row.get(0))?;
            Ok(count.unsigned_abs())
        };
        self.connections.write("noting a soft bounce", note).await
    }
}

fn suppress(transaction: &Transaction<'_>, news: &Suppression) -> Answer<bool> {
    let stored = find_as(transaction, &news.address.folded())?;
    if stored
        .as_ref()
        .is_some_and(|stored| !news.outweighs(stored))
    {
        return Ok(false);
    }
    let fields = fields(&SuppressionRecord::keep(&Suppression {
        lifted: stored.and_then(|stored| stored.lifted),
        ..news.clone()
    }))?;
    Ok(SUPPRESSIONS.insert(transaction, Met::Replaced, &fields)? == 1)
}

/// Returns the most severe active suppression of an address, in any spelling that an older version
/// may have stored.
fn find(transaction: &Transaction<'_>, address: &Address) -> Answer<Option<Suppression>> {
    let mut known = Vec::new();
    for spelling in address.spellings() {
        known.extend(find_as(transaction, &spelling)?);
    }
    known.retain(|stored| !stored.is_lifted());
    Ok(known.into_iter().reduce(graver))
}

/// Returns the stored record for exactly this spelling.
fn find_as(transaction: &Transaction<'_>, address: &Address) -> Answer<Option<Suppression>> {
    let mut found = found(transaction, "address = ?1", [address.reveal()])?;
    Ok(found.pop())
}

fn found(
    transaction: &Transaction<'_>,
    condition: &str,
    values: impl rusqlite::Params,
) -> Answer<Vec<Suppression>> {
    SUPPRESSIONS.find::<SuppressionRecord>(transaction, condition, values)
}
