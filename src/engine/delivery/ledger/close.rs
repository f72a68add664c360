//! Closes rows that are settled: markers say what they told, so that no later mail tells it.
//!
//! The rule (P2, P4): markers first, then the batches, then the rows; each is harmless again, so
//! whoever dies in between is replaced. A digest's marker says how far it read; a batch's name the
//! events it had gathered, wherever they stand. Where a document takes no marker its row stays
//! open: nothing of it is mailed again, and its marker is tried again while the document stands.

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

/// Of so many fan-outs a marker names all, whether anything of them stands or not.
const MANY: usize = 500;

impl Ledger {
    /// Writes the markers of digests that were taken, as nothing but noting it is left to be done;
    /// which of them are marked, and can be closed. A stack that took none is looked at again when
    /// its row is closed.
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

    /// Writes the markers of these digests; which stacks took none.
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

    /// Writes the markers of what was mailed, or may have been, and closes the rows; counts the
    /// stacks that took none.
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
        // What is no list holds nothing that a later mail could tell, so its row may be closed.
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

/// Whether so many fan-outs joined that it pays to look which of them a marker has to name.
fn is_large(batch: &Batch) -> bool {
    batch.joined.len() > MANY
}

/// The fan-outs that markers name: all that were the batch's own or, where the stacks were looked
/// at, those of which something stands there. A day that is full has not stored the others.
fn to_name(batch: &Batch, stacks: Option<&PersonStacks>) -> Vec<Id> {
    let Some(stacks) = stacks else {
        return batch.own_fanouts().collect();
    };
    let events = stacks.stacks.iter().flat_map(|stack| stack.events());
    let standing: HashSet<Id> = events.filter_map(|(_, event)| event.i).collect();
    let own = batch.own_fanouts();
    own.filter(|fanout| standing.contains(fanout)).collect()
}
