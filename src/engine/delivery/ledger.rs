//! Writes the state of leased rows: claims, transitions, markers and closing.
//!
//! A row is closed after its markers are written (P2, P4). Accepted digests get their markers
//! first, so one update settles and closes them. All other rows are settled first, because outcomes
//! must be recorded soon. Rows without a lease are opened, corrected and released elsewhere. Start
//! with [`Ledger::conclude`]. [`RunTally`] counts the outcomes of a run.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::join;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::compose::stacks_of;
use super::outcomes::Decisions;
use crate::context::Context;
use crate::domain::delivery::{Deferral, DeliveryOutcome, Settlement, Transition};
use crate::domain::{
    Batch, BatchMarker, BatchState, Day, Defect, DefectiveStack, Delivery, DeliveryId,
    DeliverySource, DeliveryState, Id, UserId, UserStacks,
};
use crate::engine::{Result, crash};
use crate::mutex::lock;
use crate::store::{NewMarker, RowsToLease};
use crate::wire::run_report::Tally;

/// The longest time to write markers before outcomes are recorded. If the process dies first, the
/// outcomes are unknown.
const MARKING_TIMEOUT: Duration = Duration::from_secs(5);
/// If a batch has more fan-outs than this, its markers list only those with entries in the user's
/// stacks, so that a stack document stays small.
const LARGE_BATCH: usize = 500;

/// Writes the state of rows that this process has leased.
#[derive(Clone)]
pub struct Ledger {
    pub(crate) context: Arc<Context>,
    /// The deliveries that the run has processed, and their outcomes.
    pub tally: RunTally,
}

/// A batch whose email has ended in this state.
struct SettledBatch<'a> {
    id: Id,
    row: &'a Delivery,
    state: DeliveryState,
}

impl Ledger {
    /// Returns how long a row stays leased after its lease was extended.
    pub(crate) fn lease_duration(&self) -> TimeDelta {
        self.context.config.delivery.lease
    }

    fn third_of_lease(&self) -> Duration {
        (self.lease_duration() / 3).to_std().unwrap_or_default()
    }

    /// Leases open rows to this process and returns them.
    pub(super) async fn claim(
        &self,
        which: &RowsToLease<'_>,
        now: DateTime<Utc>,
    ) -> Result<Vec<Delivery>> {
        let lease = self.context.lease_until(now + self.lease_duration());
        Ok(self.context.store.claim(&lease, which).await?)
    }

    /// Applies transitions to leased rows at this time. Returns which were applied.
    pub(super) async fn advance(
        &self,
        transitions: Vec<Transition>,
        at: DateTime<Utc>,
    ) -> Result<Vec<bool>> {
        let until = self.context.clock.now() + self.lease_duration();
        let lease = self.context.lease_until(until);
        let store = &self.context.store;
        Ok(store.advance(&lease, at, &transitions).await?)
    }

    /// Runs `work` and renews the leases of these rows meanwhile. A renewal that runs when the work
    /// ends is finished first.
    pub(super) async fn renew_while<T>(
        &self,
        ids: &[DeliveryId],
        work: impl Future<Output = T>,
    ) -> T {
        let (work_end, mut ended) = oneshot::channel::<()>();
        let work = async {
            let result = work.await;
            drop(work_end);
            result
        };
        let renewals = async {
            while timeout(self.third_of_lease(), &mut ended).await.is_err() {
                let renewals = ids.iter().cloned().map(Transition::RenewLease).collect();
                // The provider's answer matters even if the leases cannot be renewed now.
                drop(self.advance(renewals, self.context.clock.now()).await);
            }
        };
        join!(work, renewals).0
    }

