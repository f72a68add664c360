//! Accumulators: the batches of one user and key, at most one of them open.
//!
//! An accumulator changes as a whole, by compare-and-set. So only one batch is open, an event joins
//! once, and events that find the batch ended open the next one. A worker
//! ([`crate::engine::batches`]) files ended batches: it stores them and opens their deliveries.
//! Their fan-outs are then remembered for a day, to recognize repeated ones.

use std::collections::HashSet;

use chrono::{DateTime, TimeDelta, Utc};

use super::{
    Batch, BatchItem, BatchKey, BatchPolicy, BatchState, EndAction, Keep, MAX_FANOUTS,
    RemovedEvents,
};
use crate::domain::audience::distinct;
use crate::domain::coordination::Lease;
use crate::domain::day_stack::UserStacks;
use crate::domain::name::{EventType, ObjectId, UserId};
use crate::domain::timed_id::Id;

/// How long an accumulator remembers the fan-outs of filed batches. A fan-out is repeated within
/// the duration of a lease, or later by a worker that had hung.
const FANOUT_RETENTION: TimeDelta = TimeDelta::days(1);
/// The number of remembered fan-outs after which older ones are forgotten. Fan-outs that were filed
/// together are forgotten together.
const MAX_REMEMBERED_FANOUTS: usize = 10_000;
/// Fan-outs join the last group if it was last changed within this time.
const GROUP_INTERVAL: TimeDelta = TimeDelta::minutes(10);
/// If an accumulator has more ended batches than this, a worker that has added events files them.
pub const MAX_ENDED: usize = 200;
/// The distance between two emails of an accumulator in the queue. It lets the emails of other
/// accumulators go between them.
const QUEUE_DISTANCE: TimeDelta = TimeDelta::seconds(1);

/// The id of an accumulator.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccumulatorId {
    /// The user.
    pub user: UserId,
    /// The batch key, which distinguishes the accumulators of a user.
    pub key: BatchKey,
}

/// A group of fan-outs whose batches were filed at about the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FiledFanouts {
    /// When the last of the batches was filed.
    pub at: DateTime<Utc>,
    /// The ids of the fan-outs, ascending and without duplicates, for binary search.
    pub joined: Vec<Id>,
}

/// The batches of one user and key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accumulator {
    /// The user and the key. They never change.
    pub id: AccumulatorId,
    /// The open batch; `None` if no event has joined since the last one ended.
    pub open: Option<Batch>,
    /// Batches that have ended but are not filed yet, in the order in which they ended.
    pub ended: Vec<Batch>,
    /// The fan-outs of filed batches, oldest first.
    pub filed_fanouts: Vec<FiledFanouts>,
    /// The queue position of the last email.
    pub queue_position: Option<DateTime<Utc>>,
    /// The lease of the worker that files ended batches.
    pub lease: Option<Lease>,
    /// The revision that was read, for compare-and-set. `None` if there is no stored record. Only
    /// the store sets it.
    pub revision: Option<Id>,
}

impl Accumulator {
    /// Creates an accumulator without batches.
    pub fn new(id: AccumulatorId) -> Self {
        Self {
            id,
            open: None,
            ended: Vec::new(),
            filed_fanouts: Vec::new(),
            queue_position: None,
            lease: None,
            revision: None,
        }
    }

    /// Adds the events of one fan-out, and returns the number of new ones. `ids` creates the ids of
    /// new batches.
    pub fn join(
        &mut self,
        items: &[BatchItem],
        at: DateTime<Utc>,
        policy: &BatchPolicy,
        ids: impl FnMut() -> Id,
    ) -> u64 {
        if self.has_joined(items[0].fanout_id) {
            return 0;
        }
        let joined = self.open.as_mut().and_then(|open| open.join(items, at, policy));
        let added = joined.unwrap_or_else(|| self.open_next(items, at, policy, ids));
        self.collect_ended(at);
        added
    }

