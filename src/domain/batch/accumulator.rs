//! An accumulator: what one person has of one key. At most one batch is open on it; what joined its
//! earlier ones lately is remembered.
//!
//! The rule: an accumulator changes as a whole, by a compare-and-set of its store, so whatever
//! happens here happens at one moment: there is one open batch, an event joins once, and what meets
//! a batch that has ended opens the next. What ended stands in `ended` until somebody has filed it
//! ([`crate::engine::batches`]); then it goes, and is remembered for [`MEMORY`], for what is
//! fanned out again.

use chrono::{DateTime, TimeDelta, Utc};

use super::{Batch, BatchKey, BatchPolicy, BatchState, Contents, Item, Joined, TakenOut};
use crate::domain::id::Id;
use crate::domain::lease::Lease;
use crate::domain::name::{EventType, ObjectId, UserId};

/// How long an accumulator remembers what joined batches that were filed. An event is fanned
/// out again within the length of a lease, or when whoever held it comes back to life.
pub const MEMORY: TimeDelta = TimeDelta::days(1);
/// It remembers no more fan-outs than this beside those of the newest batch; the oldest are
/// forgotten first.
pub const MEMORIES: usize = 10_000;
/// What is filed within this time is remembered as one.
const TOGETHER: TimeDelta = TimeDelta::minutes(10);
/// More batches that have ended than these are not left standing on an accumulator: whoever lets
/// events join files them first.
pub const MOST_ENDED: usize = 200;
/// Of one accumulator, so much lies between two mails in the order in which mails leave: whoever
/// has many waits behind whoever has one.
const TURN: TimeDelta = TimeDelta::seconds(1);

/// Which accumulator.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccumulatorId {
    /// Whose batches these are.
    pub user: UserId,
    /// What they are of; accumulators of one person differ in it alone.
    pub key: BatchKey,
}

/// The fan-outs of a batch that was filed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// When it was filed.
    pub at: DateTime<Utc>,
    /// Their ids; ascending and each once, as they are searched.
    pub joined: Vec<Id>,
}

/// What one person has of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accumulator {
    /// Of whom and of what it is; it never changes.
    pub id: AccumulatorId,
    /// The batch that gathers; `None` until something joins after the last one ended.
    pub open: Option<Batch>,
    /// Batches that have ended and are to be filed, in the order in which they ended.
    pub ended: Vec<Batch>,
    /// Oldest first.
    pub memories: Vec<Memory>,
    /// The turn of the last mail that left from here.
    pub turn: Option<DateTime<Utc>>,
    /// Who files what has ended.
    pub lease: Option<Lease>,
    /// As it was read; nothing for an accumulator that was not. The store sets it.
    pub revision: Option<Id>,
}

impl Accumulator {
    /// An empty one, for a person and key of which no record stands.
    pub fn new(id: AccumulatorId) -> Self {
        Self {
            id,
            open: None,
            ended: Vec::new(),
            memories: Vec::new(),
            turn: None,
            lease: None,
            revision: None,
        }
    }

    /// Lets events join, fan-out by fan-out: all that one brings for this accumulator joins
    /// together. `ids` makes the ids of batches that are opened. Says how many are new.
    pub fn join(
        &mut self,
        items: &[Item],
        at: DateTime<Utc>,
        policy: &BatchPolicy,
        mut ids: impl FnMut() -> Id,
    ) -> u64 {
        let of_fanouts = items.chunk_by(|a, b| a.i == b.i);
        of_fanouts
            .map(|items| self.take_in(items, at, policy, &mut ids))
            .sum()
    }

    fn take_in(
        &mut self,
        items: &[Item],
        at: DateTime<Utc>,
        policy: &BatchPolicy,
        ids: &mut impl FnMut() -> Id,
    ) -> u64 {
        if self.has_joined(items[0].i) {
            return 0;
        }
        let joined = self.open.as_mut().map(|open| open.join(items, at, policy));
        let added = match joined {
            Some(Joined::Added(added)) => added,
            Some(Joined::Already) => 0,
            None | Some(Joined::Refused) => {
                self.end_open();
                let (user, key) = (self.id.user.clone(), self.id.key.clone());
                let batch = Batch::open(ids(), user, key, items, at, policy);
                self.open.insert(batch).joined_events()
            }
        };
        self.put_away(at);
        added
    }

