//! Checks that the store answers.

use crate::context::Context;
use crate::domain::Id;
use crate::engine::Result;

/// Succeeds if the store answers: looks up an event by a key that does not exist.
pub async fn ready(context: &Context) -> Result<()> {
    context.store.fanout(Id::from_bytes([0; 12])).await?;
    Ok(())
}
