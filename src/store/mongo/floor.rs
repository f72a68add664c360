//! The cluster time that every read must have reached.

use std::sync::atomic::{AtomicU64, Ordering};

use bson::Timestamp;

/// The highest cluster time seen so far: seconds in the upper half, an increment in the lower one.
#[derive(Debug, Default)]
pub(super) struct Floor(AtomicU64);

impl Floor {
    pub(super) fn raise(&self, to: Timestamp) {
        let packed = u64::from(to.time) << 32 | u64::from(to.increment);
        self.0.fetch_max(packed, Ordering::AcqRel);
    }

    /// Returns `None` for a standalone server: it reports no cluster time and has no stale members.
    pub(super) fn time(&self) -> Option<Timestamp> {
        let packed = self.0.load(Ordering::Acquire);
        (packed > 0).then_some(Timestamp {
            time: (packed >> 32) as u32,
            increment: packed as u32,
        })
    }
}
