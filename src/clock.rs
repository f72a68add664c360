//! The only source of the current time and of new ids.
//!
//! An operation reads the clock once and passes the time down. Tests and the demo set a
//! [`ManualClock`].

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};

use crate::domain::Id;
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

/// Generates ids: the given time, five bytes for this process, and a three-byte counter.
#[derive(Debug)]
pub struct Ids {
    process: [u8; 5],
    counter: AtomicU32,
}

impl Ids {
    /// Creates a generator with a random process part and a random first count, so that no other
    /// process makes the same ids.
    pub fn random() -> Self {
        // An object id consists of four bytes of time, five random ones and a three-byte count.
        let [_, _, _, _, a, b, c, d, e, x, y, z] = bson::oid::ObjectId::new().bytes();
        Self { process: [a, b, c, d, e], counter: AtomicU32::new(u32::from_be_bytes([0, x, y, z])) }
    }

    /// Creates a generator that makes the same ids in every run, for tests and the demo.
    pub fn deterministic(process: u8) -> Self {
        Self { process: [0, 0, 0, 0, process], counter: AtomicU32::new(0) }
    }

    /// Returns a new id with this time. About 16.7 million ids (2^24) of one second are distinct.
    pub fn next(&self, at: DateTime<Utc>) -> Id {
        let [_, x, y, z] = self.counter.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let [a, b, c, d, e] = self.process;
        Id::at(at, [a, b, c, d, e, x, y, z])
    }

    /// Returns the name of this process in leases, as hexadecimal digits.
    pub fn owner(&self) -> String {
        hex::encode(self.process)
    }
}
