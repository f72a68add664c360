//! The interface for retracted events.

use async_trait::async_trait;

use super::Result;
use crate::domain::{Event, Id, Poke, Retraction};

/// Retractions: small records that are read together with objects.
#[async_trait]
pub trait Retractions: Send + Sync {
    /// Stores these retractions, durably, and sends the change notice `about`. For each type and
    /// object the latest one wins under any race. The cost does not depend on the number of
    /// notified users.
    async fn retract(&self, retractions: &[Retraction], about: &Poke) -> Result<()>;

    /// Returns the moment up to which events of each (type, object) are retracted, in the order of
    /// the request; `None` if there is no retraction. The fan-out of the event does not matter.
    async fn retractions(&self, events: &[Event]) -> Result<Vec<Option<Id>>>;
}
