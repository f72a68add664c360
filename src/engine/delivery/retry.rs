//! What each outcome means for its row: settled, or waiting, and for how long.
//!
//! The rule (P5): settings, attempt, outcome and time go in, a verdict comes out; nothing is read
//! or written. What was surely not taken is tried again, later each time, until that is too often
//! or too late. What may have been taken stays `sending` under its call's reference for as long as
//! [`Certainty`] gives hope; from then on it is `unknown`, never guessed, unless the [`Guarantee`]
//! is to send it again.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::mail::Mail;
use crate::domain::delivery::{Deferral, Guarantee, Settlement};
use crate::domain::lease::LONGEST_WAIT;
use crate::domain::{Delivery, DeliveryId, DeliveryState, Sending, UserId};
use crate::email::{Certainty, Outcome};

/// Turns outcomes into what comes next.
#[derive(Debug, Clone, Copy)]
pub struct Retry {
    /// Attempts, waits and the guarantee.
    pub settings: Sending,
    /// What can be found out of a call whose answer nobody saw.
    pub certainty: Certainty,
}

/// Whether a call is made for the first time under its reference, or again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    First,
    /// An earlier one may have been taken: only a definite answer ends it, and nothing starts anew.
    Repeated,
}

/// Somebody whose address the provider takes nothing for any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undeliverable {
    /// The mail that was not taken.
    pub delivery: DeliveryId,
    /// Whose address it is.
    pub user: UserId,
    /// What the provider said.
    pub reason: String,
}

/// What the outcomes of a call come to.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    pub settlements: Vec<Settlement>,
    pub deferrals: Vec<Deferral>,
    /// By their place in the call: those to be sent alone, as it was refused as a whole.
    pub alone: Vec<usize>,
    /// Their addresses are suppressed: see [`super::ledger`].
    pub undeliverable: Vec<Undeliverable>,
    /// Nothing else will be taken either, until somebody fixes it.
    pub stop: Option<String>,
    /// The longest wait the provider asked for.
    pub after: Option<Duration>,
    /// Whether nothing of the call is known to be taken, though nothing is known to be wrong with
    /// the mails.
    pub none_taken: bool,
    /// Whether every email of the call was deferred for its recipient or its content. That is no
    /// sign of how much the provider accepts.
    pub all_deferred: bool,
}

/// No email waits longer than this between two attempts, on top of the provider's wait.
const LONGEST: TimeDelta = TimeDelta::hours(1);
/// No mail is tried again sooner, whatever the provider says.
const SOONEST: TimeDelta = TimeDelta::seconds(1);
/// How soon a call is made again whose outcome nobody saw.
const REPEAT_AFTER: TimeDelta = TimeDelta::seconds(2);