    /// Replaces the open batch by a new one with these events, and returns their number.
    fn open_next(
        &mut self,
        items: &[BatchItem],
        at: DateTime<Utc>,
        policy: &BatchPolicy,
        mut ids: impl FnMut() -> Id,
    ) -> u64 {
        self.end_open();
        let AccumulatorId { user, key } = self.id.clone();
        let mut batch = Batch::open(ids(), user, key, items, at, policy);
        let added = batch.events.count;
        // A batch that is already closing is emailed at once, so it needs no lead.
        let has_lead = policy.leading && policy.deferred_until.is_none();
        if has_lead && batch.state == BatchState::Open {
            self.ended.push(batch.split_lead(ids(), at));
        }
        self.open = Some(batch);
        added
    }

    /// Returns whether the events of this fan-out are in a batch of this accumulator, as far as it
    /// remembers.
    pub fn has_joined(&self, fanout: Id) -> bool {
        self.open.iter().chain(&self.ended).any(|batch| batch.has_joined(fanout))
            || self.filed_fanouts.iter().any(|group| group.joined.binary_search(&fanout).is_ok())
    }

    /// Moves the batch in `open` to `ended` if its state is no longer `Open`. Cancels closing
    /// batches without events.
    fn collect_ended(&mut self, at: DateTime<Utc>) {
        if self.open.as_ref().is_some_and(|batch| batch.state != BatchState::Open) {
            self.end_open();
        }
        for batch in &mut self.ended {
            // No event followed its lead, or all were removed.
            if batch.state == BatchState::Closing && batch.events.is_empty() {
                batch.state = BatchState::Canceled;
            }
            if batch.state == BatchState::Canceled && batch.settled.is_none() {
                batch.settled = Some(at);
                // Later batches must not wait for this one.
                batch.closes_at = batch.closes_at.min(at);
            }
        }
    }

    fn end_open(&mut self) {
        self.ended.extend(self.open.take());
    }

    /// Returns when a worker next has to act; `None` for an empty accumulator.
    pub fn next_due(&self) -> Option<DateTime<Utc>> {
        if let Some(first) = self.ended.first() {
            return Some(first.closes_at);
        }
        match &self.open {
            Some(open) => Some(open.closes_at),
            None => self.filed_fanouts.last().map(|group| group.at + FANOUT_RETENTION),
        }
    }

    /// Returns the open batch if it is due.
    pub fn due_batch(&self, now: DateTime<Utc>) -> Option<&Batch> {
        self.open.as_ref().filter(|open| now >= open.closes_at)
    }

    /// Delays closing of the open batch to the end of the user's quiet hours: see
    /// [`crate::domain::QuietHours`].
    pub fn defer(&mut self, until: DateTime<Utc>) {
        if let Some(open) = &mut self.open {
            open.defer(until);
        }
    }

    /// Closes the batches that are due and forgets expired fan-outs. Returns whether anything
    /// changed.
    pub fn advance(&mut self, now: DateTime<Utc>) -> bool {
        let before = (self.ended.len(), self.filed_fanouts.len());
        if let Some(open) = self.open.as_mut().filter(|open| now >= open.closes_at) {
            open.begin_closing(now);
        }
        self.collect_ended(now);
        self.filed_fanouts.retain(|group| now < group.at + FANOUT_RETENTION);
        before != (self.ended.len(), self.filed_fanouts.len())
    }

    /// Drops filed batches and remembers their fan-outs. An ended batch with the same id but other
    /// events stays. Returns whether anything changed.
    pub fn remove_filed(&mut self, filed: &[Batch], now: DateTime<Utc>) -> bool {
        let is_filed = |batch: &mut Batch| filed.iter().any(|other| other.has_same_events(batch));
        let dropped: Vec<Batch> = self.ended.extract_if(.., is_filed).collect();
        if dropped.is_empty() {
            return false;
        }
        self.remember_fanouts(dropped.into_iter().flat_map(|batch| batch.joined).collect(), now);
        true
    }

