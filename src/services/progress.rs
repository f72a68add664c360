//! How long work says how far it is, without knowing who listens.

/// Told of every step; the terminal draws a bar of it.
pub trait Progress: Send + Sync {
    /// So much more has been done.
    fn advance(&self, by: u64);
    /// How much there is in all, once that is known.
    fn total(&self, total: u64);
    /// Whether somebody wants the work to end: it then stops where it can be taken up again.
    fn stopping(&self) -> bool {
        false
    }
}

/// Nobody listens.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn advance(&self, _: u64) {}
    fn total(&self, _: u64) {}
}
