//! Ends due batches, files them, and opens their deliveries.
//!
//! A batch ends by a compare-and-set of its accumulator. Then it is filed, and its delivery is
//! opened under a derived id (P2, P4). Only then does the accumulator forget it, compared by its
//! events. After a crash the accumulator is still due, and each step can be repeated. Workers share
//! the work by leases on accumulators. Start with [`Closer::step`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::QuietHours;
use crate::context::Context;
use crate::domain::batch::{Accumulator, AccumulatorId};
use crate::domain::{Batch, BatchState, Delivery, DeliveryId, Id, Lease, Occasion};
use crate::engine::crash;
use crate::store::{AccumulatorFilter, Result};
use crate::wire::digest::Closed;

/// The most accumulators that are processed in one step.
const AT_ONCE: usize = 500;

/// Ends due batches, files them and opens their deliveries. Several may run at once.
pub struct Closer {
    /// The store, the clock and the other shared parts.
    pub context: Arc<Context>,
    /// Defers batches in quiet hours.
    pub quiet: QuietHours,
}

impl Closer {
    /// A closer that defers batches in their users' quiet hours.
    pub fn new(context: Arc<Context>) -> Self {
        let quiet = QuietHours::new(context.clone());
        Self { context, quiet }
    }

    /// Ends batches that are due, the earliest first; `None` if none is due.
    pub async fn step(&self) -> Result<Option<Closed>> {
        let now = self.context.clock.now();
        let due = AccumulatorFilter::Due(now);
        let mut due = self.context.store.find_accumulators(&due, AT_ONCE).await?;
        if due.is_empty() {
            return Ok(None);
        }
        self.quiet.defer(&mut due, now).await?;
        let mut held = Vec::with_capacity(due.len());
        for mut accumulator in due {
            accumulator.advance(now, || self.context.ids.next(now));
            // Without ended batches there is nothing to file, so no lease is needed.
            accumulator.lease = (!accumulator.ended.is_empty()).then(|| Lease {
                owner: self.context.owner.clone(),
                until: now + self.context.config.fanout.lease,
            });
            held.push(accumulator);
        }
        crash::point("before-end");
        let store = &self.context.store;
        let put = store
            .put_accumulators(&held, self.context.ids.next(now))
            .await?;
        crash::point("after-end");
        let mut put = put.into_iter();
        held.retain(|_| put.next().unwrap_or(false));
        held.retain(|accumulator| !accumulator.ended.is_empty());
        self.file(held, now).await.map(Some)
    }

    /// Steps until no batch is due, or until the watcher asks to stop.
    pub async fn drain(&self, progress: &dyn crate::engine::Watcher) -> Result<Closed> {
        let mut all = Closed::default();
        while !progress.stopping()
            && let Some(closed) = self.step().await?
        {
            all += closed;
        }
        Ok(all)
    }

    /// Files the ended batches of accumulators that were just stored. Opens their deliveries, and
    /// removes the batches from the accumulators.
    pub(super) async fn file(
        &self,
        mut accumulators: Vec<Accumulator>,
        now: DateTime<Utc>,
    ) -> Result<Closed> {
        let ended: Vec<Batch> = accumulators
            .iter()
            .flat_map(|accumulator| accumulator.ended.clone())
            .collect();
        if ended.is_empty() {
            return Ok(Closed::default());
        }
        let stands = self.context.store.file_batches(&ended).await?;
        crash::point("after-file");
        let (filed, others): (Vec<_>, Vec<_>) = ended
            .into_iter()
            .zip(stands)
            .partition(|(_, stands)| *stands);
        let filed: Vec<Batch> = filed.into_iter().map(|(batch, _)| batch).collect();
        let ids: HashSet<Id> = filed.iter().map(|batch| batch.id).collect();
        let rows: Vec<Delivery> = accumulators
            .iter_mut()
            .flat_map(|accumulator| self.rows(accumulator, &ids, now))
            .collect();
        if !rows.is_empty() {
            self.context.store.open(&rows).await?;
        }
        crash::point("after-row");
        let closed = Closed {
            ended: rows.len() as u64,
            canceled: (filed.len() - rows.len()) as u64,
        };
        self.let_forget(accumulators, filed, now).await?;
        if !others.is_empty() {
            let others = others.into_iter().map(|(batch, _)| batch).collect();
            self.set_apart(others, now).await?;
        }
        crash::point("after-forget");
        Ok(closed)
    }

