//! Why somebody did or did not get something: what is on their stacks, what each event's way was,
//! what the ledger says.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::Result;
use super::batches::{BatchFilter, BatchService, BatchView};
use super::catalogue::Catalogue;
use super::due;
use super::owed::OwedDays;
use super::suppressions::Suppressed;
use crate::clock::Clock;
use crate::domain::content::Caps;
use crate::domain::digest::wanted;
use crate::domain::{
    Cadence, Day, Delivery, DeliveryId, Event, Id, ObjectId, Policies, Position, Schedule,
    Suppression, User, UserId,
};
use crate::store::{Deliveries, Directory, Objects, People, Stacks, Suppressions};

mod covered;
mod gathered;

pub use covered::{By, Place};

use covered::Mails;
use gathered::Batches;

/// Tells operators what a person gets, and why.
pub struct Explain {
    pub(crate) stacks: Arc<dyn Stacks>,
    pub(crate) directory: Arc<dyn Directory>,
    pub(crate) objects: Arc<dyn Objects>,
    pub(crate) deliveries: Arc<dyn Deliveries>,
    /// Shows the batches that events are in.
    pub batches: BatchService,
    pub(crate) suppressions: Arc<dyn Suppressions>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) clock: Arc<dyn Clock>,
    /// What holds for people who did not choose cadence, weekday, hour or time zone.
    pub schedule: Schedule,
    /// Says which days before the window are still read.
    pub owed: OwedDays,
    /// The most entries of a person's day (`fanout.day_cap`); a stack with as many is full.
    pub day_cap: usize,
    /// How many items a section and a mail show; the others are only counted.
    pub caps: Caps,
}

/// Everything that decides what a person gets.
#[derive(Debug)]
pub struct Explanation {
    /// Whom it is about.
    pub user: UserId,
    /// `None` if there is no record of them.
    pub record: Option<User>,
    /// Why no mail leaves to them, if none does.
    pub unmailable: Option<String>,
    /// What is known of their address, if it must not be written to.
    pub suppression: Option<Suppression>,
    /// When their digests fall due, whoever chose it; `None` if there is no record of them.
    pub schedule: Option<Schedule>,
    /// When their next digest is due: in the past if the next run mails it. `None` if none comes.
    pub next_due: Option<DateTime<Utc>>,
    /// Newest first; of days before the window only what is pending and waits for a digest.
    pub events: Vec<Fate>,
    /// Days on which their stack is full: later events of that day were not stored.
    pub full_days: Vec<Day>,
    /// What gathers for them, or is being mailed.
    pub batches: Vec<BatchView>,
    /// Their latest mails, newest first, at most ten.
    pub deliveries: Vec<Delivery>,
}

/// What will become, or became, of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fate {
    /// Where it stands on their stacks.
    pub position: Position,
    /// The event's type.
    pub kind: String,
    /// What it is about.
    pub object: ObjectId,
    /// The object's title, or its key if it has none; `None` if there is no record of it.
    pub title: Option<String>,
    /// When it happened.
    pub at: DateTime<Utc>,
    /// What decides about it, as things stand.
    pub why: Why,
    /// The batch it is in, if one is known.
    pub batch: Option<InBatch>,
    /// Who dealt with it, where a marker covers it.
    pub covered: Option<By>,
}

/// What is known of the batch that an event is in.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct InBatch {
    /// The batch's id; its delivery is `batch:<id>`.
    pub id: Id,
    /// When the batch is due; or when it began to close, if that was earlier.
    pub closes_at: DateTime<Utc>,
    /// Why its mail ended as it did, if the ledger says.
    pub reason: Option<String>,
    /// When its mail was settled, if it was.
    pub settled: Option<DateTime<Utc>>,
}

/// What decides, or decided, whether an event is mailed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// It was mailed in a batch, or on its own.
    Mailed,
    /// The same, but nobody knows whether the mail was taken.
    MayBeMailed,
    /// It is in an open batch, which is to be mailed.
    Gathering,
    /// Its batch is being mailed.
    Closing,
    /// It was taken out of its batch.
    TakenOut,
    /// Its batch was canceled, or its mail failed.
    NotMailed,
    /// It is to be mailed in a batch or on its own, and no batch that it is in is known.
    NoBatch,
    /// A marker covers it: a digest told it or left it out, somebody flushed it, or an older writer
    /// wrote the marker.
    Covered,
    /// The same event stands at an older place.
    Repeated,
    /// Its object is withdrawn or gone.
    Withdrawn,
    /// Nobody put a record of its object, and its type is not mailed without one.
    UnknownObject,
    /// The person's or the type's route is not the digest, or was chosen after it happened.
    NotForDigest,
    /// It is pending, but no digest goes to this person: see the explanation's `unmailable` and
    /// `schedule`.
    NoDigest,
    /// It will be in the next digest.
    NextDigest,
}

impl Why {
    /// For people to read; it follows the word "it".
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Mailed => "was mailed in a batch",
            Self::MayBeMailed => "may have been mailed: see tidings deliveries",
            Self::Gathering => "is in an open batch",
            Self::Closing => "is in a batch that is being mailed",
            Self::TakenOut => "was taken out of its batch",
            Self::NotMailed => "was not mailed",
            Self::NoBatch => "is for a batch, and in none that is known",
            Self::Covered => "was dealt with",
            Self::Repeated => "is told once already",
            Self::Withdrawn => "no longer applies",
            Self::UnknownObject => "is about an object that is not known, so it is not mailed",
            Self::NotForDigest => "is not to be mailed: its route is never, or was chosen later",
            Self::NoDigest => "waits: no digest goes to them",
            Self::NextDigest => "will be in the next digest",
        }
    }
}

