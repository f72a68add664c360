//! Batches: a user's events of one key within a time window, sent as one email.
//!
//! Each event joins once, even if its fan-out is repeated. The total is exact, but only some of the
//! events are kept to be shown. Nothing here reads the clock. Start with [`Batch`]. [`BatchPolicy`]
//! says when a batch closes, [`BatchKey`] which events share one.

use chrono::{DateTime, Utc};

use super::day_stack::Event;
use super::name::{EventType, ObjectId, UserId, named_enum};
use super::timed_id::Id;

mod accumulator;
mod key;
mod policy;

pub use accumulator::{Accumulator, AccumulatorId, BatchAppend, FiledFanouts, MAX_ENDED};
pub use key::{BatchKey, ChosenKey, MAX_KEY_BYTES};
pub use policy::{BatchPolicy, Keep};

/// The most fan-outs that join a batch, which remembers each so that none joins twice. A fan-out
/// that finds no room closes the batch and opens the next.
pub const MAX_FANOUTS: usize = 10_000;

/// The most removed events that a batch remembers.
pub const MAX_REMOVED: usize = 1_000;

/// An event in a batch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BatchItem {
    /// The fan-out that added the event.
    pub fanout_id: Id,
    /// The event type. A batch under a chosen key can contain several types.
    pub kind: EventType,
    /// The id of the object.
    pub object: ObjectId,
}

impl From<BatchItem> for Event {
    fn from(item: BatchItem) -> Self {
        Self { kind: item.kind, object: item.object, fanout_id: Some(item.fanout_id) }
    }
}

/// The events of one email.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BatchEvents {
    /// The number of events, including those that are not kept.
    pub count: u64,
    /// The first or last of the events ([`Keep`]), in the order of joining.
    pub items: Vec<BatchItem>,
}

impl BatchEvents {
    fn add(&mut self, item: &BatchItem, keep: Keep) {
        self.count += 1;
        match keep {
            Keep::First(limit) if self.items.len() >= limit => {}
            Keep::First(_) => self.items.push(item.clone()),
            Keep::Last(limit) => {
                let excess = (self.items.len() + 1).saturating_sub(limit);
                self.items.drain(..excess.min(self.items.len()));
                self.items.push(item.clone());
            }
        }
    }

    fn remove_events(
        &mut self,
        kind: &EventType,
        objects: &[ObjectId],
        up_to: Option<Id>,
    ) -> Vec<BatchItem> {
        let is_removed = |item: &mut BatchItem| {
            item.kind == *kind
                && objects.contains(&item.object)
                && up_to.is_none_or(|last| item.fanout_id.is_no_later_than(last))
        };
        let removed: Vec<BatchItem> = self.items.extract_if(.., is_removed).collect();
        self.count -= removed.len() as u64;
        removed
    }

    /// Returns the number of events that are counted but not kept, as in "+12 more".
    pub fn omitted_count(&self) -> u64 {
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

/// A batch as it is stored.
///
/// Times of joining come from the clocks of several workers, which can differ and go back.
/// `opened_at` never changes and `last_event_at` never decreases. So no clock delays closing beyond
/// `max_wait`, and no slow clock closes a batch early.
///
/// Quiet hours defer a batch in two ways. Events that join during them carry their end
/// ([`BatchPolicy::deferred_until`]). Otherwise the worker defers a batch that becomes due during
/// them ([`Accumulator::defer`]). When the deferral has ended, the batch is due, even if the worker
/// is late.
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
    /// The fan-outs that opened a leading batch, ascending; empty for other policies. Their events
    /// are in a batch of their own, which is emailed at once.
    pub lead_fanouts: Vec<Id>,
    /// The events of the batch's email, without those of `led`.
    pub events: BatchEvents,
    /// The fingerprint of the policy under which an event last joined.
    pub policy: String,
    /// The fan-outs that have joined, ascending; at most [`MAX_FANOUTS`].
    pub joined: Vec<Id>,
    /// The last [`MAX_REMOVED`] removed events. The stacks still contain them.
    pub removed: Vec<BatchItem>,
    /// When the batch was closed or canceled.
    pub settled: Option<DateTime<Utc>>,
}

/// How an operator ends an open batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndAction {
    /// Email it now.
    Close,
    /// Do not email it.
    Cancel,
}

/// The outcome of removing events from a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct RemovedEvents {
    /// The kept events that were removed; `taken` in JSON. The total decreases by this number.
    #[serde(rename = "taken")]
    pub removed: u64,
    /// The events that are counted but not kept. They stay counted, because they cannot be matched.
    pub omitted: u64,
}

