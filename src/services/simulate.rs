//! Replays recorded events against policies of batches, to see what mails they would have made: how
//! many, how late, how large.
//!
//! The rule: nothing is decided here. What joins which batch and when it closes is
//! `domain::batch`'s, as for real events; here is only a clock that jumps from event to event, and
//! a worker that is always on time. One pass; what is remembered is what waits in open batches, and
//! a number a person. [`read`] and [`generate`] bring events, [`measure`] tells what came of them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::rc::Rc;

use chrono::{DateTime, Utc};

use super::{Progress, Result};
use crate::domain::batch::{Batch, BatchKey, BatchPolicy, BatchState, ChosenKey, Item, Joined};
use crate::domain::{EventType, Id, ObjectId, UserId};
use crate::wire::simulation::{Comparison, Report};

pub mod generate;
pub mod measure;
pub mod read;

use measure::Measure;

/// Something that happened, to one or several people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Happening {
    /// When it happened, on the clock of the replay.
    pub at: DateTime<Utc>,
    /// Whom it concerns; each of them counts as an event.
    pub users: Vec<UserId>,
    /// The event's type.
    pub kind: EventType,
    /// What it is about; empty if the recording does not say.
    pub object: ObjectId,
    /// What its batches are of; `None` if the event brings no key.
    pub key: Option<ChosenKey>,
}

/// Whose batch, and of what.
type Slot = (UserId, BatchKey);

/// The earliest moment at which a batch may close, its serial, and its slot.
type Deadline = Reverse<(DateTime<Utc>, u64, Rc<Slot>)>;

/// A batch that gathers, and when what it holds happened.
struct Gathering {
    batch: Batch,
    /// Tells it from an earlier batch of the same slot.
    serial: u64,
    times: Vec<DateTime<Utc>>,
}

/// One policy under trial.
pub struct Trial {
    name: String,
    policy: BatchPolicy,
    key: Option<ChosenKey>,
    open: HashMap<Rc<Slot>, Gathering>,
    /// No later than each open batch closes; each has one entry.
    due: BinaryHeap<Deadline>,
    serials: u64,
    measure: Measure,
}

/// Lets every trial see all of them, in the order of time.
pub fn replay(
    happenings: impl Iterator<Item = Result<Happening>>,
    mut trials: Vec<Trial>,
    progress: &dyn Progress,
) -> Result<Comparison> {
    let (mut events, mut from, mut to) = (0, None, None);
    for (number, happening) in (1..).zip(happenings) {
        let happening = happening?;
        let item = Item {
            i: numbered(number),
            t: happening.kind.clone(),
            o: happening.object.clone(),
        };
        for trial in &mut trials {
            trial.close_until(happening.at);
            for user in &happening.users {
                trial.take(user, &item, &happening);
            }
        }
        from = from.or(Some(happening.at));
        to = Some(happening.at);
        events += happening.users.len() as u64;
        progress.advance(1);
    }
    let days = from.zip(to).map_or(1.0, |(from, to)| {
        ((to - from).num_seconds() as f64 / 86_400.0).max(1.0)
    });
    let policies: Vec<Report> = trials.into_iter().map(|trial| trial.finish(days)).collect();
    Ok(Comparison {
        events,
        people: policies.first().map_or(0, |report| report.people),
        from,
        to,
        policies,
    })
}

/// Fan-outs are numbered, so each is new.
fn numbered(number: u64) -> Id {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    Id::from_bytes(bytes)
}

impl Trial {
    /// `key` is that of events which bring none; without one each type has its own.
    pub fn new(name: impl Into<String>, policy: BatchPolicy, key: Option<ChosenKey>) -> Self {
        Self {
            name: name.into(),
            policy,
            key,
            open: HashMap::new(),
            due: BinaryHeap::new(),
            serials: 0,
            measure: Measure::default(),
        }
    }

    fn take(&mut self, user: &UserId, item: &Item, happening: &Happening) {
        let at = happening.at;
        self.measure.event(user);
        let key = BatchKey::of(&item.t, happening.key.as_ref(), self.key.as_ref());
        let slot = (user.clone(), key);
        let items = std::slice::from_ref(item);
        if let Some(gathering) = self.open.get_mut(&slot) {
            match gathering.batch.join(items, at, &self.policy) {
                Joined::Added(_) | Joined::Already => {
                    gathering.times.push(at);
                    if gathering.batch.state != BatchState::Open {
                        self.close(&slot);
                    }
                    return;
                }
                // It has closed itself; this event opens the next.
                Joined::Refused => self.close(&slot),
            }
        }
        self.begin(slot, item, at);
    }

    fn begin(&mut self, slot: Slot, item: &Item, at: DateTime<Utc>) {
        let (user, key) = slot.clone();
        let items = std::slice::from_ref(item);
        let mut batch = Batch::open(item.i, user, key, items, at, &self.policy);
        let mut times = vec![at];
        if let Some(lead) = batch.take_lead() {
            self.measure.mail(&slot.0, lead.count, &times, at);
            times.clear();
        }
        if batch.state != BatchState::Open {
            let mail_at = batch.closes_at;
            self.measure
                .mail(&slot.0, batch.contents.count, &times, mail_at);
            return;
        }
        self.serials += 1;
        let (slot, serial) = (Rc::new(slot), self.serials);
        self.due
            .push(Reverse((batch.closes_at, serial, slot.clone())));
        let gathering = Gathering {
            batch,
            serial,
            times,
        };
        self.open.insert(slot, gathering);
    }

    /// Closes what is due by then, each at its time.
    fn close_until(&mut self, now: DateTime<Utc>) {
        while let Some(Reverse((at, ..))) = self.due.peek()
            && *at <= now
        {
            let Some(Reverse((at, serial, slot))) = self.due.pop() else {
                break;
            };
            let Some(gathering) = self.open.get(&slot) else {
                continue;
            };
            if gathering.serial != serial {
                continue;
            }
            if gathering.batch.is_due(at) {
                self.close(&slot);
            } else {
                // It was put off since.
                let later = gathering.batch.closes_at;
                self.due.push(Reverse((later, serial, slot)));
            }
        }
    }

    fn close(&mut self, slot: &Slot) {
        let Some(Gathering {
            mut batch, times, ..
        }) = self.open.remove(slot)
        else {
            return;
        };
        let mail_at = batch.closes_at;
        // One that closed itself is closing already.
        let _ = batch.close_now(mail_at);
        if batch.settle() == Ok(()) && batch.state == BatchState::Closed {
            self.measure
                .mail(&slot.0, batch.contents.count, &times, mail_at);
        }
    }

    fn finish(mut self, days: f64) -> Report {
        self.close_until(DateTime::<Utc>::MAX_UTC);
        self.measure.report(self.name, days)
    }
}

#[cfg(test)]
#[path = "simulate/tests.rs"]
mod tests;
