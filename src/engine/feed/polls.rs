//! Polls of what did not change, answered without asking the store.
//!
//! The rule: an answer is known for as long as nobody was poked whom it is about: its reader, and
//! the objects that it shows or counts. Counters stand for them, so a poke counts up and removes
//! nothing, and what shares a counter is only looked at again. It is never believed for longer than
//! `feed.fresh`, as not everybody who writes pokes, nor while pokes are not heard. What was poked
//! while an answer was made is not kept.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::StreamExt;
use tokio::sync::{Notify, watch};

use crate::clock::Clock;
use crate::domain::{Day, ObjectKey, Poke, PokeKey, UserId};
use crate::engine::byte_cache::ByteCache;
use crate::store::Pokes;

/// Counters of people, and of objects.
const PEOPLE: usize = 1 << 16;
const OBJECTS: usize = 1 << 12;
/// An answer about more objects than this is looked at again whenever any object changes.
const FEW: usize = 128;
/// The most bytes of all answers' tags.
const ANSWERS: usize = 8 << 20;
/// How long it rests before it listens again, where that broke.
const REST: Duration = Duration::from_secs(1);

/// What identifies an answer to somebody who has it: its entity tag.
pub type Tag = [u8; 16];

/// What is known of answers, and who waits for news.
pub struct Polls {
    clock: Arc<dyn Clock>,
    fresh: TimeDelta,
    hears: AtomicBool,
    all: AtomicU64,
    people: Box<[AtomicU32]>,
    objects: Box<[AtomicU32]>,
    any_object: AtomicU64,
    /// How long the store took lately for an answer, in microseconds.
    slowness: AtomicU64,
    hasher: RandomState,
    answers: ByteCache<Known>,
    waiting: Mutex<HashMap<PokeKey, Vec<Arc<Notify>>>>,
}

/// An answer that was given.
struct Known {
    tag: Tag,
    made: DateTime<Utc>,
    all: u64,
    person: u32,
    about: About,
}

/// The objects that an answer is about, and what their counters come to.
enum About {
    Few(Box<[u16]>, u64),
    Any(u64),
}

/// How everything stood before an answer was made.
#[derive(Debug, Clone, Copy)]
pub struct Glance {
    at: DateTime<Utc>,
    all: u64,
    person: u32,
    any_object: u64,
}

/// Whom a poke may be about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    /// A person.
    Person(PokeKey),
    /// An object.
    Object(PokeKey),
}

/// How a person, or an object, stood at a moment: the part of a glance that one read rests on.
#[derive(Debug, Clone, Copy)]
pub struct GlanceOf {
    at: DateTime<Utc>,
    all: u64,
    count: u32,
}

/// Somebody who waits for news of one person's feed.
pub struct Waiting {
    polls: Arc<Polls>,
    key: PokeKey,
    news: Arc<Notify>,
}

impl Glance {
    /// The same, but for an answer that rests on what was read as long ago as then.
    pub fn as_of(self, read: Option<DateTime<Utc>>) -> Self {
        let at = read.map_or(self.at, |read| read.min(self.at));
        Self { at, ..self }
    }
}

impl GlanceOf {
    /// When that was.
    pub fn at(&self) -> DateTime<Utc> {
        self.at
    }
}

impl Polls {
    /// Knows nothing yet.
    pub fn new(clock: Arc<dyn Clock>, fresh: TimeDelta) -> Self {
        let counters = |count: usize| (0..count).map(|_| AtomicU32::new(0)).collect();
        Self {
            clock,
            fresh,
            hears: AtomicBool::new(false),
            all: AtomicU64::new(0),
            people: counters(PEOPLE),
            objects: counters(OBJECTS),
            any_object: AtomicU64::new(0),
            slowness: AtomicU64::new(0),
            hasher: RandomState::new(),
            answers: ByteCache::new(ANSWERS),
            waiting: Mutex::default(),
        }
    }

