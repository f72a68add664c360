//! What gathers until it is mailed: accumulators, and the batches that left them.
//!
//! The rule: an accumulator is read and put as a whole, by a compare-and-set;
//! [`crate::domain::batch::Accumulator`] decides what it becomes. A batch that has left its
//! accumulator is filed once, under its id, and only ever settled after that; who comes with
//! another under that id is told.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::Result;
use crate::domain::batch::{Accumulator, AccumulatorId, Addition};
use crate::domain::{Batch, BatchKey, BatchState, EventType, Id, ObjectId, UserId};

/// Which batches; all that is named must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BatchFilter {
    /// Only this person's; `None` for everybody's.
    pub user: Option<UserId>,
    /// Only those under this key; `None` for any key.
    pub key: Option<BatchKey>,
    /// Only those in this state; `None` for any state.
    pub state: Option<BatchState>,
}

/// A page of what was found on accumulators and among the filed: each batch once, newest first.
pub(super) fn page(mut found: Vec<Batch>, before: Option<Id>, limit: usize) -> Vec<Batch> {
    found.retain(|batch| before.is_none_or(|before| batch.id < before));
    found.sort_by_key(|batch| std::cmp::Reverse(batch.id));
    found.dedup_by_key(|batch| batch.id);
    found.truncate(limit);
    found
}

/// Which accumulators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccumulatorFilter<'a> {
    /// Those that are due at this moment and that nobody holds then, in the order in which they
    /// fell due; each once, also while it moves. Costs what is due and held, not what is open.
    Due(DateTime<Utc>),
    /// The one on which this batch is open, or has just ended.
    Of(Id),
    /// Those whose open batch keeps an event of this type about one of these objects, by their ids.
    Holding {
        /// The type.
        kind: &'a EventType,
        /// The objects.
        objects: &'a [ObjectId],
        /// Only those after this one.
        after: Option<&'a AccumulatorId>,
    },
}

/// Near-real-time batches.
#[async_trait]
pub trait Batches: Send + Sync {
    /// These accumulators, in the order asked; each at most once.
    async fn accumulators(&self, ids: &[AccumulatorId]) -> Result<Vec<Option<Accumulator>>>;

    /// Puts each accumulator in the place of what was read, known by its revision, or where none
    /// stood; an empty one is removed. `revision` is what they are known by from now on: an id that
    /// was never used. The answer says which were put, in the order asked; of an accumulator that
    /// is named twice, one at most. Of two who read the same, one is told no, and has to read
    /// again. No may also be told where it was put and an earlier answer was lost. Durable.
    async fn put_accumulators(
        &self,
        accumulators: &[Accumulator],
        revision: Id,
    ) -> Result<Vec<bool>>;

    /// Adds to the open batches of these accumulators where all that the addition wants holds of
    /// the accumulator ([`Addition::fits`]), each in one step. Says whether it was done on all of
    /// them; where not, or where nobody can tell, reading the accumulators does. A store may leave
    /// it undone. Harmless again, as a fan-out that has joined keeps it from being done. `revision`
    /// is an id that was never used. Durable.
    async fn add_to_open(
        &self,
        accumulators: &[(AccumulatorId, usize)],
        additions: &[Addition],
        revision: Id,
    ) -> Result<bool>;

    /// These accumulators, at most `limit`.
    async fn find_accumulators(
        &self,
        filter: &AccumulatorFilter<'_>,
        limit: usize,
    ) -> Result<Vec<Accumulator>>;

    /// Files batches that left their accumulators; what is filed already stays as it is. The answer
    /// says, in the order asked, whether the same now stands under its id ([`Batch::gathered_as`]):
    /// filing it again is a repetition; where other events stand there it is a conflict, and no.
    /// Durable.
    async fn file_batches(&self, batches: &[Batch]) -> Result<Vec<bool>>;

    /// These batches, as far as they are filed, in the order asked.
    async fn filed(&self, ids: &[Id]) -> Result<Vec<Option<Batch>>>;

    /// Settles filed batches that are closing, as `closed` or `canceled`; what is settled stays as
    /// it is.
    async fn settle_batches(&self, settled: &[(Id, BatchState)], now: DateTime<Utc>) -> Result<()>;

    /// Batches, open or filed, newest first, at most `limit`; `before` excludes those with this id
    /// and newer ones.
    async fn find_batches(
        &self,
        filter: &BatchFilter,
        before: Option<Id>,
        limit: usize,
    ) -> Result<Vec<Batch>>;
}
