//! Ends due batches, files them, and opens their deliveries.
//!
//! A batch ends by a compare-and-set of its accumulator. Then it is filed, and its delivery is
//! opened under a derived id (P2, P4). Only then does the accumulator forget it, compared by its
//! events. After a crash the accumulator is still due, and each step can be repeated. Workers share
//! the work by leases on accumulators. Start with [`Closer::step`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::change;
use crate::context::Context;
use crate::domain::batch::{Accumulator, AccumulatorId};
use crate::domain::{Batch, BatchState, Delivery, DeliveryId, Id, Lease, Occasion, User, UserId};
use crate::engine::{Watcher, crash};
use crate::store::{AccumulatorFilter, Result};
use crate::wire::digest::EndedBatches;

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
    pub async fn step(&self) -> Result<Option<EndedBatches>> {
        let Context {
            store,
            clock,
            ids,
            owner,
            config,
            ..
        } = &*self.context;
        let now = clock.now();
        let due = AccumulatorFilter::Due(now);
        let mut due = store.find_accumulators(&due, AT_ONCE).await?;
        if due.is_empty() {
            return Ok(None);
        }
        self.quiet.defer(&mut due, now).await?;
        for accumulator in &mut due {
            accumulator.advance(now, || ids.next(now));
            // Without ended batches there is nothing to file, so no lease is needed.
            accumulator.lease = (!accumulator.ended.is_empty()).then(|| Lease {
                owner: owner.clone(),
                until: now + config.fanout.lease,
            });
        }
        crash::point("before-end");
        let put = store.put_accumulators(&due, ids.next(now)).await?;
        crash::point("after-end");
        let ours = due.into_iter().zip(put).filter(|(_, put)| *put);
        let ours = ours.map(|(accumulator, _)| accumulator).collect();
        self.file(ours, now).await.map(Some)
    }

    /// Steps until no batch is due, or until the watcher asks to stop.
    pub async fn drain(&self, progress: &dyn Watcher) -> Result<EndedBatches> {
        let mut all = EndedBatches::default();
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
    ) -> Result<EndedBatches> {
        let store = &self.context.store;
        let ended = accumulators.iter().flat_map(|of| of.ended.clone());
        let ended: Vec<Batch> = ended.collect();
        if ended.is_empty() {
            return Ok(EndedBatches::default());
        }
        let are_filed = store.file_batches(&ended).await?;
        crash::point("after-file");
        let (filed, others): (Vec<_>, Vec<_>) = ended
            .iter()
            .zip(are_filed)
            .partition(|(_, is_filed)| *is_filed);
        let filed: HashSet<Id> = filed.into_iter().map(|(batch, _)| batch.id).collect();
        let mut rows: Vec<Delivery> = Vec::new();
        for accumulator in &mut accumulators {
            let closing = accumulator.ended.iter();
            let closing = closing
                .filter(|batch| batch.state == BatchState::Closing && filed.contains(&batch.id));
            let closing: Vec<Id> = closing.map(|batch| batch.id).collect();
            let row = |batch| self.row(batch, accumulator, now);
            rows.extend(closing.into_iter().map(row));
        }
        if !rows.is_empty() {
            store.open(&rows).await?;
        }
        crash::point("after-row");
        let closed = EndedBatches {
            ended: rows.len() as u64,
            canceled: (filed.len() - rows.len()) as u64,
        };
        self.forget(accumulators, &filed, now).await?;
        if !others.is_empty() {
            let others: Vec<Id> = others.into_iter().map(|(batch, _)| batch.id).collect();
            self.set_apart(&others, now).await?;
        }
        crash::point("after-forget");
        Ok(closed)
    }

    /// Creates the delivery of a batch, with a queue position of its own.
    fn row(&self, batch: Id, accumulator: &mut Accumulator, now: DateTime<Utc>) -> Delivery {
        let turn = accumulator.next_turn(now);
        let (id, user) = (DeliveryId::batch(batch), accumulator.id.user.clone());
        let occasion = Occasion::Batch { batch, turn };
        Delivery::new(id, user, occasion, self.context.ids.next(now), now)
    }

    /// Removes filed batches from their accumulators, which may have changed meanwhile.
    async fn forget(
        &self,
        accumulators: Vec<Accumulator>,
        filed: &HashSet<Id>,
        now: DateTime<Utc>,
    ) -> Result<()> {
        let mut known: HashMap<AccumulatorId, (Option<DateTime<Utc>>, Vec<Batch>)> = HashMap::new();
        for mut accumulator in accumulators {
            accumulator.ended.retain(|batch| filed.contains(&batch.id));
            if !accumulator.ended.is_empty() {
                known.insert(accumulator.id, (accumulator.turn, accumulator.ended));
            }
        }
        let ids: Vec<AccumulatorId> = known.keys().cloned().collect();
        let current = self.context.store.accumulators(&ids).await?;
        let current = current.into_iter().flatten().collect();
        let forget = |accumulator: &mut Accumulator| {
            let (turn, filed) = &known[&accumulator.id];
            accumulator.forget_filed(filed, now).then(|| {
                accumulator.turn = accumulator.turn.max(*turn);
                accumulator.lease = None;
            })
        };
        change(&self.context, current, forget).await.map(drop)
    }

    /// Handles batches that were filed with other events than their accumulators contain. The
    /// events that were not filed become batches of their own.
    async fn set_apart(&self, batches: &[Id], now: DateTime<Utc>) -> Result<()> {
        let store = &self.context.store;
        let filed = store.filed(batches).await?;
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
            store.open(&rows).await?;
        }
        let mut accumulators: Vec<AccumulatorId> = filed.iter().map(accumulator_of).collect();
        accumulators.sort_unstable();
        accumulators.dedup();
        let current = store.accumulators(&accumulators).await?;
        let current = current.into_iter().flatten().collect();
        let set_apart = |accumulator: &mut Accumulator| {
            let mut changed = None;
            for batch in &filed {
                let id = self.context.ids.next(now);
                if accumulator_of(batch) == accumulator.id && accumulator.set_apart(batch, id, now)
                {
                    tracing::warn!(batch = %batch.id, "it was filed with other events; the others get a mail of their own");
                    accumulator.lease = None;
                    changed = Some(());
                }
            }
            changed
        };
        change(&self.context, current, set_apart).await.map(drop)
    }
}

