//! A batch: what happened to somebody within a while, on its way to becoming one mail.
//!
//! The rule: an event joins once, however often it is fanned out; the total is
//! exact; only so many events are kept to be shown. Nothing here asks what time it is. When a batch
//! closes is [`BatchPolicy`]'s one formula; what it is of is its [`BatchKey`].
//!
//! `at` is the moment of joining, by the clock of whoever joins. Clocks may differ and go back: the
//! opening stands as it was first written and the last event only moves on, so a closing that is
//! put off is never put off beyond `max_wait` from the opening, and an early clock closes nothing
//! early.
//!
//! A user's quiet hours defer a batch: events that join in them say until when
//! ([`BatchPolicy::held_until`]), and the closer defers a batch that is due in them
//! ([`Accumulator::defer`]). A batch whose deferral has ended is due, even if the closer is late.

use chrono::{DateTime, Utc};

use super::event::Event;
use super::id::Id;
use super::name::{EventType, Invalid, ObjectId, UserId};

mod accumulator;
mod addition;
mod key;
mod policy;
mod told;

pub use accumulator::{Accumulator, AccumulatorId, MEMORIES, MEMORY, MOST_ENDED, Memory};
pub use addition::Addition;
pub use key::{BatchKey, ChosenKey, MAX_KEY_BYTES};
pub use policy::{BatchPolicy, Doubt, Keep};

/// The most fan-outs that join a batch: it remembers each, so that none joins twice. The one for
/// which there is no room closes it, and opens the next.
pub const ROOM: usize = 10_000;

/// The most events of which a batch remembers that they were taken out.
pub const TAKEN: usize = 1_000;

/// What a batch holds of an event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Item {
    /// The fan-out that brought it.
    pub i: Id,
    /// What happened; a batch under a chosen key can hold several types.
    pub t: EventType,
    /// To which object, by its id.
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

/// Events that become one mail.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contents {
    /// How many there are, also of those that are no longer kept.
    pub count: u64,
    /// The first or the last of them, in the order in which they joined.
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

    fn take_out(&mut self, kind: &EventType, objects: &[ObjectId], up_to: Option<Id>) -> Vec<Item> {
        let is_meant = |item: &Item| {
            let is_reached = up_to.is_none_or(|at| item.i.is_no_later_than(at));
            item.t == *kind && objects.contains(&item.o) && is_reached
        };
        let items = std::mem::take(&mut self.items);
        let (taken, left): (Vec<Item>, Vec<Item>) = items.into_iter().partition(is_meant);
        self.items = left;
        self.count -= taken.len() as u64;
        taken
    }

    /// Those that are counted and not kept: "+12 more".
    pub fn more(&self) -> u64 {
        self.count - self.items.len() as u64
    }

    /// Whether nothing is counted; then nothing is kept either.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Where a batch stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BatchState {
    /// It gathers. A person has one open batch of a key.
    Open,
    /// It takes nothing any more and is being mailed; what comes goes to the next.
    Closing,
    /// Its mail is settled: sent, failed or unknown, as the ledger says.
    Closed,
    /// There was nothing to mail, or somebody did not want it mailed.
    Canceled,
}

impl BatchState {
    /// All states, in the order in which a batch passes through them.
    pub const ALL: [Self; 4] = [Self::Open, Self::Closing, Self::Closed, Self::Canceled];

    /// The name in the store, in JSON and in filters; `FromStr` reads it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closing => "closing",
            Self::Closed => "closed",
            Self::Canceled => "canceled",
        }
    }
}

impl std::str::FromStr for BatchState {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let named = Self::ALL.into_iter().find(|state| state.as_str() == text);
        let why = "is not open, closing, closed or canceled";
        named.ok_or_else(|| Invalid::new("batch state", text, why))
    }
}

/// What is mailed at once of a leading batch: what opened it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lead {
    /// It is not a leading one, or nothing is left of its lead.
    None,
    /// It is to be a batch of its own, mailed at once.
    Waiting {
        /// The events that opened the batch, which [`Batch::contents`] does not hold.
        contents: Contents,
        /// The fan-outs that brought it, ascending.
        joined: Vec<Id>,
    },
    /// It is a batch of its own.
    Mailed {
        /// The fan-outs that brought it, ascending.
        joined: Vec<Id>,
    },
}