    fn remember_fanouts(&mut self, mut fanouts: Vec<Id>, now: DateTime<Utc>) {
        // If the last group is recent, it is merged with these fan-outs, and expires as if it was
        // filed now.
        let is_recent = |last: &mut FiledFanouts| {
            now - last.at < GROUP_INTERVAL && last.joined.len() < MAX_REMEMBERED_FANOUTS
        };
        if let Some(last) = self.filed_fanouts.pop_if(is_recent) {
            fanouts.extend(last.joined);
        }
        self.filed_fanouts.push(FiledFanouts { at: now, joined: distinct(fanouts) });
        let mut room = MAX_REMEMBERED_FANOUTS;
        let kept_groups = self.filed_fanouts.iter().rev().take_while(|group| {
            let is_kept = room > 0;
            room = room.saturating_sub(group.joined.len());
            is_kept
        });
        let dropped = self.filed_fanouts.len() - kept_groups.count();
        self.filed_fanouts.drain(..dropped);
    }

    /// Assigns the queue position of the next email.
    pub fn next_queue_position(&mut self, now: DateTime<Utc>) -> DateTime<Utc> {
        let next = self.queue_position.map_or(now, |last| now.max(last + QUEUE_DISTANCE));
        self.queue_position = Some(next);
        next
    }

    /// Returns whether nothing is left, so that the record can be deleted.
    pub fn is_empty(&self) -> bool {
        self.open.is_none() && self.ended.is_empty() && self.filed_fanouts.is_empty()
    }

    /// Removes the events of this type and these objects from the open batch. `up_to` limits them
    /// to events that happened no later.
    pub fn remove_events(
        &mut self,
        kind: &EventType,
        objects: &[ObjectId],
        at: DateTime<Utc>,
        up_to: Option<Id>,
    ) -> RemovedEvents {
        let removed = self.open.as_mut().map(|open| open.remove_events(kind, objects, up_to));
        self.collect_ended(at);
        removed.unwrap_or_default()
    }

    /// Ends the open batch by hand.
    ///
    /// # Errors
    ///
    /// Returns the batch's state if it has ended; `None` if it is not in this accumulator.
    pub fn end(
        &mut self,
        id: Id,
        how: EndAction,
        at: DateTime<Utc>,
    ) -> Result<(), Option<BatchState>> {
        let Some(open) = self.open.as_mut().filter(|open| open.id == id) else {
            return Err(self.ended.iter().find(|batch| batch.id == id).map(|batch| batch.state));
        };
        open.end(how, at).map_err(Some)?;
        self.collect_ended(at);
        Ok(())
    }
}

impl Batch {
    /// Returns whether the kept events and the total determine the email, given which events may be
    /// included. They do if all kept events may be included and have different objects: events that
    /// were only counted are then assumed to be like them. If not, call [`Batch::all_events`].
    pub fn determines_email(&self, may_be_included: impl Fn(&BatchItem) -> bool) -> bool {
        if self.events.omitted_count() == 0 {
            return true;
        }
        let kept = &self.events.items;
        // If an object is kept twice, the events that are only counted may repeat it too.
        let objects: HashSet<_> = kept.iter().map(|item| (&item.kind, &item.object)).collect();
        objects.len() == kept.len() && kept.iter().all(may_be_included)
    }

