//! Counts and times the calls from the engine to the store and the mailer.
//!
//! Arguments and results pass through unchanged. Work is counted when a call reports success, so a
//! lost reply makes a counter too low. The log names a delivery by its tag, because its id contains
//! the user's id.

mod mailer;
mod store;

pub(super) use mailer::MeasuredMailer;
pub(super) use store::MeasuredStore;
