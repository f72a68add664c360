//! Progress reports and cancellation of long operations.

/// Receives the progress of a long operation, and can stop it.
pub trait Watcher: Send + Sync {
    /// Adds `by` to the work done.
    fn advance(&self, by: u64);
    /// Sets the total amount of work, once it is known.
    fn total(&self, total: u64);
    /// Returns whether to stop. The operation then stops at a point from which it can resume.
    fn stopping(&self) -> bool {
        false
    }
}

/// Ignores progress and never stops.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Watcher for Silent {
    fn advance(&self, _: u64) {}
    fn total(&self, _: u64) {}
}
