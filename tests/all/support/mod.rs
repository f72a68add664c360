//! What tests are built from: fresh stores, and short names for the values they are about.
//!
//! The rule: nothing here asserts, and nothing here knows a test. All builders speak of one moment,
//! noon of 22 April 2014, so that tests differ only in what they are about.

mod build;
mod client;
mod counted;
mod failing;
mod fresh;
pub mod mongo;
pub mod poison;
pub mod replica_set;
mod shorthand;
pub mod sns;
pub mod sqlite;
pub mod town;

pub use build::*;
pub use client::client;
pub use counted::sum;
pub use failing::{Before, FailingStore, Fault, Then};
pub use fresh::Fresh;
pub use shorthand::{Backlog, BatchCounts, Shorthand};