impl Batch {
    /// Opens a batch with the events of one fan-out. With an immediate policy, or if the events
    /// fill the batch, it starts closing at once.
    pub fn open(
        id: Id,
        user: UserId,
        key: BatchKey,
        items: &[BatchItem],
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
            lead_fanouts: Vec::new(),
            events: BatchEvents::default(),
            policy: String::new(),
            joined: Vec::new(),
            removed: Vec::new(),
            settled: None,
        };
        batch.add(items, at, policy);
        batch
    }

    /// Adds the events of one fan-out, unless they have joined before. Returns the number of new
    /// events, or `None` if the batch accepts no more events: they go to the next batch.
    pub fn join(
        &mut self,
        items: &[BatchItem],
        at: DateTime<Utc>,
        policy: &BatchPolicy,
    ) -> Option<u64> {
        // A batch that is not open checks this too. Otherwise a repeated fan-out would open the
        // next batch with events of this one.
        if self.has_joined(items[0].fanout_id) {
            return Some(0);
        }
        if self.state == BatchState::Open && self.joined.len() >= MAX_FANOUTS {
            self.begin_closing(at);
        }
        (self.state == BatchState::Open).then(|| self.add(items, at, policy))
    }

    fn add(&mut self, items: &[BatchItem], at: DateTime<Utc>, policy: &BatchPolicy) -> u64 {
        for item in items {
            self.events.add(item, policy.keep);
        }
        let fanout = items[0].fanout_id;
        let position = self.joined.partition_point(|joined| *joined < fanout);
        self.joined.insert(position, fanout);
        self.policy = policy.fingerprint();
        self.last_event_at = self.last_event_at.max(at);
        // Once a deferral has ended, a late event must not delay closing again.
        if !self.deferred || at < self.closes_at {
            self.schedule(at, policy);
        }
        items.len() as u64
    }

    fn schedule(&mut self, at: DateTime<Utc>, policy: &BatchPolicy) {
        self.closes_at = policy.closes_at(self.opened_at, self.last_event_at);
        self.deferred = false;
        let closes_now = policy.is_immediate() || policy.is_full(self.events.count);
        match policy.deferred_until {
            // A batch that would close at once during quiet hours collects events until they end.
            Some(until) if closes_now || until > self.closes_at => {
                (self.closes_at, self.deferred) = (until, true);
            }
            None if closes_now => self.begin_closing(at),
            _ => {}
        }
    }

    fn begin_closing(&mut self, at: DateTime<Utc>) {
        self.state = BatchState::Closing;
        self.closes_at = self.closes_at.min(at);
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
        let items = self.events.remove_events(kind, objects, up_to);
        let removed = items.len() as u64;
        self.removed.extend(items);
        let excess = self.removed.len().saturating_sub(MAX_REMOVED);
        self.removed.drain(..excess);
        if removed > 0 && self.events.is_empty() && self.lead_fanouts.is_empty() {
            self.state = BatchState::Canceled;
        }
        RemovedEvents { removed, omitted: self.events.omitted_count() }
    }

    /// Delays closing of an open batch to the end of the user's quiet hours.
    fn defer(&mut self, until: DateTime<Utc>) {
        if self.state == BatchState::Open && until > self.closes_at {
            (self.closes_at, self.deferred) = (until, true);
        }
    }

    /// Returns the time whose quiet hours apply if the batch is checked at `now`. For a deferred
    /// batch it is the end of the deferral, which only quiet hours chosen later can cover.
    pub fn quiet_hours_check_time(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        if self.deferred { self.closes_at } else { self.closes_at.max(now) }
    }

    /// Ends the batch by hand. Fails with its state if it is not open: the email of a closing batch
    /// may have been sent.
    pub fn end(&mut self, how: EndAction, at: DateTime<Utc>) -> Result<(), BatchState> {
        if self.state != BatchState::Open {
            return Err(self.state);
        }
        match how {
            EndAction::Close => self.begin_closing(at),
            EndAction::Cancel => self.state = BatchState::Canceled,
        }
        Ok(())
    }

    /// Moves the events of a batch that was just opened to a closing batch of their own. It keeps
    /// the id, and this batch gets `id`.
    fn split_lead(&mut self, id: Id, at: DateTime<Utc>) -> Self {
        self.lead_fanouts = self.joined.clone();
        Self {
            id: std::mem::replace(&mut self.id, id),
            state: BatchState::Closing,
            closes_at: at,
            lead_fanouts: Vec::new(),
            events: std::mem::take(&mut self.events),
            ..self.clone()
        }
    }

    /// Returns the fan-outs whose events this batch contains, without those of its lead.
    pub fn fanouts_without_lead(&self) -> impl Iterator<Item = Id> {
        self.joined
            .iter()
            .copied()
            .filter(|fanout| self.lead_fanouts.binary_search(fanout).is_err())
    }

    /// Returns whether `other` is this batch with the same events, ignoring their states.
    pub fn has_same_events(&self, other: &Self) -> bool {
        self.id == other.id
            && self.user == other.user
            && self.key == other.key
            && self.events == other.events
            && self.joined == other.joined
            && self.lead_fanouts == other.lead_fanouts
            && self.removed == other.removed
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
