//! Writes the state of leased rows: claims, transitions, markers and closing.
//!
//! A row is closed after its markers are written (P2, P4). Accepted digests get their markers
//! first, so one update settles and closes them. All other rows are settled first, because outcomes
//! must be recorded soon. Rows without a lease are opened, corrected and released elsewhere. Start
//! with [`Ledger::conclude`]. [`RunTally`] counts the outcomes of a run.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    BadStack, Batch, BatchMarker, BatchState, Day, Defect, Delivery, DeliveryId, DeliveryState, Id,
    Occasion, UserId, UserStacks,
};
use crate::engine::{Result, crash};
use crate::store::{Claim, NewMarker};
use crate::wire::run_report::Tally;

/// The longest time to write markers before outcomes are recorded. If the process dies first, the
/// outcomes are unknown.
const PROMPTLY: Duration = Duration::from_secs(5);
/// The markers of a batch with more fan-outs list only those that are stored, so that a stack
/// document stays small.
const MANY: usize = 500;

/// Writes the state of rows that this process has leased.
#[derive(Clone)]
pub struct Ledger {
    pub(crate) context: Arc<Context>,
    /// The deliveries that the run has processed, and their outcomes.
    pub tally: RunTally,
}

impl Ledger {
    /// Returns how long a row stays leased after its lease was extended.
    pub(crate) fn lease(&self) -> TimeDelta {
        self.context.config.delivery.lease
    }

    fn third_of_lease(&self) -> Duration {
        (self.lease() / 3).to_std().unwrap_or_default()
    }

    /// Leases open rows to this process and returns them.
    pub(super) async fn claim(
        &self,
        which: &Claim<'_>,
        now: DateTime<Utc>,
    ) -> Result<Vec<Delivery>> {
        let lease = self.context.lease_until(now + self.lease());
        Ok(self.context.store.claim(&lease, which).await?)
    }

    /// Applies transitions to leased rows at this time. Returns which were applied.
    pub(super) async fn advance(
        &self,
        transitions: Vec<Transition>,
        at: DateTime<Utc>,
    ) -> Result<Vec<bool>> {
        let until = self.context.clock.now() + self.lease();
        let lease = self.context.lease_until(until);
        let store = &self.context.store;
        Ok(store.advance(&lease, at, &transitions).await?)
    }

