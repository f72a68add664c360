//! Whether the parts that every request needs are there.

use std::sync::Arc;

use crate::domain::Id;
use crate::engine::Result;
use crate::store::Journal;

/// Says whether the store answers.
pub struct Health {
    pub(crate) journal: Arc<dyn Journal>,
}

impl Health {
    /// Whether the store answers: asks the journal for a fan-out that nobody wrote, which costs one
    /// look-up by key.
    pub async fn ready(&self) -> Result<()> {
        self.journal.fanout(Id::from_bytes([0; 12])).await?;
        Ok(())
    }
}
