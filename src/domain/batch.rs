//! Batches: a user's events of one key within a time window, sent as one email.
//!
//! Each event joins once, even if its fan-out is repeated. The total is exact, but only some of the
//! events are kept to be shown. Nothing here reads the clock. Start with [`Batch`]. [`BatchPolicy`]
//! says when a batch closes, [`BatchKey`] which events share one.

use chrono::{DateTime, Utc};

use super::event::Event;
use super::id::Id;
use super::name::{EventType, ObjectId, UserId, named_enum};

mod accumulator;
mod addition;
mod key;
mod policy;

pub use accumulator::{Accumulator, AccumulatorId, MEMORIES, MEMORY, MOST_ENDED, Memory};
pub use addition::Addition;
pub use key::{BatchKey, ChosenKey, MAX_KEY_BYTES};
pub use policy::{BatchPolicy, Doubt, Keep};

/// The most fan-outs that join a batch, which remembers each so that none joins twice. A fan-out
/// that finds no room closes the batch and opens the next.
pub const ROOM: usize = 10_000;

/// The most removed events that a batch remembers.
pub const MOST_REMOVED: usize = 1_000;

/// An event in a batch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Item {
    /// The fan-out that added the event.
    pub i: Id,
    /// The event type. A batch under a chosen key can contain several types.
    pub t: EventType,
    /// The id of the object.
    pub o: ObjectId,
}

impl From<Item> for Event {
    fn from(item: Item) -> Self {
        Self {
            t: item.t,
            o: item.o,
            i: Some(item.i),
        }
    }
}

/// The events of one email.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contents {
    /// The number of events, including those that are not kept.
    pub count: u64,
    /// The first or last of the events ([`Keep`]), in the order of joining.
    pub items: Vec<Item>,
}

impl Contents {
    fn add(&mut self, item: &Item, keep: Keep) {
        self.count += 1;
        match keep {
            Keep::First(most) if self.items.len() >= most => {}
            Keep::First(_) => self.items.push(item.clone()),
            Keep::Last(most) => {
                let over = (self.items.len() + 1).saturating_sub(most);
                self.items.drain(..over.min(self.items.len()));
                self.items.push(item.clone());
            }
        }
    }

    fn remove_events(
        &mut self,
        kind: &EventType,
        objects: &[ObjectId],
        up_to: Option<Id>,
    ) -> Vec<Item> {
        let is_meant = |item: &Item| {
            let is_reached = up_to.is_none_or(|at| item.i.is_no_later_than(at));
            item.t == *kind && objects.contains(&item.o) && is_reached
        };
        let items = std::mem::take(&mut self.items);
        let (removed, left): (Vec<Item>, Vec<Item>) = items.into_iter().partition(is_meant);
        self.items = left;
        self.count -= removed.len() as u64;
        removed
    }

    /// Returns the number of events that are counted but not kept, as in "+12 more".
    pub fn more(&self) -> u64 {
        self.count - self.items.len() as u64
    }

    /// Returns whether there are no events, kept or not.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

named_enum! {
    /// The state of a batch.
    BatchState("batch state") {
        /// It accepts events. A user has at most one open batch per key.
        Open = "open",
        /// It accepts no more events and is being emailed. New events go to the next batch.
        Closing = "closing",
        /// Its delivery ended as sent, failed or unknown.
        Closed = "closed",
        /// No event was left, or an operator canceled it.
        Canceled = "canceled",
    }
}

/// The events that opened a leading batch. They are emailed at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lead {
    /// The policy is not a leading one, or the events were removed.
    None,
    /// The events are to become a batch of their own, which is emailed at once.
    Waiting {
        /// The events that opened the batch. [`Batch::contents`] does not contain them.
        contents: Contents,
        /// Their fan-outs, ascending.
        joined: Vec<Id>,
    },
    /// The events have become a batch of their own.
    Mailed {
        /// Their fan-outs, ascending.
        joined: Vec<Id>,
    },
}

/// A batch as it is stored.
///
/// Times of joining come from the clocks of several workers, which can differ and go back.
/// `opened_at` never changes and `last_event_at` never decreases. So no clock delays closing beyond
/// `max_wait`, and none that is behind closes a batch early.
///
/// Quiet hours defer a batch in two ways. Events that join during them carry their end
/// ([`BatchPolicy::held_until`]). Otherwise the worker defers a batch that becomes due during them
/// ([`Accumulator::defer`]). When the deferral has ended, the batch is due, even if the worker is
/// late.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The id, made when the batch was opened. Lists are ordered by it, newest first.
    pub id: Id,
    /// The recipient.
    pub user: UserId,
    /// The key. With the user, it identifies the accumulator.
    pub key: BatchKey,
    /// The state. Only an open batch accepts events.
    pub state: BatchState,
    /// When the first event joined. It never changes; `max_wait` starts here.
    pub opened_at: DateTime<Utc>,
    /// The latest time at which an event joined. Removing events does not change it.
    pub last_event_at: DateTime<Utc>,
    /// When an open batch is due. Once it closes, the time at which closing began, if that is
    /// earlier.
    pub closes_at: DateTime<Utc>,
    /// Whether `closes_at` is the end of quiet hours instead of the policy's time.
    pub deferred: bool,
    /// The events to email at once; always [`Lead::None`] unless the policy is a leading one.
    pub lead: Lead,
    /// The events of the batch's email, without those of `lead`.
    pub contents: Contents,
    /// The fingerprint of the policy under which an event last joined.
    pub policy: String,
    /// The fan-outs that have joined, ascending; at most [`ROOM`].
    pub joined: Vec<Id>,
    /// The last [`MOST_REMOVED`] removed events. The stacks still contain them.
    pub removed: Vec<Item>,
    /// When the batch was closed or canceled.
    pub settled: Option<DateTime<Utc>>,
}