    /// Returns all events that joined: those on the stacks that were not removed, and the kept
    /// ones. Events that a full day did not store are missing, unless they were kept.
    pub fn all_events(&self, user_stacks: Option<&UserStacks>) -> Vec<BatchItem> {
        let own_fanouts: HashSet<Id> = self.fanouts_without_lead().collect();
        let removed: HashSet<&BatchItem> = self.removed.iter().collect();
        let stacks = user_stacks.into_iter().flat_map(|user_stacks| &user_stacks.stacks);
        let mut items: Vec<BatchItem> = stacks
            .flat_map(|stack| stack.events())
            .filter_map(|(_, event)| {
                let fanout_id = event.fanout_id.filter(|id| own_fanouts.contains(id))?;
                let (kind, object) = (event.kind.clone(), event.object.clone());
                Some(BatchItem { fanout_id, kind, object })
            })
            .filter(|item| !removed.contains(item))
            .collect();
        let stored: HashSet<&BatchItem> = items.iter().collect();
        let kept = self.events.items.iter();
        let unstored: Vec<BatchItem> =
            kept.filter(|item| !stored.contains(item)).cloned().collect();
        items.extend(unstored);
        items
    }
}

/// Events to append to open batches, and the conditions on each batch.
///
/// This is the common case of joining: an open batch with the same policy, which the new events do
/// not close. Under these conditions joining only appends events, so a store can do it in one
/// update without reading the accumulator. The result is that of [`Accumulator::join`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchAppend {
    /// The events in the order of joining. They include all events of each fan-out.
    pub items: Vec<BatchItem>,
    /// Their fan-outs, ascending. None of them may have joined before.
    pub fanouts: Vec<Id>,
    /// The time of joining.
    pub at: DateTime<Utc>,
    /// The fingerprint of the batch's policy.
    pub policy: String,
    /// Which events the batch keeps after the addition.
    pub keep: Keep,
    /// The most events that the batch may have before the addition.
    pub max_count: Option<u64>,
    /// The most fan-outs that may have joined before the addition.
    pub max_joined: usize,
    /// The earliest time at which the batch may have been opened.
    pub min_opened_at: Option<DateTime<Utc>>,
    /// The earliest time at which the batch closes after the addition.
    pub min_closes_at: DateTime<Utc>,
}

impl BatchAppend {
    /// Creates an addition of events with the same policy; `None` if joining always does more than
    /// append.
    pub fn new(items: Vec<BatchItem>, at: DateTime<Utc>, policy: &BatchPolicy) -> Option<Self> {
        let fanouts = distinct(items.iter().map(|item| item.fanout_id));
        // A fan-out joins once. An append cannot detect one whose events are not adjacent.
        if items.chunk_by(|a, b| a.fanout_id == b.fanout_id).count() != fanouts.len() {
            return None;
        }
        // Quiet hours override the time that the policy gives.
        if policy.is_immediate() || policy.deferred_until.is_some() || items.is_empty() {
            return None;
        }
        let min_closes_at = at.checked_add_signed(policy.cooldown)?;
        let max_count = match policy.close_at {
            // Events that fill the batch close it.
            Some(full) => Some(full.get().checked_sub(items.len() as u64 + 1)?),
            None => None,
        };
        let min_opened_at = match policy.max_wait {
            Some(longest) => Some(min_closes_at.checked_sub_signed(longest)?),
            None => None,
        };
        Some(Self {
            at,
            policy: policy.fingerprint(),
            keep: policy.keep,
            max_count,
            max_joined: MAX_FANOUTS.checked_sub(fanouts.len())?,
            min_opened_at,
            min_closes_at,
            fanouts,
            items,
        })
    }

    /// Returns whether the accumulator meets all conditions.
    pub fn applies_to(&self, accumulator: &Accumulator) -> bool {
        let Some(open) = &accumulator.open else { return false };
        open.state == BatchState::Open
            && accumulator.ended.is_empty()
            && !open.deferred
            && open.policy == self.policy
            && self.max_count.is_none_or(|limit| open.events.count <= limit)
            && open.joined.len() <= self.max_joined
            && self.min_opened_at.is_none_or(|from| open.opened_at >= from)
            && !self.fanouts.iter().any(|fanout| accumulator.has_joined(*fanout))
    }
}

#[cfg(test)]
#[path = "accumulator_tests.rs"]
mod tests;
