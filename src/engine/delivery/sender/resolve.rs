//! Resolves calls without an answer, after a crash, a broken connection or a slow provider.
//!
//! One worker resolves a whole call, under the lease `call:<reference>` (P5). If it is safe to
//! repeat the call, the worker does so under the same reference. If the provider can be queried,
//! its answer "not accepted" counts only after it had time to list the email. Otherwise the outcome
//! is `unknown`.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use futures::FutureExt;

use super::super::outcomes::{Attempt, Decisions};
use super::super::throttle::ThrottleState;
use super::Sender;
use crate::domain::delivery::Settlement;
use crate::domain::{Delivery, DeliveryId, DeliveryState};
use crate::email::{QueryAnswer, QueryFailure, Resolution, SendPermit};
use crate::engine::{Result, crash};
use crate::store::{LeasesToEnd, RowsToLease};

/// The reason for a `sending` row that has none.
const DIED: &str = "the worker that sent it died before it saw the answer";

fn reason(row: &Delivery) -> &str {
    row.outcome.reason.as_deref().unwrap_or(DIED)
}

impl Sender {
    /// Resolves `sending` rows that this worker has claimed, as far as is possible now.
    pub(super) async fn resolve(&self, rows: Vec<Delivery>) -> Result<()> {
        let mut calls: BTreeMap<Option<String>, Vec<Delivery>> = BTreeMap::new();
        for row in rows {
            let call = row.attempts.call.clone();
            calls.entry(call).or_default().push(row);
        }
        for (call, rows) in calls {
            let concluded = match call {
                Some(call) => self.resolve_call(&call, rows).await?,
                // The row does not name its call.
                None => self.give_up(&rows).await?,
            };
            self.throttle.record_outcomes(&concluded.settlements, concluded.excused).await?;
        }
        Ok(())
    }

    async fn resolve_call(&self, call: &str, claimed: Vec<Delivery>) -> Result<Decisions> {
        let (store, now) = (&self.context.store, self.context.clock.now());
        let name = format!("call:{call}");
        let lease = self.context.lease_until(now + self.ledger.lease_duration());
        let permit = self.throttle.send_permit(now);
        if !store.lease(&name, &lease, now).await? {
            // Another worker resolves the call and takes over these rows.
            let later = now + self.retry.settings.ask_after;
            return self.check_again_at(&claimed, later).await;
        }
        let rows = self.ledger.claim(&RowsToLease::Call(call), now).await?;
        self.ledger.tally.record_started(&rows);
        let ids: Vec<DeliveryId> = rows.iter().map(|row| row.id.clone()).collect();
        let resolved = self.resolve_rows(call, rows, now, permit).boxed();
        let resolved = self.ledger.renew_while(&ids, resolved).await;
        let owner = &self.context.owner;
        store.release(&LeasesToEnd::Lease { name: &name, owner }).await?;
        resolved
    }

    async fn resolve_rows(
        &self,
        call: &str,
        rows: Vec<Delivery>,
        now: DateTime<Utc>,
        permit: SendPermit,
    ) -> Result<Decisions> {
        let certainty = self.retry.certainty;
        // Another account does not know the call.
        let is_known = call.starts_with(&self.throttle.account_prefix);
        let called_at = rows.iter().filter_map(|row| row.attempts.called_at).max();
        let can_resolve = |called_at: &DateTime<Utc>| {
            is_known
                && certainty != Resolution::Impossible
                && now < self.retry.resolve_deadline(*called_at)
        };
        let Some(called_at) = called_at.filter(can_resolve) else {
            return self.give_up(&rows).await;
        };
        match self.throttle.current_state().await? {
            ThrottleState::Open if certainty == Resolution::Query => {
                self.ask(call, &rows, called_at, now).await
            }
            ThrottleState::Open => self.repeat(call, rows, called_at, now, permit).await,
            ThrottleState::ClosedUntil(until) => self.check_again_at(&rows, until).await,
            ThrottleState::Paused(_) | ThrottleState::Stopping => {
                self.check_again_at(&rows, now).await
            }
        }
    }

