//! The ledger: one row for each email ([`super::delivery_row`]). A partial unique index allows one
//! open row per slot.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use rusqlite::types::Value;
use rusqlite::{Transaction, params_from_iter};

use super::Sqlite;
use super::answer::Answer;
use super::codec::millis;
use super::delivery_row::{open, rows, watermarks};
use crate::domain::coordination::{furthest_lease, furthest_wait};
use crate::domain::delivery::{Corrected, Correction, Decision, Handover, Transition, digest_slot};
use crate::domain::{Delivery, DeliveryId, DeliveryState, ReportKind, Tag};
use crate::store::types::{correcting, doing};
use crate::store::{Claim, Deliveries, DeliveryFilter, Result, Waits};

/// Selects claimable rows. Their lease or wait has expired at `?1`, or ends later than any valid
/// lease (`?3`) or wait (`?4`).
///
/// The `+` keeps SQLite from scanning all open rows in slot order to find the few claimable ones.
pub(super) const FREE: &str = "SELECT id FROM (
        SELECT id, +slot AS slot FROM deliveries WHERE open AND coalesce(until, 0) <= ?1
        UNION ALL
        SELECT id, +slot AS slot FROM deliveries
        WHERE open AND coalesce(until, 0) > ?3 AND (owner IS NOT NULL OR until > ?4)
    ) ORDER BY slot LIMIT ?2";

/// Selects the rows of the call `?1`, leased or not.
const OF_CALL: &str =
    "SELECT id FROM deliveries WHERE call = ?1 AND open AND state = 'sending' ORDER BY slot";

/// Closes a row.
const CLOSED: &str = "open = 0, owner = NULL, until = NULL";

#[async_trait]
impl Deliveries for Sqlite {
    async fn open(&self, rows: &[Delivery]) -> Result<Vec<bool>> {
        self.change_each("opening deliveries", rows, open).await
    }

