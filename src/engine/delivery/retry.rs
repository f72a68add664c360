//! Decides what each outcome means for its row: settled, or deferred until a certain time.
//!
//! Nothing is read or written here (P5). An email that was certainly not accepted is retried with
//! growing delays, up to a number of attempts and an age. One that may have been accepted stays
//! `sending` while [`Certainty`] allows to resolve it. Then it is `unknown`, or sent again if the
//! [`Guarantee`] demands that. Start with [`Retry::weigh`].

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::mail::Mail;
use crate::domain::delivery::{Deferral, Guarantee, Settlement};
use crate::domain::lease::LONGEST_WAIT;
use crate::domain::{Delivery, DeliveryId, DeliveryState, Sending, UserId};
use crate::email::{Certainty, Outcome};

/// Decides what follows from outcomes.
#[derive(Debug, Clone, Copy)]
pub struct Retry {
    /// The limits of attempts, the delays and the guarantee.
    pub settings: Sending,
    /// How an unknown outcome can be resolved.
    pub certainty: Certainty,
}

/// Whether a call is made for the first time under its reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    First,
    /// An earlier call may have been accepted, so only a definite answer ends the attempt.
    Repeated,
}

/// A recipient whose address the provider permanently rejects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undeliverable {
    /// The rejected email.
    pub delivery: DeliveryId,
    /// The recipient.
    pub user: UserId,
    /// The provider's words.
    pub reason: String,
}

/// The consequences of a call.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    pub settlements: Vec<Settlement>,
    pub deferrals: Vec<Deferral>,
    /// Indices of the emails to send alone, because the call was rejected as a whole.
    pub alone: Vec<usize>,
    /// Recipients whose addresses to suppress: see [`super::ledger`].
    pub undeliverable: Vec<Undeliverable>,
    /// Why no other email will be accepted until an operator acts.
    pub stop: Option<String>,
    /// The longest wait the provider asked for.
    pub after: Option<Duration>,
    /// Whether no email is known to be accepted, and none is known to be at fault.
    pub none_taken: bool,
    /// Whether every email of the call was deferred for its recipient or its content. That is no
    /// sign of how much the provider accepts.
    pub all_deferred: bool,
}

/// No email waits longer than this between two attempts, on top of the provider's wait.
const LONGEST: TimeDelta = TimeDelta::hours(1);
/// The shortest delay before a retry, even if the provider allows a shorter one.
const SOONEST: TimeDelta = TimeDelta::seconds(1);
/// The shortest delay before a call with an unknown outcome is repeated.
const REPEAT_AFTER: TimeDelta = TimeDelta::seconds(2);

