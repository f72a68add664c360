//! Combines a user's events of one key into few emails.
//!
//! [`crate::domain::batch::Accumulator`] decides each change, and the store applies it by
//! compare-and-set. Therefore a user has one open batch per key under any race, and an event joins
//! once. Fan-outs use [`Joiner`], workers use [`Closer`], and operators use [`BatchService`].

use crate::context::Context;
use crate::domain::batch::{Accumulator, AccumulatorId};
use crate::store::Result;

mod close;
mod join;
mod service;

/// Selects batches.
pub use crate::store::BatchFilter;
pub use close::{Closer, QuietHours};
pub use join::{Join, Joiner};
pub(crate) use service::leads;
pub use service::{BatchService, End};

/// Changes accumulators by compare-and-set. Those that another process has changed are read and
/// changed again. `apply` returns `None` for an accumulator that it leaves unchanged. Returns the
/// results for the accumulators that were changed.
async fn change<T>(
    context: &Context,
    mut accumulators: Vec<Accumulator>,
    mut apply: impl FnMut(&mut Accumulator) -> Option<T> + Send,
) -> Result<Vec<T>> {
    let mut all = Vec::new();
    loop {
        let (mut changed, mut results) = (Vec::new(), Vec::new());
        for mut accumulator in accumulators {
            if let Some(result) = apply(&mut accumulator) {
                changed.push(accumulator);
                results.push(result);
            }
        }
        if changed.is_empty() {
            return Ok(all);
        }
        let revision = context.ids.next(context.clock.now());
        let put = context.store.put_accumulators(&changed, revision).await?;
        let mut lost: Vec<AccumulatorId> = Vec::new();
        for ((accumulator, result), put) in changed.into_iter().zip(results).zip(put) {
            match put {
                true => all.push(result),
                false => lost.push(accumulator.id),
            }
        }
        if lost.is_empty() {
            return Ok(all);
        }
        let current = context.store.accumulators(&lost).await?;
        accumulators = current.into_iter().flatten().collect();
    }
}
