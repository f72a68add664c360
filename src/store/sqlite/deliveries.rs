//! The ledger: one row for each email. A partial unique index allows one open row per slot.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use rusqlite::types::Value;
use rusqlite::{ToSql, Transaction, params_from_iter};
use serde_json::json;

use super::Sqlite;
use super::rows::{RowTable, Statements as _, millis};
use crate::domain::coordination::{MAX_DEFERRAL, MAX_LEASE};
use crate::domain::delivery::{
    Corrected, Correction, Handover, OperatorDecision, Transition, digest_slot,
};
use crate::domain::{Delivery, DeliveryId, DeliveryState, Lease, ReportKind, Tag};
use crate::store::record::delivery::{DeliveryRecord, WatermarkRecord};
use crate::store::record::to_json;
use crate::store::record::values::StoredForm;
use crate::store::{Deliveries, DeliveryFilter, Result, RowsToLease};

pub(super) const DELIVERIES: RowTable = RowTable {
    name: "deliveries",
    columns: "id=_id user cadence period batch turn state open:flag slot covers:json marker
        owner=lease.owner until=lease.until attempts items created settled provider_id reason call
        tried tag feedback=feedback.news feedback_at=feedback.at refusals reopened",
};

/// Selects claimable rows. Their lease or deferral has expired at `?1`, or ends later than any
/// valid lease (`?3`) or deferral (`?4`).
///
/// The `+` keeps SQLite from scanning all open rows in slot order to find the few claimable ones.
pub(super) const CLAIMABLE: &str = "SELECT id FROM (
        SELECT id, +slot AS slot FROM deliveries WHERE open AND coalesce(until, 0) <= ?1
        UNION ALL
        SELECT id, +slot AS slot FROM deliveries
        WHERE open AND coalesce(until, 0) > ?3 AND (owner IS NOT NULL OR until > ?4)
    ) ORDER BY slot LIMIT ?2";

/// Selects the rows of the call `?1`, leased or not.
const SENDING_IN_CALL: &str =
    "SELECT id FROM deliveries WHERE call = ?1 AND open AND state = 'sending' ORDER BY slot";

/// Assignments that close a row.
const CLOSE: &str = "open = 0, owner = NULL, until = NULL";

#[async_trait]
impl Deliveries for Sqlite {
    async fn open(&self, rows: &[Delivery]) -> Result<Vec<bool>> {
        self.change_each(rows, |transaction, row| {
            DELIVERIES.insert_new(transaction, &DeliveryRecord::for_row(row))
        })
        .await
    }

    async fn claim(&self, lease: &Lease, which: &RowsToLease<'_>) -> Result<Vec<Delivery>> {
        let (sql, values): (_, Vec<Value>) = match *which {
            RowsToLease::Claimable(now, limit) => {
                let (last_lease_end, last_wait_end) = (now + MAX_LEASE, now + MAX_DEFERRAL);
                let values =
                    [millis(now), limit as i64, millis(last_lease_end), millis(last_wait_end)];
                (CLAIMABLE, values.map(Value::from).to_vec())
            }
            RowsToLease::Call(call) => (SENDING_IN_CALL, vec![call.to_owned().into()]),
        };
        let lease = lease.clone();
        self.write(move |transaction| {
            let values = params_from_iter(values);
            let ids: Vec<String> = transaction.query_all(sql, values, |row| row.get(0))?;
            let mut claimed = Vec::with_capacity(ids.len());
            for id in ids {
                let sql = "UPDATE deliveries SET owner = ?2, until = ?3 WHERE id = ?1";
                transaction.run(sql, (&id, &lease.owner, millis(lease.until)))?;
                claimed.extend(find(transaction, &id)?);
            }
            Ok(claimed)
        })
        .await
    }

    async fn advance(
        &self,
        lease: &Lease,
        now: DateTime<Utc>,
        transitions: &[Transition],
    ) -> Result<Vec<bool>> {
        let lease = lease.clone();
        self.change_each(transitions, move |transaction, transition| {
            Ok(apply(transaction, transition, &lease, now)? == 1)
        })
        .await
    }

