//! What the world sees of us: names in the DNS, and our pages as somebody outside reaches them.
//!
//! The rule: it looks and judges nothing; every look has a time-out; and "the world says no" is
//! never mixed up with "nobody could be asked". [`crate::operate::doctor`] is who asks.

mod names;
mod web;

pub use names::Names;
pub use web::{Heard, Web};
