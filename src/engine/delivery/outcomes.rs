//! Decides what each outcome means for its row: settled, or deferred until a certain time.
//!
//! Nothing is read or written here (P5). An email that was certainly not accepted is retried with
//! growing delays, up to a number of attempts and an age. One that may have been accepted stays
//! `sending` while [`Resolution`] allows to resolve it. Then it is `unknown`. Start with
//! [`RetryPolicy::decide`].

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::compose::BuiltEmail;
use super::throttle::CallSummary;
use crate::domain::coordination::MAX_DEFERRAL;
use crate::domain::delivery::{Deferral, Settlement};
use crate::domain::{Delivery, DeliveryState, SendSettings, Suppression, SuppressionReason};
use crate::email::{Outcome, Resolution};

/// Decides what follows from outcomes.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    /// The limits of attempts and the delays.
    pub settings: SendSettings,
    /// How an unknown outcome can be resolved.
    pub certainty: Resolution,
}

/// Whether a call is made for the first time under its reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    First,
    /// An earlier call may have been accepted, so only a definite answer ends the attempt.
    Repeated,
}

/// The consequences of a call, or of other changes, for rows. After they were written to the
/// ledger, they contain only what was applied.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    pub settlements: Vec<Settlement>,
    pub deferrals: Vec<Deferral>,
    /// Indices of the emails to send alone, because the call was rejected as a whole.
    pub to_send_alone: Vec<usize>,
    /// The number of failures that do not count toward `delivery.stop_share`: undeliverable
    /// addresses, and deliveries that had failed before, which the ledger adds.
    pub excused: u64,
}

/// The consequences of a call beyond its rows.
#[derive(Debug, Default)]
pub(super) struct CallEffects {
    /// The addresses to suppress, because the provider permanently rejects them.
    pub suppressions: Vec<Suppression>,
    /// Why no other email will be accepted until an operator acts.
    pub pause_reason: Option<String>,
    /// What the call means for the limits of the account; `None` if the provider did not see it.
    pub summary: Option<CallSummary>,
}

impl Decisions {
    /// Lets a row wait until `at`, in this state.
    pub(super) fn defer(
        &mut self,
        row: &Delivery,
        state: DeliveryState,
        at: DateTime<Utc>,
        reason: &str,
    ) {
        self.deferrals.push(Deferral::for_row(row, state, at, reason));
    }

    /// Settles a row whose email had this number of events.
    pub(super) fn settle(
        &mut self,
        row: &Delivery,
        state: DeliveryState,
        items: u32,
        reason: &str,
    ) {
        self.settlements.push(Settlement::for_row(row, state, items, Some(reason)));
    }

    /// Settles a row as sent.
    pub(super) fn settle_sent(&mut self, row: &Delivery, items: u32, provider_id: String) {
        self.settlements.push(Settlement {
            provider_id: Some(provider_id).filter(|id| !id.is_empty()),
            ..Settlement::for_row(row, DeliveryState::Sent, items, None)
        });
    }
}

/// The longest delay before a retry, on top of the provider's wait and before the random part.
const MAX_DELAY: TimeDelta = TimeDelta::hours(1);
/// The shortest delay before a retry, even if the provider allows a shorter one.
const MIN_DELAY: TimeDelta = TimeDelta::seconds(1);
/// The shortest delay before a call with an unknown outcome is repeated.
const REPEAT_AFTER: TimeDelta = TimeDelta::seconds(2);