    async fn claim(
        &self,
        owner: &str,
        until: DateTime<Utc>,
        which: &Claim<'_>,
    ) -> Result<Vec<Delivery>> {
        let (sql, values): (_, Vec<Value>) = match *which {
            Claim::Free { now, limit } => {
                let ahead = [millis(furthest_lease(now)), millis(furthest_wait(now))];
                let values = [millis(now), limit as i64].into_iter().chain(ahead);
                (FREE, values.map(Value::from).collect())
            }
            Claim::Call(call) => (OF_CALL, vec![call.to_owned().into()]),
        };
        let owner = owner.to_owned();
        let claim = move |transaction: &Transaction<'_>| {
            let mut which = transaction.prepare_cached(sql)?;
            let ids = which.query_map(params_from_iter(values), |row| row.get::<_, String>(0))?;
            let ids: Vec<_> = ids.collect::<rusqlite::Result<_>>()?;
            let sql = "UPDATE deliveries SET owner = ?2, until = ?3 WHERE id = ?1";
            let mut take = transaction.prepare_cached(sql)?;
            let mut claimed = Vec::with_capacity(ids.len());
            for id in ids {
                take.execute((&id, &owner, millis(until)))?;
                claimed.extend(rows(transaction, "id = ?1", [id])?);
            }
            Ok(claimed)
        };
        self.connections.write("claiming deliveries", claim).await
    }

    async fn advance(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        transitions: &[Transition],
    ) -> Result<Vec<bool>> {
        let owner = owner.to_owned();
        let (now, until) = (millis(now), millis(until));
        let make = move |transaction: &Transaction<'_>, transition: &Transition| {
            let prepare = |set: &str, state: &str| {
                transaction.prepare_cached(&format!(
                    "UPDATE deliveries SET {set} WHERE id = ?1 AND owner = ?2 AND open AND {state}"
                ))
            };
            let (id, unsettled) = (transition.id().as_str(), "state IN ('pending', 'sending')");
            let made = match transition {
                Transition::HandOver(Handover { call, items, .. }) => prepare(
                    "state = 'sending', attempts = attempts + 1, until = ?3, call = ?4, tried = ?5, items = ?6",
                    // Another task of the owner may have claimed it and handed it over in the
                    // meantime.
                    "state = 'pending'",
                )?
                .execute((id, &owner, until, call, now, items))?,
                Transition::Recall(_) => {
                    prepare("state = 'pending', call = NULL", "state = 'sending'")?
                        .execute((id, &owner))?
                }
                Transition::Hold(_) => prepare("until = ?3", "true")?.execute((id, &owner, until))?,
                // A lease without an owner: no worker can claim the row until then, and releasing
                // the owner's leases does not end it.
                Transition::Defer(deferral) => prepare(
                    "state = ?3, owner = NULL, until = ?4, reason = coalesce(?5, reason), refusals = refusals + ?6",
                    unsettled,
                )?
                .execute((
                    id,
                    &owner,
                    deferral.state.as_str(),
                    millis(deferral.not_before),
                    &deferral.reason,
                    deferral.has_failed,
                ))?,
                Transition::Settle(end) | Transition::Conclude(end) => {
                    let ended =
                        "state = ?3, items = ?4, provider_id = ?5, reason = ?6, settled = ?7";
                    let set = match transition {
                        Transition::Conclude(_) => &format!("{ended}, {CLOSED}"),
                        _ => ended,
                    };
                    prepare(set, unsettled)?.execute((
                        id,
                        &owner,
                        end.state.as_str(),
                        end.items,
                        &end.provider_id,
                        &end.reason,
                        now,
                    ))?
                }
            };
            Ok(made == 1)
        };
        self.change_each(doing(transitions), transitions, make)
            .await
    }

    async fn close(&self, ids: &[DeliveryId]) -> Result<()> {
        let close = |transaction: &Transaction<'_>, id: &DeliveryId| {
            let sql = format!(
                "UPDATE deliveries SET {CLOSED}
                 WHERE id = ?1 AND open AND state NOT IN ('pending', 'sending')"
            );
            Ok(transaction.prepare_cached(&sql)?.execute([id.as_str()])? == 1)
        };
        self.change_each("closing deliveries", ids, close).await?;
        Ok(())
    }

    async fn release(&self, which: &Waits<'_>) -> Result<()> {
        let (sql, value): (_, Value) = match *which {
            Waits::Held(owner) => (
                "UPDATE deliveries SET owner = NULL, until = NULL WHERE owner = ?1 AND open",
                owner.to_owned().into(),
            ),
            Waits::PutOff(now) => (
                "UPDATE deliveries SET until = NULL
                 WHERE open AND coalesce(until, 0) > ?1 AND owner IS NULL AND state = 'pending'",
                millis(now).into(),
            ),
        };
        let release = move |transaction: &Transaction<'_>| {
            transaction.prepare_cached(sql)?.execute([value])?;
            Ok(())
        };
        self.connections
            .write("releasing deliveries", release)
            .await
    }

    async fn correct(
        &self,
        now: DateTime<Utc>,
        corrections: &[Correction],
    ) -> Result<Vec<Corrected>> {
        let correct =
            move |transaction: &Transaction<'_>, one: &Correction| correct(transaction, now, one);
        let doing = correcting(corrections);
        self.change_each(doing, corrections, correct).await
    }

    async fn deliveries(&self, ids: &[DeliveryId]) -> Result<Vec<Option<Delivery>>> {
        self.read_each("reading deliveries", ids, row).await
    }

    async fn find_deliveries(
        &self,
        filter: &DeliveryFilter<'_>,
        limit: usize,
    ) -> Result<Vec<Delivery>> {
        let list = |texts: Vec<&str>| serde_json::Value::from(texts).to_string();
        let with = |text: &str, since: DateTime<Utc>| {
            let values = [text.into(), millis(since).into()];
            serde_json::Value::from_iter::<[serde_json::Value; 2]>(values).to_string()
        };
        let (which, value) = match *filter {
            DeliveryFilter::State(state) => ("state = ?1", state.as_str().to_owned()),
            DeliveryFilter::StateSince(state, since) => (
                "state = ?1 ->> 0 AND created >= ?1 ->> 1",
                with(state.as_str(), since),
            ),
            DeliveryFilter::StateWithin(state, span, feedback) => {
                let first = span.since.map_or(i64::MIN, millis);
                let end = span.until.map_or(i64::MAX, millis);
                let feedback = feedback.map(ReportKind::as_str);
                let values = serde_json::json!([state.as_str(), first, end, feedback]);
                let which = "state = ?1 ->> 0 AND created >= ?1 ->> 1 AND created < ?1 ->> 2
                             AND (?1 ->> 3 IS NULL OR feedback = ?1 ->> 3)";
                (which, values.to_string())
            }
            DeliveryFilter::User(user) => ("user = ?1", user.as_str().to_owned()),
            DeliveryFilter::OpenDigests(users) => {
                let slots: Vec<String> = users.iter().map(digest_slot).collect();
                let slots = list(slots.iter().map(String::as_str).collect());
                ("slot IN (SELECT value FROM json_each(?1)) AND open", slots)
            }
            DeliveryFilter::Tags(tags) => {
                let tags = list(tags.iter().map(Tag::as_str).collect());
                ("tag IN (SELECT value FROM json_each(?1))", tags)
            }
            DeliveryFilter::ProviderIds(ids) => {
                let ids = list(ids.iter().map(String::as_str).collect());
                ("provider_id IN (SELECT value FROM json_each(?1))", ids)
            }
        };
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let newest = format!("{which} ORDER BY created DESC, id DESC LIMIT ?2");
        let look = move |transaction: &Transaction<'_>| rows(transaction, &newest, (value, limit));
        self.connections.read("looking for deliveries", look).await
    }
}