    /// Whether this fan-out's events are in a batch of this accumulator, as far as it remembers.
    pub fn has_joined(&self, fanout: Id) -> bool {
        let memories = self.memories.iter().map(|memory| &memory.joined);
        let ended = self.ended.iter().map(|batch| &batch.joined);
        let open = self.open.iter().map(|batch| &batch.joined);
        let mut all = open.chain(ended).chain(memories);
        all.any(|joined| joined.binary_search(&fanout).is_ok())
    }

    /// Puts the open batch away if it is not open any more.
    fn put_away(&mut self, at: DateTime<Utc>) {
        let over = |open: &Batch| open.state != BatchState::Open;
        if self.open.as_ref().is_some_and(over) {
            self.end_open();
        }
        for batch in &mut self.ended {
            // What was mailed of it was its lead; one that has not left yet leaves first.
            let is_empty = batch.contents.is_empty() && !batch.is_leading();
            if batch.state == BatchState::Closing && is_empty {
                batch.state = BatchState::Canceled;
            }
            if batch.state == BatchState::Canceled && batch.settled.is_none() {
                batch.settled = Some(at);
                // There is nothing to wait for, and what ends after it must not wait either.
                batch.closes_at = batch.closes_at.min(at);
            }
        }
    }

    fn end_open(&mut self) {
        self.ended.extend(self.open.take());
    }

    /// When there is something to do: nothing for an empty accumulator.
    pub fn due(&self) -> Option<DateTime<Utc>> {
        if let Some(first) = self.ended.first() {
            return Some(first.closes_at);
        }
        match &self.open {
            Some(open) if open.is_leading() => Some(open.opened_at),
            Some(open) => Some(open.closes_at),
            None => self.memories.last().map(|memory| memory.at + MEMORY),
        }
    }

    /// The open batch that would close by now of its own accord.
    pub fn closing(&self, now: DateTime<Utc>) -> Option<&Batch> {
        self.open.as_ref().filter(|open| now >= open.closes_at)
    }

    /// Defers the open batch until its user's quiet hours end: see [`crate::domain::Quiet`].
    pub fn defer(&mut self, until: DateTime<Utc>) {
        if let Some(open) = &mut self.open {
            open.defer(until);
        }
    }

    /// Ends what is due, and forgets what is old enough. Answers whether anything changed.
    pub fn advance(&mut self, now: DateTime<Utc>, mut ids: impl FnMut() -> Id) -> bool {
        let before = (self.ended.len(), self.memories.len());
        for mut batch in std::mem::take(&mut self.ended) {
            // It became full, or was closed by hand, before its lead had left.
            if batch.state == BatchState::Closing {
                self.ended.extend(batch.split_lead(&mut ids, now));
            }
            self.ended.push(batch);
        }
        if let Some(open) = &mut self.open {
            self.ended.extend(open.split_lead(&mut ids, now));
            if open.is_due(now) {
                open.begin_closing(now);
            }
        }
        self.put_away(now);
        self.memories.retain(|memory| now < memory.at + MEMORY);
        before != (self.ended.len(), self.memories.len())
    }

    /// These have been filed: they go, and what joined them is remembered. What has ended here
    /// under the id of one of them, with other events, stays. Answers whether anything changed.
    pub fn forget_filed(&mut self, filed: &[Batch], now: DateTime<Utc>) -> bool {
        let was_filed = |batch: &Batch| filed.iter().any(|gone| gone.gathered_as(batch));
        let (gone, ended) = std::mem::take(&mut self.ended)
            .into_iter()
            .partition(was_filed);
        self.ended = ended;
        let gone: Vec<Batch> = gone;
        if !gone.is_empty() {
            self.remember(gone.into_iter().flat_map(|batch| batch.joined), now);
            return true;
        }
        false
    }

    /// Where a batch has ended here that was filed with other events than it has here, those that
    /// were filed are remembered, and what it has beyond them becomes a batch of its own, under
    /// this id. Answers whether anything changed.
    pub fn set_apart(&mut self, filed: &Batch, id: Id, now: DateTime<Utc>) -> bool {
        let other = |batch: &Batch| batch.id == filed.id && !batch.gathered_as(filed);
        let Some(place) = self.ended.iter().position(other) else {
            return false;
        };
        let batch = self.ended.remove(place);
        if let Some(rest) = batch.beyond(filed, id) {
            self.ended.insert(place, rest);
        }
        self.remember(filed.joined.iter().copied(), now);
        true
    }