impl RetryPolicy {
    /// Decides what the outcomes of a call mean. `now` is when they arrived. `provider` is stored
    /// as the source of suppressions.
    pub(super) fn decide(
        &self,
        emails: &[BuiltEmail],
        outcomes: Vec<Outcome>,
        attempt: Attempt,
        provider: &str,
        now: DateTime<Utc>,
    ) -> (Decisions, CallEffects) {
        let mut decisions = Decisions::default();
        let mut effects =
            CallEffects { summary: self.summarize(&outcomes), ..CallEffects::default() };
        // A missing outcome is an unknown one.
        let unanswered =
            std::iter::repeat_with(|| Outcome::Unknown("the mailer did not answer for it".into()));
        let outcomes = outcomes.into_iter().chain(unanswered);
        for (index, (email, outcome)) in emails.iter().zip(outcomes).enumerate() {
            let (row, items) = (&email.row, email.items);
            let not_accepted = DeliveryState::for_rejected(email.has_markers);
            // Before a repeated call is resolved, its emails stay `sending`.
            let unsent = match attempt {
                Attempt::First => DeliveryState::Pending,
                Attempt::Repeated => DeliveryState::Sending,
            };
            match (outcome, attempt) {
                (Outcome::Accepted(provider_id), _) => {
                    decisions.settle_sent(row, items, provider_id);
                }
                (Outcome::RefusedTogether(..), Attempt::First) if emails.len() > 1 => {
                    decisions.to_send_alone.push(index);
                }
                (Outcome::RefusedTogether(reason), Attempt::Repeated) if emails.len() > 1 => {
                    // The earlier call was certainly not accepted either, so the email gets a new
                    // attempt.
                    decisions.defer(row, DeliveryState::Pending, now, &reason);
                }
                (Outcome::Refused(reason) | Outcome::RefusedTogether(reason), _)
                | (Outcome::Unsendable(reason), Attempt::First) => {
                    decisions.settle(row, not_accepted, items, &reason);
                }
                (Outcome::Undeliverable(reason), _) => {
                    let to = &email.message.to;
                    let suppression = Suppression::new(to, SuppressionReason::HardBounce, now, provider);
                    effects.suppressions.push(suppression.with_detail(Some(&reason)));
                    decisions.excused += u64::from(row.attempts.reopened == 0);
                    decisions.settle(row, not_accepted, items, &reason);
                }
                // Retries end at the age limit, not after a number of attempts. RFC 5321 (4.5.4.1)
                // expects retries for days after a deferral.
                (Outcome::Unreachable(reason) | Outcome::Deferred(reason), Attempt::First) => {
                    self.retry_or_fail(email, &reason, None, false, now, &mut decisions);
                }
                // A provider that names a wait will accept the email later, so attempts do not
                // count.
                (Outcome::TryLater(reason, wait), Attempt::First) => {
                    let counts = wait.is_none();
                    self.retry_or_fail(email, &reason, wait, counts, now, &mut decisions);
                }
                (Outcome::TryLater(reason, wait), Attempt::Repeated) => {
                    self.resolve_later(email, &reason, wait, now, &mut decisions);
                }
                (Outcome::Withheld(reason), _) => {
                    // The reason for an unknown outcome still applies.
                    let stored = row.outcome.reason.as_ref();
                    let stored = stored.filter(|_| attempt == Attempt::Repeated);
                    decisions.defer(row, unsent, now, stored.unwrap_or(&reason));
                }
                (Outcome::Stop(reason), _) => {
                    decisions.defer(row, unsent, now, &reason);
                    effects.pause_reason = Some(reason);
                }
                (Outcome::Unknown(reason), _)
                // The earlier call may have contained it.
                | (
                    Outcome::Unsendable(reason)
                    | Outcome::Unreachable(reason)
                    | Outcome::Deferred(reason),
                    Attempt::Repeated,
                ) => self.resolve_later(email, &reason, None, now, &mut decisions),
            }
        }
        (decisions, effects)
    }

    /// Returns what the outcomes of a call mean for the calls after it.
    fn summarize(&self, outcomes: &[Outcome]) -> Option<CallSummary> {
        let mut shown = outcomes.iter().filter(|outcome| outcome.is_part_of_call());
        let first = shown.clone().next()?;
        let is_no_answer = |outcome: &Outcome| {
            matches!(
                outcome,
                Outcome::Unknown(..) | Outcome::TryLater(..) | Outcome::Unreachable(..)
            )
        };
        let wait = |outcome: &Outcome| match outcome {
            Outcome::TryLater(_, wait) => *wait,
            _ => None,
        };
        let is_lost = self.certainty == Resolution::Impossible
            && shown.clone().all(|outcome| matches!(outcome, Outcome::Unknown(..)));
        Some(CallSummary {
            lost_reason: match first {
                Outcome::Unknown(reason) if is_lost => Some(reason.clone()),
                _ => None,
            },
            wait: shown.clone().filter_map(wait).max(),
            has_answer: !shown.all(is_no_answer),
        })
    }

    /// Defers an email that was certainly not accepted, or fails it at a limit. `wait` is the
    /// provider's wait. `counts` is whether the attempt counts toward `delivery.attempts`.
    fn retry_or_fail(
        &self,
        email: &BuiltEmail,
        reason: &str,
        wait: Option<Duration>,
        counts: bool,
        now: DateTime<Utc>,
        decisions: &mut Decisions,
    ) {
        let row = &email.row;
        if self.is_last_attempt(row, counts, now) {
            let reason = format!("given up after {} attempts: {reason}", row.attempts.made);
            let state = DeliveryState::for_rejected(email.has_markers);
            let end = Settlement::for_row(row, state, email.items, Some(&reason));
            return decisions.settlements.push(end.into_given_up());
        }
        let at = now + self.retry_delay(row, wait);
        decisions.deferrals.push(Deferral {
            has_failed: counts,
            ..Deferral::for_row(row, DeliveryState::Pending, at, reason)
        });
    }

