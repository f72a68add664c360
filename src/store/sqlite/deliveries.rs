//! The ledger: a row for each mail ([`super::delivery_row`]). A partial unique index keeps one open
//! row a slot.
//!
//! Long because all verbs of one trait are here.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use rusqlite::{Transaction, params};

use super::Sqlite;
use super::codec::millis;
use super::connections::Answer;
use super::delivery_row::{open, rows, watermarks};
use crate::domain::delivery::{
    Deferral, Handover, Judged, Reopened, Reopening, Settlement, Verdict, digest_slot,
};
use crate::domain::lease::{furthest, furthest_wait};
use crate::domain::{Delivery, DeliveryId, DeliveryState, UserId};
use crate::store::{Deliveries, Result};

/// Who can be claimed: whose lease is over at `?1`, or lies further ahead than a lease can (`?3`),
/// or any wait (`?4`). The `+` keeps it from walking over all that is open in the order of slots,
/// to find the few that are free.
pub(super) const FREE: &str = "SELECT id FROM (
        SELECT id, +slot AS slot FROM deliveries WHERE open AND coalesce(until, 0) <= ?1
        UNION ALL
        SELECT id, +slot AS slot FROM deliveries
        WHERE open AND coalesce(until, 0) > ?3 AND (owner IS NOT NULL OR until > ?4)
    ) ORDER BY slot LIMIT ?2";

#[async_trait]
impl Deliveries for Sqlite {
    async fn open(&self, rows: &[Delivery]) -> Result<Vec<bool>> {
        self.change_each("opening deliveries", rows, open).await
    }

