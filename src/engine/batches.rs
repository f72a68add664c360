//! Batches: few mails while things happen fast.
//!
//! The rule: what happens to an accumulator is decided by [`crate::domain::batch::Accumulator`] and
//! put by a compare-and-set; whoever loses it reads again. So there is one open batch of a person
//! and key under any race, and an event joins once. [`Joiner`] is asked by fan-outs, [`Closer`] by
//! workers, [`BatchService`] by people.

mod book;
mod close;
mod join;
mod quiet;

/// Which batches.
pub use crate::store::BatchFilter;
pub(crate) use book::leads;
pub use book::{BatchService, End};
pub use close::Closer;
pub use join::{Join, Joiner};
pub use quiet::QuietHours;
