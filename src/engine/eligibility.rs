//! Which events may be included for a user.

pub mod catalog;
pub mod mutes;
pub mod skip_seen;
pub mod stacks;
