//! What every use case needs: the store, the time, new ids, and what is configured of event types.

use std::sync::Arc;

use crate::clock::{Clock, Ids};
use crate::domain::Policies;
use crate::store::Store;

/// The parts of a process that its use cases share.
pub struct Context {
    /// Keeps everything.
    pub store: Arc<dyn Store>,
    /// The time; tests set it.
    pub clock: Arc<dyn Clock>,
    /// Makes new ids.
    pub ids: Arc<Ids>,
    /// What is configured of event types.
    pub policies: Arc<Policies>,
    /// The name of this process, under which it holds leases.
    pub owner: String,
}
