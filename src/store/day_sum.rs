//! The checksum of a day's documents.
//!
//! Days with equal sums hold the same documents, byte for byte and in the same order. An export is
//! verified by it, and a day is dropped only if its sum matches.

use sha2::{Digest, Sha256};

/// The number of documents, and the SHA-256 of their lines, each with its line end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaySum {
    /// Number of documents.
    pub stacks: u64,
    /// 64 lowercase hexadecimal digits. The sum of a day without documents is that of the empty
    /// string.
    pub sha256: String,
}

/// A sum in progress.
#[derive(Debug, Default)]
pub struct Summing {
    stacks: u64,
    hash: Sha256,
}

impl Summing {
    /// Adds a document's line, given without its line end.
    pub fn add(&mut self, line: &str) {
        self.hash.update(line.as_bytes());
        self.hash.update(b"\n");
        self.stacks += 1;
    }

    /// Returns the number of lines added so far.
    pub fn stacks(&self) -> u64 {
        self.stacks
    }

    /// Returns the sum of all lines.
    pub fn end(self) -> DaySum {
        DaySum {
            stacks: self.stacks,
            sha256: hex::encode(self.hash.finalize()),
        }
    }
}
