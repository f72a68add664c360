//! The cluster time that every read must have reached.

use std::sync::atomic::{AtomicU64, Ordering};

use bson::Timestamp;

/// The highest cluster time that was met: seconds, and a count within them.
#[derive(Debug, Default)]
pub(super) struct Floor(AtomicU64);

impl Floor {
    pub(super) fn raise(&self, to: Timestamp) {
        let packed = u64::from(to.time) << 32 | u64::from(to.increment);
        self.0.fetch_max(packed, Ordering::AcqRel);
    }

    /// Nothing for a server that stands alone: it has no such time, and nobody to lag behind.
    pub(super) fn time(&self) -> Option<Timestamp> {
        let packed = self.0.load(Ordering::Acquire);
        (packed > 0).then_some(Timestamp {
            time: (packed >> 32) as u32,
            increment: packed as u32,
        })
    }
}