    fn remember(&mut self, joined: impl Iterator<Item = Id>, now: DateTime<Utc>) {
        let mut joined: Vec<Id> = joined.collect();
        // What was filed shortly before is remembered together with it, for as long.
        let shortly = |last: &mut Memory| now - last.at < TOGETHER && last.joined.len() < MEMORIES;
        if let Some(last) = self.memories.pop_if(shortly) {
            joined.extend(last.joined);
        }
        joined.sort_unstable();
        joined.dedup();
        self.memories.push(Memory { at: now, joined });
        let mut room = MEMORIES;
        let keep = self.memories.iter().rev().take_while(|memory| {
            let kept = room > 0;
            room = room.saturating_sub(memory.joined.len());
            kept
        });
        let keep = keep.count();
        self.memories.drain(..self.memories.len() - keep);
    }

    /// The turn of the next mail that leaves from here.
    pub fn next_turn(&mut self, now: DateTime<Utc>) -> DateTime<Utc> {
        let turn = self.turn.map_or(now, |last| now.max(last + TURN));
        self.turn = Some(turn);
        turn
    }

    /// Whether nothing is left of it, so that its record can go.
    pub fn is_empty(&self) -> bool {
        self.open.is_none() && self.ended.is_empty() && self.memories.is_empty()
    }

    /// Takes events out of the open batch that are withdrawn; those that happened up to a moment,
    /// if one is given.
    pub fn take_out(
        &mut self,
        kind: &EventType,
        objects: &[ObjectId],
        at: DateTime<Utc>,
        up_to: Option<Id>,
    ) -> TakenOut {
        let open = self.open.as_mut();
        let out = open.map(|open| open.take_out(kind, objects, up_to));
        self.put_away(at);
        out.unwrap_or_default()
    }

    /// Ends the open batch now: it is mailed. `Err` says where this batch stands instead, if it is
    /// here at all.
    pub fn close_now(&mut self, batch: Id, at: DateTime<Utc>) -> Result<(), Option<BatchState>> {
        self.open_batch(batch)?.close_now(at).map_err(Some)?;
        self.put_away(at);
        Ok(())
    }

    /// Ends the open batch: it is not mailed. `Err` says where this batch stands instead, if it is
    /// here at all.
    pub fn cancel(&mut self, batch: Id, at: DateTime<Utc>) -> Result<(), Option<BatchState>> {
        self.open_batch(batch)?.cancel().map_err(Some)?;
        self.put_away(at);
        Ok(())
    }

    fn open_batch(&mut self, id: Id) -> Result<&mut Batch, Option<BatchState>> {
        let ended = self.ended.iter().find(|batch| batch.id == id);
        let ended = ended.map(|batch| batch.state);
        self.open.as_mut().filter(|open| open.id == id).ok_or(ended)
    }
}

impl Batch {
    /// How many events opened it, waiting as its lead or gathered.
    fn joined_events(&self) -> u64 {
        let lead = match &self.lead {
            super::Lead::Waiting { contents, .. } => contents.count,
            super::Lead::None | super::Lead::Mailed { .. } => 0,
        };
        lead + self.contents.count
    }

    /// The lead as a batch of its own, which has closed; it is not given twice.
    pub fn split_lead(&mut self, id: impl FnOnce() -> Id, now: DateTime<Utc>) -> Option<Self> {
        let super::Lead::Waiting { joined, .. } = &self.lead else {
            return None;
        };
        let joined = joined.clone();
        let contents: Contents = self.take_lead()?;
        Some(Self {
            id: id(),
            user: self.user.clone(),
            key: self.key.clone(),
            state: BatchState::Closing,
            opened_at: self.opened_at,
            last_event_at: self.opened_at,
            closes_at: now,
            deferred: false,
            lead: super::Lead::None,
            contents,
            policy: self.policy.clone(),
            joined,
            taken: self.taken.clone(),
            settled: None,
        })
    }
}

#[cfg(test)]
#[path = "accumulator_tests.rs"]
mod tests;
