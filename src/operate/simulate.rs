//! Replays recorded events against policies of batches, to see what mails they would have made: how
//! many, how late, how large.
//!
//! The rule: nothing is decided here. What joins which batch, when it closes and whether anything
//! of it is mailed is for accumulators to say, as for real events; here is only a clock that jumps
//! from event to event, and a worker that is always on time. One pass; what is remembered is what
//! waits in open batches, and a number a person. [`read`] and [`generate`] bring events,
//! [`measure`] tells what came of them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::rc::Rc;

use chrono::{DateTime, Utc};

use crate::domain::batch::{
    Accumulator, AccumulatorId, BatchKey, BatchPolicy, BatchState, ChosenKey, Item,
};
use crate::domain::{EventType, Id, ObjectId, UserId};
use crate::engine::{Result, Watcher};
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

/// The earliest moment at which a batch may close, the batch, and its accumulator.
type Deadline = Reverse<(DateTime<Utc>, Id, Rc<AccumulatorId>)>;

/// An accumulator with an open batch, and when what waits in it happened.
struct Gathering {
    accumulator: Accumulator,
    times: Vec<(Id, DateTime<Utc>)>,
}

/// One policy under trial.
pub struct Trial {
    name: String,
    policy: BatchPolicy,
    key: Option<ChosenKey>,
    open: HashMap<Rc<AccumulatorId>, Gathering>,
    /// No later than each open batch closes; each has one entry.
    due: BinaryHeap<Deadline>,
    measure: Measure,
}

/// Lets every trial see all of them, in the order of time.
pub fn replay(
    happenings: impl Iterator<Item = Result<Happening>>,
    mut trials: Vec<Trial>,
    progress: &dyn Watcher,
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
            measure: Measure::default(),
        }
    }

    fn take(&mut self, user: &UserId, item: &Item, happening: &Happening) {
        let at = happening.at;
        self.measure.event(user);
        let id = Rc::new(AccumulatorId {
            user: user.clone(),
            key: BatchKey::of(&item.t, happening.key.as_ref(), self.key.as_ref()),
        });
        let gathering = self
            .open
            .entry(Rc::clone(&id))
            .or_insert_with(|| Gathering {
                accumulator: Accumulator::new(AccumulatorId::clone(&id)),
                times: Vec::new(),
            });
        let (items, open) = (std::slice::from_ref(item), || item.i);
        gathering.accumulator.join(items, at, &self.policy, open);
        gathering.times.push((item.i, at));
        self.advance(&id, at);
        let open = self.open.get(&id);
        if let Some(open) = open.and_then(|gathering| gathering.accumulator.open.as_ref())
            && open.id == item.i
        {
            self.due.push(Reverse((open.closes_at, open.id, id)));
        }
    }

    /// Closes what is due by then, each at its time.
    fn close_until(&mut self, now: DateTime<Utc>) {
        while let Some(Reverse((at, ..))) = self.due.peek()
            && *at <= now
        {
            let Some(Reverse((at, batch, id))) = self.due.pop() else {
                break;
            };
            self.advance(&id, at);
            let open = self.open.get(&id);
            // It was put off since; another one has a deadline of its own.
            if let Some(open) = open.and_then(|gathering| gathering.accumulator.open.as_ref())
                && open.id == batch
            {
                self.due.push(Reverse((open.closes_at, batch, id)));
            }
        }
    }

    /// Ends what is due of an accumulator, and counts the mails.
    fn advance(&mut self, id: &AccumulatorId, now: DateTime<Utc>) {
        let Some(Gathering { accumulator, times }) = self.open.get_mut(id) else {
            return;
        };
        // Only leads get an id here, and nobody asks for it.
        accumulator.advance(now, || numbered(0));
        for batch in std::mem::take(&mut accumulator.ended) {
            let (told, waiting): (Vec<_>, _) = std::mem::take(times)
                .into_iter()
                .partition(|(fanout, _)| batch.has_joined(*fanout));
            *times = waiting;
            if batch.state == BatchState::Closing {
                let (count, told) = (batch.contents.count, told.into_iter().map(|(_, at)| at));
                self.measure.mail(&id.user, count, told, batch.closes_at);
            }
        }
        if accumulator.open.is_none() {
            self.open.remove(id);
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
