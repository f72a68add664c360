//! The store, the clock and the other parts that all use cases share.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::clock::Clock;
use crate::config::Config;
use crate::domain::{Lease, Policies};
use crate::ids::Ids;
use crate::metrics::Metrics;
use crate::store::Store;

/// The shared parts of a process.
#[derive(Clone)]
pub struct Context {
    /// The checked configuration.
    pub config: Arc<Config>,
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
    /// Counts the work of this process.
    pub metrics: Metrics,
}

impl Context {
    /// Builds the context of a process, which gets a new name for its leases.
    pub fn new(
        config: Config,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        ids: Arc<Ids>,
        metrics: Metrics,
    ) -> Self {
        Self {
            policies: Arc::new(config.policies.clone()),
            config: Arc::new(config),
            store,
            clock,
            owner: ids.owner(),
            ids,
            metrics,
        }
    }

    /// Returns a lease of this process that ends at `until`.
    pub fn lease_until(&self, until: DateTime<Utc>) -> Lease {
        Lease { owner: self.owner.clone(), until }
    }
}
