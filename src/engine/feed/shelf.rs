//! The feed cache: objects, event details and users' windows that feeds read recently.
//!
//! An entry is valid until a change notice names its user or object, for at most `feed.fresh`, and
//! only while notices are received ([`super::polls`]). Only feeds use it; emails read the store. A
//! cached window serves requests that refer to items in it, or that accept recent data ([`super`]).
//! Each kind of entry has a limit in bytes. Start with [`Shelf::reading`].

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::sync::OnceCell;

use super::polls::{GlanceOf, Polls, Whom};
use crate::domain::{
    Delivery, Details, Entry, Event, Id, Inbox, Mutes, NoticeKey, Object, PersonStacks, User,
    UserId, Window,
};
use crate::engine::byte_cache::ByteCache;

/// The most bytes of all objects, of all details, and of all windows.
const OBJECTS: usize = 12 << 20;
const DETAILS: usize = 4 << 20;
const WINDOWS: usize = 12 << 20;
/// Objects and details with more bytes of text are not cached.
const LARGE: usize = 2_048;
/// The estimated bytes of a muted subject, and of a reading without its entries and mutes. The
/// latter has an inbox and room for digests.
const MUTE: usize = 256;
const READING: usize = 1_024;

/// The state of an event's object.
#[derive(Debug, Clone)]
pub(crate) struct Looked {
    pub object: Option<Arc<Object>>,
    /// The latest retraction of events of this type about the object.
    pub retracted: Option<Id>,
}

/// A user's window and inbox, as they were read.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    pub window: Window,
    pub person: PersonStacks,
    pub inbox: Inbox,
    /// The user's mutes.
    pub mutes: Mutes,
    /// The digests that may have included events of the window, loaded on first use.
    pub digests: OnceCell<Digests>,
}

/// The digests that the markers in a window belong to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Digests {
    /// The recipient's record.
    pub user: Option<User>,
    pub rows: Vec<Delivery>,
}

/// The feed cache of a process.
pub struct Shelf {
    polls: Arc<Polls>,
    hasher: RandomState,
    objects: ByteCache<(Event, NoticeKey, Looked, GlanceOf)>,
    details: ByteCache<(Id, Option<Arc<Details>>, u64)>,
    people: ByteCache<(Arc<Reading>, GlanceOf)>,
}

impl Shelf {
    /// Creates an empty cache whose entries are invalidated by `polls`.
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

    /// Returns the version of an object. Must be called before the object is read. `None` if
    /// nothing may be cached now.
    pub(crate) fn glance_of_object(&self, key: NoticeKey, now: DateTime<Utc>) -> Option<GlanceOf> {
        self.polls.glance_of(Whom::Object(key), now)
    }

    fn name(&self, event: &Event) -> u64 {
        self.hasher.hash_one((event.t.as_str(), event.o.as_str()))
    }

    /// Returns the cached state of the event's object and when it was read, if it is valid.
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

    /// Caches the state of the event's object, with its version from before the read.
    pub(crate) fn keep_object(
        &self,
        event: &Event,
        key: NoticeKey,
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

    /// Returns the cached details of an event. Details change only when a user is erased, which
    /// invalidates everything.
    pub(crate) fn details(&self, id: Id) -> Option<Option<Arc<Details>>> {
        let name = self.hasher.hash_one(id);
        self.details.read(name, |(of, details, read)| {
            let holds = *of == id && self.polls.invalidations() == Some(*read);
            holds.then(|| details.clone())
        })
    }

    /// Returns the version of all details. Must be called before they are read.
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

    /// Returns the version of a user. Must be called before their window is read.
    pub(crate) fn glance_of_person(&self, user: &UserId) -> Option<GlanceOf> {
        let key = NoticeKey::of(user.as_str());
        self.polls.glance_of(Whom::Person(key), self.now())
    }

    /// Returns the user's window if it is cached and valid, and when it was read.
    pub(crate) fn reading(
        &self,
        user: &UserId,
        window: &Window,
    ) -> Option<(Arc<Reading>, DateTime<Utc>)> {
        let name = self.hasher.hash_one(user.as_str());
        self.people.read(name, |(reading, glance)| {
            let is_it = reading.person.user == *user && reading.window == *window;
            let whom = Whom::Person(NoticeKey::of(user.as_str()));
            let holds = is_it && self.polls.holds(glance, whom, self.now());
            holds.then(|| (Arc::clone(reading), glance.at()))
        })
    }

    /// Caches a window, with the user's version from before the read.
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
