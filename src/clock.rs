//! The only caller of "now", and the only maker of ids.
//!
//! The rule: an operation asks the clock once and passes the answer down. Tests and the demo turn a
//! [`ManualClock`].

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};

use crate::domain::Id;

/// What time it is.
#[async_trait]
pub trait Clock: Send + Sync {
    /// The moment, in UTC.
    fn now(&self) -> DateTime<Utc>;

    /// Waits for so long.
    async fn sleep(&self, time: TimeDelta);
}

/// The machine's clock.
#[derive(Debug, Default)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that everybody else asks"
    )]
    fn now(&self) -> DateTime<Utc> {
        Utc::now()
    }

    async fn sleep(&self, time: TimeDelta) {
        tokio::time::sleep(time.to_std().unwrap_or_default()).await;
    }
}

/// A clock that stands still until it is turned.
#[derive(Debug)]
pub struct ManualClock(Mutex<DateTime<Utc>>);

impl ManualClock {
    /// A clock that shows this moment.
    pub fn at(now: DateTime<Utc>) -> Self {
        Self(Mutex::new(now))
    }

    /// Turns it to this moment, forward or back.
    pub fn set(&self, now: DateTime<Utc>) {
        *self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = now;
    }

    /// Turns it forward by so much, or back where that is negative.
    pub fn advance(&self, by: TimeDelta) {
        *self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) += by;
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> DateTime<Utc> {
        *self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Whoever sleeps by this clock turns it, and wakes at once.
    async fn sleep(&self, time: TimeDelta) {
        self.advance(time);
        tokio::task::yield_now().await;
    }
}

/// Makes ids: the time asked for, five bytes that name this process, three that count.
#[derive(Debug)]
pub struct Ids {
    process: [u8; 5],
    counter: AtomicU32,
}

impl Ids {
    /// Ids that no other process makes: seeded by the operating system's randomness.
    pub fn random() -> Self {
        let seed = bson::oid::ObjectId::new().bytes();
        let [_, _, _, _, a, b, c, d, e, ..] = seed;
        Self {
            process: [a, b, c, d, e],
            counter: AtomicU32::new(u32::from_be_bytes([0, seed[9], seed[10], seed[11]])),
        }
    }

    /// The same ids in every run: for tests and the demo.
    pub fn counting(process: u8) -> Self {
        Self {
            process: [0, 0, 0, 0, process],
            counter: AtomicU32::new(0),
        }
    }

    /// A new id of this moment. Sixteen million can be made in a second before they repeat.
    pub fn next(&self, at: DateTime<Utc>) -> Id {
        let [_, x, y, z] = self.counter.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let [a, b, c, d, e] = self.process;
        Id::at(at, [a, b, c, d, e, x, y, z])
    }

    /// A name for this process in leases.
    pub fn owner(&self) -> String {
        hex::encode(self.process)
    }
}