/// How an operator ends an open batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Email it now.
    Close,
    /// Do not email it.
    Cancel,
}

/// The outcome of [`Batch::join`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joined {
    /// This number of events was added.
    Added(u64),
    /// All their fan-outs had joined before; nothing changed.
    Already,
    /// The batch accepts no more events. Events whose fan-out has not joined go to the next batch.
    Refused,
}

/// The outcome of removing events from a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct RemovedEvents {
    /// The kept events that were removed; `taken` in JSON. The total decreases by this number.
    #[serde(rename = "taken")]
    pub removed: u64,
    /// The events that are counted but not kept. They stay counted, because they cannot be matched.
    pub not_kept: u64,
}

impl Batch {
    /// Opens a batch with these events.
    ///
    /// A leading policy emails them at once and collects the events that follow. With an immediate
    /// policy, or if the events fill the batch, it starts closing at once.
    pub fn open(
        id: Id,
        user: UserId,
        key: BatchKey,
        items: &[Item],
        at: DateTime<Utc>,
        policy: &BatchPolicy,
    ) -> Self {
        let mut batch = Self {
            id,
            user,
            key,
            state: BatchState::Open,
            opened_at: at,
            last_event_at: at,
            closes_at: policy.closes_at(at, at),
            deferred: false,
            lead: Lead::None,
            contents: Contents::default(),
            policy: String::new(),
            joined: Vec::new(),
            removed: Vec::new(),
            settled: None,
        };
        batch.add(items, at, policy);
        // A batch that is already closing is emailed at once, so it needs no lead.
        let leads = policy.leading && policy.held_until.is_none();
        if leads && batch.state == BatchState::Open {
            batch.lead = Lead::Waiting {
                contents: std::mem::take(&mut batch.contents),
                joined: batch.joined.clone(),
            };
        }
        batch
    }

    /// Adds the events whose fan-outs have not joined yet. A fan-out must pass all its events for
    /// this batch in one call.
    pub fn join(&mut self, items: &[Item], at: DateTime<Utc>, policy: &BatchPolicy) -> Joined {
        // A batch that is not open checks this too. Otherwise a repeated fan-out would open the
        // next batch with events of this one.
        if items.iter().all(|item| self.has_joined(item.i)) {
            return Joined::Already;
        }
        if self.state == BatchState::Open && self.lacks_room(items) {
            self.begin_closing(at);
        }
        if self.state != BatchState::Open {
            return Joined::Refused;
        }
        Joined::Added(self.add(items, at, policy))
    }

    fn add(&mut self, items: &[Item], at: DateTime<Utc>, policy: &BatchPolicy) -> u64 {
        let before = self.contents.count;
        for (index, item) in items.iter().enumerate() {
            if !self.has_joined(item.i) && !items[..index].contains(item) {
                self.contents.add(item, policy.keep);
            }
        }
        for item in items {
            if let Err(place) = self.joined.binary_search(&item.i) {
                self.joined.insert(place, item.i);
            }
        }
        self.policy = policy.fingerprint();
        self.last_event_at = self.last_event_at.max(at);
        // Once a deferral has ended, a late event must not delay closing again.
        if !self.deferred || at < self.closes_at {
            self.schedule(at, policy);
        }
        self.contents.count - before
    }

    fn schedule(&mut self, at: DateTime<Utc>, policy: &BatchPolicy) {
        self.closes_at = policy.closes_at(self.opened_at, self.last_event_at);
        self.deferred = false;
        let ends = policy.is_immediate() || policy.is_full(self.contents.count);
        match policy.held_until {
            // A batch that would close at once during quiet hours collects events until they end.
            Some(until) if ends || until > self.closes_at => {
                (self.closes_at, self.deferred) = (until, true);
            }
            None if ends => self.begin_closing(at),
            _ => {}
        }
    }

    fn begin_closing(&mut self, at: DateTime<Utc>) {
        self.state = BatchState::Closing;
        self.closes_at = self.closes_at.min(at);
    }

