//! Closes settled rows after it writes their markers, so that no later email repeats their events.
//!
//! The order is markers, batches, rows (P2, P4). Each step can be repeated, so another worker
//! finishes after a crash. The marker of a digest covers the entries that were read; that of a
//! batch lists the events that joined. If a document cannot take a marker, its row stays open: its
//! events are not emailed again, and the marker is retried while the document exists.

use std::collections::{BTreeMap, HashSet};

use super::super::compose::stacks_of;
use super::Ledger;
use crate::domain::delivery::Settlement;
use crate::domain::{
    BadStack, Batch, BatchState, Day, Defect, Delivery, DeliveryId, DeliveryState, Id, Mailed,
    Occasion, PersonStacks, UserId,
};
use crate::engine::{Result, crash};
use crate::store::NewMarker;

/// The most fan-outs that a marker lists without a check whether they are stored.
const MANY: usize = 500;

impl Ledger {
    /// Writes the markers of accepted digests. Returns the rows that can be closed when they are
    /// settled. Markers that a stack cannot take are retried when the row is closed.
    pub(super) async fn mark_taken<'a>(
        &self,
        ends: impl Iterator<Item = (&'a Delivery, &'a Settlement)>,
    ) -> Result<HashSet<DeliveryId>> {
        let taken = ends.filter(|(row, end)| {
            end.state == DeliveryState::Sent && matches!(row.occasion, Occasion::Digest { .. })
        });
        let rows: Vec<&Delivery> = taken.map(|(row, _)| row).collect();
        let bad = self.mark(rows.iter().copied()).await?;
        let bad: HashSet<&UserId> = bad.iter().map(|bad| &bad.user).collect();
        let marked = rows.into_iter().filter(|row| !bad.contains(&row.user));
        Ok(marked.map(|row| row.id.clone()).collect())
    }

    /// Writes the markers of these digests. Returns the stacks that could not take one.
    async fn mark(&self, rows: impl Iterator<Item = &Delivery>) -> Result<Vec<BadStack>> {
        let marker = |row: &Delivery| NewMarker::Flushed {
            user: row.user.clone(),
            marker: row.marker,
            watermarks: row.watermarks.clone(),
        };
        let markers: Vec<NewMarker> = rows.map(marker).collect();
        if markers.is_empty() {
            return Ok(Vec::new());
        }
        let bad = self.context.store.write_markers(&markers).await?;
        crash::point("after-mark");
        Ok(bad)
    }

    /// Writes the markers of emails that were or may have been sent, and closes the rows. Counts
    /// the stacks that could not take a marker.
    pub(in crate::engine::delivery) async fn close<'a>(
        &self,
        settled: impl Iterator<Item = (&'a Delivery, DeliveryState)>,
    ) -> Result<()> {
        let (mut digests, mut batches, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        for (row, state) in settled {
            rows.push(row);
            match row.occasion {
                Occasion::Batch { batch, .. } => batches.push((batch, row, state)),
                Occasion::Digest { .. } if state.flushes() => digests.push(row),
                Occasion::Digest { .. } => {}
            }
        }
        let mut bad = self.mark(digests.into_iter()).await?;
        if !batches.is_empty() {
            bad.extend(self.close_batches(&batches).await?);
        }
        // A document without an event list has no events to repeat, so its row may be closed.
        let takes_none: HashSet<&UserId> = bad
            .iter()
            .filter(|bad| bad.reason != Defect::NoList)
            .map(|bad| &bad.user)
            .collect();
        rows.retain(|row| !takes_none.contains(&row.user));
        let ids: Vec<DeliveryId> = rows.iter().map(|row| row.id.clone()).collect();
        if !ids.is_empty() {
            self.context.store.close(&ids).await?;
            crash::point("after-close");
        }
        self.tally.passed_over(bad);
        Ok(())
    }

    async fn close_batches(
        &self,
        settled: &[(Id, &Delivery, DeliveryState)],
    ) -> Result<Vec<BadStack>> {
        let mut bad = Vec::new();
        let flushed = settled.iter().filter(|(.., state)| state.flushes());
        let (ids, rows): (Vec<Id>, Vec<&Delivery>) =
            flushed.map(|(batch, row, _)| (*batch, *row)).unzip();
        let batches = self.context.store.filed(&ids).await?;
        let large = batches.iter().flatten().filter(|batch| is_large(batch));
        let stacks = stacks_of(&*self.context.store, &large.cloned().collect::<Vec<_>>()).await?;
        let mut markers = Vec::new();
        for (row, batch) in rows.iter().zip(batches) {
            let Some(batch) = batch else { continue };
            let stacks = stacks.get(&batch.user).filter(|_| is_large(&batch));
            let mut days: BTreeMap<Day, Vec<Id>> = BTreeMap::new();
            for fanout in to_name(&batch, stacks) {
                days.entry(Day::of(fanout.time())).or_default().push(fanout);
            }
            markers.extend(days.into_iter().map(|(day, fanouts)| NewMarker::Mailed {
                user: row.user.clone(),
                day,
                mailed: Mailed {
                    id: row.marker,
                    fanouts,
                },
            }));
        }
        if !markers.is_empty() {
            bad = self.context.store.write_markers(&markers).await?;
            crash::point("after-mark");
        }
        let ends: Vec<(Id, BatchState)> = settled
            .iter()
            .map(|(batch, _, state)| {
                let canceled = *state == DeliveryState::Canceled;
                let end = if canceled {
                    BatchState::Canceled
                } else {
                    BatchState::Closed
                };
                (*batch, end)
            })
            .collect();
        let now = self.context.clock.now();
        self.context.store.settle_batches(&ends, now).await?;
        Ok(bad)
    }
}

/// Returns whether it pays to read the stacks so that the marker can be shorter.
fn is_large(batch: &Batch) -> bool {
    batch.joined.len() > MANY
}

/// Returns the fan-outs that the markers list: all of the batch's own or, if `stacks` is given,
/// those that are stored there. Entries beyond the cap of a day are not stored.
fn to_name(batch: &Batch, stacks: Option<&PersonStacks>) -> Vec<Id> {
    let Some(stacks) = stacks else {
        return batch.own_fanouts().collect();
    };
    let events = stacks.stacks.iter().flat_map(|stack| stack.events());
    let standing: HashSet<Id> = events.filter_map(|(_, event)| event.i).collect();
    let own = batch.own_fanouts();
    own.filter(|fanout| standing.contains(fanout)).collect()
}
