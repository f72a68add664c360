//! Replays recorded events against batch policies and counts the emails that each would send.
//!
//! The real [`Accumulator`] makes all decisions: it opens, extends and closes each batch, on a
//! clock that jumps from event to deadline. Every event counts as one to be emailed in a batch.
//! Start with [`simulate`].

use std::collections::{HashMap, HashSet};
use std::io::BufRead;
use std::path::Path;

use chrono::{DateTime, Utc};
use serde::Deserialize;

use crate::config::CandidatePolicy;
use crate::domain::batch::{
    Accumulator, AccumulatorId, Batch, BatchItem, BatchKey, BatchPolicy, BatchState, ChosenKey,
};
use crate::domain::{EventType, Id, ObjectId, UserId, durations_and_times};
use crate::engine::import::line::{self, LineError};
use crate::engine::import::open_decompressed;
use crate::engine::{Error, Progress, Result};
use crate::wire::batch::{PolicyComparison, PolicyFigures, Spread};
use crate::wire::transfer::BadLine;

/// An event of the past, for one or several users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayedEvent {
    /// When it happened.
    pub at: DateTime<Utc>,
    /// The users it was for; each counts as one event.
    pub users: Vec<UserId>,
    /// The event's type.
    pub kind: EventType,
    /// The object it was about; empty if unknown.
    pub object: ObjectId,
    /// The batch key that the event names, if any.
    pub key: Option<ChosenKey>,
}

/// Replays `events`, which must be in order of time, against each policy.
///
/// `progress` advances once per event and policy. Memory grows with the number of events.
pub fn simulate(
    events: &[ReplayedEvent],
    policies: &[CandidatePolicy],
    progress: &dyn Progress,
) -> PolicyComparison {
    progress.set_total((events.len() * policies.len()) as u64);
    let [from, to] = [events.first(), events.last()].map(|event| Some(event?.at));
    let span = from.zip(to).map(|(from, to)| to - from);
    let seconds = span.map_or(0, |span| span.num_seconds());
    let days = (seconds as f64 / 86_400.0).max(1.0);
    let users: HashSet<&UserId> = events.iter().flat_map(|event| &event.users).collect();
    let figures =
        |policy: &CandidatePolicy| replay(events, policy, progress).figures(&policy.name, days);
    PolicyComparison {
        events: events.iter().map(|event| event.users.len() as u64).sum(),
        users: users.len() as u64,
        from,
        to,
        policies: policies.iter().map(figures).collect(),
    }
}

fn replay(
    events: &[ReplayedEvent],
    candidate: &CandidatePolicy,
    progress: &dyn Progress,
) -> Emails {
    let mut replays: HashMap<AccumulatorId, Replay> = HashMap::new();
    let mut emails = Emails::default();
    for (number, event) in (1..).zip(events) {
        let (kind, object) = (event.kind.clone(), event.object.clone());
        let item = BatchItem { fanout_id: id_of(number), kind, object };
        let key = BatchKey::for_event(&event.kind, event.key.as_ref(), candidate.key.as_ref());
        for user in &event.users {
            let (user, key) = (user.clone(), key.clone());
            let entry = replays.entry(AccumulatorId { user, key });
            let replay = entry.or_insert_with_key(Replay::new);
            replay.close_until(event.at, &mut emails);
            replay.join(&item, event.at, &candidate.policy, &mut emails);
        }
        progress.advance(1);
    }
    for replay in replays.values_mut() {
        replay.close_until(DateTime::<Utc>::MAX_UTC, &mut emails);
    }
    emails
}

/// Numbers events, so that each is new to its accumulator.
fn id_of(number: u64) -> Id {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    Id::from_bytes(bytes)
}

/// An accumulator, and the events that no email includes yet.
struct Replay {
    accumulator: Accumulator,
    waiting: Vec<(Id, DateTime<Utc>)>,
}

impl Replay {
    fn new(id: &AccumulatorId) -> Self {
        Self { accumulator: Accumulator::new(id.clone()), waiting: Vec::new() }
    }

    fn join(
        &mut self,
        item: &BatchItem,
        at: DateTime<Utc>,
        policy: &BatchPolicy,
        emails: &mut Emails,
    ) {
        let items = std::slice::from_ref(item);
        self.accumulator.join(items, at, policy, || item.fanout_id);
        self.waiting.push((item.fanout_id, at));
        self.advance(at, emails);
    }