    fn lacks_room(&self, items: &[Item]) -> bool {
        self.joined.len() + items.len() > ROOM && {
            let mut new: Vec<Id> = items.iter().map(|item| item.i).collect();
            new.retain(|id| !self.has_joined(*id));
            new.sort_unstable();
            new.dedup();
            self.joined.len() + new.len() > ROOM
        }
    }

    /// Returns whether the events of this fan-out have joined.
    pub fn has_joined(&self, fanout: Id) -> bool {
        self.joined.binary_search(&fanout).is_ok()
    }

    /// Removes the events of this type and these objects from a batch that is open or closing.
    /// `up_to` limits them to events that happened no later.
    ///
    /// The total decreases by the number of kept events that match. Events that were not kept
    /// cannot be matched, so they stay counted. If no event is left and none was emailed, the batch
    /// is canceled.
    pub fn remove_events(
        &mut self,
        kind: &EventType,
        objects: &[ObjectId],
        up_to: Option<Id>,
    ) -> RemovedEvents {
        if !matches!(self.state, BatchState::Open | BatchState::Closing) {
            return RemovedEvents::default();
        }
        let mut removed = self.contents.remove_events(kind, objects, up_to);
        let mut not_kept = self.contents.more();
        if let Lead::Waiting { contents, .. } = &mut self.lead {
            removed.extend(contents.remove_events(kind, objects, up_to));
            not_kept += contents.more();
            if contents.is_empty() {
                self.lead = Lead::None;
            }
        }
        let out = RemovedEvents {
            removed: removed.len() as u64,
            not_kept,
        };
        self.removed.extend(removed);
        let over = self.removed.len().saturating_sub(MOST_REMOVED);
        self.removed.drain(..over);
        if out.removed > 0 && self.contents.is_empty() && self.lead == Lead::None {
            self.state = BatchState::Canceled;
        }
        out
    }

    /// Delays closing of an open batch to the end of the user's quiet hours.
    fn defer(&mut self, until: DateTime<Utc>) {
        if self.state == BatchState::Open && until > self.closes_at {
            (self.closes_at, self.deferred) = (until, true);
        }
    }

    /// Returns the time whose quiet hours apply if the batch is checked at `now`. For a deferred
    /// batch it is the end of the deferral, which only quiet hours chosen later can cover.
    pub fn asks_quiet_hours_at(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        match self.deferred {
            true => self.closes_at,
            false => self.closes_at.max(now),
        }
    }

    /// Ends the batch by hand. Fails with its state if it is not open: a closing batch may already
    /// be on its way.
    pub fn end(&mut self, how: End, at: DateTime<Utc>) -> Result<(), BatchState> {
        if self.state != BatchState::Open {
            return Err(self.state);
        }
        match how {
            End::Close => self.begin_closing(at),
            End::Cancel => self.state = BatchState::Canceled,
        }
        Ok(())
    }

    /// Returns the fan-outs whose events this batch contains. Those of its emailed lead belong to
    /// another batch.
    pub fn own_fanouts(&self) -> impl Iterator<Item = Id> {
        let led = match &self.lead {
            Lead::Mailed { joined } => &joined[..],
            Lead::None | Lead::Waiting { .. } => &[],
        };
        let is_own = |fanout: &Id| led.binary_search(fanout).is_err();
        self.joined.iter().copied().filter(is_own)
    }

    /// Returns whether `other` is this batch with the same events, ignoring their states.
    pub fn has_same_events(&self, other: &Self) -> bool {
        let whose = |batch: &Self| (batch.id, batch.user.clone(), batch.key.clone());
        whose(self) == whose(other)
            && self.contents == other.contents
            && self.joined == other.joined
            && self.lead == other.lead
            && self.removed == other.removed
    }

    /// Returns the kept events, including those of a waiting lead.
    pub fn kept(&self) -> impl Iterator<Item = &Item> {
        let lead = match &self.lead {
            Lead::Waiting { contents, .. } => &contents.items[..],
            Lead::None | Lead::Mailed { .. } => &[],
        };
        lead.iter().chain(&self.contents.items)
    }

    /// Returns whether the lead is waiting to be emailed.
    pub fn is_leading(&self) -> bool {
        matches!(self.lead, Lead::Waiting { .. })
    }

    /// Returns whether a worker has to act: the lead is waiting, the batch is closing, or it is
    /// time to close. A closing batch is due at any time.
    pub fn is_due(&self, now: DateTime<Utc>) -> bool {
        match self.state {
            BatchState::Open => self.is_leading() || now >= self.closes_at,
            BatchState::Closing => true,
            BatchState::Closed | BatchState::Canceled => false,
        }
    }
}

#[cfg(test)]
#[path = "batch/tests.rs"]
mod tests;

#[cfg(test)]
#[path = "batch/formula_tests.rs"]
mod formula_tests;

#[cfg(test)]
#[path = "batch/design_tests.rs"]
mod design_tests;
