//! The only source of new ids.
//!
//! An id contains the time of its operation, which reads the [clock](crate::clock) once. Tests and
//! the demo can make the same ids in every run ([`Ids::deterministic`]).

use std::sync::atomic::{AtomicU32, Ordering};

use chrono::{DateTime, Utc};

use crate::domain::Id;

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