impl Retry {
    /// Decides what the outcomes of a call mean. `now` is when they arrived.
    pub(super) fn weigh(
        &self,
        mails: &[Mail],
        outcomes: Vec<Outcome>,
        attempt: Attempt,
        now: DateTime<Utc>,
    ) -> Verdicts {
        let mut verdicts = Verdicts::default();
        let mut none_taken = !mails.is_empty();
        let is_deferred = |outcome: &Outcome| matches!(outcome, Outcome::Deferred { .. });
        let all_deferred = !outcomes.is_empty() && outcomes.iter().all(is_deferred);
        let mut longest: Option<Duration> = None;
        // A missing outcome is an unknown one.
        let unanswered = std::iter::repeat_with(|| Outcome::Unknown {
            reason: "the mailer did not answer for it".into(),
        });
        let outcomes = outcomes.into_iter().chain(unanswered);
        for (place, (mail, outcome)) in mails.iter().zip(outcomes).enumerate() {
            let row = &mail.row;
            let ended =
                |state, reason: Option<&str>| Settlement::of(row, state, mail.items, reason);
            let not_taken = DeliveryState::not_taken(mail.has_markers);
            match &outcome {
                Outcome::TryLater { after, .. } => longest = longest.max(*after),
                // An unsendable email was not part of the call.
                Outcome::Unknown { .. }
                | Outcome::Unreachable { .. }
                | Outcome::Unsendable { .. } => {}
                _ => none_taken = false,
            }
            match outcome {
                Outcome::Accepted { provider_id } => verdicts.settlements.push(Settlement {
                    provider_id: Some(provider_id).filter(|id| !id.is_empty()),
                    ..ended(DeliveryState::Sent, None)
                }),
                // The earlier call may have contained it.
                Outcome::Unsendable { reason } if attempt == Attempt::Repeated => {
                    verdicts.doubt(self, mail, &reason, None, now);
                }
                Outcome::Refused { reason } | Outcome::Unsendable { reason } => {
                    verdicts.settlements.push(ended(not_taken, Some(&reason)))
                }
                Outcome::RefusedTogether { reason } if mails.len() == 1 => {
                    verdicts.settlements.push(ended(not_taken, Some(&reason)))
                }
                Outcome::RefusedTogether { reason } => match attempt {
                    Attempt::First => verdicts.alone.push(place),
                    // The earlier call was certainly not accepted either, so the email gets a new
                    // attempt.
                    Attempt::Repeated => {
                        verdicts.deferrals.push(deferral(
                            row,
                            DeliveryState::Pending,
                            now,
                            &reason,
                        ));
                    }
                },
                Outcome::Undeliverable { reason } => {
                    verdicts.settlements.push(ended(not_taken, Some(&reason)));
                    verdicts.undeliverable.push(Undeliverable {
                        delivery: row.id.clone(),
                        user: row.user.clone(),
                        reason,
                    });
                }
                Outcome::Unreachable { reason } => match attempt {
                    Attempt::First => {
                        verdicts.wait_or_fail(self, mail, &reason, Wait::Unreachable, now);
                    }
                    Attempt::Repeated => verdicts.doubt(self, mail, &reason, None, now),
                },
                Outcome::TryLater { reason, after } => match attempt {
                    Attempt::First => {
                        verdicts.wait_or_fail(self, mail, &reason, Wait::NotNow(after), now);
                    }
                    Attempt::Repeated => verdicts.doubt(self, mail, &reason, after, now),
                },
                Outcome::Deferred { reason } => match attempt {
                    Attempt::First => {
                        verdicts.wait_or_fail(self, mail, &reason, Wait::Deferred, now);
                    }
                    Attempt::Repeated => verdicts.doubt(self, mail, &reason, None, now),
                },
                Outcome::Withheld { reason } => {
                    let (state, reason) = match attempt {
                        Attempt::First => (DeliveryState::Pending, reason),
                        // The reason for the unknown outcome still applies.
                        Attempt::Repeated => {
                            let why = row.outcome.reason.clone().unwrap_or(reason);
                            (DeliveryState::Sending, why)
                        }
                    };
                    verdicts.deferrals.push(deferral(row, state, now, &reason));
                }
                Outcome::Stop { reason } => {
                    let state = match attempt {
                        Attempt::First => DeliveryState::Pending,
                        Attempt::Repeated => DeliveryState::Sending,
                    };
                    verdicts.deferrals.push(deferral(row, state, now, &reason));
                    verdicts.stop = Some(reason);
                }
                Outcome::Unknown { reason } => verdicts.doubt(self, mail, &reason, None, now),
            }
        }
        verdicts.after = longest;
        verdicts.none_taken = none_taken;
        verdicts.all_deferred = all_deferred;
        verdicts
    }

    /// Returns why the outcome of a call is unknown, if there was no answer from the provider and
    /// no way to resolve the outcome.
    pub(super) fn astray(&self, outcomes: &[Outcome]) -> Option<String> {
        let shown = outcomes.iter().filter(|outcome| outcome.is_shown());
        let mut reasons = shown.map(|outcome| match outcome {
            Outcome::Unknown { reason } => Some(reason),
            _ => None,
        });
        let first = reasons.next()??;
        let all = reasons.all(|reason| reason.is_some());
        (all && self.certainty == Certainty::Never).then(|| first.clone())
    }

    /// Decides the end of a row whose outcome cannot be found out: `unknown`, or another attempt
    /// (`Err`) if `delivery.guarantee` demands it.
    pub(super) fn give_up(
        &self,
        row: &Delivery,
        items: u32,
        reason: &str,
        now: DateTime<Utc>,
    ) -> Result<Settlement, Deferral> {
        let again = self.settings.guarantee == Guarantee::AtLeastOnce && !self.too_often(row, now);
        if again {
            let not_before = now + self.back_off(row, None);
            Err(Deferral {
                has_failed: true,
                ..deferral(row, DeliveryState::Pending, not_before, reason)
            })
        } else {
            Ok(Settlement::of(
                row,
                DeliveryState::Unknown,
                items,
                Some(reason),
            ))
        }
    }

    /// Returns until when to resolve the outcome of a call that was first made at `tried`.
    pub(super) fn hope(&self, tried: DateTime<Utc>) -> DateTime<Utc> {
        let ours = self.settings.resolve_within;
        let within = match self.certainty {
            Certainty::Repeat {
                within: Some(within),
            } => TimeDelta::from_std(within).map_or(ours, |within| within.min(ours)),
            Certainty::Repeat { within: None } => ours,
            Certainty::Ask => ours.max(self.believed(tried) - tried),
            Certainty::Never => TimeDelta::zero(),
        };
        tried + within
    }

    /// Returns when the answer "not accepted" starts to count, for a call that was first made at
    /// `tried`. Its sender may have been suspended for as long as its lease, and the provider may
    /// list emails late.
    pub(super) fn believed(&self, tried: DateTime<Utc>) -> DateTime<Utc> {
        tried + self.settings.lease + self.settings.ask_until
    }