    /// Defers rows, or marks, settles and closes them. Counts and returns what was done.
    ///
    /// Accepted digests are marked before they are settled; all other rows are settled first.
    /// Settlements of rows that are not in `rows` are ignored, because the markers are built from
    /// these rows.
    pub(super) async fn conclude<'a>(
        &self,
        rows: impl IntoIterator<Item = &'a Delivery>,
        mut decisions: Decisions,
    ) -> Result<Decisions> {
        let rows: HashMap<_, _> = rows.into_iter().map(|row| (&row.id, row)).collect();
        if !decisions.deferrals.is_empty() {
            let deferrals = decisions.deferrals.iter().cloned().map(Transition::Defer).collect();
            self.advance(deferrals, self.context.clock.now()).await?;
            self.tally.record_deferrals(&decisions.deferrals);
        }
        let settlements = std::mem::take(&mut decisions.settlements).into_iter();
        let mut settled: Vec<(&Delivery, Settlement)> = settlements
            .filter_map(|settlement| Some((*rows.get(&settlement.id)?, settlement)))
            .collect();
        if settled.is_empty() {
            return Ok(decisions);
        }
        crash::point("before-settle");
        // Outcomes are recorded even if the markers cannot be written.
        let time_limit = self.third_of_lease().min(MARKING_TIMEOUT);
        let (marked, marking_error) = match timeout(time_limit, self.mark_accepted(&settled)).await
        {
            Ok(Ok(marked)) => (marked, None),
            Ok(Err(error)) => (HashSet::new(), Some(error)),
            // Timed out: the markers are written after the outcomes are recorded.
            Err(_) => (HashSet::new(), None),
        };
        let transition = |(row, settlement): &(&Delivery, Settlement)| {
            if marked.contains(&row.id) {
                Transition::SettleAndClose(settlement.clone())
            } else {
                Transition::Settle(settlement.clone())
            }
        };
        let transitions = settled.iter().map(transition).collect();
        let mut applied = self.advance(transitions, self.context.clock.now()).await?.into_iter();
        crash::point("after-settle");
        settled.retain(|_| applied.next().unwrap_or(false));
        let has_failed_again = |(row, settlement): &&(&Delivery, Settlement)| {
            settlement.state == DeliveryState::Failed && row.attempts.reopened > 0
        };
        decisions.excused += settled.iter().filter(has_failed_again).count() as u64;
        self.tally.record_settlements(settled.iter().map(|(_, settlement)| settlement));
        if let Some(error) = marking_error {
            return Err(error);
        }
        let mut unclosed: Vec<_> =
            settled.iter().map(|(row, settlement)| (*row, settlement.state)).collect();
        unclosed.retain(|(row, _)| !marked.contains(&row.id));
        self.close(&unclosed).await?;
        decisions.settlements = settled.into_iter().map(|(_, settlement)| settlement).collect();
        Ok(decisions)
    }

    /// Writes the markers of accepted digests. Returns the rows that can be closed when they are
    /// settled. Markers that a stack cannot take are retried when the row is closed.
    async fn mark_accepted(
        &self,
        settled: &[(&Delivery, Settlement)],
    ) -> Result<HashSet<DeliveryId>> {
        let is_accepted_digest = |(row, settlement): &&(&Delivery, Settlement)| {
            settlement.state == DeliveryState::Sent && row.source.digest().is_some()
        };
        let mut rows: Vec<&Delivery> =
            settled.iter().filter(is_accepted_digest).map(|(row, _)| *row).collect();
        let bad = self.mark(&rows).await?;
        let unmarked_users: HashSet<&UserId> = bad.iter().map(|bad| &bad.user).collect();
        rows.retain(|row| !unmarked_users.contains(&row.user));
        Ok(rows.into_iter().map(|row| row.id.clone()).collect())
    }

    /// Writes the markers of these digests, which cover the entries that were read. Returns the
    /// stacks that could not take one.
    async fn mark(&self, rows: &[&Delivery]) -> Result<Vec<DefectiveStack>> {
        let marker = |row: &&Delivery| {
            NewMarker::Flushed(row.user.clone(), row.marker, row.watermarks.clone())
        };
        self.write_markers(rows.iter().map(marker).collect()).await
    }

    async fn write_markers(&self, markers: Vec<NewMarker>) -> Result<Vec<DefectiveStack>> {
        if markers.is_empty() {
            return Ok(Vec::new());
        }
        let bad = self.context.store.write_markers(&markers).await?;
        crash::point("after-mark");
        Ok(bad)
    }

    /// Writes the markers of emails that were or may have been sent, and closes the rows. Counts
    /// the stacks that could not take a marker.
    ///
    /// The order is markers, batches, rows (P2, P4). Each step can be repeated, so another worker
    /// finishes after a crash. If a document cannot take a marker, the rows of its user stay open:
    /// its events are not emailed again, and the marker is retried while the document exists.
    pub(super) async fn close(&self, settled: &[(&Delivery, DeliveryState)]) -> Result<()> {
        let (mut digests, mut batches) = (Vec::new(), Vec::new());
        for &(row, state) in settled {
            match row.source {
                DeliverySource::Batch(id, _) => batches.push(SettledBatch { id, row, state }),
                DeliverySource::Digest(..) if state.needs_markers() => digests.push(row),
                DeliverySource::Digest(..) => {}
            }
        }
        let mut bad = self.mark(&digests).await?;
        if !batches.is_empty() {
            bad.extend(self.close_batches(&batches).await?);
        }
        // A document without an event list has no events to repeat, so its row may be closed.
        let unmarked = bad.iter().filter(|bad| bad.reason != Defect::NoList);
        let unmarked_users: HashSet<&UserId> = unmarked.map(|bad| &bad.user).collect();
        let closable = settled.iter().filter(|(row, _)| !unmarked_users.contains(&row.user));
        let ids: Vec<DeliveryId> = closable.map(|(row, _)| row.id.clone()).collect();
        if !ids.is_empty() {
            self.context.store.close(&ids).await?;
            crash::point("after-close");
        }
        self.tally.count_bad_stacks(bad);
        Ok(())
    }

    /// Writes markers with the fan-outs of each batch whose email was or may have been sent. Then
    /// settles the batches.
    async fn close_batches(&self, settled: &[SettledBatch<'_>]) -> Result<Vec<DefectiveStack>> {
        let store = &self.context.store;
        let to_mark: Vec<_> = settled.iter().filter(|batch| batch.state.needs_markers()).collect();
        let ids: Vec<Id> = to_mark.iter().map(|batch| batch.id).collect();
        let batches = store.filed_batches(&ids).await?;
        let large = batches.iter().flatten().filter(|batch| is_large(batch));
        let large: Vec<Batch> = large.cloned().collect();
        let stacks = stacks_of(&**store, &large).await?;
        let mut markers = Vec::new();
        for (SettledBatch { row, .. }, batch) in to_mark.iter().zip(batches) {
            let Some(batch) = batch else { continue };
            let stacks = stacks.get(&batch.user).filter(|_| is_large(&batch));
            let mut days: BTreeMap<Day, Vec<Id>> = BTreeMap::new();
            for fanout in listed_fanouts(&batch, stacks) {
                days.entry(Day::of(fanout.time())).or_default().push(fanout);
            }
            let id = row.marker;
            markers.extend(days.into_iter().map(|(day, fanouts)| {
                NewMarker::Mailed(row.user.clone(), day, BatchMarker { id, fanouts })
            }));
        }
        let bad = self.write_markers(markers).await?;
        let final_state = |batch: &SettledBatch<'_>| match batch.state {
            DeliveryState::Canceled => (batch.id, BatchState::Canceled),
            _ => (batch.id, BatchState::Closed),
        };
        let states: Vec<(Id, BatchState)> = settled.iter().map(final_state).collect();
        store.settle_batches(&states, self.context.clock.now()).await?;
        Ok(bad)
    }
}

