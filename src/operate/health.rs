//! Whether the parts that every request needs are there.

use std::sync::Arc;

use crate::context::Context;
use crate::domain::Id;
use crate::engine::Result;

/// Says whether the store answers.
pub struct Health {
    pub(crate) context: Arc<Context>,
}

impl Health {
    /// Whether the store answers: asks the journal for a fan-out that nobody wrote, which costs one
    /// look-up by key.
    pub async fn ready(&self) -> Result<()> {
        self.context.store.fanout(Id::from_bytes([0; 12])).await?;
        Ok(())
    }
}