    /// For how long an answer is believed without news.
    pub fn fresh(&self) -> TimeDelta {
        self.fresh
    }

    /// Listens until it is told to stop; goes on listening whatever breaks.
    pub async fn listen(&self, pokes: &dyn Pokes, mut stop: watch::Receiver<bool>) {
        let hear = async {
            loop {
                let broke = match pokes.pokes().await {
                    Ok(mut pokes) => loop {
                        match pokes.next().await {
                            Some(Ok(poke)) => self.hear(&poke),
                            Some(Err(error)) => break error.to_string(),
                            None => break "it ended".to_owned(),
                        }
                    },
                    Err(error) => error.to_string(),
                };
                self.hears.store(false, Ordering::Release);
                tracing::debug!(broke, "news of feeds are not heard, and listened for again");
                tokio::time::sleep(REST).await;
            }
        };
        tokio::select! {
            () = hear => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    /// Takes one piece of news.
    pub fn hear(&self, poke: &Poke) {
        match poke {
            Poke::All => {
                self.all.fetch_add(1, Ordering::AcqRel);
                self.hears.store(true, Ordering::Release);
                self.waiting()
                    .values()
                    .flatten()
                    .for_each(|news| news.notify_one());
            }
            Poke::People(keys) => {
                for key in keys {
                    self.people[place(*key, PEOPLE)].fetch_add(1, Ordering::AcqRel);
                }
                let waiting = self.waiting();
                if !waiting.is_empty() {
                    let here = keys.iter().filter_map(|key| waiting.get(key));
                    here.flatten().for_each(|news| news.notify_one());
                }
            }
            Poke::Objects(keys) => {
                // First, as `keep` looks at it last.
                self.any_object.fetch_add(1, Ordering::AcqRel);
                for key in keys {
                    self.objects[place(*key, OBJECTS)].fetch_add(1, Ordering::AcqRel);
                }
            }
        }
    }

    /// Invalidates everything that this process remembers.
    pub fn forget_all(&self) {
        self.all.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the number of times that everything was invalidated; `None` while change notices are
    /// not received.
    pub fn invalidations(&self) -> Option<u64> {
        let hears = self.hears.load(Ordering::Acquire);
        hears.then(|| self.all.load(Ordering::Acquire))
    }

    /// How everything stands for this person; to be asked before an answer is made.
    pub fn glance(&self, user: &UserId) -> Glance {
        let person = place(PokeKey::of(user.as_str()), PEOPLE);
        Glance {
            at: self.clock.now(),
            all: self.all.load(Ordering::Acquire),
            person: self.people[person].load(Ordering::Acquire),
            any_object: self.any_object.load(Ordering::Acquire),
        }
    }

    /// The time.
    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// How they stand now; to be asked before they are read. Nothing while pokes are not heard.
    pub fn glance_of(&self, whom: Whom, now: DateTime<Utc>) -> Option<GlanceOf> {
        self.hears.load(Ordering::Acquire).then(|| GlanceOf {
            at: now,
            all: self.all.load(Ordering::Acquire),
            count: self.count(whom),
        })
    }

    /// Whether they stand as they did, as far as is known.
    pub fn holds(&self, glance: &GlanceOf, whom: Whom, now: DateTime<Utc>) -> bool {
        self.hears.load(Ordering::Acquire)
            && glance.all == self.all.load(Ordering::Acquire)
            && glance.count == self.count(whom)
            && (TimeDelta::zero()..self.fresh).contains(&(now - glance.at))
    }

    fn count(&self, whom: Whom) -> u32 {
        let counter = match whom {
            Whom::Person(key) => &self.people[place(key, PEOPLE)],
            Whom::Object(key) => &self.objects[place(key, OBJECTS)],
        };
        counter.load(Ordering::Acquire)
    }

    /// Keeps that this question, asked by this person, has the answer of this tag, which is about
    /// these objects.
    pub fn keep(
        &self,
        user: &UserId,
        question: &str,
        tag: Tag,
        before: Glance,
        objects: &[ObjectKey],
    ) {
        let mut places: Vec<u16> = objects
            .iter()
            .map(|key| place(PokeKey::of(key.as_str()), OBJECTS) as u16)
            .collect();
        places.sort_unstable();
        places.dedup();
        let about = match places.len() {
            0..=FEW => {
                let sum = self.sum(&places);
                About::Few(places.into(), sum)
            }
            _ => About::Any(before.any_object),
        };
        if self.any_object.load(Ordering::Acquire) != before.any_object {
            return;
        }
        let known = Known {
            tag,
            made: before.at,
            all: before.all,
            person: before.person,
            about,
        };
        let name = self.name(user, question);
        let bytes = match &known.about {
            About::Few(places, _) => size_of_val(&**places),
            About::Any(_) => 0,
        };
        self.answers.keep(name, known, bytes);
    }

    /// Notes how long the store took for an answer.
    pub fn took(&self, time: Duration) {
        let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let ease = |slowness: u64| Some(slowness - slowness / 8 + time / 8);
        let _always = self
            .slowness
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, ease);
    }

    /// How long this person's reader is asked to wait between two polls, in seconds: the longer,
    /// the slower the store is. People are spread over a fifth, so that they do not poll in step.
    pub fn interval(&self, user: &UserId) -> u32 {
        let base = match self.slowness.load(Ordering::Relaxed) / 1_000 {
            0..50 => 30,
            50..100 => 60,
            100..200 => 120,
            _ => 270,
        };
        let tenth = base / 10;
        base - tenth + PokeKey::of(user.as_str()).0 % (2 * tenth + 1)
    }

    /// Whether this question has still the answer of one of these tags, as far as is known.
    pub fn is_unchanged(
        &self,
        user: &UserId,
        question: &str,
        has: impl Fn(&Tag) -> bool,
    ) -> Option<Tag> {
        if !self.hears.load(Ordering::Acquire) {
            return None;
        }
        let now = self.glance(user);
        let name = self.name(user, question);
        self.answers.read(name, |known| {
            let is_current = known.all == now.all
                && known.person == now.person
                && Day::of(known.made) == Day::of(now.at)
                && (TimeDelta::zero()..self.fresh).contains(&(now.at - known.made))
                && match &known.about {
                    About::Few(places, sum) => self.sum(places) == *sum,
                    About::Any(count) => now.any_object == *count,
                };
            (is_current && has(&known.tag)).then_some(known.tag)
        })
    }

    /// Waits for news of this person's feed.
    pub fn wait_for(self: &Arc<Self>, user: &UserId) -> Waiting {
        let (key, news) = (PokeKey::of(user.as_str()), Arc::new(Notify::new()));
        self.waiting()
            .entry(key)
            .or_default()
            .push(Arc::clone(&news));
        Waiting {
            polls: Arc::clone(self),
            key,
            news,
        }
    }

    fn sum(&self, places: &[u16]) -> u64 {
        let counters = places
            .iter()
            .map(|place| &self.objects[usize::from(*place)]);
        let counts = counters.map(|counter| u64::from(counter.load(Ordering::Acquire)));
        counts.sum()
    }

    fn name(&self, user: &UserId, question: &str) -> u64 {
        self.hasher.hash_one((user.as_str(), question))
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<PokeKey, Vec<Arc<Notify>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(key: PokeKey, count: usize) -> usize {
    key.0 as usize % count
}

impl Waiting {
    /// Until there is news; of several, once. News between two waits are not missed.
    pub async fn news(&self) {
        self.news.notified().await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waiting = self.polls.waiting();
        if let Some(here) = waiting.get_mut(&self.key) {
            here.retain(|news| !Arc::ptr_eq(news, &self.news));
            if here.is_empty() {
                waiting.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
#[path = "polls_tests.rs"]
mod tests;
