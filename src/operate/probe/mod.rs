//! Queries the outside view of this instance: its DNS records and its public pages.
//!
//! Results are not evaluated here; [`crate::operate::doctor`] does that. Every query has a time
//! limit. A negative answer is never confused with a failed query.

mod names;
mod web;

pub use names::Names;
pub use web::{Heard, Web};