fn row(transaction: &Transaction<'_>, id: &DeliveryId) -> Answer<Option<Delivery>> {
    Ok(rows(transaction, "id = ?1", [id.as_str()])?.pop())
}

fn correct(
    transaction: &Transaction<'_>,
    now: DateTime<Utc>,
    correction: &Correction,
) -> Answer<Corrected> {
    // `OR IGNORE` covers the case that another open row has the slot.
    let (from, corrected) = match correction {
        Correction::Judge {
            id,
            decision,
            reason,
        } => {
            let (state, open, settled) = match decision {
                Decision::Sent => (DeliveryState::Sent, false, Some(millis(now))),
                Decision::NotSent => (DeliveryState::Pending, true, None),
            };
            let sql =
                "UPDATE OR IGNORE deliveries SET state = ?2, open = ?3, settled = ?4, reason = ?5
                 WHERE id = ?1 AND state = 'unknown' AND NOT open";
            let row = (id.as_str(), state.as_str(), open, settled, reason);
            let judged = transaction.prepare_cached(sql)?.execute(row)?;
            (DeliveryState::Unknown, judged)
        }
        Correction::Cancel { id, reason } => {
            let sql = format!(
                "UPDATE deliveries SET state = 'canceled', settled = ?2, reason = ?3, {CLOSED}
                 WHERE id = ?1 AND state = 'pending' AND open"
            );
            let row = (id.as_str(), millis(now), reason);
            let canceled = transaction.prepare_cached(&sql)?.execute(row)?;
            (DeliveryState::Pending, canceled)
        }
        Correction::Reopen(row) => {
            let sql = "UPDATE OR IGNORE deliveries
                       SET state = 'pending', open = 1, covers = coalesce(?2, covers), owner = ?3, until = ?4,
                           created = ?5, refusals = 0, reopened = ?6, settled = NULL, call = NULL, tried = NULL,
                           provider_id = NULL
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
            (DeliveryState::Failed, reopened)
        }
    };
    if corrected == 1 {
        return Ok(Corrected::Done);
    }
    let standing = row(transaction, correction.id())?;
    let busy = standing.is_some_and(|row| row.state == from && !row.open);
    Ok(if busy {
        Corrected::Busy
    } else {
        Corrected::OtherState
    })
}
