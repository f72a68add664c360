//! Suppressed addresses: one row each, under the folded address.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use rusqlite::Transaction;

use super::Sqlite;
use super::rows::{RowTable, Statements as _, millis};
use crate::domain::{Address, DeliveryId, Suppression};
use crate::store::record::small::SuppressionRecord;
use crate::store::record::values::StoredForm;
use crate::store::types::more_severe;
use crate::store::{AddressState, Result, Suppressions};

pub(super) const SUPPRESSIONS: RowTable =
    RowTable { name: "suppressions", columns: "address=_id reason at source detail lifted" };

/// Selects the rows that suppress an address now, as [`Suppression::is_lifted`] does.
pub(super) const NOT_LIFTED: &str = "(lifted IS NULL OR at > lifted)";

#[async_trait]
impl Suppressions for Sqlite {
    async fn add_suppressions(&self, suppressions: &[Suppression]) -> Result<()> {
        self.change_each(suppressions, suppress).await.map(drop)
    }

    async fn lift_suppression(
        &self,
        address: &Address,
        at: DateTime<Utc>,
        expired: DateTime<Utc>,
    ) -> Result<bool> {
        let address = address.clone();
        self.write(move |transaction| lift(transaction, &address, at, expired)).await
    }

    async fn note_soft_bounce(
        &self,
        address: &Address,
        delivery: &DeliveryId,
        at: DateTime<Utc>,
        since: DateTime<Utc>,
    ) -> Result<u64> {
        let (address, delivery) = (address.folded(), delivery.clone());
        self.write(move |transaction| {
            let address = address.reveal();
            let sql = "INSERT INTO soft_bounces (address, delivery, at) VALUES (?1, ?2, ?3)
                       ON CONFLICT (address, delivery) DO UPDATE SET at = min(at, excluded.at)";
            transaction.run(sql, (address, delivery.as_str(), millis(at)))?;
            let sql = "DELETE FROM soft_bounces WHERE address = ?1 AND at < ?2";
            transaction.run(sql, (address, millis(since)))?;
            let sql = "SELECT count(*) FROM soft_bounces WHERE address = ?1";
            let count: i64 = transaction.query_row(sql, [address], |row| row.get(0))?;
            Ok(count.unsigned_abs())
        })
        .await
    }

    async fn address_states(&self, addresses: &[Address]) -> Result<Vec<AddressState>> {
        self.read_each(addresses, |transaction, address| {
            let stored = find_spelling(transaction, &address.folded())?;
            Ok(AddressState {
                suppression: find_active(transaction, address)?,
                lifted_at: stored.and_then(|stored| stored.lifted),
            })
        })
        .await
    }

    async fn suppressions(
        &self,
        after: Option<&Address>,
        limit: usize,
    ) -> Result<Vec<Suppression>> {
        let from = after.map_or_else(String::new, |after| after.to_lowercase().reveal().to_owned());
        self.read(move |transaction| {
            let condition = format!("address > ?1 AND {NOT_LIFTED} ORDER BY address LIMIT ?2");
            SUPPRESSIONS.find::<SuppressionRecord>(transaction, &condition, (from, limit as i64))
        })
        .await
    }
}

/// Stores a suppression if it outweighs the stored one. Keeps the time of a lift.
fn suppress(transaction: &Transaction<'_>, suppression: &Suppression) -> Result<()> {
    let stored = find_spelling(transaction, &suppression.address.folded())?;
    if stored.as_ref().is_some_and(|stored| !suppression.outweighs(stored)) {
        return Ok(());
    }
    let record = SuppressionRecord::from_value(&Suppression {
        lifted: stored.and_then(|stored| stored.lifted),
        ..suppression.clone()
    });
    SUPPRESSIONS.replace(transaction, &record)
}

/// Lifts the suppression of an address. Returns whether it was suppressed.
fn lift(
    transaction: &Transaction<'_>,
    address: &Address,
    at: DateTime<Utc>,
    expired: DateTime<Utc>,
) -> Result<bool> {
    let stored = find_active(transaction, address)?;
    for spelling in address.spellings() {
        let spelling = [spelling.reveal()];
        transaction.run("DELETE FROM soft_bounces WHERE address = ?1", spelling)?;
        if stored.is_some() {
            transaction.run("DELETE FROM suppressions WHERE address = ?1", spelling)?;
        }
    }
    let sql = format!("DELETE FROM suppressions WHERE lifted < ?1 AND NOT {NOT_LIFTED}");
    transaction.run(&sql, [millis(expired)])?;
    let Some(stored) = stored else {
        return Ok(false);
    };
    let lifted = Suppression { lifted: Some(at.max(stored.at)), ..stored };
    SUPPRESSIONS.replace(transaction, &SuppressionRecord::from_value(&lifted))?;
    Ok(true)
}

/// Returns the most severe active suppression of an address, in any spelling that an older version
/// may have stored.
fn find_active(transaction: &Transaction<'_>, address: &Address) -> Result<Option<Suppression>> {
    let mut stored = Vec::new();
    for spelling in address.spellings() {
        stored.extend(find_spelling(transaction, &spelling)?);
    }
    stored.retain(|suppression| !suppression.is_lifted());
    Ok(stored.into_iter().reduce(more_severe))
}

/// Returns the stored record for exactly this spelling.
fn find_spelling(transaction: &Transaction<'_>, address: &Address) -> Result<Option<Suppression>> {
    let values = [address.reveal()];
    SUPPRESSIONS.find_one::<SuppressionRecord>(transaction, "address = ?1", values)
}
