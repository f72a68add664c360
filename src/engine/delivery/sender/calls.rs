//! Sends emails to the provider, call by call, a few at a time.
//!
//! `sending` and the reference of the call are durable before the call (P4). Each call is settled
//! when it is answered. A call starts at most [`FRESH`] after its users and objects were checked
//! (P6, P7): emails are built in small portions, and waiting emails are built again.

use std::collections::VecDeque;

use chrono::{DateTime, Utc};
use futures::FutureExt;
use sha2::{Digest as _, Sha256};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::super::compose::BuiltEmail;
use super::super::outcomes::{Attempt, Decisions};
use super::super::throttle::{FRESH, ThrottleState};
use super::Sender;
use crate::domain::delivery::{Handover, Transition};
use crate::domain::{Delivery, DeliveryState};
use crate::email::{Certainty, Message, Outcome, Permit};
use crate::engine::{Result, came_to, crash};

impl Sender {
    /// Builds and sends pending rows. Rows that may not be sent now are deferred.
    ///
    /// A portion is built when its first call may start. Emails whose checks became stale are built
    /// again with the next one.
    pub(super) async fn send(&self, mut rest: Vec<Delivery>) -> Result<()> {
        let mut slot = None;
        while !rest.is_empty() {
            self.throttle.check_reports().await?;
            let state = self.throttle.before_call().await?;
            if state != ThrottleState::Open {
                return self.put_back(rest.iter(), &state).await;
            }
            self.wait_for_slot(&mut slot).await;
            let at = self.context.clock.now();
            let portion = self.throttle.account.state().portion.unwrap_or(usize::MAX);
            let portion = &rest[..rest.len().min(portion)];
            let built = self.compose.build(portion, at).boxed().await?;
            // When the checks began. A single email is sent right after its checks, so their
            // duration does not matter.
            let checked = match portion.len() {
                1 => self.context.clock.now(),
                _ => at,
            };
            let decisions = Decisions {
                settlements: built.settlements,
                deferrals: built.deferrals,
                excused: built.excused,
                ..Decisions::default()
            };
            let concluded = self.ledger.conclude(portion, decisions).await?;
            self.throttle.watch(&concluded.settlements, concluded.excused).await?;
            let (emails, mut unbuilt) = (built.emails, rest.split_off(built.rows));
            let all = emails.len();
            let calls = self.make_calls(emails, (at, checked), &mut slot);
            rest = calls.boxed().await?;
            let sent = all - rest.len();
            self.throttle.account.state().record_portion(sent, all);
            rest.append(&mut unbuilt);
        }
        drop(slot);
        self.throttle.share(None).await
    }

