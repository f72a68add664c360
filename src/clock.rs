//! The only source of the current time.
//!
//! An operation reads the clock once and passes the time down. Tests and the demo set a
//! [`ManualClock`].

use std::sync::Mutex;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};

use crate::mutex::lock;

/// A source of the current time.
#[async_trait]
pub trait Clock: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> DateTime<Utc>;

    /// Waits for this long.
    async fn sleep(&self, time: TimeDelta);
}

/// The clock of this machine.
#[derive(Debug, Default)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that all other code reads")]
    fn now(&self) -> DateTime<Utc> {
        Utc::now()
    }

    async fn sleep(&self, time: TimeDelta) {
        tokio::time::sleep(time.to_std().unwrap_or_default()).await;
    }
}

/// A clock that moves only when it is set, advanced or slept on.
#[derive(Debug)]
pub struct ManualClock(Mutex<DateTime<Utc>>);

impl ManualClock {
    /// Creates a clock that shows this time.
    pub fn at(now: DateTime<Utc>) -> Self {
        Self(Mutex::new(now))
    }

    /// Sets the clock, forward or back.
    pub fn set(&self, now: DateTime<Utc>) {
        *lock(&self.0) = now;
    }

    /// Moves the clock forward by this much, or back if `by` is negative.
    pub fn advance(&self, by: TimeDelta) {
        *lock(&self.0) += by;
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> DateTime<Utc> {
        *lock(&self.0)
    }

    /// Advances the clock and returns without waiting.
    async fn sleep(&self, time: TimeDelta) {
        self.advance(time);
        tokio::task::yield_now().await;
    }
}
