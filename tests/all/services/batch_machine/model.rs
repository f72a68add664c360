//! Batches told plainly: a list of them, and what each action does to it.
//!
//! The rule: nothing of the code under test is used but its policies' fields; there are no
//! accumulators, no revisions and no ids here. Times are seconds.

use std::collections::{BTreeMap, BTreeSet};

use tidings::domain::BatchPolicy;
use tidings::domain::BatchState::{self, Canceled, Closed, Closing, Open};
use tidings::domain::batch::Keep;

/// A person and a key, by number.
pub type Place = (usize, usize);
/// A fan-out's number, and what it is about.
pub type Item = (u32, u32);

/// A batch as both the model and the stores tell it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Told {
    pub place: Place,
    pub state: &'static str,
    pub count: u64,
    pub kept: Vec<Item>,
    pub joined: Vec<u32>,
    /// What waits to be mailed at once.
    pub lead: Option<(u64, Vec<Item>)>,
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

    fn take_out(&mut self, object: u32) -> u64 {
        let before = self.kept.len();
        self.kept.retain(|(_, about)| *about != object);
        let taken = (before - self.kept.len()) as u64;
        self.count -= taken;
        taken
    }
}

#[derive(Debug, Clone)]
enum Lead {
    None,
    Waiting(Contents, BTreeSet<u32>),
    Mailed,
}

#[derive(Debug, Clone)]
struct Gathering {
    place: Place,
    state: BatchState,
    closes_at: i64,
    opened: i64,
    last: i64,
    contents: Contents,
    joined: BTreeSet<u32>,
    lead: Lead,
    /// A closer has done with it.
    handed_on: bool,
}

impl Gathering {
    fn end(&mut self, state: BatchState, at: i64) {
        self.state = state;
        self.closes_at = self.closes_at.min(at);
        self.empty_is_canceled();
    }

    /// Nothing is mailed of nothing.
    fn empty_is_canceled(&mut self) {
        let waits = matches!(self.lead, Lead::Waiting(..));
        if self.state == Closing && self.contents.count == 0 && !waits {
            self.state = Canceled;
        }
    }

    fn told(&self) -> Told {
        let lead = match &self.lead {
            Lead::Waiting(contents, _) => Some((contents.count, contents.kept.clone())),
            Lead::None | Lead::Mailed => None,
        };
        Told {
            place: self.place,
            state: self.state.as_str(),
            count: self.contents.count,
            kept: self.contents.kept.clone(),
            joined: self.joined.iter().copied().collect(),
            lead,
            closes_at: self.closes_at,
        }
    }
}

/// How far a closer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    Nothing,
    /// What was due has ended; where something has, nobody else goes on until this moment.
    Ended {
        held_until: i64,
    },
    HandedOn,
}

#[derive(Default)]
pub struct Model {
    batches: Vec<Gathering>,
    /// What closers who died hold, until when.
    held: BTreeMap<Place, i64>,
}

impl Model {
    pub fn told(&self) -> Vec<Told> {
        let mut told: Vec<Told> = self.batches.iter().map(Gathering::told).collect();
        told.sort();
        told
    }

    pub fn is_open(&self, place: Place) -> bool {
        let open = |batch: &Gathering| batch.place == place && batch.state == Open;
        self.batches.iter().any(open)
    }

    /// A fan-out brings these.
    pub fn join(
        &mut self,
        place: Place,
        fanout: u32,
        objects: &[u32],
        policy: &BatchPolicy,
        at: i64,
    ) {
        let mut here: Vec<&mut Gathering> = self.batches.iter_mut().collect();
        here.retain(|batch| batch.place == place);
        if here.iter().any(|batch| batch.joined.contains(&fanout)) {
            return;
        }
        let open = here.into_iter().find(|batch| batch.state == Open);
        let opens = open.is_none();
        let mut new = Gathering {
            place,
            state: Open,
            closes_at: 0,
            opened: at,
            last: at,
            contents: Contents::default(),
            joined: BTreeSet::new(),
            lead: Lead::None,
            handed_on: false,
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
            let lead = std::mem::take(&mut batch.contents);
            batch.lead = Lead::Waiting(lead, batch.joined.clone());
        }
        if opens {
            self.batches.push(new);
        }
    }

    /// Answers how many were taken out.
    pub fn withdraw(&mut self, object: u32, at: i64) -> u64 {
        let mut all = 0;
        for batch in self.batches.iter_mut().filter(|batch| batch.state == Open) {
            let mut taken = batch.contents.take_out(object);
            if let Lead::Waiting(lead, _) = &mut batch.lead {
                taken += lead.take_out(object);
                if lead.count == 0 {
                    batch.lead = Lead::None;
                }
            }
            if taken > 0 && batch.contents.count == 0 && matches!(batch.lead, Lead::None) {
                batch.end(Canceled, at);
            }
            all += taken;
        }
        all
    }

    /// Somebody ends the open batch by hand.
    pub fn end(&mut self, place: Place, state: BatchState, at: i64) {
        let open = |batch: &&mut Gathering| batch.place == place && batch.state == Open;
        if let Some(batch) = self.batches.iter_mut().find(open) {
            batch.end(state, at);
        }
    }

    /// A closer comes by.
    pub fn close(&mut self, now: i64, reached: Reached) {
        if reached == Reached::Nothing {
            return;
        }
        self.held.retain(|_, until| *until > now);
        let mut leads = Vec::new();
        let free = |batch: &&mut Gathering| !self.held.contains_key(&batch.place);
        for batch in self.batches.iter_mut().filter(free) {
            if matches!(batch.state, Open | Closing)
                && let Lead::Waiting(contents, joined) = batch.lead.clone()
            {
                batch.lead = Lead::Mailed;
                leads.push(Gathering {
                    state: Closing,
                    closes_at: now,
                    contents,
                    joined,
                    lead: Lead::None,
                    ..batch.clone()
                });
            }
            if batch.state == Open && batch.closes_at <= now {
                batch.end(Closing, now);
            }
            batch.empty_is_canceled();
        }
        self.batches.extend(leads);
        let ended = |batch: &&mut Gathering| batch.state != Open && !batch.handed_on;
        let mut held = Vec::new();
        for batch in self.batches.iter_mut().filter(ended) {
            match reached {
                _ if self.held.contains_key(&batch.place) => {}
                Reached::Nothing => {}
                Reached::Ended { held_until } => held.push((batch.place, held_until)),
                Reached::HandedOn => batch.handed_on = true,
            }
        }
        self.held.extend(held);
    }

    /// All mails are settled.
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
    let longest = policy
        .max_wait
        .map_or(i64::MAX, |most| opened + most.num_seconds());
    window_ends.max(quiet).min(longest)
}