    /// Runs `work` and renews the leases of these rows meanwhile. A renewal that runs when the work
    /// ends is finished first.
    pub(super) async fn holding<T>(&self, ids: &[DeliveryId], work: impl Future<Output = T>) -> T {
        let (end, mut ended) = oneshot::channel::<()>();
        let work = async {
            let done = work.await;
            drop(end);
            done
        };
        let renewals = async {
            while timeout(self.third_of_lease(), &mut ended).await.is_err() {
                let holds = ids.iter().cloned().map(Transition::Hold).collect();
                // The provider's answer matters even if the leases cannot be renewed now.
                drop(self.advance(holds, self.context.clock.now()).await);
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
        let rows = rows.into_iter().map(|row| (&row.id, row));
        let of: HashMap<&DeliveryId, &Delivery> = rows.collect();
        if !decisions.deferrals.is_empty() {
            let deferrals = decisions.deferrals.iter().cloned();
            let deferrals = deferrals.map(Transition::Defer).collect();
            self.advance(deferrals, self.context.clock.now()).await?;
            self.tally.conclude(&[], &decisions.deferrals);
        }
        let settlements = std::mem::take(&mut decisions.settlements).into_iter();
        let (rows, settlements): (Vec<&Delivery>, Vec<Settlement>) =
            settlements.filter_map(|end| Some((*of.get(&end.id)?, end))).unzip();
        if settlements.is_empty() {
            return Ok(decisions);
        }
        crash::point("before-settle");
        // Outcomes are recorded even if the markers cannot be written.
        let promptly = self.third_of_lease().min(PROMPTLY);
        let marking = self.mark_accepted(rows.iter().copied().zip(&settlements));
        let (marked, unmarked) = match timeout(promptly, marking).await {
            Ok(Ok(marked)) => (marked, None),
            Ok(Err(error)) => (HashSet::new(), Some(error)),
            // Timed out: the markers are written after the outcomes are recorded.
            Err(_) => (HashSet::new(), None),
        };
        let end = |end: &Settlement| match marked.contains(&end.id) {
            true => Transition::Conclude(end.clone()),
            false => Transition::Settle(end.clone()),
        };
        let ends = settlements.iter().map(end).collect();
        let done = self.advance(ends, self.context.clock.now()).await?;
        crash::point("after-settle");
        let ends = rows.into_iter().zip(settlements).zip(done);
        let ends = ends.filter_map(|(end, done)| done.then_some(end));
        let (rows, settled): (Vec<&Delivery>, Vec<Settlement>) = ends.unzip();
        let has_failed_again = |(row, end): &(&&Delivery, &Settlement)| {
            end.state == DeliveryState::Failed && row.attempts.reopened > 0
        };
        let again = rows.iter().zip(&settled).filter(has_failed_again);
        decisions.excused += again.count() as u64;
        self.tally.conclude(&settled, &[]);
        if let Some(error) = unmarked {
            return Err(error);
        }
        let open = rows.into_iter().zip(settled.iter().map(|end| end.state));
        self.close(open.filter(|(row, _)| !marked.contains(&row.id))).await?;
        decisions.settlements = settled;
        Ok(decisions)
    }

    /// Writes the markers of accepted digests. Returns the rows that can be closed when they are
    /// settled. Markers that a stack cannot take are retried when the row is closed.
    async fn mark_accepted<'a>(
        &self,
        ends: impl Iterator<Item = (&'a Delivery, &'a Settlement)>,
    ) -> Result<HashSet<DeliveryId>> {
        let accepted = ends.filter(|(row, end)| {
            end.state == DeliveryState::Sent && matches!(row.occasion, Occasion::Digest(..))
        });
        let rows: Vec<&Delivery> = accepted.map(|(row, _)| row).collect();
        let bad = self.mark(&rows).await?;
        let bad: HashSet<&UserId> = bad.iter().map(|bad| &bad.user).collect();
        let marked = rows.into_iter().filter(|row| !bad.contains(&row.user));
        Ok(marked.map(|row| row.id.clone()).collect())
    }

    /// Writes the markers of these digests, which cover the entries that were read. Returns the
    /// stacks that could not take one.
    async fn mark(&self, rows: &[&Delivery]) -> Result<Vec<BadStack>> {
        let marker = |row: &&Delivery| {
            NewMarker::Flushed(row.user.clone(), row.marker, row.watermarks.clone())
        };
        self.write_markers(rows.iter().map(marker).collect()).await
    }

    async fn write_markers(&self, markers: Vec<NewMarker>) -> Result<Vec<BadStack>> {
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
    /// finishes after a crash. If a document cannot take a marker, its row stays open: its events
    /// are not emailed again, and the marker is retried while the document exists.
    pub(super) async fn close<'a>(
        &self,
        settled: impl Iterator<Item = (&'a Delivery, DeliveryState)>,
    ) -> Result<()> {
        let (mut digests, mut batches, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        for (row, state) in settled {
            rows.push(row);
            match row.occasion {
                Occasion::Batch(batch, _) => batches.push((batch, row, state)),
                Occasion::Digest(..) if state.flushes() => digests.push(row),
                Occasion::Digest(..) => {}
            }
        }
        let mut bad = self.mark(&digests).await?;
        if !batches.is_empty() {
            bad.extend(self.close_batches(&batches).await?);
        }
        // A document without an event list has no events to repeat, so its row may be closed.
        let unmarked: HashSet<&UserId> =
            bad.iter().filter(|bad| bad.reason != Defect::NoList).map(|bad| &bad.user).collect();
        rows.retain(|row| !unmarked.contains(&row.user));
        let ids: Vec<DeliveryId> = rows.iter().map(|row| row.id.clone()).collect();
        if !ids.is_empty() {
            self.context.store.close(&ids).await?;
            crash::point("after-close");
        }
        self.tally.note_bad_stacks(bad);
        Ok(())
    }

    /// Writes the markers of batches, which list the events that joined, and settles the batches.
    async fn close_batches(
        &self,
        settled: &[(Id, &Delivery, DeliveryState)],
    ) -> Result<Vec<BadStack>> {
        let store = &self.context.store;
        let flushed = settled.iter().filter(|(.., state)| state.flushes());
        let (ids, rows): (Vec<Id>, Vec<&Delivery>) =
            flushed.map(|(batch, row, _)| (*batch, *row)).unzip();
        let batches = store.filed(&ids).await?;
        let large = batches.iter().flatten().filter(|batch| is_large(batch));
        let large: Vec<Batch> = large.cloned().collect();
        let stacks = stacks_of(&**store, &large).await?;
        let mut markers = Vec::new();
        for (row, batch) in rows.iter().zip(batches) {
            let Some(batch) = batch else { continue };
            let stacks = stacks.get(&batch.user).filter(|_| is_large(&batch));
            let mut days: BTreeMap<Day, Vec<Id>> = BTreeMap::new();
            for fanout in listed(&batch, stacks) {
                days.entry(Day::of(fanout.time())).or_default().push(fanout);
            }
            let id = row.marker;
            markers.extend(days.into_iter().map(|(day, fanouts)| {
                NewMarker::Mailed(row.user.clone(), day, BatchMarker { id, fanouts })
            }));
        }
        let bad = self.write_markers(markers).await?;
        let end = |(batch, _, state): &(Id, &Delivery, DeliveryState)| match state {
            DeliveryState::Canceled => (*batch, BatchState::Canceled),
            _ => (*batch, BatchState::Closed),
        };
        let ends: Vec<(Id, BatchState)> = settled.iter().map(end).collect();
        store.settle_batches(&ends, self.context.clock.now()).await?;
        Ok(bad)
    }
}

/// Returns whether it pays to read the stacks so that the marker can be shorter.
fn is_large(batch: &Batch) -> bool {
    batch.joined.len() > MANY
}

/// Returns the fan-outs that the markers list: all of the batch's own or, if `stacks` is given,
/// those that are stored there. Entries beyond the cap of a day are not stored.
fn listed(batch: &Batch, stacks: Option<&UserStacks>) -> Vec<Id> {
    let Some(stacks) = stacks else {
        return batch.own_fanouts().collect();
    };
    let events = stacks.stacks.iter().flat_map(|stack| stack.events());
    let stored: HashSet<Id> = events.filter_map(|(_, event)| event.i).collect();
    let own = batch.own_fanouts();
    own.filter(|fanout| stored.contains(fanout)).collect()
}

impl Tally {
    /// Returns the number of settled deliveries.
    pub fn settled(&self) -> u64 {
        self.sent + self.failed + self.canceled + self.unknown
    }

    fn note(&mut self, reason: &str, times: u64) {
        /// The most reasons that a tally lists.
        const KINDS: usize = 5;
        if let Some((_, count)) = self.reasons.iter_mut().find(|(known, _)| known == reason) {
            *count += times;
        } else if self.reasons.len() < KINDS {
            self.reasons.push((reason.to_owned(), times));
        }
    }

    fn settle(&mut self, state: DeliveryState, items: u32, reason: Option<&str>) {
        match state {
            DeliveryState::Sent => {
                self.sent += 1;
                self.events += u64::from(items);
            }
            DeliveryState::Failed => self.failed += 1,
            DeliveryState::Canceled => self.canceled += 1,
            DeliveryState::Unknown => self.unknown += 1,
            DeliveryState::Pending | DeliveryState::Sending => {}
        }
        if matches!(state, DeliveryState::Failed | DeliveryState::Unknown)
            && let Some(reason) = reason
        {
            self.note(reason, 1);
        }
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.events += other.events;
        self.failed += other.failed;
        self.canceled += other.canceled;
        self.unknown += other.unknown;
        self.deferred += other.deferred;
        for (reason, count) in other.reasons {
            self.note(&reason, count);
        }
        self.bad_stacks += other.bad_stacks;
    }
}

/// The deliveries that a run has processed, and their outcomes. Each counts once. Clones share one
/// tally.
#[derive(Debug, Clone, Default)]
pub struct RunTally(Arc<Mutex<MarkerEntries>>);

#[derive(Debug, Default)]
struct MarkerEntries {
    tally: Tally,
    /// The unsettled deliveries, and why they wait.
    waiting: HashMap<DeliveryId, Option<String>>,
    begun: u64,
}

impl MarkerEntries {
    fn settle(&mut self, id: &DeliveryId, state: DeliveryState, items: u32, reason: Option<&str>) {
        if self.waiting.remove(id).is_some() {
            self.tally.settle(state, items, reason);
        }
    }
}

impl RunTally {
    fn entries(&self) -> MutexGuard<'_, MarkerEntries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counts so far, with unsettled deliveries as deferred.
    pub fn snapshot(&self) -> Tally {
        let entries = self.entries();
        let mut tally = Tally { deferred: entries.waiting.len() as u64, ..entries.tally.clone() };
        for reason in entries.waiting.values().flatten() {
            tally.note(reason, 1);
        }
        tally
    }

    /// Returns the number of deliveries that the run has started to process.
    pub fn begun(&self) -> u64 {
        self.entries().begun
    }

    /// Returns the number of settled deliveries.
    pub fn settled(&self) -> u64 {
        self.entries().tally.settled()
    }

    /// Returns the unsettled deliveries.
    pub(super) fn waiting(&self) -> Vec<DeliveryId> {
        self.entries().waiting.keys().cloned().collect()
    }

    /// Records that the run processes these rows, perhaps again.
    ///
    /// A row that another process has settled counts only if the run was waiting for it. Returns
    /// the number of unsettled rows that are new to the run.
    pub fn record_started(&self, rows: &[Delivery]) -> u64 {
        let mut entries = self.entries();
        let before = entries.begun;
        for row in rows {
            let DeliveryOutcome { items, reason, .. } = &row.outcome;
            if row.state.settled() {
                entries.settle(&row.id, row.state, *items, reason.as_deref());
                continue;
            }
            let waiting = entries.waiting.insert(row.id.clone(), reason.clone());
            if waiting.is_none() {
                entries.begun += 1;
            }
        }
        entries.begun - before
    }

    /// Counts documents that were skipped or could not take a marker.
    pub fn note_bad_stacks(&self, bad: impl IntoIterator<Item = BadStack>) {
        self.entries().tally.bad_stacks.note(bad);
    }

    /// Records the outcomes that this run has written.
    fn conclude(&self, settled: &[Settlement], deferred: &[Deferral]) {
        let mut entries = self.entries();
        for end in settled {
            entries.settle(&end.id, end.state, end.items, end.reason.as_deref());
        }
        for deferral in deferred {
            if let Some(reason) = entries.waiting.get_mut(&deferral.id) {
                reason.clone_from(&deferral.reason);
            }
        }
    }
}
