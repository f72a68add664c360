//! A store whose walk over what is due meets accumulators twice, as a walk over an index does while
//! what it finds moves on in it.
//!
//! The rule: only [`Batches::find_accumulators`] differs, and only once: it gives what the test
//! wants to be met before what is found.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use tidings::domain::batch::{Accumulator, AccumulatorId, Addition};
use tidings::domain::{Batch, BatchState, Id};
use tidings::store::{AccumulatorFilter, BatchFilter, Batches, Result, Store};

pub struct MetTwice {
    inner: Arc<dyn Store>,
    before: Mutex<Vec<Accumulator>>,
}

impl MetTwice {
    /// These are met first, as they are here.
    pub fn new(inner: Arc<dyn Store>, before: Vec<Accumulator>) -> Self {
        let before = Mutex::new(before);
        Self { inner, before }
    }
}

/// Hands each verb on.
macro_rules! hand_on {
    ($($verb:ident($($name:ident: $kind:ty),*) -> $answer:ty;)*) => {
        #[async_trait]
        impl Batches for MetTwice {
            async fn find_accumulators(&self, filter: &AccumulatorFilter<'_>, limit: usize) -> Result<Vec<Accumulator>> {
                let mut met = std::mem::take(&mut *self.before.lock().unwrap());
                met.extend(self.inner.find_accumulators(filter, limit).await?);
                Ok(met)
            }

            $(
                async fn $verb(&self, $($name: $kind),*) -> Result<$answer> {
                    self.inner.$verb($($name),*).await
                }
            )*
        }
    };
}

hand_on! {
    accumulators(ids: &[AccumulatorId]) -> Vec<Option<Accumulator>>;
    put_accumulators(accumulators: &[Accumulator], revision: Id) -> Vec<bool>;
    add_to_open(accumulators: &[(AccumulatorId, usize)], additions: &[Addition], revision: Id) -> bool;
    file_batches(batches: &[Batch]) -> Vec<bool>;
    filed(ids: &[Id]) -> Vec<Option<Batch>>;
    settle_batches(settled: &[(Id, BatchState)], now: DateTime<Utc>) -> ();
    find_batches(filter: &BatchFilter, before: Option<Id>, limit: usize) -> Vec<Batch>;
}
