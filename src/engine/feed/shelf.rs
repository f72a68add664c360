//! What feeds have read lately, kept in memory: objects, what is said of events, and people's
//! windows.
//!
//! The rule: what is on the shelf is believed for as long as nobody was poked whom it is about, and
//! never for longer than `feed.fresh`, as [`super::polls`] believes answers; while pokes are not
//! heard, nothing is. Only feeds ask here: mails ask the store. A window is taken from here for
//! what names things that it holds, and where what was read lately will do ([`super`]). Each
//! kind has a bounded number of bytes.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::sync::OnceCell;

use super::polls::{GlanceOf, Polls, Whom};
use crate::domain::{
    Delivery, Details, Entry, Event, Id, Inbox, Mutes, Object, PersonStacks, PokeKey, User, UserId,
    Window,
};
use crate::engine::byte_cache::ByteCache;

/// The most bytes of all objects, of all that is said of events, and of all windows.
const OBJECTS: usize = 12 << 20;
const DETAILS: usize = 4 << 20;
const WINDOWS: usize = 12 << 20;
/// Objects and details with more bytes of text are looked up each time.
const LARGE: usize = 2_048;
/// The bytes of a muted subject, and of a reading besides its entries and mutes: its inbox, and the
/// digests that may be added to it.
const MUTE: usize = 256;
const READING: usize = 1_024;

/// What was found of an event's object.
#[derive(Debug, Clone)]
pub(crate) struct Looked {
    pub object: Option<Arc<Object>>,
    /// Up to when events of this type about it are taken back.
    pub retracted: Option<Id>,
}

/// A person's window, and what they did to it, as they were read.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
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
pub(crate) struct Digests {
    /// The record of whom they went to.
    pub user: Option<User>,
    pub rows: Vec<Delivery>,
}

/// What feeds have read lately.
pub struct Shelf {
    polls: Arc<Polls>,
    hasher: RandomState,
    objects: ByteCache<(Event, PokeKey, Looked, GlanceOf)>,
    details: ByteCache<(Id, Option<Arc<Details>>, u64)>,
    people: ByteCache<(Arc<Reading>, GlanceOf)>,
}

impl Shelf {
    /// An empty one, which believes what these pokes let it.
    pub fn new(polls: Arc<Polls>) -> Self {
        Self {
            polls,
            hasher: RandomState::new(),
            objects: ByteCache::new(OBJECTS),
            details: ByteCache::new(DETAILS),
            people: ByteCache::new(WINDOWS),
        }
    }

    pub(crate) fn now(&self) -> DateTime<Utc> {
        self.polls.now()
    }

    /// How an object stands; to be asked before it is read. Nothing while nothing may be kept.
    pub(crate) fn glance_of_object(&self, key: PokeKey, now: DateTime<Utc>) -> Option<GlanceOf> {
        self.polls.glance_of(Whom::Object(key), now)
    }

    fn name(&self, event: &Event) -> u64 {
        self.hasher.hash_one((event.t.as_str(), event.o.as_str()))
    }

    /// What is known of the event's object, and since when.
    pub(crate) fn object(
        &self,
        event: &Event,
        now: DateTime<Utc>,
    ) -> Option<(Looked, DateTime<Utc>)> {
        self.objects
            .read(self.name(event), |(of, key, looked, glance)| {
                let is_it = of.t == event.t && of.o == event.o;
                let holds = is_it && self.polls.holds(glance, Whom::Object(*key), now);
                holds.then(|| (looked.clone(), glance.at()))
            })
    }

    /// Keeps what was found of the event's object, which stood so before it was looked up.
    pub(crate) fn keep_object(
        &self,
        event: &Event,
        key: PokeKey,
        looked: Looked,
        glance: GlanceOf,
    ) {
        let bytes = looked.object.as_deref().map_or(0, Object::bytes);
        if bytes > LARGE {
            return;
        }
        let bytes = bytes + size_of::<Object>();
        let value = (event.clone(), key, looked, glance);
        self.objects.keep(self.name(event), value, bytes);
    }

    /// What is said of an event, where that is known: it changes only when a user is erased, which
    /// invalidates everything.
    pub(crate) fn details(&self, id: Id) -> Option<Option<Arc<Details>>> {
        let name = self.hasher.hash_one(id);
        self.details.read(name, |(of, details, read)| {
            let holds = *of == id && self.polls.invalidations() == Some(*read);
            holds.then(|| details.clone())
        })
    }

    /// The state of all details; to be asked before they are read.
    pub(crate) fn invalidations(&self) -> Option<u64> {
        self.polls.invalidations()
    }

    pub(crate) fn keep_details(&self, id: Id, details: Option<Arc<Details>>, read: u64) {
        let bytes = details.as_deref().map_or(0, Details::bytes);
        if bytes <= LARGE {
            let name = self.hasher.hash_one(id);
            let bytes = bytes + size_of::<Details>();
            self.details.keep(name, (id, details, read), bytes);
        }
    }

    /// How a person stands; to be asked before their window is read.
    pub(crate) fn glance_of_person(&self, user: &UserId) -> Option<GlanceOf> {
        let key = PokeKey::of(user.as_str());
        self.polls.glance_of(Whom::Person(key), self.now())
    }

    /// Their window, as it was read last and stands still as far as is known; and when that was.
    pub(crate) fn reading(
        &self,
        user: &UserId,
        window: &Window,
    ) -> Option<(Arc<Reading>, DateTime<Utc>)> {
        let name = self.hasher.hash_one(user.as_str());
        self.people.read(name, |(reading, glance)| {
            let is_it = reading.person.user == *user && reading.window == *window;
            let whom = Whom::Person(PokeKey::of(user.as_str()));
            let holds = is_it && self.polls.holds(glance, whom, self.now());
            holds.then(|| (Arc::clone(reading), glance.at()))
        })
    }

    /// Keeps a window that was read, and stood so before.
    pub(crate) fn keep_reading(&self, reading: Arc<Reading>, glance: GlanceOf) {
        let stacks = reading.person.stacks.iter();
        let entries = stacks.flat_map(|stack| &stack.entries);
        let entries = entries.map(|entry| size_of::<Entry>() + entry.bytes());
        let bytes = READING + entries.sum::<usize>() + reading.mutes.len() * MUTE;
        let name = self.hasher.hash_one(reading.person.user.as_str());
        self.people.keep(name, (reading, glance), bytes);
    }
}

#[cfg(test)]
#[path = "shelf_tests.rs"]
mod tests;
