//! Sends emails to the provider, call by call, a few at a time.
//!
//! `sending` and the reference of the call are durable before the call (P4). Each call is settled
//! when it is answered. A call starts at most [`MAX_CHECK_AGE`] after its users and objects were
//! checked (P6, P7): emails are built in small portions, and waiting emails are built again.

use std::collections::VecDeque;

use chrono::{DateTime, Utc};
use futures::FutureExt;
use sha2::{Digest as _, Sha256};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::super::compose::BuiltEmail;
use super::super::outcomes::{Attempt, Decisions};
use super::super::throttle::{MAX_CHECK_AGE, ThrottleState};
use super::Sender;
use crate::domain::delivery::{Handover, Transition};
use crate::domain::{Delivery, DeliveryState};
use crate::email::{Message, Outcome, Resolution, SendPermit};
use crate::engine::{Error, Result, crash, task_output};

/// Why no further call of a portion may start.
enum Halt {
    /// The checks of its emails are too old.
    Stale,
    /// The throttle permits no call.
    Closed(ThrottleState),
    /// A call failed, or the state of the throttle could not be read.
    Failed(Error),
}

impl Sender {
    /// Builds and sends pending rows. Rows that may not be sent now are deferred.
    ///
    /// A portion is built when its first call may start. Emails whose checks became stale are built
    /// again with the next one.
    pub(super) async fn send(&self, mut rows: Vec<Delivery>) -> Result<()> {
        let mut slot = None;
        while !rows.is_empty() {
            self.throttle.check_reports().await?;
            let state = self.throttle.current_state().await?;
            if state != ThrottleState::Open {
                return self.defer_all(&rows, &state).await;
            }
            self.wait_for_slot(&mut slot).await;
            let built_at = self.context.clock.now();
            let check_size = self.throttle.account.state().check_size.unwrap_or(usize::MAX);
            let portion = &rows[..rows.len().min(check_size)];
            let built = self.compose.build(portion, built_at).boxed().await?;
            // The age of checks counts from their start. For a single email, it counts from their
            // end: no smaller portion is possible, so slow checks would make every attempt stale.
            let checked_at = if portion.len() == 1 { self.context.clock.now() } else { built_at };
            let decisions = Decisions {
                settlements: built.settlements,
                deferrals: built.deferrals,
                excused: built.excused,
                ..Decisions::default()
            };
            let concluded = self.ledger.conclude(portion, decisions).await?;
            self.throttle.record_outcomes(&concluded.settlements, concluded.excused).await?;
            let (emails, mut unbuilt) = (built.emails, rows.split_off(built.rows));
            let checked = emails.len();
            let calls = self.make_calls(emails, built_at, checked_at, &mut slot);
            let (unsent, halt) = calls.boxed().await;
            rows = match halt {
                None | Some(Halt::Stale) => {
                    let sent = checked - unsent.len();
                    self.throttle.account.state().adapt_check_size(sent, checked);
                    unsent
                }
                // Old checks were not the reason, so the check size stays.
                Some(Halt::Closed(state)) => {
                    self.defer_all(&unsent, &state).await?;
                    Vec::new()
                }
                Some(Halt::Failed(error)) => return Err(error),
            };
            rows.append(&mut unbuilt);
        }
        drop(slot);
        self.throttle.publish_outcomes(None).await
    }

    /// Makes the calls for emails that were built and checked at these times. Returns the rows that
    /// were not sent, and why. `slot` keeps the slot that is not used yet.
    ///
    /// Each call runs in its own task. A future that is not polled would keep its place in the
    /// queue for a lock or a connection, and block others.
    async fn make_calls(
        &self,
        emails: Vec<BuiltEmail>,
        built_at: DateTime<Utc>,
        checked_at: DateTime<Utc>,
        slot: &mut Option<OwnedSemaphorePermit>,
    ) -> (Vec<Delivery>, Option<Halt>) {
        let mut queue = self.group_into_calls(emails);
        let mut running = JoinSet::new();
        let mut halt: Option<Halt> = None;
        loop {
            let ended = if halt.is_none() && !queue.is_empty() {
                self.wait_for_slot(slot).await;
                halt = self.find_halt(checked_at).await;
                if halt.is_none()
                    && let Some(emails) = self.next_call(&mut queue)
                {
                    let (sender, slot) = (self.clone(), slot.take());
                    let call = sender.make_first_call(emails, built_at, checked_at, slot);
                    running.spawn(call.boxed());
                }
                running.try_join_next()
            } else {
                // Let running calls finish, even if one fails.
                let Some(ended) = running.join_next().await else { break };
                Some(ended)
            };
            match ended.map(task_output) {
                Some(Ok(to_queue)) => queue.extend(to_queue.into_iter().map(|email| vec![email])),
                // The first error counts, even if the throttle was closed before it.
                Some(Err(_)) if matches!(halt, Some(Halt::Failed(_))) => {}
                Some(Err(error)) => halt = Some(Halt::Failed(error)),
                None => {}
            }
        }
        (queue.into_iter().flatten().map(|email| email.row).collect(), halt)
    }

