//! Combines a user's events of one key into few emails.
//!
//! [`crate::domain::batch::Accumulator`] decides each change, and the store applies it by
//! compare-and-set. Therefore a user has one open batch per key under any race, and an event joins
//! once. Fan-outs use [`Joiner`], workers use [`Closer`], and operators use [`BatchService`].

mod book;
mod close;
mod join;
mod quiet;

/// Selects batches.
pub use crate::store::BatchFilter;
pub(crate) use book::leads;
pub use book::{BatchService, End};
pub use close::Closer;
pub use join::{Join, Joiner};
pub use quiet::QuietHours;