/// A batch as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Made when the batch was; lists of batches go by it, newest first.
    pub id: Id,
    /// Whom it will be mailed to.
    pub user: UserId,
    /// What it is of; together with the person it names the accumulator.
    pub key: BatchKey,
    /// Only [`BatchState::Open`] takes further events.
    pub state: BatchState,
    /// When the first event joined; it never changes, and `max_wait` counts from it.
    pub opened_at: DateTime<Utc>,
    /// The latest moment at which something joined; what is withdrawn gives no time back.
    pub last_event_at: DateTime<Utc>,
    /// When it is due: by the formula while it is open, and the moment at which it began to close
    /// if that was earlier.
    pub closes_at: DateTime<Utc>,
    /// Whether `closes_at` is the end of quiet hours instead of the formula's time.
    pub deferred: bool,
    /// What of it is mailed at once; [`Lead::None`] unless the policy is a leading one.
    pub lead: Lead,
    /// What its mail will tell; without what the lead holds.
    pub contents: Contents,
    /// The fingerprint of the policy by which something joined last.
    pub policy: String,
    /// The fan-outs that have joined, ascending; at most [`ROOM`].
    pub joined: Vec<Id>,
    /// What was taken out, the latest [`TAKEN`] of it: the stacks still have it.
    pub taken: Vec<Item>,
    /// When it was closed or canceled.
    pub settled: Option<DateTime<Utc>>,
}

/// What came of joining.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joined {
    /// So many events are new in it.
    Added(u64),
    /// Their fan-outs had all joined before; nothing changed.
    Already,
    /// It takes nothing any more: what [`Batch::has_joined`] does not know goes to the next.
    Refused,
}

/// What came of taking events out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct TakenOut {
    /// So many were kept; they are gone, and the total is smaller by them.
    pub taken: u64,
    /// So many are counted and no longer kept. Which they are is not known, so they stay counted.
    pub not_kept: u64,
}