    /// Creates a delivery for each filed batch with events, each with its own queue position.
    fn rows(
        &self,
        accumulator: &mut Accumulator,
        filed: &HashSet<Id>,
        now: DateTime<Utc>,
    ) -> Vec<Delivery> {
        let closing = accumulator.ended.iter();
        let closing = closing.filter(|batch| batch.state == BatchState::Closing);
        let closing: Vec<Id> = closing.map(|batch| batch.id).collect();
        let filed = closing.into_iter().filter(|batch| filed.contains(batch));
        filed
            .map(|batch| self.row(batch, accumulator, now))
            .collect()
    }

    fn row(&self, batch: Id, accumulator: &mut Accumulator, now: DateTime<Utc>) -> Delivery {
        let turn = accumulator.next_turn(now);
        let (id, user) = (DeliveryId::batch(batch), accumulator.id.user.clone());
        let occasion = Occasion::Batch { batch, turn };
        Delivery::new(id, user, occasion, self.context.ids.next(now), now)
    }

    /// Removes filed batches from their accumulators, which may have changed meanwhile.
    async fn let_forget(
        &self,
        accumulators: Vec<Accumulator>,
        filed: Vec<Batch>,
        now: DateTime<Utc>,
    ) -> Result<()> {
        let mut turns: HashMap<AccumulatorId, Option<DateTime<Utc>>> = HashMap::new();
        let mut of_filed: HashMap<AccumulatorId, Vec<Batch>> = HashMap::new();
        for batch in filed {
            of_filed
                .entry(accumulator_of(&batch))
                .or_default()
                .push(batch);
        }
        let concerned = accumulators
            .iter()
            .filter(|accumulator| of_filed.contains_key(&accumulator.id));
        let ids: Vec<AccumulatorId> = concerned
            .map(|accumulator| accumulator.id.clone())
            .collect();
        turns.extend(
            accumulators
                .into_iter()
                .map(|accumulator| (accumulator.id, accumulator.turn)),
        );
        self.change(ids, now, |accumulator| {
            let turn = turns.get(&accumulator.id).copied().flatten();
            if !accumulator.forget_filed(&of_filed[&accumulator.id], now) {
                return false;
            }
            accumulator.turn = accumulator.turn.max(turn);
            accumulator.lease = None;
            true
        })
        .await
    }

    /// Handles batches that were filed with other events than their accumulators contain. The
    /// events that were not filed become batches of their own.
    async fn set_apart(&self, batches: Vec<Batch>, now: DateTime<Utc>) -> Result<()> {
        let ids: Vec<Id> = batches.iter().map(|batch| batch.id).collect();
        let filed = self.context.store.filed(&ids).await?;
        let filed: Vec<Batch> = filed.into_iter().flatten().collect();
        // The worker that filed them may have died before it opened their deliveries. Below, their
        // accumulators forget them.
        let closing = filed
            .iter()
            .filter(|batch| batch.state == BatchState::Closing);
        let row =
            |batch: &Batch| self.row(batch.id, &mut Accumulator::new(accumulator_of(batch)), now);
        let rows: Vec<Delivery> = closing.map(row).collect();
        if !rows.is_empty() {
            self.context.store.open(&rows).await?;
        }
        let mut accumulators: Vec<AccumulatorId> = filed.iter().map(accumulator_of).collect();
        accumulators.sort_unstable();
        accumulators.dedup();
        self.change(accumulators, now, |accumulator| {
            let mut changed = false;
            for batch in &filed {
                if accumulator_of(batch) == accumulator.id && accumulator.set_apart(batch, self.context.ids.next(now), now) {
                    tracing::warn!(batch = %batch.id, "it was filed with other events; the others get a mail of their own");
                    (accumulator.lease, changed) = (None, true);
                }
            }
            changed
        })
        .await
    }

    /// Changes accumulators by compare-and-set. Those that another process has changed are read and
    /// changed again.
    async fn change(
        &self,
        mut ids: Vec<AccumulatorId>,
        now: DateTime<Utc>,
        mut change: impl FnMut(&mut Accumulator) -> bool + Send,
    ) -> Result<()> {
        while !ids.is_empty() {
            let standing = self.context.store.accumulators(&ids).await?;
            let mut changed: Vec<Accumulator> = standing.into_iter().flatten().collect();
            changed.retain_mut(&mut change);
            if changed.is_empty() {
                return Ok(());
            }
            let store = &self.context.store;
            let put = store
                .put_accumulators(&changed, self.context.ids.next(now))
                .await?;
            let lost = changed.into_iter().zip(put).filter(|(_, put)| !put);
            ids = lost.map(|(accumulator, _)| accumulator.id).collect();
        }
        Ok(())
    }
}

fn accumulator_of(batch: &Batch) -> AccumulatorId {
    AccumulatorId {
        user: batch.user.clone(),
        key: batch.key.clone(),
    }
}