/// A person has no more mails than this of which anybody asks.
const A_PERSONS: usize = 10_000;
/// How many of a person's mails are shown.
const SHOWN: usize = 10;

/// When the mail of this batch was settled.
fn settled_of(deliveries: &[Delivery], batch: Id) -> Option<DateTime<Utc>> {
    let id = DeliveryId::batch(batch);
    deliveries.iter().find(|row| row.id == id)?.settled
}

impl Explain {
    /// Explains one person, newest event first; `only` narrows it to one object or position.
    pub async fn user(&self, user: &UserId, only: Option<&str>) -> Result<Explanation> {
        let now = self.clock.now();
        let reach = self.owed.reach(now);
        let older = self.owed.look(&reach).await?.older;
        let window = reach.window.with(older.iter().map(|old| old.day));
        let found = self
            .stacks
            .windows(window, People::Each(std::slice::from_ref(user)))
            .await?;
        let record = self
            .directory
            .users(std::slice::from_ref(user))
            .await?
            .pop()
            .flatten();
        let mut deliveries = self.deliveries.deliveries_of(user, A_PERSONS).await?;
        let theirs = BatchFilter {
            user: Some(user.clone()),
            ..BatchFilter::default()
        };
        let batches = Batches::of(&self.batches, &theirs).await?;
        let mut catalogue = Catalogue::new(Arc::clone(&self.objects), Arc::clone(&self.policies));
        let (mut events, mut full_days) = (Vec::new(), Vec::new());
        let suppressed = Suppressed::among(&*self.suppressions, &record).await?;
        let gets_digests = record.as_ref().is_some_and(|user| {
            suppressed.mailable(user).is_ok()
                && user.schedule(&self.schedule).cadence != Cadence::Never
        });
        for person in &found {
            catalogue
                .load(
                    person
                        .stacks
                        .iter()
                        .flat_map(|stack| stack.events())
                        .map(|(_, event)| event),
                )
                .await?;
            let pending = match &record {
                Some(user) => wanted(person, user, &self.policies),
                None => person.pending(),
            };
            let pending: Vec<Position> = pending.iter().map(|pending| pending.position).collect();
            let applies = |event: &Event| catalogue.applies(event);
            let mails = Mails::of(
                &deliveries,
                person,
                record.as_ref(),
                &self.policies,
                self.caps,
                applies,
            );
            for stack in &person.stacks {
                let (covered, mailed) = (stack.covered(), stack.mailed());
                full_days.extend((stack.entries.len() >= self.day_cap).then_some(stack.id.day));
                for (position, event) in stack.events() {
                    let at = event.at(stack.id.day);
                    let object = catalogue.record(event);
                    let wanted = record
                        .as_ref()
                        .is_none_or(|user| user.wants_in_digest(&event.t, at, &self.policies));
                    let alone = match &record {
                        Some(user) => user.route(&event.t, at, &self.policies),
                        None => self.policies.of(&event.t).route,
                    };
                    let alone = alone.is_mailed_alone();
                    let applies = catalogue.applies(event).is_some();
                    let is_mailed = event.i.is_some_and(|i| mailed.contains(&i));
                    let holding = batches.holding(event);
                    let in_batch = batches.why(event, holding, is_mailed, alone && applies);
                    let why = if let Some(in_batch) = in_batch {
                        in_batch
                    } else if (position.index as usize) < covered {
                        Why::Covered
                    } else if catalogue.record(event).is_none() {
                        Why::UnknownObject
                    } else if !applies {
                        Why::Withdrawn
                    } else if alone {
                        Why::NoBatch
                    } else if !wanted {
                        Why::NotForDigest
                    } else if !pending.contains(&position) {
                        // Only what a digest would tell is told once.
                        Why::Repeated
                    } else if !gets_digests {
                        Why::NoDigest
                    } else {
                        Why::NextDigest
                    };
                    // Of days that have left the window only what is still owed is told.
                    if reach.is_older(stack.id.day)
                        && !matches!(why, Why::NextDigest | Why::NoDigest)
                    {
                        continue;
                    }
                    let title = object.map(|object| object.label().to_owned());
                    events.push(Fate {
                        position,
                        kind: event.t.to_string(),
                        object: event.o.clone(),
                        title,
                        at,
                        why,
                        batch: holding.map(|batch| InBatch {
                            id: batch.id,
                            closes_at: batch.closes_at,
                            reason: batches.reason(batch.id),
                            settled: settled_of(&deliveries, batch.id),
                        }),
                        covered: mails.by(stack, position).filter(|_| why == Why::Covered),
                    });
                }
            }
        }
        deliveries.truncate(SHOWN);
        events.retain(|fate| {
            only.is_none_or(|only| {
                fate.object.as_str() == only || fate.position.to_string() == only
            })
        });
        events.reverse();
        let unmailable = match &record {
            None => Some("there is no record of them".to_owned()),
            Some(user) => suppressed
                .mailable(user)
                .err()
                .map(|why| format!("they are {}", why.as_str())),
        };
        let schedule = record.as_ref().map(|user| user.schedule(&self.schedule));
        let next_due = match schedule {
            None => None,
            Some(schedule) => {
                let waiting = events.iter().filter(|fate| fate.why == Why::NextDigest);
                let oldest = waiting.map(|fate| fate.at).min();
                due::next(&*self.deliveries, user, &schedule, oldest, now).await?
            }
        };
        let suppression = record
            .as_ref()
            .and_then(|user| suppressed.of(user))
            .cloned();
        Ok(Explanation {
            user: user.clone(),
            suppression,
            record,
            unmailable,
            schedule,
            next_due,
            events,
            full_days,
            batches: self.batches.views(batches.unsettled()).await?,
            deliveries,
        })
    }
}
