//! Takes rows of the ledger to their end: claimed, composed, sent, marked, settled, closed.
//!
//! The rule (P2–P7): the row came first and is ours by a lease. [`Sender`] walks; it asks four
//! others, none of whom knows it. [`Compose`] makes mails of rows and only reads. [`Gate`] says
//! whether a call may be made now, for all processes. [`ledger`] is the only one that writes what
//! becomes of a row in hand. [`retry`] turns an outcome into what comes next, and does nothing
//! else. If the process dies on the way, the next run resumes.

pub mod deliveries;
pub mod identity;
pub mod mailer;
pub(crate) mod mails;

mod compose;
mod gate;
mod headers;
mod ledger;
mod mail;
mod retry;
mod sender;
mod tally;

pub(crate) use compose::Contents;
pub(crate) use compose::Prospect;
pub use compose::{Compose, Spread};
pub use gate::{Account, Gate, GateState, Pacer, Turn, account_prefix};
pub use headers::Headers;
pub use ledger::Ledger;
pub use retry::{Retry, Undeliverable};
pub use sender::{Sender, Step};
pub use tally::RunTally;