    async fn claim(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        limit: usize,
    ) -> Result<Vec<Delivery>> {
        let owner = owner.to_owned();
        let claim = move |transaction: &Transaction<'_>| {
            let mut free = transaction.prepare_cached(FREE)?;
            let ahead = (millis(furthest(now)), millis(furthest_wait(now)));
            let free = free.query_map((millis(now), limit as i64, ahead.0, ahead.1), |row| {
                row.get::<_, String>(0)
            })?;
            let free: Vec<_> = free.collect::<rusqlite::Result<_>>()?;
            let sql = "UPDATE deliveries SET owner = ?2, until = ?3 WHERE id = ?1";
            let mut take = transaction.prepare_cached(sql)?;
            let mut claimed = Vec::with_capacity(free.len());
            for id in free {
                take.execute((&id, &owner, millis(until)))?;
                claimed.extend(rows(transaction, "id = ?1", [id])?);
            }
            Ok(claimed)
        };
        self.connections.write("claiming deliveries", claim).await
    }

    async fn sending(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        handovers: &[Handover],
    ) -> Result<Vec<bool>> {
        let owner = owner.to_owned();
        let move_on = move |transaction: &Transaction<'_>, handover: &Handover| {
            let sql = "UPDATE deliveries
                       SET state = 'sending', attempts = attempts + 1, until = ?3, call = ?4, tried = ?5, items = ?6
                       WHERE id = ?1 AND owner = ?2 AND open AND state IN ('pending', 'sending')";
            let (until, now) = (millis(until), millis(now));
            let moved = transaction.prepare_cached(sql)?.execute((
                handover.id.as_str(),
                &owner,
                until,
                &handover.call,
                now,
                handover.items,
            ))?;
            Ok(moved == 1)
        };
        self.change_each("noting what is about to be sent", handovers, move_on)
            .await
    }

    async fn recall(&self, owner: &str, ids: &[DeliveryId]) -> Result<Vec<bool>> {
        let owner = owner.to_owned();
        let recall = move |transaction: &Transaction<'_>, id: &DeliveryId| {
            let sql = "UPDATE deliveries SET state = 'pending', call = NULL
                       WHERE id = ?1 AND owner = ?2 AND open AND state = 'sending'";
            let moved = transaction
                .prepare_cached(sql)?
                .execute((id.as_str(), &owner))?;
            Ok(moved == 1)
        };
        self.change_each("taking mails back", ids, recall).await
    }

    async fn hold(
        &self,
        owner: &str,
        until: DateTime<Utc>,
        ids: &[DeliveryId],
    ) -> Result<Vec<bool>> {
        let owner = owner.to_owned();
        let hold = move |transaction: &Transaction<'_>, id: &DeliveryId| {
            let sql = "UPDATE deliveries SET until = ?3 WHERE id = ?1 AND owner = ?2 AND open";
            let held =
                transaction
                    .prepare_cached(sql)?
                    .execute((id.as_str(), &owner, millis(until)))?;
            Ok(held == 1)
        };
        self.change_each("holding deliveries", ids, hold).await
    }

    async fn defer(&self, owner: &str, deferrals: &[Deferral]) -> Result<Vec<bool>> {
        let owner = owner.to_owned();
        let defer = move |transaction: &Transaction<'_>, deferral: &Deferral| {
            // A lease that is nobody's: it keeps everybody off until then, and no release ends it
            // early.
            let sql = "UPDATE deliveries
                       SET state = ?3, owner = NULL, until = ?4, reason = coalesce(?5, reason),
                           refusals = refusals + ?6
                       WHERE id = ?1 AND owner = ?2 AND open AND state IN ('pending', 'sending')";
            let deferred = transaction.prepare_cached(sql)?.execute((
                deferral.id.as_str(),
                &owner,
                deferral.state.as_str(),
                millis(deferral.not_before),
                &deferral.reason,
                deferral.refused,
            ))?;
            Ok(deferred == 1)
        };
        self.change_each("deferring deliveries", deferrals, defer)
            .await
    }

    async fn take_call(
        &self,
        owner: &str,
        until: DateTime<Utc>,
        call: &str,
    ) -> Result<Vec<Delivery>> {
        let (owner, call) = (owner.to_owned(), call.to_owned());
        let take = move |transaction: &Transaction<'_>| {
            let sql = "UPDATE deliveries SET owner = ?2, until = ?3
                       WHERE call = ?1 AND open AND state = 'sending'";
            transaction
                .prepare_cached(sql)?
                .execute((&call, &owner, millis(until)))?;
            let of_call = "call = ?1 AND open AND state = 'sending' ORDER BY slot";
            rows(transaction, of_call, [&call])
        };
        self.connections.write("taking over a call", take).await
    }

    async fn settle(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        settlements: &[Settlement],
    ) -> Result<Vec<bool>> {
        let owner = owner.to_owned();
        let settle = move |transaction: &Transaction<'_>, end: &Settlement| {
            let sql = "UPDATE deliveries SET state = ?3, items = ?4, provider_id = ?5, reason = ?6, settled = ?7
                       WHERE id = ?1 AND owner = ?2 AND open AND state IN ('pending', 'sending')";
            let state = end.state.as_str();
            let changed = transaction.prepare_cached(sql)?.execute(params![
                end.id.as_str(),
                owner,
                state,
                end.items,
                end.provider_id,
                end.reason,
                millis(now),
            ])?;
            Ok(changed == 1)
        };
        self.change_each("settling deliveries", settlements, settle)
            .await
    }

    async fn close(&self, ids: &[DeliveryId]) -> Result<()> {
        let close = |transaction: &Transaction<'_>, id: &DeliveryId| {
            let sql = "UPDATE deliveries SET open = 0, owner = NULL, until = NULL
                       WHERE id = ?1 AND open AND state NOT IN ('pending', 'sending')";
            Ok(transaction.prepare_cached(sql)?.execute([id.as_str()])? == 1)
        };
        self.change_each("closing deliveries", ids, close).await?;
        Ok(())
    }

    async fn release(&self, owner: &str) -> Result<()> {
        let owner = owner.to_owned();
        let release = move |transaction: &Transaction<'_>| {
            let sql = "UPDATE deliveries SET owner = NULL, until = NULL WHERE owner = ?1 AND open";
            transaction.prepare_cached(sql)?.execute([owner])?;
            Ok(())
        };
        self.connections
            .write("releasing deliveries", release)
            .await
    }

    async fn free_waiting(&self, now: DateTime<Utc>) -> Result<()> {
        let free = move |transaction: &Transaction<'_>| {
            let sql = "UPDATE deliveries SET until = NULL
                       WHERE open AND coalesce(until, 0) > ?1 AND owner IS NULL AND state = 'pending'";
            transaction.prepare_cached(sql)?.execute([millis(now)])?;
            Ok(())
        };
        self.connections
            .write("letting deliveries leave that wait", free)
            .await
    }

    async fn judge(
        &self,
        id: &DeliveryId,
        now: DateTime<Utc>,
        verdict: Verdict,
        reason: &str,
    ) -> Result<Judged> {
        let (id, reason) = (id.as_str().to_owned(), reason.to_owned());
        let judge = move |transaction: &Transaction<'_>| {
            let (state, open, settled) = match verdict {
                Verdict::Sent => (DeliveryState::Sent, false, Some(millis(now))),
                Verdict::NotSent => (DeliveryState::Pending, true, None),
            };
            // Ignored where another open row has the slot.
            let sql =
                "UPDATE OR IGNORE deliveries SET state = ?2, open = ?3, settled = ?4, reason = ?5
                       WHERE id = ?1 AND state = 'unknown' AND NOT open";
            let judged = transaction.prepare_cached(sql)?.execute((
                &id,
                state.as_str(),
                open,
                settled,
                &reason,
            ))?;
            if judged == 1 {
                return Ok(Judged::Done);
            }
            let standing = rows(transaction, "id = ?1", [&id])?.pop();
            let unknown =
                standing.is_some_and(|row| row.state == DeliveryState::Unknown && !row.open);
            Ok(if unknown {
                Judged::Busy
            } else {
                Judged::NotUnknown
            })
        };
        self.connections.write("judging a delivery", judge).await
    }

    async fn reopen(&self, now: DateTime<Utc>, rows: &[Reopening]) -> Result<Vec<Reopened>> {
        let all = rows.to_vec();
        let work = move |transaction: &Transaction<'_>| {
            let reopen = |row: &Reopening| reopen(transaction, now, row);
            all.iter().map(reopen).collect()
        };
        self.connections
            .write("trying deliveries again", work)
            .await
    }

    async fn open_digests(&self, users: &[UserId]) -> Result<Vec<Option<Delivery>>> {
        let slots: Vec<String> = users.iter().map(digest_slot).collect();
        let look = move |transaction: &Transaction<'_>| {
            let row = |slot| Ok(rows(transaction, "slot = ?1 AND open", [slot])?.pop());
            slots.iter().map(row).collect()
        };
        self.connections.read("reading open digests", look).await
    }

    async fn deliveries(&self, ids: &[DeliveryId]) -> Result<Vec<Option<Delivery>>> {
        let ids = ids.to_vec();
        let look = move |transaction: &Transaction<'_>| {
            let row = |id: &DeliveryId| Ok(rows(transaction, "id = ?1", [id.as_str()])?.pop());
            ids.iter().map(row).collect()
        };
        self.connections.read("reading deliveries", look).await
    }

    async fn deliveries_in(&self, state: DeliveryState, limit: usize) -> Result<Vec<Delivery>> {
        let look = move |transaction: &Transaction<'_>| {
            let newest = "state = ?1 ORDER BY created DESC, id DESC LIMIT ?2";
            rows(transaction, newest, (state.as_str(), limit as i64))
        };
        self.connections.read("listing deliveries", look).await
    }

    async fn delivery(&self, id: &DeliveryId) -> Result<Option<Delivery>> {
        let id = id.as_str().to_owned();
        let look =
            move |transaction: &Transaction<'_>| Ok(rows(transaction, "id = ?1", [id])?.pop());
        self.connections.read("reading a delivery", look).await
    }

    async fn deliveries_of(&self, user: &UserId, limit: usize) -> Result<Vec<Delivery>> {
        let asked = (user.as_str().to_owned(), limit as i64);
        let look = move |transaction: &Transaction<'_>| {
            rows(
                transaction,
                "user = ?1 ORDER BY created DESC, id DESC LIMIT ?2",
                asked,
            )
        };
        self.connections
            .read("reading a person's deliveries", look)
            .await
    }

    async fn forget_deliveries(&self, before: DateTime<Utc>, limit: usize) -> Result<u64> {
        let asked = (millis(before), limit as i64);
        let forget = move |transaction: &Transaction<'_>| {
            let sql = "DELETE FROM deliveries WHERE id IN (
                           SELECT id FROM deliveries WHERE settled < ?1 AND NOT open AND state <> 'unknown'
                           ORDER BY settled LIMIT ?2)";
            Ok(transaction.prepare_cached(sql)?.execute(asked)? as u64)
        };
        self.connections
            .write("forgetting deliveries", forget)
            .await
    }

    async fn delivery_counts(&self, states: &[DeliveryState]) -> Result<Vec<(DeliveryState, u64)>> {
        let states = states.to_vec();
        let count = move |transaction: &Transaction<'_>| {
            let count = |state: DeliveryState| {
                let sql = "SELECT count(*) FROM deliveries WHERE state = ?1";
                let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
                let n = transaction
                    .prepare_cached(sql)?
                    .query_row([state.as_str()], count)?;
                Ok((state, n.unsigned_abs()))
            };
            states.into_iter().map(count).collect()
        };
        self.connections.read("counting deliveries", count).await
    }
}