    /// Closes the open batch if it is due by `now`, at its own time.
    fn close_until(&mut self, now: DateTime<Utc>, emails: &mut Emails) {
        let closes_at = self.accumulator.open.as_ref().map(|open| open.closes_at);
        if let Some(closes_at) = closes_at.filter(|closes_at| *closes_at <= now) {
            self.advance(closes_at, emails);
        }
    }

    fn advance(&mut self, now: DateTime<Utc>, emails: &mut Emails) {
        self.accumulator.advance(now);
        for batch in std::mem::take(&mut self.accumulator.ended) {
            let events = std::mem::take(&mut self.waiting).into_iter();
            let (included, waiting) = events.partition(|(event, _)| batch.has_joined(*event));
            self.waiting = waiting;
            if batch.state == BatchState::Closing {
                emails.add(&batch, included);
            }
        }
    }
}

/// The emails of one policy.
#[derive(Debug, Default)]
struct Emails {
    count: u64,
    largest: u64,
    per_user: HashMap<UserId, u64>,
    /// The delay of each event, in seconds.
    delays: Vec<u64>,
}

impl Emails {
    fn add(&mut self, batch: &Batch, included: Vec<(Id, DateTime<Utc>)>) {
        self.count += 1;
        self.largest = self.largest.max(batch.events.count);
        *self.per_user.entry(batch.user.clone()).or_default() += 1;
        let delay = |at: DateTime<Utc>| (batch.closes_at - at).num_milliseconds().max(0) as u64;
        let delays = included.into_iter().map(|(_, at)| delay(at));
        self.delays.extend(delays.map(|delay| (delay + 500) / 1_000));
    }

    fn figures(self, policy: &str, days: f64) -> PolicyFigures {
        PolicyFigures {
            policy: policy.to_owned(),
            emails: self.count,
            emails_per_day: self.count as f64 / days,
            emails_per_user: spread(self.per_user.into_values().collect()),
            delay_seconds: spread(self.delays),
            largest: self.largest,
        }
    }
}

/// Describes values. Percentiles are nearest rank: the smallest value that covers them.
fn spread(mut values: Vec<u64>) -> Spread {
    values.sort_unstable();
    let percentile = |percent: usize| {
        let rank = (values.len() * percent).div_ceil(100);
        values.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    };
    Spread {
        mean: values.iter().sum::<u64>() as f64 / values.len().max(1) as f64,
        p50: percentile(50),
        p95: percentile(95),
        max: percentile(100),
    }
}

/// A line of the recording. Other fields are ignored.
#[derive(Deserialize)]
struct Line {
    #[serde(deserialize_with = "durations_and_times::deserialize_time")]
    at: DateTime<Utc>,
    user: Option<UserId>,
    #[serde(default)]
    users: Vec<UserId>,
    #[serde(rename = "type")]
    kind: EventType,
    object: Option<ObjectId>,
    batch_key: Option<ChosenKey>,
}

/// Reads all events of a file, sorted by time; `-` is standard input.
///
/// # Errors
/// Names the first line that is not an event. Figures from part of a recording would mislead.
pub fn read_events(path: &Path) -> Result<Vec<ReplayedEvent>> {
    let file = path.display();
    let mut events = Vec::new();
    for (number, line) in (1..).zip(open_decompressed(path)?.split(b'\n')) {
        let line =
            line.map_err(|error| Error::file(format!("reading {file}, line {number}"), error))?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let damaged = |mistake| Error::damaged(path, BadLine::new(number, mistake));
        events.push(parse(&line).map_err(damaged)?);
    }
    events.sort_by_key(|event| event.at);
    Ok(events)
}

fn parse(line: &[u8]) -> std::result::Result<ReplayedEvent, LineError> {
    let line: Line = line::parse_object(line)?;
    let mut users = line.users;
    users.extend(line.user);
    if users.is_empty() {
        return Err("names neither a user nor users".to_owned().into());
    }
    users.sort_unstable();
    users.dedup();
    Ok(ReplayedEvent {
        at: line.at,
        users,
        kind: line.kind,
        object: line.object.unwrap_or_else(|| ObjectId::stored("")),
        key: line.batch_key,
    })
}

#[cfg(test)]
#[path = "simulate_tests.rs"]
mod tests;
