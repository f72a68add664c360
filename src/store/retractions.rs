//! What was taken back.

use async_trait::async_trait;

use super::Result;
use crate::domain::{Event, Id, Poke, Retraction};

/// Retractions: small records that are asked for wherever objects are.
#[async_trait]
pub trait Retractions: Send + Sync {
    /// Notes that these are taken back, durably, and pokes whom it is about. Of several of one
    /// (type, object) the latest stands, under any race. Costs the same however many people were
    /// told.
    async fn retract(&self, retractions: &[Retraction], about: &Poke) -> Result<()>;

    /// Up to which moment events of each of these (type, object) are taken back, in the order
    /// asked; `None` where none are. Which fan-out an event is of does not matter.
    async fn retractions(&self, events: &[Event]) -> Result<Vec<Option<Id>>>;
}
