//! What a day's documents come to: how many there are, and a checksum of all of them.
//!
//! The rule: two days with the same sum hold the same documents, to the byte, in the same order. An
//! export vouches for its lines with it, and a day is dropped only if its sum is what was expected.

use sha2::{Digest, Sha256};

/// How many documents, and the SHA-256 of all their lines, with their line ends, in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaySum {
    /// How many documents the day holds.
    pub stacks: u64,
    /// 64 digits in lower case; of a day without documents it is the sum of nothing.
    pub sha256: String,
}

/// A sum while lines come.
#[derive(Debug, Default)]
pub struct Summing {
    stacks: u64,
    hash: Sha256,
}

impl Summing {
    /// Takes the next document's line, without its line end.
    pub fn add(&mut self, line: &str) {
        self.hash.update(line.as_bytes());
        self.hash.update(b"\n");
        self.stacks += 1;
    }

    /// How many lines came so far.
    pub fn stacks(&self) -> u64 {
        self.stacks
    }

    /// The sum of all that came.
    pub fn end(self) -> DaySum {
        DaySum {
            stacks: self.stacks,
            sha256: hex::encode(self.hash.finalize()),
        }
    }
}
