//! Counts and times the calls from the engine to the store and the mailer.
//!
//! The rule: each verb is handed on as it is, and its answer as it came; what is counted was said
//! to be done by whoever did it, so a count is short only where that answer was lost. The log tells
//! of events by their ids and of deliveries by their tags, as the ids of these may name people.

mod mailer;
mod store;

pub(super) use mailer::MeasuredMailer;
pub(super) use store::MeasuredStore;