impl Batch {
    /// A new batch, opened by these events. With a leading policy they are mailed at once and what
    /// follows is gathered; with an immediate one, or when they fill it, it is to be mailed from
    /// the beginning.
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
            taken: Vec::new(),
            settled: None,
        };
        batch.add(items, at, policy);
        // Whatever is mailed at once in any case needs no lead.
        let leads = policy.leading && policy.held_until.is_none();
        if leads && batch.state == BatchState::Open {
            batch.lead = Lead::Waiting {
                contents: std::mem::take(&mut batch.contents),
                joined: batch.joined.clone(),
            };
        }
        batch
    }

    /// Adds what its fan-outs have not brought yet. A fan-out brings all it has for this batch at
    /// once.
    pub fn join(&mut self, items: &[Item], at: DateTime<Utc>, policy: &BatchPolicy) -> Joined {
        // Also a batch that is closed knows its own: an event fanned out again must not open the
        // next with them.
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
        // Once a deferral has ended, a late event must not put the closing off again.
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
            // In quiet hours what would end at once gathers until they are over.
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

    /// Whether this fan-out's events are in it.
    pub fn has_joined(&self, fanout: Id) -> bool {
        self.joined.binary_search(&fanout).is_ok()
    }

    /// Takes events out that are withdrawn, while it is not closed. The kept ones go and the total
    /// shrinks by exactly them; those that are counted and no longer kept stay counted, as nobody
    /// knows what they are about. The room they leave is taken by what comes next. If nothing is
    /// left, and nothing was mailed of it, it is canceled.
    pub fn take_out(
        &mut self,
        kind: &EventType,
        objects: &[ObjectId],
        up_to: Option<Id>,
    ) -> TakenOut {
        if !matches!(self.state, BatchState::Open | BatchState::Closing) {
            return TakenOut::default();
        }
        let mut taken = self.contents.take_out(kind, objects, up_to);
        let mut not_kept = self.contents.more();
        if let Lead::Waiting { contents, .. } = &mut self.lead {
            taken.extend(contents.take_out(kind, objects, up_to));
            not_kept += contents.more();
            if contents.is_empty() {
                self.lead = Lead::None;
            }
        }
        let out = TakenOut {
            taken: taken.len() as u64,
            not_kept,
        };
        self.taken.extend(taken);
        let over = self.taken.len().saturating_sub(TAKEN);
        self.taken.drain(..over);
        if out.taken > 0 && self.contents.is_empty() && self.lead == Lead::None {
            self.state = BatchState::Canceled;
        }
        out
    }

    /// Puts the closing of an open batch off until then, when the user's quiet hours end.
    fn defer(&mut self, until: DateTime<Utc>) {
        if self.state == BatchState::Open && until > self.closes_at {
            (self.closes_at, self.deferred) = (until, true);
        }
    }

    /// The moment whose quiet hours count for this batch, if it is looked at now. A deferred batch
    /// asks for the end of its deferral: only hours chosen since then can cover that moment.
    pub fn asks_quiet_hours_at(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        match self.deferred {
            true => self.closes_at,
            false => self.closes_at.max(now),
        }
    }

    /// From now on it takes nothing, and it is due. `Err` says what it is instead of open.
    pub fn close_now(&mut self, at: DateTime<Utc>) -> Result<(), BatchState> {
        self.is_open()?;
        self.begin_closing(at);
        Ok(())
    }

    /// It is not to be mailed. `Err` says what it is instead of open: once it closes, its mail may
    /// be under way.
    pub fn cancel(&mut self) -> Result<(), BatchState> {
        self.is_open()?;
        self.state = BatchState::Canceled;
        Ok(())
    }

    fn is_open(&self) -> Result<(), BatchState> {
        match self.state {
            BatchState::Open => Ok(()),
            other => Err(other),
        }
    }

    /// What opened a leading batch, to be mailed now; it is not given twice.
    fn take_lead(&mut self) -> Option<Contents> {
        match std::mem::replace(&mut self.lead, Lead::None) {
            Lead::Waiting { contents, joined } => {
                self.lead = Lead::Mailed { joined };
                Some(contents)
            }
            other => {
                self.lead = other;
                None
            }
        }
    }

    /// The fan-outs whose events are its own: what its lead took along is another batch's.
    pub fn own_fanouts(&self) -> impl Iterator<Item = Id> {
        let led = match &self.lead {
            Lead::Mailed { joined } => &joined[..],
            Lead::None | Lead::Waiting { .. } => &[],
        };
        let is_own = |fanout: &Id| led.binary_search(fanout).is_err();
        self.joined.iter().copied().filter(is_own)
    }

    /// Whether the other is this batch with the same events in it, wherever the two have come to
    /// since: closing, closed or canceled.
    pub fn gathered_as(&self, other: &Self) -> bool {
        let whose = |batch: &Self| (batch.id, batch.user.clone(), batch.key.clone());
        whose(self) == whose(other)
            && self.contents == other.contents
            && self.joined == other.joined
            && self.lead == other.lead
            && self.taken == other.taken
    }

    /// What it has beyond the other, under this id; nothing where the other has all of it.
    fn beyond(mut self, other: &Self, id: Id) -> Option<Self> {
        self.joined.retain(|fanout| !other.has_joined(*fanout));
        if self.joined.is_empty() {
            return None;
        }
        let Contents { count, items } = &mut self.contents;
        items.retain(|item| self.joined.binary_search(&item.i).is_ok());
        *count = count
            .saturating_sub(other.contents.count)
            .max(items.len() as u64);
        self.taken
            .retain(|item| self.joined.binary_search(&item.i).is_ok());
        if let Lead::Mailed { joined } = &mut self.lead {
            joined.retain(|fanout| self.joined.binary_search(fanout).is_ok());
        }
        self.id = id;
        Some(self)
    }

    /// The kept events, those of a waiting lead as well.
    pub fn kept(&self) -> impl Iterator<Item = &Item> {
        let lead = match &self.lead {
            Lead::Waiting { contents, .. } => &contents.items[..],
            Lead::None | Lead::Mailed { .. } => &[],
        };
        lead.iter().chain(&self.contents.items)
    }

    /// Whether its lead waits to be mailed.
    pub fn is_leading(&self) -> bool {
        matches!(self.lead, Lead::Waiting { .. })
    }

    /// Whether there is something to do: its lead waits, or it closes, or it is time. What closes
    /// is due whatever the clock says.
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
