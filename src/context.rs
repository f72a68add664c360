//! The parts that all use cases share.

use std::sync::Arc;

use crate::clock::{Clock, Ids};
use crate::domain::Policies;
use crate::store::Store;

/// The shared parts of a process.
pub struct Context {
    /// Keeps all data.
    pub store: Arc<dyn Store>,
    /// The clock; tests set the time.
    pub clock: Arc<dyn Clock>,
    /// Makes new ids.
    pub ids: Arc<Ids>,
    /// The configured policies of event types.
    pub policies: Arc<Policies>,
    /// The name of this process in leases.
    pub owner: String,
}