/// Returns whether it pays to read the stacks so that the marker can be shorter.
fn is_large(batch: &Batch) -> bool {
    batch.joined.len() > LARGE_BATCH
}

/// Returns the fan-outs that the markers list: all of the batch's own or, if `stacks` is given,
/// those that are stored there. Entries beyond the cap of a day are not stored.
fn listed_fanouts(batch: &Batch, stacks: Option<&UserStacks>) -> Vec<Id> {
    let Some(stacks) = stacks else {
        return batch.fanouts_without_lead().collect();
    };
    let events = stacks.stacks.iter().flat_map(|stack| stack.events());
    let stored: HashSet<Id> = events.filter_map(|(_, event)| event.fanout_id).collect();
    batch.fanouts_without_lead().filter(|fanout| stored.contains(fanout)).collect()
}

/// The deliveries that a run has processed, and their outcomes. Each counts once. Clones share one
/// tally.
#[derive(Debug, Clone, Default)]
pub struct RunTally(Arc<Mutex<RunDeliveries>>);

#[derive(Debug, Default)]
struct RunDeliveries {
    tally: Tally,
    /// The unsettled deliveries, and why they wait.
    waiting: HashMap<DeliveryId, Option<String>>,
    /// The number of deliveries that the run has started to process.
    started: u64,
}

