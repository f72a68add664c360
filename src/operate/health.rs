//! Checks the dependencies that every request needs.

use std::sync::Arc;

use crate::context::Context;
use crate::domain::Id;
use crate::engine::Result;

/// Checks whether the store answers.
pub struct Health {
    pub(crate) context: Arc<Context>,
}

impl Health {
    /// Returns an error if the store does not answer. Costs one look-up by key in the journal.
    pub async fn ready(&self) -> Result<()> {
        self.context.store.fanout(Id::from_bytes([0; 12])).await?;
        Ok(())
    }
}