    /// Repeats the call. Users who may not be emailed any more are excluded.
    ///
    /// Whether the excluded users were emailed before is unknown, unless the provider reports that
    /// it accepted the original call.
    async fn repeat(
        &self,
        call: &str,
        mut rows: Vec<Delivery>,
        called_at: DateTime<Utc>,
        now: DateTime<Utc>,
        permit: SendPermit,
    ) -> Result<Decisions> {
        rows.sort_unstable_by(|a, b| a.user.cmp(&b.user));
        let built = self.compose.build(&rows, called_at).await?;
        let (emails, excluded) = (built.emails, built.settlements);
        let permit = self.throttle.fresh_permit(permit, self.context.clock.now());
        let mut concluded = self.make_call(call, &emails, Attempt::Repeated, &permit).await?;
        let waits = |id: &DeliveryId| concluded.deferrals.iter().any(|wait| wait.id == *id);
        let is_still_unknown = emails.iter().any(|email| waits(&email.row.id));
        // The id is the call's reference: the provider accepted the original call, which included
        // the excluded users.
        let is_call = |end: &Settlement| end.provider_id.as_deref() == Some(call);
        let has_accepted_all = concluded.settlements.iter().any(is_call);
        let mut decisions = Decisions::default();
        for row in &rows {
            let Some(end) = excluded.iter().find(|end| end.id == row.id) else {
                continue;
            };
            let items = row.outcome.items;
            let why = end.reason.as_deref().unwrap_or_default();
            let reason = format!("it may have been emailed before it was found that {why}");
            if has_accepted_all {
                decisions.settle_sent(row, items, call.to_owned());
            } else if is_still_unknown {
                let next = self.retry.next_check(called_at, now);
                decisions.defer(row, DeliveryState::Sending, next, &reason);
            } else {
                decisions.settle(row, DeliveryState::Unknown, items, &reason);
            }
        }
        let concluded_excluded = self.ledger.conclude(&rows, decisions).await?;
        concluded.settlements.extend(concluded_excluded.settlements);
        concluded.deferrals.extend(concluded_excluded.deferrals);
        Ok(concluded)
    }

    /// Asks the provider which emails it accepted.
    async fn ask(
        &self,
        call: &str,
        rows: &[Delivery],
        called_at: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Result<Decisions> {
        let soonest = called_at + self.retry.settings.ask_after;
        if now < soonest {
            return self.check_again_at(rows, soonest).await;
        }
        let next = self.retry.next_check(called_at, now);
        let ids: Vec<DeliveryId> = rows.iter().map(|row| row.id.clone()).collect();
        if let Err((_, until)) = self.throttle.before_send(&SendPermit::always()).await {
            return self.check_again_at(rows, until.unwrap_or(next)).await;
        }
        let answers = self.mailer.query_outcomes(call, &ids).await;
        // The provider's wait starts when its answer arrives.
        let answered_at = self.context.clock.now();
        crash::point("after-ask");
        let mut closed_until = None;
        let silence = std::iter::repeat_with(|| {
            QueryAnswer::Failed("the provider said nothing about it".into())
        });
        let mut decisions = Decisions::default();
        for (row, answer) in rows.iter().zip(answers.into_iter().chain(silence)) {
            match answer {
                QueryAnswer::Accepted(provider_id) => {
                    decisions.settle_sent(row, row.outcome.items, provider_id);
                }
                QueryAnswer::NotAccepted if now >= self.retry.not_accepted_counts_at(called_at) => {
                    let reason = "the provider does not know it";
                    decisions.defer(row, DeliveryState::Pending, now, reason);
                }
                QueryAnswer::NotAccepted => {
                    let reason = "the provider does not know it yet";
                    decisions.defer(row, DeliveryState::Sending, next, reason);
                }
                QueryAnswer::Failed(QueryFailure { reason, min_wait: after }) => {
                    let wait = after.and_then(|wait| TimeDelta::from_std(wait).ok());
                    let until = wait.map(|wait| answered_at + wait);
                    closed_until = closed_until.max(until);
                    let next = until.map_or(next, |until| next.max(until));
                    decisions.defer(row, DeliveryState::Sending, next, &reason);
                }
            }
        }
        if let Some(until) = closed_until {
            self.throttle.close_until(until).await?;
        }
        self.ledger.conclude(rows, decisions).await
    }

    /// Ends rows whose outcome cannot be found out.
    async fn give_up(&self, rows: &[Delivery]) -> Result<Decisions> {
        let mut decisions = Decisions::default();
        for row in rows {
            let items = row.outcome.items;
            decisions.settle(row, DeliveryState::Unknown, items, reason(row));
        }
        self.ledger.conclude(rows, decisions).await
    }

    /// Defers rows until `at`, without other changes.
    async fn check_again_at(&self, rows: &[Delivery], at: DateTime<Utc>) -> Result<Decisions> {
        let mut decisions = Decisions::default();
        for row in rows {
            decisions.defer(row, DeliveryState::Sending, at, reason(row));
        }
        self.ledger.conclude([], decisions).await
    }
}