fn accumulator_of(batch: &Batch) -> AccumulatorId {
    AccumulatorId {
        user: batch.user.clone(),
        key: batch.key.clone(),
    }
}

/// Defers batches that are due in their users' quiet hours to the end of these hours (P7).
///
/// The user's record is read just before a batch closes, so changes made while it was open count. A
/// deferral that has ended is not repeated, even if the closer is late. Batches that an operator
/// closes are not deferred, nor are those whose kept events include a mandatory one.
#[derive(Clone)]
pub struct QuietHours {
    context: Arc<Context>,
}

impl QuietHours {
    /// The quiet hours of all users.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Defers the open batches that are due now and whose users have quiet hours.
    async fn defer(&self, accumulators: &mut [Accumulator], now: DateTime<Utc>) -> Result<()> {
        let closing = accumulators.iter().filter_map(|one| one.closing(now));
        let people = self.people(whose(closing)).await?;
        for accumulator in accumulators {
            let until = accumulator.closing(now).and_then(|batch| {
                let user = people.get(&batch.user)?;
                self.until(user, batch, now)
            });
            if let Some(until) = until {
                accumulator.defer(until);
            }
        }
        Ok(())
    }

    /// Returns when the quiet hours end in which these open batches would close, in the order of
    /// the request. `None` for a batch that would close outside quiet hours.
    pub async fn held(
        &self,
        batches: &[Batch],
        now: DateTime<Utc>,
    ) -> Result<Vec<Option<DateTime<Utc>>>> {
        let open = |batch: &&Batch| batch.state == BatchState::Open;
        let people = self.people(whose(batches.iter().filter(open))).await?;
        let held = |batch: &Batch| {
            let user = people.get(&batch.user).filter(|_| open(&batch))?;
            let deferred = || (batch.deferred && batch.closes_at > now).then_some(batch.closes_at);
            self.until(user, batch, now).or_else(deferred)
        };
        Ok(batches.iter().map(held).collect())
    }

    /// Returns when the quiet hours end for which a batch has to wait, if it has to.
    fn until(&self, user: &User, batch: &Batch, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        // A waiting lead is emailed at once, even if the rest is deferred.
        let kinds = batch.contents.items.iter().map(|item| &item.t);
        let at = batch.asks_quiet_hours_at(now);
        let until = user.quiet_until(
            kinds,
            at,
            self.context.config.digest.schedule.tz,
            &self.context.policies,
        );
        until.filter(|until| *until > now)
    }

    /// Returns the records of the users who have quiet hours.
    async fn people(&self, ids: Vec<UserId>) -> Result<HashMap<UserId, User>> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let found = self.context.store.users(&ids).await?.into_iter().flatten();
        let quiet = found.filter(|user| user.quiet.is_some());
        Ok(quiet.map(|user| (user.id.clone(), user)).collect())
    }
}

/// Returns the users of these batches, each once.
fn whose<'a>(batches: impl Iterator<Item = &'a Batch>) -> Vec<UserId> {
    let mut ids: Vec<UserId> = batches.map(|batch| batch.user.clone()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