impl Sqlite {
    /// One change for each of these, in one transaction; the answers say which were made, in their
    /// order.
    pub(super) async fn change_each<T: Clone + Send + Sync + 'static>(
        &self,
        doing: &str,
        items: &[T],
        change: impl Fn(&Transaction<'_>, &T) -> Answer<bool> + Send + 'static,
    ) -> Result<Vec<bool>> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let items = items.to_vec();
        let work = move |transaction: &Transaction<'_>| {
            items.iter().map(|item| change(transaction, item)).collect()
        };
        self.connections.write(doing, work).await
    }
}

fn reopen(transaction: &Transaction<'_>, now: DateTime<Utc>, row: &Reopening) -> Answer<Reopened> {
    // Ignored where another open row has the slot.
    let sql = "UPDATE OR IGNORE deliveries
               SET state = 'pending', open = 1, covers = coalesce(?2, covers), owner = ?3, until = ?4, created = ?5,
                   refusals = 0, reopened = ?6, settled = NULL, call = NULL, tried = NULL, provider_id = NULL
               WHERE id = ?1 AND state = 'failed' AND NOT open";
    let watermarks = row.watermarks.as_ref().map(watermarks).transpose()?;
    let reopened = transaction.prepare_cached(sql)?.execute((
        row.id.as_str(),
        watermarks,
        row.lease.as_ref().map(|lease| &lease.owner),
        row.lease.as_ref().map(|lease| millis(lease.until)),
        millis(now),
        row.reopened,
    ))?;
    if reopened == 1 {
        return Ok(Reopened::Done);
    }
    let standing = rows(transaction, "id = ?1", [row.id.as_str()])?.pop();
    let failed = standing.is_some_and(|row| row.state == DeliveryState::Failed && !row.open);
    Ok(if failed {
        Reopened::Busy
    } else {
        Reopened::NotFailed
    })
}
