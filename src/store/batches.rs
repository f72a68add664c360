//! The interface for batches: accumulators, and the batches that have left them.
//!
//! An accumulator is read and replaced as a whole, by compare-and-set;
//! [`crate::domain::batch::Accumulator`] decides how it changes. A batch that left its accumulator
//! is stored once under its id ("filed"). After that it is only settled.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::Result;
use crate::domain::batch::{Accumulator, AccumulatorId, Addition};
use crate::domain::{Batch, BatchKey, BatchState, EventType, Id, ObjectId, UserId};

/// Selects the batches that match all given fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BatchFilter {
    /// User; `None` for all users.
    pub user: Option<UserId>,
    /// Key; `None` for any key.
    pub key: Option<BatchKey>,
    /// State; `None` for any state.
    pub state: Option<BatchState>,
}

/// Returns a page of batches from accumulators and filed batches: each once, newest first.
pub(super) fn page(mut found: Vec<Batch>, before: Option<Id>, limit: usize) -> Vec<Batch> {
    found.retain(|batch| before.is_none_or(|before| batch.id < before));
    found.sort_by_key(|batch| std::cmp::Reverse(batch.id));
    found.dedup_by_key(|batch| batch.id);
    found.truncate(limit);
    found
}

/// Selects accumulators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccumulatorFilter<'a> {
    /// Accumulators that are due at this moment and not leased, in the order of their due times.
    /// Each is returned once, even if it changes meanwhile. The cost depends on those due or
    /// leased, not on those open.
    Due(DateTime<Utc>),
    /// The accumulator whose open batch, or unfiled ended batch, has this id.
    Of(Id),
    /// Accumulators whose open batch keeps an event of this type about one of these objects,
    /// ordered by id.
    Holding {
        /// Event type.
        kind: &'a EventType,
        /// Object ids.
        objects: &'a [ObjectId],
        /// Only accumulators after this one.
        after: Option<&'a AccumulatorId>,
    },
}

/// Near-real-time batches.
#[async_trait]
pub trait Batches: Send + Sync {
    /// Returns these accumulators, in the order of the request. Each id occurs at most once.
    async fn accumulators(&self, ids: &[AccumulatorId]) -> Result<Vec<Option<Accumulator>>>;

    /// Replaces each accumulator if its revision is the stored one, or creates it if it has none
    /// and none is stored. Removes an empty one. `revision` becomes the new revision and must be
    /// unique.
    ///
    /// Returns which were written, in the order of the request; at most one for an accumulator that
    /// occurs twice. Of two callers that read the same version, one gets `false` and must read
    /// again. May return `false` for a write that succeeded if its reply was lost. Durable.
    async fn put_accumulators(
        &self,
        accumulators: &[Accumulator],
        revision: Id,
    ) -> Result<Vec<bool>>;

    /// Adds events to the open batches of accumulators, each in one step, if all conditions of the
    /// addition hold ([`Addition::fits`]). `accumulators` pairs each accumulator with the index of
    /// its addition.
    ///
    /// Returns `true` if all of them are known to be updated. Otherwise the caller has to read the
    /// accumulators; a store may always decline. It is safe to repeat, because a fan-out joins only
    /// once. `revision` must be unique. Durable.
    async fn add_to_open(
        &self,
        accumulators: &[(AccumulatorId, usize)],
        additions: &[Addition],
        revision: Id,
    ) -> Result<bool>;

    /// Returns the selected accumulators, at most `limit`.
    async fn find_accumulators(
        &self,
        filter: &AccumulatorFilter<'_>,
        limit: usize,
    ) -> Result<Vec<Accumulator>>;

    /// Files batches that left their accumulators. A batch that is already filed is not changed.
    ///
    /// Returns whether the stored batch has the same events ([`Batch::gathered_as`]), in the order
    /// of the request. `false` is a conflict: a batch with other events has the id. Durable.
    async fn file_batches(&self, batches: &[Batch]) -> Result<Vec<bool>>;

    /// Returns these filed batches, in the order of the request.
    async fn filed(&self, ids: &[Id]) -> Result<Vec<Option<Batch>>>;

    /// Settles filed batches that are closing, as `closed` or `canceled`. Does not change settled
    /// ones.
    async fn settle_batches(&self, settled: &[(Id, BatchState)], now: DateTime<Utc>) -> Result<()>;

    /// Returns open and filed batches, newest first; with `before`, only those with lower ids.
    async fn find_batches(
        &self,
        filter: &BatchFilter,
        before: Option<Id>,
        limit: usize,
    ) -> Result<Vec<Batch>>;
}
