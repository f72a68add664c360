//! Claims deliveries, builds and sends their emails, writes markers, and closes the rows.
//!
//! A row is inserted first and leased before work starts, so the next run finishes what a crash
//! interrupts (P2 to P7). Start with [`Sender`]: it calls [`Compose`], which builds emails and only
//! reads, and [`Gate`], which permits calls across all processes. [`retry`] decides what an outcome
//! means. Only [`ledger`] writes the rows that are leased here.

pub mod deliveries;
pub mod identity;

mod compose;
mod gate;
mod headers;
mod ledger;
mod retry;
mod sender;

pub use compose::Compose;
pub(crate) use compose::{Selected, SentEmail};
pub use gate::{Gate, GateState, ProviderAccount, account_prefix};
pub use headers::Headers;
pub use ledger::{Ledger, RunTally};
pub use retry::Retry;
pub use sender::Sender;
