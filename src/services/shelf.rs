//! What feeds have read lately, kept in memory: objects, what is said of events, and people's
//! windows.
//!
//! The rule: what is on the shelf is believed for as long as nobody was poked whom it is about, and
//! never for longer than `feed.fresh`, as [`super::polls`] believes answers; while pokes are not
//! heard, nothing is. Only feeds ask here: mails ask the store. A window is taken from here for
//! what names things that it holds, and where what was read lately will do ([`super::feed`]). So
//! much is kept and no more: a part that is full is emptied.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
use tokio::sync::OnceCell;

use super::polls::{GlanceOf, Polls, Whom};
use crate::domain::{
    Delivery, Details, Event, Id, Inbox, Mutes, Object, PersonStacks, PokeKey, User, UserId, Window,
};

/// Everything is kept in so many parts, each with a lock of its own.
const PARTS: usize = 64;
/// Objects a part keeps; as many events of which it is known what is said.
const OBJECTS: usize = 512;
/// What is longer than this, in bytes of JSON, is looked up each time.
const LARGE: usize = 2_048;
/// Entries of all windows that a part keeps.
const ENTRIES: usize = 4_096;
/// What somebody muted takes as much as so many entries.
const MUTE: usize = 4;

/// What was found of an event's object.
#[derive(Debug, Clone)]
pub(super) struct Looked {
    pub object: Option<Arc<Object>>,
    /// Up to when events of this type about it are taken back.
    pub retracted: Option<Id>,
}

/// A person's window, and what they did to it, as they were read.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    pub window: Window,
    pub person: PersonStacks,
    pub inbox: Inbox,
    /// What they muted.
    pub mutes: Mutes,
    /// What may have been mailed of it, once somebody asked.
    pub digests: OnceCell<Digests>,
}

/// The digests that a window's markers are of.
#[derive(Debug, Clone, Default)]
pub(super) struct Digests {
    /// The record of whom they went to.
    pub user: Option<User>,
    pub rows: Vec<Delivery>,
}

/// What feeds have read lately.
pub struct Shelf {
    polls: Arc<Polls>,
    hasher: RandomState,
    objects: Parts<(Event, PokeKey, Looked)>,
    details: Vec<Mutex<HashMap<Id, CachedDetails>>>,
    people: Parts<Arc<Reading>>,
}

/// The details of an event, and the count of invalidations before they were read.
type CachedDetails = (Option<Arc<Details>>, u64);

type Parts<T> = Vec<Mutex<HashMap<u64, (T, GlanceOf)>>>;

fn parts<T: Default>() -> Vec<Mutex<T>> {
    (0..PARTS).map(|_| Mutex::default()).collect()
}

fn open<T>(part: &Mutex<T>) -> MutexGuard<'_, T> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_large(json: serde_json::Result<Vec<u8>>) -> bool {
    json.map_or(true, |json| json.len() > LARGE)
}

impl Shelf {
    /// An empty one, which believes what these pokes let it.
    pub fn new(polls: Arc<Polls>) -> Self {
        Self {
            polls,
            hasher: RandomState::new(),
            objects: parts(),
            details: parts(),
            people: parts(),
        }
    }

    pub(super) fn now(&self) -> DateTime<Utc> {
        self.polls.now()
    }

    /// How an object stands; to be asked before it is read. Nothing while nothing may be kept.
    pub(super) fn glance_of_object(&self, key: PokeKey, now: DateTime<Utc>) -> Option<GlanceOf> {
        self.polls.glance_of(Whom::Object(key), now)
    }

    fn name(&self, event: &Event) -> u64 {
        self.hasher.hash_one((event.t.as_str(), event.o.as_str()))
    }

    /// What is known of the event's object, and since when.
    pub(super) fn object(
        &self,
        event: &Event,
        now: DateTime<Utc>,
    ) -> Option<(Looked, DateTime<Utc>)> {
        let name = self.name(event);
        let part = open(&self.objects[name as usize % PARTS]);
        let ((of, key, looked), glance) = part.get(&name)?;
        let is_it = of.t == event.t && of.o == event.o;
        let holds = is_it && self.polls.holds(glance, Whom::Object(*key), now);
        holds.then(|| (looked.clone(), glance.at()))
    }

    /// Keeps what was found of the event's object, which stood so before it was looked up.
    pub(super) fn keep_object(
        &self,
        event: &Event,
        key: PokeKey,
        looked: Looked,
        glance: GlanceOf,
    ) {
        if looked
            .object
            .as_deref()
            .is_some_and(|object| is_large(serde_json::to_vec(object)))
        {
            return;
        }
        let name = self.name(event);
        let mut part = open(&self.objects[name as usize % PARTS]);
        if part.len() >= OBJECTS {
            part.clear();
        }
        part.insert(name, ((event.clone(), key, looked), glance));
    }

    /// What is said of an event, where that is known: it changes only when a user is erased, which
    /// invalidates everything.
    pub(super) fn details(&self, id: Id) -> Option<Option<Arc<Details>>> {
        let part = open(&self.details[self.part_of(id)]);
        let (details, read) = part.get(&id)?;
        (self.polls.invalidations() == Some(*read)).then(|| details.clone())
    }

    /// The state of all details; to be asked before they are read.
    pub(super) fn invalidations(&self) -> Option<u64> {
        self.polls.invalidations()
    }

    pub(super) fn keep_details(&self, id: Id, details: Option<Arc<Details>>, read: u64) {
        if details
            .as_deref()
            .is_some_and(|details| is_large(serde_json::to_vec(details)))
        {
            return;
        }
        let mut part = open(&self.details[self.part_of(id)]);
        if part.len() >= OBJECTS {
            part.clear();
        }
        part.insert(id, (details, read));
    }

    fn part_of(&self, id: Id) -> usize {
        self.hasher.hash_one(id) as usize % PARTS
    }

    /// How a person stands; to be asked before their window is read.
    pub(super) fn glance_of_person(&self, user: &UserId) -> Option<GlanceOf> {
        let key = PokeKey::of(user.as_str());
        self.polls.glance_of(Whom::Person(key), self.now())
    }

    /// Their window, as it was read last and stands still as far as is known; and when that was.
    pub(super) fn reading(
        &self,
        user: &UserId,
        window: &Window,
    ) -> Option<(Arc<Reading>, DateTime<Utc>)> {
        let name = self.hasher.hash_one(user.as_str());
        let part = open(&self.people[name as usize % PARTS]);
        let (reading, glance) = part.get(&name)?;
        let is_it = reading.person.user == *user && reading.window == *window;
        let whom = Whom::Person(PokeKey::of(user.as_str()));
        let holds = is_it && self.polls.holds(glance, whom, self.now());
        holds.then(|| (Arc::clone(reading), glance.at()))
    }

    /// Keeps a window that was read, and stood so before.
    pub(super) fn keep_reading(&self, reading: Arc<Reading>, glance: GlanceOf) {
        let entries = |reading: &Reading| -> usize {
            let stacks = reading.person.stacks.iter();
            let entries = stacks.map(|stack| stack.entries.len()).sum::<usize>();
            8 + entries + reading.mutes.len() * MUTE
        };
        // One that leaves no room for others is read anew each time.
        if entries(&reading) > ENTRIES / 2 {
            return;
        }
        let name = self.hasher.hash_one(reading.person.user.as_str());
        let mut part = open(&self.people[name as usize % PARTS]);
        part.insert(name, (reading, glance));
        if part.values().map(|(kept, _)| entries(kept)).sum::<usize>() > ENTRIES {
            part.clear();
        }
    }
}

#[cfg(test)]
#[path = "shelf_tests.rs"]
mod tests;
