//! Resolves calls without an answer, after a crash, a broken connection or a slow provider.
//!
//! One worker resolves a whole call, under the lease `call:<reference>` (P5). If it is safe to
//! repeat the call, the worker does so under the same reference. If the provider can be queried,
//! its answer "not accepted" counts only after it had time to list the email. Otherwise the outcome
//! is `unknown`.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};

use super::super::compose::{Room, Spread};
use super::super::gate::{GateState, Held};
use super::super::retry::{Attempt, Verdicts, deferral};
use super::super::tally::Concluded;
use super::Sender;
use crate::domain::delivery::Settlement;
use crate::domain::{Delivery, DeliveryId, DeliveryState, Lease};
use crate::email::{Answer, Certainty, Leave, Silence};
use crate::engine::{Result, crash};
use crate::store::Claim;

/// The reason for a `sending` row that has none.
const DIED: &str = "the worker that sent it died before it saw the answer";

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
                None => self.doubtful(&rows).await?,
            };
            self.gate.watch(&concluded).await?;
        }
        Ok(())
    }

    async fn resolve_call(&self, call: &str, claimed: Vec<Delivery>) -> Result<Concluded> {
        let now = self.context.clock.now();
        let name = format!("call:{call}");
        let lease = Lease {
            owner: self.context.owner.clone(),
            until: now + self.ledger.lease(),
        };
        let leave = self.gate.leave(now);
        if !self.context.store.lease(&name, &lease, now).await? {
            // Another worker resolves the call and takes over these rows.
            let later = now + self.retry.settings.ask_after;
            return self.look_again_at(&claimed, later).await;
        }
        let rows = self.ledger.claim(&Claim::Call(call), now).await?;
        self.ledger.tally.take_up(&rows);
        let resolved = self.resolve_rows(call, rows, now, leave).await;
        self.context
            .store
            .unlease(&name, &self.context.owner)
            .await?;
        resolved
    }

    async fn resolve_rows(
        &self,
        call: &str,
        rows: Vec<Delivery>,
        now: DateTime<Utc>,
        leave: Leave,
    ) -> Result<Concluded> {
        let Some(tried) = rows.iter().filter_map(|row| row.attempts.called_at).max() else {
            return self.doubtful(&rows).await;
        };
        // Another account does not know the call.
        if now >= self.retry.hope(tried) || !call.starts_with(&self.gate.account_prefix) {
            return self.doubtful(&rows).await;
        }
        if self.retry.certainty == Certainty::Never {
            return self.doubtful(&rows).await;
        }
        match self.gate.before_call().await? {
            GateState::Open if self.retry.certainty == Certainty::Ask => {
                self.ask(call, &rows, tried, now).await
            }
            GateState::Open => self.repeat(call, rows, (tried, now), leave).await,
            GateState::ClosedUntil(until) => self.look_again_at(&rows, until).await,
            GateState::Paused(_) | GateState::Stopping => self.look_again_at(&rows, now).await,
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
        (tried, now): (DateTime<Utc>, DateTime<Utc>),
        leave: Leave,
    ) -> Result<Concluded> {
        rows.sort_unstable_by(|a, b| a.user.cmp(&b.user));
        let built = self
            .compose
            .build(&rows, Spread::Sparse, tried, Room::Whole)
            .await?;
        let (mails, left_out) = (built.mails, built.settlements);
        let leave = self.gate.fresh(leave, self.context.clock.now());
        let (mut concluded, _) = self
            .make(call, &mails, Attempt::Repeated, &leave, &mut None)
            .await?;
        let waits = |id: &DeliveryId| concluded.deferred.iter().any(|d| d.id == *id);
        let still_unknown = mails.iter().any(|mail| waits(&mail.row.id));
        // The id is the call's reference: the provider accepted the original call, which included
        // the excluded users.
        let taken_whole = concluded
            .settled
            .iter()
            .any(|end| end.provider_id.as_deref() == Some(call));
        let mut verdicts = Verdicts::default();
        for (end, row) in left_out.iter().filter_map(|end| {
            let row = rows.iter().find(|row| row.id == end.id)?;
            Some((end, row))
        }) {
            let items = row.outcome.items;
            let why = end.reason.as_deref().unwrap_or_default();
            let reason = format!("it may have been mailed before it was found that {why}");
            if taken_whole {
                let mut sent = Settlement::of(row, DeliveryState::Sent, items, None);
                sent.provider_id = Some(call.to_owned());
                verdicts.settlements.push(sent);
            } else if still_unknown {
                let next = self.retry.next_look(tried, now);
                verdicts
                    .deferrals
                    .push(deferral(row, DeliveryState::Sending, next, &reason));
            } else {
                let unknown = Settlement::of(row, DeliveryState::Unknown, items, Some(&reason));
                verdicts.settlements.push(unknown);
            }
        }
        let rows: Vec<&Delivery> = rows.iter().collect();
        let others = self.ledger.conclude(&rows, verdicts).await?;
        concluded.settled.extend(others.settled);
        concluded.deferred.extend(others.deferred);
        Ok(concluded)
    }

    /// Asks the provider which emails it accepted.
    async fn ask(
        &self,
        call: &str,
        rows: &[Delivery],
        tried: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Result<Concluded> {
        if now < tried + self.retry.settings.ask_after {
            return self
                .look_again_at(rows, tried + self.retry.settings.ask_after)
                .await;
        }
        let ids: Vec<DeliveryId> = rows.iter().map(|row| row.id.clone()).collect();
        let asking = async {
            self.gate.before_send(&Leave::always()).await?;
            Ok::<_, Held>(self.mailer.ask(call, &ids).await)
        };
        let answers = match self.ledger.holding(&ids, asking).await {
            Ok(answers) => answers,
            Err(held) => {
                let next = held.until.unwrap_or(self.retry.next_look(tried, now));
                return self.look_again_at(rows, next).await;
            }
        };
        // The provider's wait starts when its answer arrives.
        let heard = self.context.clock.now();
        crash::point("after-ask");
        let (mut verdicts, mut asked_for_rest) = (Verdicts::default(), false);
        let silence =
            std::iter::repeat_with(|| Answer::Silent("the provider said nothing of it".into()));
        for (row, answer) in rows.iter().zip(answers.into_iter().chain(silence)) {
            let next = self.retry.next_look(tried, now);
            let wait = |reason: &str| deferral(row, DeliveryState::Sending, next, reason);
            match answer {
                Answer::Taken { provider_id } => {
                    let items = row.outcome.items;
                    let mut sent = Settlement::of(row, DeliveryState::Sent, items, None);
                    sent.provider_id = Some(provider_id);
                    verdicts.settlements.push(sent);
                }
                Answer::NotTaken if now >= self.retry.believed(tried) => {
                    let reason = "the provider never heard of it";
                    verdicts
                        .deferrals
                        .push(deferral(row, DeliveryState::Pending, now, reason));
                }
                Answer::NotTaken => verdicts
                    .deferrals
                    .push(wait("the provider has not heard of it yet")),
                Answer::Silent(Silence { reason, after }) => {
                    let mut waits = wait(&reason);
                    if let Some(after) = after.and_then(|after| TimeDelta::from_std(after).ok()) {
                        self.gate.pacer.close(heard + after);
                        asked_for_rest = true;
                        waits.not_before = waits.not_before.max(heard + after);
                    }
                    verdicts.deferrals.push(waits);
                }
            }
        }
        if asked_for_rest {
            self.gate.share_wait().await?;
        }
        let rows: Vec<&Delivery> = rows.iter().collect();
        self.ledger.conclude(&rows, verdicts).await
    }

    /// Ends rows whose outcome cannot be found out, as `delivery.guarantee` requires.
    async fn doubtful(&self, rows: &[Delivery]) -> Result<Concluded> {
        let now = self.context.clock.now();
        let mut verdicts = Verdicts::default();
        for row in rows {
            let reason = row.outcome.reason.as_deref().unwrap_or(DIED);
            match self.retry.give_up(row, row.outcome.items, reason, now) {
                Ok(unknown) => verdicts.settlements.push(unknown),
                Err(again) => verdicts.deferrals.push(again),
            }
        }
        let rows: Vec<&Delivery> = rows.iter().collect();
        self.ledger.conclude(&rows, verdicts).await
    }

    /// Defers rows until `at`, without other changes.
    async fn look_again_at(&self, rows: &[Delivery], at: DateTime<Utc>) -> Result<Concluded> {
        let wait = |row: &Delivery| {
            let reason = row.outcome.reason.as_deref().unwrap_or(DIED);
            deferral(row, DeliveryState::Sending, at, reason)
        };
        let verdicts = Verdicts {
            deferrals: rows.iter().map(wait).collect(),
            ..Verdicts::default()
        };
        self.ledger.conclude(&[], verdicts).await
    }
}
