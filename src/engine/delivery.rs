//! Claims deliveries, builds and sends their emails, writes markers, and closes the rows.
//!
//! A row is inserted first and leased before work starts, so the next run finishes what a crash
//! interrupts (P2 to P7). Start with [`Sender`]: it calls [`Compose`], which builds emails and only
//! reads, and [`Throttle`], which permits calls across all processes. [`outcomes`] decides what an
//! outcome means. Only [`ledger`] writes the rows that are leased here.

pub mod brand_identities;
pub mod operator_actions;

mod compose;
mod headers;
mod ledger;
mod outcomes;
mod sender;
mod throttle;

pub use compose::Compose;
pub(crate) use compose::{ReconstructedEmail, SelectedEvents};
pub use headers::Headers;
pub use ledger::{Ledger, RunTally};
pub use outcomes::RetryPolicy;
pub use sender::Sender;
pub use throttle::{ProviderAccount, Throttle, ThrottleState, account_prefix};
