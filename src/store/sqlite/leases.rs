//! Named leases: one row for each name.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::Sqlite;
use super::codec::millis;
use crate::domain::Lease;
use crate::domain::coordination::furthest_lease_of;
use crate::store::{Leases, Result};

#[async_trait]
impl Leases for Sqlite {
    async fn lease(&self, name: &str, lease: &Lease, now: DateTime<Utc>) -> Result<bool> {
        let sql = "INSERT INTO leases (name, owner, until) VALUES (?1, ?2, ?3)
                   ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until
                   WHERE owner = excluded.owner OR until <= ?4 OR until > ?5";
        let row = (
            name.to_owned(),
            lease.owner.clone(),
            millis(lease.until),
            millis(now),
            millis(furthest_lease_of(name, now)),
        );
        let take = move |transaction: &rusqlite::Transaction<'_>| {
            Ok(transaction.prepare_cached(sql)?.execute(row)? == 1)
        };
        self.connections
            .write(format!("leasing {name}"), take)
            .await
    }

    async fn unlease(&self, name: &str, owner: &str) -> Result<()> {
        let row = (name.to_owned(), owner.to_owned());
        let give_up = move |transaction: &rusqlite::Transaction<'_>| {
            let sql = "DELETE FROM leases WHERE name = ?1 AND owner = ?2";
            transaction.prepare_cached(sql)?.execute(row)?;
            Ok(())
        };
        self.connections
            .write(format!("giving up the lease of {name}"), give_up)
            .await
    }
}