    /// Makes the calls for emails that were built `at` that time, after they were `checked`.
    /// Returns the rows whose checks became stale before their call. `slot` keeps the slot that is
    /// not used yet.
    ///
    /// Each call runs in its own task. A future that is not polled would keep its place in the
    /// queue for a lock or a connection, and block others.
    async fn make_calls(
        &self,
        emails: Vec<BuiltEmail>,
        (at, checked): (DateTime<Utc>, DateTime<Utc>),
        slot: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Vec<Delivery>> {
        let mut calls = self.group(emails);
        let mut running = JoinSet::new();
        let (mut state, mut is_stale) = (Ok(ThrottleState::Open), false);
        loop {
            let goes_on = !is_stale && matches!(state, Ok(ThrottleState::Open));
            let ended = if goes_on && !calls.is_empty() {
                self.wait_for_slot(slot).await;
                state = self.throttle.before_call().await;
                // The other half of the limit is for the call itself.
                is_stale = self.context.clock.now() - checked > FRESH / 2;
                if !is_stale
                    && matches!(state, Ok(ThrottleState::Open))
                    && let Some(mut call) = calls.pop_front()
                {
                    let now = self.context.clock.now();
                    let is_proven = self.throttle.account.state().is_proven(now);
                    if call.len() > 1 && self.retry.certainty == Certainty::Never && !is_proven {
                        // A lost outcome would stay unknown. Risk only one email.
                        let others = call.split_off(1);
                        calls.push_front(others);
                    }
                    let (sender, slot) = (self.clone(), slot.take());
                    let call = async move {
                        let alone = sender.call(call, at, checked).await;
                        drop(slot);
                        alone
                    };
                    running.spawn(call.boxed());
                }
                running.try_join_next()
            } else {
                // Let running calls finish, even if one fails.
                match running.join_next().await {
                    Some(ended) => Some(ended),
                    None => break,
                }
            };
            match ended.map(came_to) {
                Some(Ok(alone)) => calls.extend(alone.into_iter().map(|email| vec![email])),
                Some(Err(error)) => state = state.and(Err(error)),
                None => {}
            }
        }
        let rest: Vec<Delivery> = calls.into_iter().flatten().map(|email| email.row).collect();
        match state? {
            ThrottleState::Open => Ok(rest),
            state => {
                self.put_back(rest.iter(), &state).await?;
                Ok(Vec::new())
            }
        }
    }

    /// Waits until a call may start, by the limits of concurrency and rate. Calls run one at a time
    /// until the provider answers. A slot that is open stays.
    async fn wait_for_slot(&self, slot: &mut Option<OwnedSemaphorePermit>) {
        if slot.is_none() {
            let account = &self.throttle.account;
            let alone = !account.state().has_answered();
            *slot = Some(account.slot(alone).await);
            account.wait_for_rate().await;
        }
    }

    /// Groups the emails into calls as the mailer requires.
    fn group(&self, emails: Vec<BuiltEmail>) -> VecDeque<Vec<BuiltEmail>> {
        let messages: Vec<Message> = emails.iter().map(|email| email.message.clone()).collect();
        let mut emails: Vec<Option<BuiltEmail>> = emails.into_iter().map(Some).collect();
        let mut call = |places: Vec<usize>| -> Vec<BuiltEmail> {
            let emails = places.into_iter().filter_map(|place| emails[place].take());
            emails.collect()
        };
        let calls = self.mailer.calls(&messages).into_iter();
        calls.map(&mut call).collect()
    }

    /// Makes a call for the first time. Returns the emails that must be sent alone.
    async fn call(
        &self,
        emails: Vec<BuiltEmail>,
        at: DateTime<Utc>,
        checked: DateTime<Utc>,
    ) -> Result<Vec<BuiltEmail>> {
        let permit = self.throttle.send_permit(at);
        let permit = self.throttle.fresh_permit(permit, checked);
        if permit.withheld().is_some() {
            // Marking the rows as `sending` would count an attempt. Stale emails are built again.
            return Ok(emails);
        }
        let reference = self.reference(&emails);
        let handover = |email: &BuiltEmail| {
            Transition::HandOver(Handover {
                id: email.row.id.clone(),
                call: reference.clone(),
                items: email.items,
            })
        };
        crash::point("before-sending");
        // The rows are durably `sending` before the provider receives the call.
        let handovers = emails.iter().map(handover).collect();
        let ours = self.ledger.advance(handovers, at).await?;
        crash::point("after-sending");
        let sending = |mut email: BuiltEmail| {
            email.row.state = DeliveryState::Sending;
            email.row.attempts.made += 1;
            email.row.attempts.call = Some(reference.clone());
            email.row.attempts.called_at = Some(at);
            email
        };
        let ours = emails.into_iter().zip(ours).filter(|(_, ours)| *ours);
        let emails: Vec<BuiltEmail> = ours.map(|(email, _)| sending(email)).collect();
        let concluded = self.make(&reference, &emails, Attempt::First, &permit).boxed().await?;
        let alone = self.recall(emails, &concluded.alone).await?;
        self.throttle.watch(&concluded.settlements, concluded.excused).await?;
        Ok(alone)
    }

    /// Returns these emails of a rejected call to `pending`, so that each can be sent alone. If the
    /// process died first, a later worker would treat their outcomes as unknown.
    async fn recall(&self, emails: Vec<BuiltEmail>, places: &[usize]) -> Result<Vec<BuiltEmail>> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        crash::point("before-recall");
        let emails = emails.into_iter().enumerate();
        let emails = emails.filter(|(place, _)| places.contains(place));
        let mut alone: Vec<BuiltEmail> = emails.map(|(_, email)| email).collect();
        let recall = |email: &BuiltEmail| Transition::Recall(email.row.id.clone());
        let (recalls, now) = (alone.iter().map(recall).collect(), self.context.clock.now());
        let mut recalled = self.ledger.advance(recalls, now).await?.into_iter();
        crash::point("after-recall");
        alone.retain(|_| recalled.next().unwrap_or(false));
        for email in &mut alone {
            email.row.state = DeliveryState::Pending;
        }
        Ok(alone)
    }

