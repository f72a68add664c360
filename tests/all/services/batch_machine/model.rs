//! A plain model of batches: a list, and the effect of each action on it.
//!
//! The model uses only the policies and states of the code under test. It has no accumulators,
//! revisions or ids. Times are seconds after noon. Start with [`Model`].

use std::collections::{BTreeMap, BTreeSet};

use tidings::domain::BatchPolicy;
use tidings::domain::BatchState::{self, Canceled, Closed, Closing, Open};
use tidings::domain::batch::Keep;

/// A person and a key, by index.
pub type Slot = (usize, usize);
/// The numbers of a fan-out and of its object.
pub type Item = (u32, u32);

/// The properties of a batch that the model and the stores have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchView {
    pub slot: Slot,
    pub state: &'static str,
    pub count: u64,
    pub kept: Vec<Item>,
    pub joined: Vec<u32>,
    pub has_led: bool,
    pub closes_at: i64,
}

#[derive(Debug, Clone, Default)]
struct Contents {
    count: u64,
    kept: Vec<Item>,
}

impl Contents {
    fn add(&mut self, item: Item, keep: Keep) {
        self.count += 1;
        match keep {
            Keep::First(most) if self.kept.len() < most => self.kept.push(item),
            Keep::First(_) => {}
            Keep::Last(most) => {
                self.kept.push(item);
                while self.kept.len() > most {
                    self.kept.remove(0);
                }
            }
        }
    }

    fn remove(&mut self, object: u32) -> u64 {
        let before = self.kept.len();
        self.kept.retain(|(_, about)| *about != object);
        let removed = (before - self.kept.len()) as u64;
        self.count -= removed;
        removed
    }
}

#[derive(Debug, Clone)]
struct ModelBatch {
    slot: Slot,
    state: BatchState,
    closes_at: i64,
    opened: i64,
    last: i64,
    contents: Contents,
    joined: BTreeSet<u32>,
    /// Whether the events that opened it became a batch of their own.
    has_led: bool,
    /// Whether a closer has removed it from its accumulator.
    finished: bool,
}

impl ModelBatch {
    fn end(&mut self, state: BatchState, at: i64) {
        self.state = state;
        self.closes_at = self.closes_at.min(at);
        self.cancel_if_empty();
    }

    fn cancel_if_empty(&mut self) {
        if self.state == Closing && self.contents.count == 0 {
            self.state = Canceled;
        }
    }

    fn view(&self) -> BatchView {
        BatchView {
            slot: self.slot,
            state: self.state.as_str(),
            count: self.contents.count,
            kept: self.contents.kept.clone(),
            joined: self.joined.iter().copied().collect(),
            has_led: self.has_led,
            closes_at: self.closes_at,
        }
    }
}

/// How far a closer got before it crashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    Nothing,
    /// Due batches have ended. The closer leases their accumulators until this time.
    Ended {
        leased_until: i64,
    },
    /// All ended batches have left their accumulators.
    Finished,
}

/// All batches, and the leases on their accumulators.
#[derive(Default)]
pub struct Model {
    batches: Vec<ModelBatch>,
    /// When the leases of crashed closers expire.
    leased: BTreeMap<Slot, i64>,
}

impl Model {
    /// Returns all batches, sorted.
    pub fn views(&self) -> Vec<BatchView> {
        let mut views: Vec<BatchView> = self.batches.iter().map(ModelBatch::view).collect();
        views.sort();
        views
    }

    pub fn is_open(&self, slot: Slot) -> bool {
        let open = |batch: &ModelBatch| batch.slot == slot && batch.state == Open;
        self.batches.iter().any(open)
    }

    /// Adds the objects of a fan-out. Does nothing if it joined this slot before.
    pub fn join(
        &mut self,
        slot: Slot,
        fanout: u32,
        objects: &[u32],
        policy: &BatchPolicy,
        at: i64,
    ) {
        let mut here: Vec<&mut ModelBatch> = self.batches.iter_mut().collect();
        here.retain(|batch| batch.slot == slot);
        if here.iter().any(|batch| batch.joined.contains(&fanout)) {
            return;
        }
        let open = here.into_iter().find(|batch| batch.state == Open);
        let opens = open.is_none();
        let mut new = ModelBatch {
            slot,
            state: Open,
            closes_at: 0,
            opened: at,
            last: at,
            contents: Contents::default(),
            joined: BTreeSet::new(),
            has_led: false,
            finished: false,
        };
        let batch = open.unwrap_or(&mut new);
        for object in objects {
            batch.contents.add((fanout, *object), policy.keep);
        }
        batch.joined.insert(fanout);
        batch.last = batch.last.max(at);
        batch.closes_at = closes_at(policy, batch.opened, batch.last);
        let immediate = policy.window.is_zero() && policy.cooldown.is_zero();
        let full = policy.close_at.map_or(u64::MAX, |full| full.get());
        if immediate || batch.contents.count >= full {
            batch.end(Closing, at);
        } else if opens && policy.leading {
            let lead = ModelBatch {
                state: Closing,
                closes_at: at,
                contents: std::mem::take(&mut batch.contents),
                ..batch.clone()
            };
            batch.has_led = true;
            self.batches.push(lead);
        }
        if opens {
            self.batches.push(new);
        }
    }

    /// Removes an object from all open batches, and returns the number of removed items.
    pub fn remove(&mut self, object: u32, at: i64) -> u64 {
        let mut all = 0;
        for batch in self.batches.iter_mut().filter(|batch| batch.state == Open) {
            let removed = batch.contents.remove(object);
            if removed > 0 && batch.contents.count == 0 && !batch.has_led {
                batch.end(Canceled, at);
            }
            all += removed;
        }
        all
    }

    /// Closes or cancels the open batch, if there is one.
    pub fn end(&mut self, slot: Slot, state: BatchState, at: i64) {
        let open = |batch: &&mut ModelBatch| batch.slot == slot && batch.state == Open;
        if let Some(batch) = self.batches.iter_mut().find(open) {
            batch.end(state, at);
        }
    }

    /// Runs a closer that gets this far.
    pub fn close(&mut self, now: i64, reached: Reached) {
        if reached == Reached::Nothing {
            return;
        }
        self.leased.retain(|_, until| *until > now);
        let free = |batch: &&mut ModelBatch| !self.leased.contains_key(&batch.slot);
        for batch in self.batches.iter_mut().filter(free) {
            if batch.state == Open && batch.closes_at <= now {
                batch.end(Closing, now);
            }
            batch.cancel_if_empty();
        }
        let ended = |batch: &&mut ModelBatch| batch.state != Open && !batch.finished;
        let mut new_leases = Vec::new();
        for batch in self.batches.iter_mut().filter(ended) {
            match reached {
                _ if self.leased.contains_key(&batch.slot) => {}
                Reached::Nothing => {}
                Reached::Ended { leased_until } => new_leases.push((batch.slot, leased_until)),
                Reached::Finished => batch.finished = true,
            }
        }
        self.leased.extend(new_leases);
    }

    /// Closes all batches that are closing, as settled emails do.
    pub fn settle(&mut self) {
        for batch in self.batches.iter_mut() {
            if batch.state == Closing {
                batch.state = Closed;
            }
        }
    }
}

fn closes_at(policy: &BatchPolicy, opened: i64, last: i64) -> i64 {
    let window_ends = opened + policy.window.num_seconds();
    let quiet = last + policy.cooldown.num_seconds();
    let longest = policy.max_wait.map_or(i64::MAX, |most| opened + most.num_seconds());
    window_ends.max(quiet).min(longest)
}