    async fn close(&self, ids: &[DeliveryId]) -> Result<()> {
        self.change_each(ids, |transaction, id| {
            let sql = format!(
                "UPDATE deliveries SET {CLOSE}
                 WHERE id = ?1 AND open AND state NOT IN ('pending', 'sending')"
            );
            transaction.run(&sql, [id.as_str()])
        })
        .await
        .map(drop)
    }

    async fn correct(
        &self,
        now: DateTime<Utc>,
        corrections: &[Correction],
    ) -> Result<Vec<Corrected>> {
        self.change_each(corrections, move |transaction, correction| {
            correct(transaction, now, correction)
        })
        .await
    }

    async fn deliveries(&self, ids: &[DeliveryId]) -> Result<Vec<Option<Delivery>>> {
        self.read_each(ids, |transaction, id| find(transaction, id.as_str())).await
    }

    async fn find_deliveries(
        &self,
        filter: &DeliveryFilter<'_>,
        limit: usize,
    ) -> Result<Vec<Delivery>> {
        if filter.matches_nothing() {
            return Ok(Vec::new());
        }
        // All values are in one JSON parameter.
        let (condition, values): (_, serde_json::Value) = match *filter {
            DeliveryFilter::State(state, span, feedback) => {
                let first = span.since.map_or(i64::MIN, millis);
                let end = span.until.map_or(i64::MAX, millis);
                let feedback = feedback.map(ReportKind::as_str);
                let condition = "state = ?1 ->> 0 AND created >= ?1 ->> 1 AND created < ?1 ->> 2
                             AND (?1 ->> 3 IS NULL OR feedback = ?1 ->> 3)";
                (condition, json!([state.as_str(), first, end, feedback]))
            }
            DeliveryFilter::User(user) => ("user = ?1 ->> 0", json!([user.as_str()])),
            DeliveryFilter::OpenDigests(users) => (
                "slot IN (SELECT value FROM json_each(?1)) AND open",
                users.iter().map(digest_slot).collect(),
            ),
            DeliveryFilter::Tags(tags) => {
                ("tag IN (SELECT value FROM json_each(?1))", tags.iter().map(Tag::as_str).collect())
            }
            DeliveryFilter::ProviderIds(ids) => {
                ("provider_id IN (SELECT value FROM json_each(?1))", json!(ids))
            }
        };
        let (values, limit) = (values.to_string(), limit as i64);
        let newest_first = format!("{condition} ORDER BY created DESC, id DESC LIMIT ?2");
        self.read(move |transaction| {
            DELIVERIES.find::<DeliveryRecord>(transaction, &newest_first, (values, limit))
        })
        .await
    }
}

pub(super) fn find(transaction: &Transaction<'_>, id: &str) -> Result<Option<Delivery>> {
    DELIVERIES.find_one::<DeliveryRecord>(transaction, "id = ?1", [id])
}