    /// Returns why no call may start now, for emails checked at this time; `None` if one may.
    async fn find_halt(&self, checked_at: DateTime<Utc>) -> Option<Halt> {
        let state = self.throttle.current_state().await;
        // The other half of the limit is for the call itself.
        let is_stale = self.context.clock.now() - checked_at > MAX_CHECK_AGE / 2;
        match state {
            Ok(ThrottleState::Open) => is_stale.then_some(Halt::Stale),
            Ok(state) => Some(Halt::Closed(state)),
            Err(error) => Some(Halt::Failed(error)),
        }
    }

    /// Takes the next call. If its outcome could be lost, because the provider has not answered
    /// recently, it has only one email: a lost outcome would stay unknown.
    fn next_call(&self, calls: &mut VecDeque<Vec<BuiltEmail>>) -> Option<Vec<BuiltEmail>> {
        let mut call = calls.pop_front()?;
        let is_proven = self.throttle.account.state().is_proven(self.context.clock.now());
        if call.len() > 1 && self.retry.certainty == Resolution::Impossible && !is_proven {
            let others = call.split_off(1);
            calls.push_front(others);
        }
        Some(call)
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
    fn group_into_calls(&self, emails: Vec<BuiltEmail>) -> VecDeque<Vec<BuiltEmail>> {
        let messages: Vec<Message> = emails.iter().map(|email| email.message.clone()).collect();
        let mut emails: Vec<Option<BuiltEmail>> = emails.into_iter().map(Some).collect();
        let mut take_emails = |indices: Vec<usize>| -> Vec<BuiltEmail> {
            indices.into_iter().filter_map(|index| emails[index].take()).collect()
        };
        self.mailer.split_into_calls(&messages).into_iter().map(&mut take_emails).collect()
    }

    /// Makes a call for the first time, and frees its slot. Returns the emails to queue again:
    /// those to send alone, or all of them if the permit ended before the call.
    async fn make_first_call(
        self,
        emails: Vec<BuiltEmail>,
        built_at: DateTime<Utc>,
        checked_at: DateTime<Utc>,
        _slot: Option<OwnedSemaphorePermit>,
    ) -> Result<Vec<BuiltEmail>> {
        let permit = self.throttle.send_permit(built_at);
        let permit = self.throttle.fresh_permit(permit, checked_at);
        if permit.withheld_reason().is_some() {
            // Marking the rows as `sending` would count an attempt. Stale emails are built again.
            return Ok(emails);
        }
        let reference = self.new_reference(&emails);
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
        let applied = self.ledger.advance(handovers, built_at).await?;
        crash::point("after-sending");
        let mut sending = Vec::with_capacity(emails.len());
        for (mut email, applied) in emails.into_iter().zip(applied) {
            if applied {
                email.row.state = DeliveryState::Sending;
                email.row.attempts.made += 1;
                email.row.attempts.call = Some(reference.clone());
                email.row.attempts.called_at = Some(built_at);
                sending.push(email);
            }
        }
        let call = self.make_call(&reference, &sending, Attempt::First, &permit);
        let concluded = call.boxed().await?;
        let to_send_alone = self.recall(sending, &concluded.to_send_alone).await?;
        self.throttle.record_outcomes(&concluded.settlements, concluded.excused).await?;
        Ok(to_send_alone)
    }

    /// Returns these emails of a rejected call to `pending`, so that each can be sent alone. If the
    /// process died first, a later worker would treat their outcomes as unknown.
    async fn recall(&self, emails: Vec<BuiltEmail>, indices: &[usize]) -> Result<Vec<BuiltEmail>> {
        if indices.is_empty() {
            return Ok(Vec::new());
        }
        crash::point("before-recall");
        let rejected = emails.into_iter().enumerate().filter(|(index, _)| indices.contains(index));
        let mut rejected: Vec<BuiltEmail> = rejected.map(|(_, email)| email).collect();
        let recall = |email: &BuiltEmail| Transition::ReturnToPending(email.row.id.clone());
        let (recalls, now) = (rejected.iter().map(recall).collect(), self.context.clock.now());
        let mut applied = self.ledger.advance(recalls, now).await?.into_iter();
        crash::point("after-recall");
        rejected.retain(|_| applied.next().unwrap_or(false));
        for email in &mut rejected {
            email.row.state = DeliveryState::Pending;
        }
        Ok(rejected)
    }

    /// Makes a call whose rows are `sending`, and writes the outcomes.
    pub(super) async fn make_call(
        &self,
        reference: &str,
        emails: &[BuiltEmail],
        attempt: Attempt,
        permit: &SendPermit,
    ) -> Result<Decisions> {
        if emails.is_empty() {
            return Ok(Decisions::default());
        }
        if attempt == Attempt::Repeated {
            self.throttle.account.wait_for_rate().await;
        }
        let (outcomes, withheld_until) = self.send_messages(reference, emails, permit).await;
        crash::point("after-send");
        let (now, provider) = (self.context.clock.now(), self.mailer.name());
        let (mut decisions, effects) = self.retry.decide(emails, outcomes, attempt, provider, now);
        if let Some(until) = withheld_until {
            decisions.deferrals.iter_mut().for_each(|deferral| deferral.not_before = until);
        }
        // This comes first, so that no other call starts while the outcomes are stored. They are
        // stored even if it fails.
        let closed = match &effects.summary {
            Some(call) => self.throttle.record_call(call, now).await,
            None => Ok(()),
        };
        let rows = emails.iter().map(|email| &email.row);
        let concluded = self.ledger.conclude(rows, decisions).await;
        if let Some(reason) = effects.pause_reason {
            self.throttle.pause(reason).await?;
        } else if let Some(why) = effects.summary.and_then(|call| call.lost_reason) {
            self.throttle.publish_outcomes(Some(&why)).await?;
        }
        closed?;
        if !effects.suppressions.is_empty() {
            // If the process dies before this, the next email to the address is rejected again.
            self.context.store.add_suppressions(&effects.suppressions).await?;
        }
        concluded
    }

    /// Sends the messages, if their call may still start. Returns their outcomes, and until when to
    /// defer them, if that is known.
    async fn send_messages(
        &self,
        reference: &str,
        emails: &[BuiltEmail],
        permit: &SendPermit,
    ) -> (Vec<Outcome>, Option<DateTime<Utc>>) {
        let messages: Vec<Message> = emails.iter().map(|email| email.message.clone()).collect();
        if let Err((reason, until)) = self.throttle.before_send(permit).await {
            return (vec![Outcome::Withheld(reason); messages.len()], until);
        }
        let start = Instant::now();
        let outcomes = self.mailer.send(reference, &messages, permit).await;
        self.context
            .metrics
            .record_provider_call(start.elapsed(), outcomes.iter().map(Outcome::as_str));
        (outcomes, None)
    }

    /// Defers rows that may not be sent now.
    async fn defer_all(&self, rows: &[Delivery], state: &ThrottleState) -> Result<()> {
        let (reason, until) = state.deferral();
        let not_before = until.unwrap_or(self.context.clock.now());
        let mut decisions = Decisions::default();
        for row in rows {
            decisions.defer(row, DeliveryState::Pending, not_before, &reason);
        }
        self.ledger.conclude([], decisions).await.map(drop)
    }

    /// Returns the reference of a call: the account's prefix and a hash of its deliveries and their
    /// attempts. A new attempt has a new reference. A repeated call has its old one, from the
    /// ledger.
    fn new_reference(&self, emails: &[BuiltEmail]) -> String {
        let mut hash = Sha256::new();
        for email in emails {
            hash.update(email.row.id.as_str().as_bytes());
            hash.update([0]);
            hash.update(email.row.attempts.made.to_be_bytes());
        }
        self.throttle.account_prefix.clone() + &hex::encode(&hash.finalize()[..20])
    }
}
