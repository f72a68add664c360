//! Who is told how far long work is, and can end it: a bar in the terminal, a signal, or nobody.

/// Told of every step; the terminal draws a bar of it.
pub trait Watcher: Send + Sync {
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

impl Watcher for Silent {
    fn advance(&self, _: u64) {}
    fn total(&self, _: u64) {}
}