/// Applies a transition to a row that the owner of the lease holds. Returns the number of changed
/// rows.
fn apply(
    transaction: &Transaction<'_>,
    transition: &Transition,
    lease: &Lease,
    now: DateTime<Utc>,
) -> Result<usize> {
    let update = |assignments: &str, condition: &str, values: &[&dyn ToSql]| {
        let sql = format!(
            "UPDATE deliveries SET {assignments}
             WHERE id = ?1 AND owner = ?2 AND open AND {condition}"
        );
        let id = transition.id().as_str();
        let values = [&[&id as &dyn ToSql, &lease.owner], values].concat();
        transaction.run(&sql, &*values)
    };
    let state_condition = |from: DeliveryState| match from {
        DeliveryState::Pending => "state = 'pending'",
        _ => "state IN ('pending', 'sending')",
    };
    let (until, now) = (millis(lease.until), millis(now));
    match transition {
        Transition::HandOver(Handover { call, items, .. }) => update(
            "state = 'sending', attempts = attempts + 1, until = ?3, call = ?4, tried = ?5, items = ?6",
            // Another task of the owner may have claimed it and handed it over in the meantime.
            "state = 'pending'",
            &[&until, call, &now, items],
        ),
        Transition::ReturnToPending(_) => {
            update("state = 'pending', call = NULL", "state = 'sending'", &[])
        }
        Transition::RenewLease(_) => update("until = ?3", "true", &[&until]),
        // A lease without an owner: no worker can claim the row until then, and releasing the
        // owner's leases does not end it.
        Transition::Defer(deferral) => update(
            "state = ?3, owner = NULL, until = ?4, reason = coalesce(?5, reason), refusals = refusals + ?6",
            state_condition(deferral.from),
            &[
                &deferral.state.as_str(),
                &millis(deferral.not_before),
                &deferral.reason,
                &deferral.has_failed,
            ],
        ),
        Transition::Settle(end) | Transition::SettleAndClose(end) => {
            let settle = "state = ?3, items = ?4, provider_id = ?5, reason = ?6, settled = ?7";
            let assignments = match transition {
                Transition::SettleAndClose(_) => format!("{settle}, {CLOSE}"),
                _ => settle.to_owned(),
            };
            update(
                &assignments,
                state_condition(end.from),
                &[&end.state.as_str(), &end.items, &end.provider_id, &end.reason, &now],
            )
        }
    }
}

fn correct(
    transaction: &Transaction<'_>,
    now: DateTime<Utc>,
    correction: &Correction,
) -> Result<Corrected> {
    // `OR IGNORE` covers the case that another open row has the slot.
    let (expected_state, changed) = match correction {
        Correction::ResolveUnknown(id, decision, reason) => {
            let (state, open, settled) = match decision {
                OperatorDecision::Sent => (DeliveryState::Sent, false, Some(millis(now))),
                OperatorDecision::NotSent => (DeliveryState::Pending, true, None),
            };
            let sql =
                "UPDATE OR IGNORE deliveries SET state = ?2, open = ?3, settled = ?4, reason = ?5
                 WHERE id = ?1 AND state = 'unknown' AND NOT open";
            let values = (id.as_str(), state.as_str(), open, settled, reason);
            (DeliveryState::Unknown, transaction.run(sql, values)?)
        }
        Correction::Cancel(id, reason) => {
            let sql = format!(
                "UPDATE deliveries SET state = 'canceled', settled = ?2, reason = ?3, {CLOSE}
                 WHERE id = ?1 AND state = 'pending' AND open"
            );
            let values = (id.as_str(), millis(now), reason);
            (DeliveryState::Pending, transaction.run(&sql, values)?)
        }
        Correction::Reopen(row) => {
            let sql = "UPDATE OR IGNORE deliveries
                       SET state = 'pending', open = 1, covers = coalesce(?2, covers), owner = ?3,
                           until = ?4, created = ?5, refusals = 0, reopened = ?6, settled = NULL,
                           call = NULL, tried = NULL, provider_id = NULL
                       WHERE id = ?1 AND state = 'failed' AND NOT open";
            let watermarks = row.watermarks.as_ref().map(Vec::<WatermarkRecord>::from_value);
            let values = (
                row.id.as_str(),
                watermarks.as_ref().map(to_json).transpose()?,
                row.lease.as_ref().map(|lease| &lease.owner),
                row.lease.as_ref().map(|lease| millis(lease.until)),
                millis(now),
                row.reopened,
            );
            (DeliveryState::Failed, transaction.run(sql, values)?)
        }
    };
    if changed == 1 {
        return Ok(Corrected::Done);
    }
    Ok(match find(transaction, correction.id().as_str())? {
        Some(row) if row.state == expected_state && !row.open => Corrected::Busy,
        _ => Corrected::OtherState,
    })
}