    /// Defers an email that may have been accepted, while its outcome can be resolved. Then settles
    /// it as unknown.
    fn resolve_later(
        &self,
        email: &BuiltEmail,
        reason: &str,
        wait: Option<Duration>,
        now: DateTime<Utc>,
        decisions: &mut Decisions,
    ) {
        let row = &email.row;
        let called_at = row.attempts.called_at.unwrap_or(now);
        if now >= self.resolve_deadline(called_at) {
            return decisions.settle(row, DeliveryState::Unknown, email.items, reason);
        }
        let wait = wait.and_then(|wait| TimeDelta::from_std(wait).ok()).unwrap_or_default();
        let at = self.next_check(called_at, now).max(now + wait);
        decisions.defer(row, DeliveryState::Sending, at, reason);
    }

    /// Returns until when to resolve the outcome of a call that was first made at `called_at`.
    pub(super) fn resolve_deadline(&self, called_at: DateTime<Utc>) -> DateTime<Utc> {
        let configured = self.settings.resolve_within;
        let limit = match self.certainty {
            Resolution::Repeat { within: Some(within) } => {
                TimeDelta::from_std(within).map_or(configured, |within| within.min(configured))
            }
            Resolution::Repeat { within: None } => configured,
            Resolution::Query => configured.max(self.not_accepted_counts_at(called_at) - called_at),
            Resolution::Impossible => TimeDelta::zero(),
        };
        called_at + limit
    }

    /// Returns when the answer "not accepted" starts to count, for a call that was first made at
    /// `called_at`. Its sender may have been suspended for as long as its lease, and the provider
    /// may list emails late.
    pub(super) fn not_accepted_counts_at(&self, called_at: DateTime<Utc>) -> DateTime<Utc> {
        called_at + self.settings.lease + self.settings.ask_until
    }

    /// Returns when to check an unknown outcome next. The delay doubles each time.
    pub(super) fn next_check(&self, called_at: DateTime<Utc>, now: DateTime<Utc>) -> DateTime<Utc> {
        let min_delay = match self.certainty {
            Resolution::Query => self.settings.ask_after,
            Resolution::Repeat { .. } | Resolution::Impossible => REPEAT_AFTER,
        };
        let delay = (now - called_at).clamp(min_delay, MAX_DELAY);
        let next = (now + delay).min(self.resolve_deadline(called_at));
        // Check as soon as "not accepted" counts, because that answer is definite.
        let counts_at = self.not_accepted_counts_at(called_at);
        if now < counts_at { next.min(counts_at) } else { next }
    }

    /// Returns whether the age limit is reached or, if the attempt counts, the number of attempts.
    fn is_last_attempt(&self, row: &Delivery, counts: bool, now: DateTime<Utc>) -> bool {
        now - row.created >= self.settings.give_up_after
            || counts && row.attempts.failed + 1 >= self.settings.attempts
    }

    /// Returns how long a row waits: `delivery.retry_after`, doubled by each attempt, plus up to
    /// half of it, so that not everything is retried at once.
    ///
    /// If the provider names a wait, the row waits that long first. The provider's wait ends for
    /// all emails at the same time, so another email is sent before this one: the limit may concern
    /// this recipient alone. A short wait of the provider is doubled in place of
    /// `delivery.retry_after`.
    fn retry_delay(&self, row: &Delivery, wait: Option<Duration>) -> TimeDelta {
        let wait = wait.and_then(|wait| TimeDelta::from_std(wait).ok());
        let retry_after = self.settings.retry_after;
        let first = wait.map_or(retry_after, |wait| wait.min(retry_after));
        let doublings = row.attempts.made.saturating_sub(1).min(16);
        let min_delay = (first * (1 << doublings)).min(MAX_DELAY);
        // The extra delay depends on the call, so its emails can share a call again.
        let jitter = row.attempts.call.as_deref().map_or(0, |call| {
            call.bytes().fold(0, |sum: i32, byte| (sum * 31 + i32::from(byte)) % 1_000)
        });
        let delay = min_delay + min_delay * jitter / 2_000;
        // The store ignores longer waits, because only a wrong clock writes them.
        (wait.unwrap_or_default() + delay).clamp(MIN_DELAY, MAX_DEFERRAL)
    }
}

#[cfg(test)]
#[path = "outcomes_tests.rs"]
mod tests;
