//! The interface for change notices: hints that feeds may have changed.
//!
//! The stores send a notice after each change that feeds show, so callers cannot forget it. Notices
//! may be lost, late or needless. Subscribers must also reload now and then.

use async_trait::async_trait;
use futures::stream::BoxStream;

use super::Result;
use crate::domain::Poke;

/// Change notices of all processes that share this store.
#[async_trait]
pub trait Pokes: Send + Sync {
    /// Subscribes. The first notice is [`Poke::All`]; from then on every notice arrives at least
    /// once.
    ///
    /// After an error or the end of the stream, notices may be missing: subscribe again.
    async fn pokes(&self) -> Result<BoxStream<'static, Result<Poke>>>;
}
