//! A mailer at its provider's pace: so many calls a second, so many at once, and none while the
//! provider wants to be left alone.
//!
//! The rule: when an answer says how long to wait, nobody in this process calls before that. A
//! short wait is waited out; a long one is answered at once with [`Outcome::TryLater`] for the rest
//! of it, as nothing has been sent and whoever calls holds leases that run out.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep};

use super::{Answer, Certainty, Checked, Leave, Mailer, Message, Outcome, Silence};
use crate::domain::DeliveryId;

/// How fast a provider is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Calls begun in a second, evenly.
    pub per_second: NonZeroU32,
    /// Calls under way at any time.
    pub at_once: usize,
    /// The longest wait that is waited out. Must be well below the leases of those who call.
    pub patience: Duration,
}

/// A mailer that keeps a pace.
pub struct Paced {
    mailer: Arc<dyn Mailer>,
    patience: Duration,
    turns: RateLimiter<NotKeyed, InMemoryState, Ticks, NoOpMiddleware<Nanos>>,
    clock: Ticks,
    places: Semaphore,
    /// Until when the provider wants no calls.
    quiet: Mutex<Option<Instant>>,
}

/// The time since this mailer was made, on tokio's clock, which tests can turn.
#[derive(Debug, Clone, Copy)]
struct Ticks(Instant);

impl Clock for Ticks {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        self.0.elapsed().into()
    }
}

/// Why no call may be made.
enum NoTurn {
    /// The provider wants none for so long.
    Quiet(Duration),
    Withheld(String),
}

/// The longest that is slept without a look whether the leave still stands.
const LOOK: Duration = Duration::from_secs(1);

impl Paced {
    /// This mailer, called at this pace; each `Paced` counts only its own calls.
    pub fn new(mailer: Arc<dyn Mailer>, pace: Pace) -> Self {
        let clock = Ticks(Instant::now());
        // One at a time: a burst on top of the rate would be more than a provider that counts by
        // the second takes.
        let quota = Quota::per_second(pace.per_second).allow_burst(NonZeroU32::MIN);
        Self {
            mailer,
            patience: pace.patience,
            turns: RateLimiter::direct_with_clock(quota, clock),
            clock,
            places: Semaphore::new(pace.at_once.max(1)),
            quiet: Mutex::default(),
        }
    }

    /// Waits until a call may be made.
    async fn turn(&self, leave: &Leave) -> Result<Option<SemaphorePermit<'_>>, NoTurn> {
        // The semaphore is never closed, so there is always a permit.
        let place = self.places.acquire().await.ok();
        loop {
            if let Some(reason) = leave.withheld() {
                return Err(NoTurn::Withheld(reason));
            }
            let quiet = self.quiet();
            if quiet > self.patience {
                return Err(NoTurn::Quiet(quiet));
            }
            if !quiet.is_zero() {
                sleep(quiet.min(LOOK)).await;
                continue;
            }
            match self.turns.check() {
                Ok(()) => return Ok(place),
                Err(not_until) => sleep(not_until.wait_time_from(self.clock.now())).await,
            }
        }
    }

    /// How long the provider wants no calls.
    fn quiet(&self) -> Duration {
        let quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        quiet.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        })
    }

    /// Notes the longest of the waits that were asked for.
    fn heed(&self, waits: impl Iterator<Item = Duration>) {
        let Some(until) = waits
            .max()
            .and_then(|wait| Instant::now().checked_add(wait))
        else {
            return;
        };
        let mut quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        *quiet = (*quiet).max(Some(until));
    }
}

#[async_trait]
impl Mailer for Paced {
    fn calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        self.mailer.calls(messages)
    }

    async fn send(&self, reference: &str, messages: &[Message], leave: &Leave) -> Vec<Outcome> {
        let _place = match self.turn(leave).await {
            Ok(place) => place,
            Err(why) => {
                let outcome = match why {
                    NoTurn::Quiet(rest) => Outcome::TryLater {
                        reason: format!("{} wants no calls for a while", self.name()),
                        after: Some(rest),
                    },
                    NoTurn::Withheld(reason) => Outcome::Withheld { reason },
                };
                return vec![outcome; messages.len()];
            }
        };
        let outcomes = self.mailer.send(reference, messages, leave).await;
        self.heed(outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::TryLater { after, .. } => *after,
            _ => None,
        }));
        outcomes
    }

    fn certainty(&self) -> Certainty {
        self.mailer.certainty()
    }

    async fn ask(&self, reference: &str, deliveries: &[DeliveryId]) -> Vec<Answer> {
        match self.turn(&Leave::always()).await {
            Ok(_place) => {
                let answers = self.mailer.ask(reference, deliveries).await;
                self.heed(answers.iter().filter_map(|answer| match answer {
                    Answer::Silent(silence) => silence.after,
                    Answer::Taken { .. } | Answer::NotTaken => None,
                }));
                answers
            }
            Err(NoTurn::Quiet(rest)) => {
                let silence = Silence {
                    reason: format!("{} wants no calls for {} s", self.name(), rest.as_secs()),
                    after: Some(rest),
                };
                vec![Answer::Silent(silence); deliveries.len()]
            }
            Err(NoTurn::Withheld(reason)) => {
                vec![Answer::Silent(reason.into()); deliveries.len()]
            }
        }
    }

    /// Costs no turn: it sends nothing.
    async fn check(&self) -> Checked {
        self.mailer.check().await
    }

    fn name(&self) -> &str {
        self.mailer.name()
    }

    fn account(&self) -> String {
        self.mailer.account()
    }
}

#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
