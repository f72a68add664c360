//! Finds out what became of calls whose answer nobody saw: the worker died, the connection broke,
//! the provider was slow.
//!
//! The rule (P5): a call is resolved as a whole, by one worker, under the lease `call:<reference>`.
//! Where sending again mails nothing twice it is put together again and made under the same
//! reference; where the provider can be asked, it is asked, and believed to know nothing of a mail
//! only once it has had time to learn of it; elsewhere nobody can tell, and it is `unknown`.

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

/// Why a row is `sending` of which nobody has said anything.
const DIED: &str = "the worker that sent it died before it saw the answer";

impl Sender {
    /// Takes `sending` rows that this worker claimed as far as they go now.
    pub(super) async fn resolve(&self, rows: Vec<Delivery>) -> Result<()> {
        let mut calls: BTreeMap<Option<String>, Vec<Delivery>> = BTreeMap::new();
        for row in rows {
            calls.entry(row.call.clone()).or_default().push(row);
        }
        for (call, rows) in calls {
            let concluded = match call {
                Some(call) => self.resolve_call(&call, rows).await?,
                // Nothing says in which call it was.
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
            // Somebody resolves it, and takes our rows over as well.
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
        let Some(tried) = rows.iter().filter_map(|row| row.tried).max() else {
            return self.doubtful(&rows).await;
        };
        // Who never had the call cannot tell either.
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

    /// Makes the call again. Who may not be mailed any more is left out; whether they were mailed
    /// before, nobody can tell, unless the provider says that this call was made before and was
    /// another one.
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
        // Known by nothing but the call, as it was made before with more people in it: those left
        // out now were in it too.
        let taken_whole = concluded
            .settled
            .iter()
            .any(|end| end.provider_id.as_deref() == Some(call));
        let mut verdicts = Verdicts::default();
        for (end, row) in left_out.iter().filter_map(|end| {
            let row = rows.iter().find(|row| row.id == end.id)?;
            Some((end, row))
        }) {
            let why = end.reason.as_deref().unwrap_or_default();
            let reason = format!("it may have been mailed before it was found that {why}");
            if taken_whole {
                let mut sent = Settlement::of(row, DeliveryState::Sent, row.items, None);
                sent.provider_id = Some(call.to_owned());
                verdicts.settlements.push(sent);
            } else if still_unknown {
                let next = self.retry.next_look(tried, now);
                verdicts
                    .deferrals
                    .push(deferral(row, DeliveryState::Sending, next, &reason));
            } else {
                let unknown = Settlement::of(row, DeliveryState::Unknown, row.items, Some(&reason));
                verdicts.settlements.push(unknown);
            }
        }
        let rows: Vec<&Delivery> = rows.iter().collect();
        let others = self.ledger.conclude(&rows, verdicts).await?;
        concluded.settled.extend(others.settled);
        concluded.deferred.extend(others.deferred);
        Ok(concluded)
    }

    /// Asks the provider what it took.
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
        // A wait begins when it is asked for, however long that took.
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
                    let mut sent = Settlement::of(row, DeliveryState::Sent, row.items, None);
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

    /// There is no hope left: what is done then depends on the guarantee.
    async fn doubtful(&self, rows: &[Delivery]) -> Result<Concluded> {
        let now = self.context.clock.now();
        let mut verdicts = Verdicts::default();
        for row in rows {
            let reason = row.reason.as_deref().unwrap_or(DIED);
            match self.retry.give_up(row, row.items, reason, now) {
                Ok(unknown) => verdicts.settlements.push(unknown),
                Err(again) => verdicts.deferrals.push(again),
            }
        }
        let rows: Vec<&Delivery> = rows.iter().collect();
        self.ledger.conclude(&rows, verdicts).await
    }

    /// Leaves rows as they are until then.
    async fn look_again_at(&self, rows: &[Delivery], at: DateTime<Utc>) -> Result<Concluded> {
        let wait = |row: &Delivery| {
            let reason = row.reason.as_deref().unwrap_or(DIED);
            deferral(row, DeliveryState::Sending, at, reason)
        };
        let verdicts = Verdicts {
            deferrals: rows.iter().map(wait).collect(),
            ..Verdicts::default()
        };
        self.ledger.conclude(&[], verdicts).await
    }
}