impl Retry {
    /// What the outcomes of a call mean; `now` is when they came.
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
        // A mailer that answers for too few leaves the rest unknown.
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
                // One that could not be written was never shown to the provider.
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
                // An earlier try may have had it in the call.
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
                    // Surely none was taken the first time either: it starts anew.
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
                        // Why nobody knows its outcome is what matters, and still true.
                        Attempt::Repeated => {
                            let why = row.reason.clone().unwrap_or(reason);
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

    /// Why nobody can tell what became of a call, if nobody can: no answer was the provider's, and
    /// it can neither be asked nor told again.
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

    /// What becomes of a row whose outcome will not be found out.
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
                spends_try: true,
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

    /// Until when the outcome of a call first made then is looked for.
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

    /// From when on "never heard of it" is believed of a call first made then: whoever made it may
    /// have stood still for as long as its lease, and the provider may take its time to learn of
    /// it.
    pub(super) fn believed(&self, tried: DateTime<Utc>) -> DateTime<Utc> {
        tried + self.settings.lease + self.settings.ask_until
    }

    /// When an outcome nobody saw is looked for next: each time after twice as long.
    pub(super) fn next_look(&self, tried: DateTime<Utc>, now: DateTime<Utc>) -> DateTime<Utc> {
        let least = match self.certainty {
            Certainty::Ask => self.settings.ask_after,
            Certainty::Repeat { .. } | Certainty::Never => REPEAT_AFTER,
        };
        let next = (now + (now - tried).clamp(least, LONGEST)).min(self.hope(tried));
        // The first answer that counts, whatever it is.
        let counts = self.believed(tried);
        if now < counts { next.min(counts) } else { next }
    }

    /// Whether the last try was one too many, if it is counted.
    fn too_often(&self, row: &Delivery, now: DateTime<Utc>) -> bool {
        row.tries_spent + 1 >= self.settings.attempts || self.too_late(row, now)
    }

    fn too_late(&self, row: &Delivery, now: DateTime<Utc>) -> bool {
        now - row.created >= self.settings.give_up_after
    }

    /// Returns how long a row waits: `delivery.retry_after`, doubled by each attempt, plus up to
    /// half of it, so that not everything comes back at once.
    ///
    /// Where the provider names a wait, the row waits that long first. The provider's wait ends for
    /// all emails at the same time, so another one is sent before this one: what looks like a limit
    /// of the account may concern this recipient alone. A short wait of the provider is doubled in
    /// place of `delivery.retry_after`.
    fn back_off(&self, row: &Delivery, after: Option<Duration>) -> TimeDelta {
        let theirs = after.and_then(|after| TimeDelta::from_std(after).ok());
        let retry_after = self.settings.retry_after;
        let first = theirs.map_or(retry_after, |theirs| theirs.min(retry_after));
        let doubled = 1 << row.attempts.saturating_sub(1).min(16);
        let least = (first * doubled).min(LONGEST);
        // What is drawn by the call is the same for all its mails: they can share one again.
        let drawn = row.call.as_deref().map_or(0, |call| {
            call.bytes()
                .fold(0, |sum: i32, byte| (sum * 31 + i32::from(byte)) % 1_000)
        });
        let ours = least + least * drawn / 2_000;
        // A row that waits for longer looks like one that a wrong clock put off.
        (theirs.unwrap_or_default() + ours).clamp(SOONEST, LONGEST_WAIT)
    }
}

/// Why a mail was surely not taken.
enum Wait {
    /// Nobody could be reached who might have taken it: only time ends that.
    Unreachable,
    /// The recipient's server asks to try again later, as RFC 5321 (4.5.4.1) has senders do for
    /// days: only time ends that.
    Deferred,
    /// The provider answered, and may have named a time to wait.
    NotNow(Option<Duration>),
}

impl Verdicts {
    /// It was surely not taken: it waits, or has waited long enough.
    fn wait_or_fail(
        &mut self,
        retry: &Retry,
        mail: &Mail,
        reason: &str,
        wait: Wait,
        now: DateTime<Utc>,
    ) {
        let row = &mail.row;
        let (enough, after, spends_try) = match wait {
            Wait::Unreachable | Wait::Deferred => (retry.too_late(row, now), None, false),
            // A provider that names a time means to take it then, however often that was.
            Wait::NotNow(Some(after)) => (retry.too_late(row, now), Some(after), false),
            Wait::NotNow(None) => (retry.too_often(row, now), None, true),
        };
        if enough {
            let reason = format!("given up after {} attempts: {reason}", row.attempts);
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
                spends_try,
                ..deferral(row, DeliveryState::Pending, not_before, reason)
            });
        }
    }

    /// It may have been taken: it is looked for while there is hope.
    fn doubt(
        &mut self,
        retry: &Retry,
        mail: &Mail,
        reason: &str,
        after: Option<Duration>,
        now: DateTime<Utc>,
    ) {
        let row = &mail.row;
        let tried = row.tried.unwrap_or(now);
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
        spends_try: false,
    }
}

#[cfg(test)]
#[path = "retry_tests.rs"]
mod tests;
