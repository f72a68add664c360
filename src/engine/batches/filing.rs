//! Files ended batches: stores each under an id of its own, opens its delivery, and then removes it
//! from its accumulator.
//!
//! After a crash, the accumulator still has the batch, and each step can be repeated. Start with
//! [`BatchService::file_ended_batches`].

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use super::{BatchService, change_accumulators};
use crate::domain::batch::{Accumulator, AccumulatorId};
use crate::domain::{Batch, BatchState, Delivery, DeliveryId, DeliverySource, Id};
use crate::engine::crash;
use crate::store;
use crate::wire::run_report::EndedBatches;

impl BatchService {
    /// Files the ended batches of accumulators that were just stored. Opens their deliveries, and
    /// removes the batches from the accumulators, which may have changed meanwhile.
    pub(super) async fn file_ended_batches(
        &self,
        mut accumulators: Vec<Accumulator>,
        now: DateTime<Utc>,
    ) -> store::Result<EndedBatches> {
        if accumulators.iter().all(|accumulator| accumulator.ended.is_empty()) {
            return Ok(EndedBatches::default());
        }
        let conflicting = self.store_ended_batches(&accumulators).await?;
        crash::point("after-file");
        for accumulator in &mut accumulators {
            accumulator.ended.retain(|batch| !conflicting.contains(&batch.id));
        }
        let mut deliveries = self.create_deliveries(&mut accumulators, now);
        let filed_count: usize =
            accumulators.iter().map(|accumulator| accumulator.ended.len()).sum();
        let counts = EndedBatches {
            ended: deliveries.len() as u64,
            canceled: (filed_count - deliveries.len()) as u64,
        };
        deliveries.extend(self.create_deliveries_of_stored(&conflicting, now).await?);
        if !deliveries.is_empty() {
            self.context.store.open(&deliveries).await?;
        }
        crash::point("after-row");
        self.remove_filed_batches(accumulators, now).await?;
        crash::point("after-forget");
        Ok(counts)
    }

    /// Stores ended batches under their own ids. Returns the ids under which batches with other
    /// events are stored.
    async fn store_ended_batches(&self, accumulators: &[Accumulator]) -> store::Result<Vec<Id>> {
        let ended: Vec<Batch> =
            accumulators.iter().flat_map(|accumulator| accumulator.ended.clone()).collect();
        let are_filed = self.context.store.file_batches(&ended).await?;
        let mut conflicting = Vec::new();
        for (batch, _) in ended.iter().zip(are_filed).filter(|(_, is_filed)| !is_filed) {
            // Ended batches never change, so only a damaged store gets here.
            conflicting.push(batch.id);
            tracing::error!(batch = %batch.id, "a batch is filed with other events; it stays in its accumulator");
        }
        Ok(conflicting)
    }

    /// Creates the deliveries of filed batches that are closing, and assigns their queue positions.
    fn create_deliveries(
        &self,
        accumulators: &mut [Accumulator],
        now: DateTime<Utc>,
    ) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        for accumulator in accumulators {
            let ended = std::mem::take(&mut accumulator.ended);
            for batch in ended.iter().filter(|batch| batch.state == BatchState::Closing) {
                let queue_position = accumulator.next_queue_position(now);
                deliveries.push(self.create_delivery(batch, queue_position, now));
            }
            accumulator.ended = ended;
        }
        deliveries
    }

    /// Creates deliveries for the stored batches with these ids that are closing. Their events are
    /// emailed even if the worker that filed them has opened no delivery.
    async fn create_deliveries_of_stored(
        &self,
        ids: &[Id],
        now: DateTime<Utc>,
    ) -> store::Result<Vec<Delivery>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let stored = self.context.store.filed_batches(ids).await?.into_iter().flatten();
        let closing = stored.filter(|batch| batch.state == BatchState::Closing);
        Ok(closing.map(|batch| self.create_delivery(&batch, now, now)).collect())
    }

    fn create_delivery(
        &self,
        batch: &Batch,
        queue_position: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Delivery {
        let source = DeliverySource::Batch(batch.id, queue_position);
        let marker = self.context.ids.next(now);
        Delivery::new(DeliveryId::batch(batch.id), batch.user.clone(), source, marker, now)
    }

    /// Removes filed batches from their stored accumulators, stores the queue position of the last
    /// email there, and ends their leases. `filed` has an earlier state of each accumulator, with
    /// only its filed batches.
    async fn remove_filed_batches(
        &self,
        filed: Vec<Accumulator>,
        now: DateTime<Utc>,
    ) -> store::Result<()> {
        let ids: Vec<AccumulatorId> =
            filed.iter().map(|accumulator| accumulator.id.clone()).collect();
        let accumulators = self.context.store.accumulators(&ids).await?;
        let filed: HashMap<AccumulatorId, Accumulator> = ids.into_iter().zip(filed).collect();
        let remove_filed = |accumulator: &mut Accumulator| {
            let filed = &filed[&accumulator.id];
            accumulator.remove_filed(&filed.ended, now).then(|| {
                accumulator.queue_position = accumulator.queue_position.max(filed.queue_position);
                accumulator.lease = None;
            })
        };
        let accumulators = accumulators.into_iter().flatten().collect();
        change_accumulators(&self.context, accumulators, remove_filed).await?;
        Ok(())
    }
}
