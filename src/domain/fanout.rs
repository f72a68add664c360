//! The journal's entries: an accepted event on its way to everybody it concerns.
//!
//! The rule: a fan-out is accepted once (its key is unique), belongs to one day for ever, and is resumed from its
//! cursor: everybody up to and including that user has been served.

use chrono::{DateTime, Utc};

use super::audience::Audience;
use super::day::Day;
use super::delivery::Lease;
use super::event::Event;
use super::id::Id;
use super::name::{EventType, Invalid, ObjectId, UserId};

/// Where a fan-out stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FanoutState {
    /// Accepted; somebody has to do it, or is doing it under a lease.
    Pending,
    /// Everybody has it.
    Done,
}

/// How many were reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Counts {
    /// People of the audience served so far, without those left out.
    pub people: u64,
    /// Entries on their stacks.
    pub pushed: u64,
    /// Entries that were not stored because the person's day was full.
    pub capped: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.people += other.people;
        self.pushed += other.pushed;
        self.capped += other.capped;
    }
}

/// How far a fan-out has come; saved after every page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// The last user served.
    pub cursor: Option<UserId>,
    pub counts: Counts,
    pub done: bool,
}

/// The most objects one event can name.
pub const MAX_OBJECTS: usize = 100;

/// An accepted event.
#[derive(Debug, Clone, PartialEq)]
pub struct Fanout {
    /// The `i` of every entry it writes.
    pub id: Id,
    /// The writer's idempotency key; the id itself where none was given.
    pub key: String,
    pub kind: EventType,
    pub objects: Vec<ObjectId>,
    pub audience: Audience,
    /// The day whose collection it goes to, whenever that is done.
    pub day: Day,
    pub at: DateTime<Utc>,
    pub state: FanoutState,
    pub progress: Progress,
    pub lease: Option<Lease>,
}

impl Fanout {
    /// A new fan-out of this moment, in the day of this moment. Objects named twice count once.
    pub fn new(
        id: Id,
        key: Option<String>,
        kind: EventType,
        objects: Vec<ObjectId>,
        audience: Audience,
    ) -> Result<Self, Invalid> {
        let mut unique: Vec<ObjectId> = Vec::with_capacity(objects.len());
        for object in objects {
            if !unique.contains(&object) {
                unique.push(object);
            }
        }
        if unique.is_empty() || unique.len() > MAX_OBJECTS {
            return Err(Invalid::new(
                "objects",
                unique.len(),
                format!("is not 1 to {MAX_OBJECTS} object ids"),
            ));
        }
        let key = match key {
            Some(key) if key.is_empty() || key.len() > 256 || key.chars().any(char::is_control) => {
                return Err(Invalid::new(
                    "idempotency key",
                    key,
                    "is not 1 to 256 bytes without control characters",
                ));
            }
            Some(key) => key,
            None => id.to_string(),
        };
        let at = id.time();
        let state = FanoutState::Pending;
        Ok(Self {
            id,
            key,
            kind,
            objects: unique,
            audience,
            day: Day::of(at),
            at,
            state,
            progress: Progress::default(),
            lease: None,
        })
    }

    /// What it puts on each person's stack.
    pub fn events(&self) -> impl Iterator<Item = Event> {
        self.objects.iter().map(|o| Event {
            t: self.kind.clone(),
            o: o.clone(),
            i: Some(self.id),
        })
    }

    /// Whether this is the same request again: all that its writer chose is equal.
    pub fn same_request(&self, other: &Self) -> bool {
        self.kind == other.kind && self.objects == other.objects && self.audience == other.audience
    }
}