    /// Returns when to look for an unknown outcome next. The delay doubles each time.
    pub(super) fn next_look(&self, tried: DateTime<Utc>, now: DateTime<Utc>) -> DateTime<Utc> {
        let least = match self.certainty {
            Certainty::Ask => self.settings.ask_after,
            Certainty::Repeat { .. } | Certainty::Never => REPEAT_AFTER,
        };
        let next = (now + (now - tried).clamp(least, LONGEST)).min(self.hope(tried));
        // Look as soon as "not accepted" counts, because that answer is definite.
        let counts = self.believed(tried);
        if now < counts { next.min(counts) } else { next }
    }

    /// Returns whether a limit is reached if the last attempt counts.
    fn too_often(&self, row: &Delivery, now: DateTime<Utc>) -> bool {
        row.attempts.failed + 1 >= self.settings.attempts || self.too_late(row, now)
    }

    fn too_late(&self, row: &Delivery, now: DateTime<Utc>) -> bool {
        now - row.created >= self.settings.give_up_after
    }

    /// Returns how long a row waits: `delivery.retry_after`, doubled by each attempt, plus up to
    /// half of it, so that not everything is retried at once.
    ///
    /// If the provider names a wait, the row waits that long first. The provider's wait ends for
    /// all emails at the same time, so another email is sent before this one: the limit may concern
    /// this recipient alone. A short wait of the provider is doubled in place of
    /// `delivery.retry_after`.
    fn back_off(&self, row: &Delivery, after: Option<Duration>) -> TimeDelta {
        let theirs = after.and_then(|after| TimeDelta::from_std(after).ok());
        let retry_after = self.settings.retry_after;
        let first = theirs.map_or(retry_after, |theirs| theirs.min(retry_after));
        let doubled = 1 << row.attempts.made.saturating_sub(1).min(16);
        let least = (first * doubled).min(LONGEST);
        // The extra delay depends on the call, so its emails can share a call again.
        let drawn = row.attempts.call.as_deref().map_or(0, |call| {
            call.bytes()
                .fold(0, |sum: i32, byte| (sum * 31 + i32::from(byte)) % 1_000)
        });
        let ours = least + least * drawn / 2_000;
        // The store ignores longer waits, because only a wrong clock writes them.
        (theirs.unwrap_or_default() + ours).clamp(SOONEST, LONGEST_WAIT)
    }
}

/// Why an email was certainly not accepted.
enum Wait {
    /// No connection. Retries end at the age limit, not after a number of attempts.
    Unreachable,
    /// The recipient's server asks for a retry later, which RFC 5321 (4.5.4.1) expects for days.
    /// Retries end at the age limit.
    Deferred,
    /// The provider answered, and may have named a time to wait.
    NotNow(Option<Duration>),
}

impl Verdicts {
    /// Defers an email that was certainly not accepted, or fails it at a limit.
    fn wait_or_fail(
        &mut self,
        retry: &Retry,
        mail: &Mail,
        reason: &str,
        wait: Wait,
        now: DateTime<Utc>,
    ) {
        let row = &mail.row;
        let (enough, after, has_failed) = match wait {
            Wait::Unreachable | Wait::Deferred => (retry.too_late(row, now), None, false),
            // A provider that names a wait will accept the email later, so attempts do not count.
            Wait::NotNow(Some(after)) => (retry.too_late(row, now), Some(after), false),
            Wait::NotNow(None) => (retry.too_often(row, now), None, true),
        };
        if enough {
            let reason = format!("given up after {} attempts: {reason}", row.attempts.made);
            let ended = Settlement::of(
                row,
                DeliveryState::not_taken(mail.has_markers),
                mail.items,
                Some(&reason),
            );
            self.settlements.push(ended.given_up());
        } else {
            let not_before = now + retry.back_off(row, after);
            self.deferrals.push(Deferral {
                has_failed,
                ..deferral(row, DeliveryState::Pending, not_before, reason)
            });
        }
    }

    /// Defers an email that may have been accepted, while its outcome can be resolved.
    fn doubt(
        &mut self,
        retry: &Retry,
        mail: &Mail,
        reason: &str,
        after: Option<Duration>,
        now: DateTime<Utc>,
    ) {
        let row = &mail.row;
        let tried = row.attempts.called_at.unwrap_or(now);
        if now >= retry.hope(tried) {
            match retry.give_up(row, mail.items, reason, now) {
                Ok(unknown) => self.settlements.push(unknown),
                Err(again) => self.deferrals.push(again),
            }
            return;
        }
        let theirs = after.and_then(|after| TimeDelta::from_std(after).ok());
        let next = retry.next_look(tried, now);
        let not_before = theirs.map_or(next, |theirs| next.max(now + theirs));
        self.deferrals
            .push(deferral(row, DeliveryState::Sending, not_before, reason));
    }
}

pub(super) fn deferral(
    row: &Delivery,
    state: DeliveryState,
    not_before: DateTime<Utc>,
    reason: &str,
) -> Deferral {
    Deferral {
        id: row.id.clone(),
        state,
        not_before,
        reason: Some(reason.to_owned()),
        has_failed: false,
    }
}

#[cfg(test)]
#[path = "retry_tests.rs"]
mod tests;