impl RunDeliveries {
    fn settle(&mut self, id: &DeliveryId, state: DeliveryState, items: u32, reason: Option<&str>) {
        if self.waiting.remove(id).is_some() {
            self.tally.add_outcome(state, items, reason);
        }
    }
}

impl RunTally {
    /// Returns the counts so far, with unsettled deliveries as deferred.
    pub fn snapshot(&self) -> Tally {
        let run = lock(&self.0);
        let mut tally = Tally { deferred: run.waiting.len() as u64, ..run.tally.clone() };
        for reason in run.waiting.values().flatten() {
            tally.add_reason(reason, 1);
        }
        tally
    }

    /// Returns the number of deliveries that the run has started to process.
    pub fn started_count(&self) -> u64 {
        lock(&self.0).started
    }

    /// Returns the number of settled deliveries.
    pub fn settled(&self) -> u64 {
        lock(&self.0).tally.settled()
    }

    /// Returns the unsettled deliveries.
    pub(super) fn waiting(&self) -> Vec<DeliveryId> {
        lock(&self.0).waiting.keys().cloned().collect()
    }

    /// Records that the run processes these rows, perhaps again.
    ///
    /// A row that another process has settled counts only if the run was waiting for it. Returns
    /// the number of unsettled rows that are new to the run.
    pub fn record_started(&self, rows: &[Delivery]) -> u64 {
        let mut run = lock(&self.0);
        let started_before = run.started;
        for row in rows {
            let DeliveryOutcome { items, reason, .. } = &row.outcome;
            if row.state.is_settled() {
                run.settle(&row.id, row.state, *items, reason.as_deref());
            } else if run.waiting.insert(row.id.clone(), reason.clone()).is_none() {
                run.started += 1;
            }
        }
        run.started - started_before
    }

    /// Counts documents that were skipped or could not take a marker.
    pub fn count_bad_stacks(&self, bad: impl IntoIterator<Item = DefectiveStack>) {
        lock(&self.0).tally.bad_stacks.add(bad);
    }

    /// Counts the outcomes that this run has written.
    fn record_settlements<'a>(&self, ends: impl Iterator<Item = &'a Settlement>) {
        let mut run = lock(&self.0);
        for end in ends {
            run.settle(&end.id, end.state, end.items, end.reason.as_deref());
        }
    }

    /// Records why deliveries of this run wait.
    fn record_deferrals(&self, deferrals: &[Deferral]) {
        let mut run = lock(&self.0);
        for deferral in deferrals {
            if let Some(reason) = run.waiting.get_mut(&deferral.id) {
                reason.clone_from(&deferral.reason);
            }
        }
    }
}
