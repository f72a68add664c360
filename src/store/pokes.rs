//! News of what may have changed in feeds: the trait.
//!
//! The rule: whoever pushes onto stacks, puts inboxes, objects or mutes pokes afterward, here in
//! the stores, so that nobody can forget to. A poke may be lost, late or needless; whoever listens
//! looks again now and then in any case.

use async_trait::async_trait;
use futures::stream::BoxStream;

use super::Result;
use crate::domain::Poke;

/// News of what may have changed in feeds, by any process that works with this store.
#[async_trait]
pub trait Pokes: Send + Sync {
    /// Listens. The first is [`Poke::All`]: from then on every poke comes, each once or more often.
    /// An error, or the end, says that some may be missed: listen again.
    async fn pokes(&self) -> Result<BoxStream<'static, Result<Poke>>>;
}