    /// Makes a call whose rows are `sending`, and writes the outcomes.
    pub(super) async fn make(
        &self,
        reference: &str,
        emails: &[BuiltEmail],
        attempt: Attempt,
        permit: &Permit,
    ) -> Result<Decisions> {
        if emails.is_empty() {
            return Ok(Decisions::default());
        }
        let messages: Vec<Message> = emails.iter().map(|email| email.message.clone()).collect();
        if attempt == Attempt::Repeated {
            self.throttle.account.wait_for_rate().await;
        }
        let (outcomes, until) = match self.throttle.before_send(permit).await {
            Ok(()) => {
                let began = Instant::now();
                let outcomes = self.mailer.send(reference, &messages, permit).await;
                let names = outcomes.iter().map(Outcome::as_str);
                self.context.metrics.called(began.elapsed(), names);
                (outcomes, None)
            }
            Err((reason, until)) => (vec![Outcome::Withheld(reason); messages.len()], until),
        };
        crash::point("after-send");
        let (now, provider) = (self.context.clock.now(), self.mailer.name());
        let mut decisions = self.retry.decide(emails, outcomes, attempt, provider, now);
        for deferral in &mut decisions.deferrals {
            deferral.not_before = until.unwrap_or(deferral.not_before);
        }
        let (stop, summary) = (decisions.stop.take(), decisions.summary.take());
        let wait = summary.as_ref().and_then(|call| {
            let retry_after = self.throttle.settings().retry_after;
            let mut account = self.throttle.account.state();
            account.record_call(call, retry_after, now)
        });
        // Other calls must not start meanwhile. The outcomes are stored in any case.
        let closed = match wait {
            Some(wait) => self.throttle.close(now + wait).await,
            None => Ok(()),
        };
        let suppressions = std::mem::take(&mut decisions.undeliverable);
        let rows = emails.iter().map(|email| &email.row);
        let concluded = self.ledger.conclude(rows, decisions).await;
        if let Some(reason) = stop {
            self.throttle.pause(reason).await?;
        } else if let Some(why) = summary.and_then(|call| call.lost) {
            self.throttle.share(Some(&why)).await?;
        }
        closed?;
        if !suppressions.is_empty() {
            // If the process dies before this, the next email to the address is rejected again.
            self.context.store.add_suppressions(&suppressions).await?;
        }
        concluded
    }

    /// Defers rows that may not be sent now.
    async fn put_back<'a>(
        &self,
        rows: impl Iterator<Item = &'a Delivery>,
        state: &ThrottleState,
    ) -> Result<()> {
        let (reason, until) = state.deferral();
        let not_before = until.unwrap_or(self.context.clock.now());
        let mut decisions = Decisions::default();
        rows.for_each(|row| decisions.defer(row, DeliveryState::Pending, not_before, &reason));
        self.ledger.conclude([], decisions).await.map(drop)
    }

    /// Returns the reference of a call: the account's prefix and a hash of its deliveries and their
    /// attempts. A new attempt has a new reference. A repeated call has its old one, from the
    /// ledger.
    fn reference(&self, emails: &[BuiltEmail]) -> String {
        let mut hash = Sha256::new();
        for email in emails {
            hash.update(email.row.id.as_str().as_bytes());
            hash.update([0]);
            hash.update(email.row.attempts.made.to_be_bytes());
        }
        self.throttle.account_prefix.clone() + &hex::encode(&hash.finalize()[..20])
    }
}
