//! Caches the entity tags of feed responses, so that an unchanged poll does not read the store.
//!
//! A tag is valid until a change notice names its user or an object that the page shows or counts.
//! It ends with the UTC day, while notices are not received, and after `feed.fresh`, because
//! external writers send none. Notices only increment counters; a shared counter costs an extra
//! read. A response that overlaps with a notice is not cached. Start with [`Polls::is_unchanged`].

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::StreamExt;
use tokio::sync::{Notify, watch};

use crate::clock::Clock;
use crate::domain::{ChangeNotice, Day, NoticeKey, ObjectKey, UserId};
use crate::engine::byte_cache::ByteCache;
use crate::store::Pokes;

/// The number of version counters for users, and for objects.
const PEOPLE: usize = 1 << 16;
const OBJECTS: usize = 1 << 12;
/// A page about more objects than this is invalidated when any object changes.
const FEW: usize = 128;
/// The most bytes of all cached tags.
const ANSWERS: usize = 8 << 20;
/// The delay before change notices are subscribed to again after an error.
const REST: Duration = Duration::from_secs(1);

/// The entity tag of a response.
pub type Tag = [u8; 16];

/// The cached tags, the version counters, and the callers that wait for changes.
pub struct Polls {
    clock: Arc<dyn Clock>,
    fresh: TimeDelta,
    hears: AtomicBool,
    all: AtomicU64,
    people: Box<[AtomicU32]>,
    objects: Box<[AtomicU32]>,
    any_object: AtomicU64,
    /// A moving average of the store's time per response, in microseconds.
    slowness: AtomicU64,
    hasher: RandomState,
    answers: ByteCache<Known>,
    waiting: Mutex<HashMap<NoticeKey, Vec<Arc<Notify>>>>,
}

/// A cached tag, with the versions before its response was computed.
struct Known {
    tag: Tag,
    made: DateTime<Utc>,
    all: u64,
    person: u32,
    about: About,
}

/// The objects of a response, with the sum of their version counters.
enum About {
    Few(Box<[u16]>, u64),
    Any(u64),
}

/// The versions to record before a user's response is computed.
#[derive(Debug, Clone, Copy)]
pub struct Glance {
    at: DateTime<Utc>,
    all: u64,
    person: u32,
    any_object: u64,
}

/// A user or an object, as in a change notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    /// A user.
    Person(NoticeKey),
    /// An object.
    Object(NoticeKey),
}

/// The version of one user or object, to record before it is read.
#[derive(Debug, Clone, Copy)]
pub struct GlanceOf {
    at: DateTime<Utc>,
    all: u64,
    count: u32,
}

/// A subscription to changes of one user's feed.
pub struct Waiting {
    polls: Arc<Polls>,
    key: NoticeKey,
    news: Arc<Notify>,
}

impl Glance {
    /// Returns these versions for a response that uses data read at `read`, if that is earlier.
    pub fn as_of(self, read: Option<DateTime<Utc>>) -> Self {
        let at = read.map_or(self.at, |read| read.min(self.at));
        Self { at, ..self }
    }
}

impl GlanceOf {
    /// Returns when the version was recorded.
    pub fn at(&self) -> DateTime<Utc> {
        self.at
    }
}

impl Polls {
    /// Creates an empty cache.
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

    /// Returns how long a tag is valid without a change notice.
    pub fn fresh(&self) -> TimeDelta {
        self.fresh
    }

    /// Receives change notices until `stop` is set. Subscribes again after an error.
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

    /// Applies a change notice.
    pub fn hear(&self, poke: &ChangeNotice) {
        match poke {
            ChangeNotice::All => {
                self.all.fetch_add(1, Ordering::AcqRel);
                self.hears.store(true, Ordering::Release);
                self.waiting()
                    .values()
                    .flatten()
                    .for_each(|news| news.notify_one());
            }
            ChangeNotice::People(keys) => {
                for key in keys {
                    self.people[place(*key, PEOPLE)].fetch_add(1, Ordering::AcqRel);
                }
                let waiting = self.waiting();
                if !waiting.is_empty() {
                    let here = keys.iter().filter_map(|key| waiting.get(key));
                    here.flatten().for_each(|news| news.notify_one());
                }
            }
            ChangeNotice::Objects(keys) => {
                // Incremented before the objects, because `keep` reads it last.
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

    /// Returns the versions for this user. Must be called before the response is computed.
    pub fn glance(&self, user: &UserId) -> Glance {
        let person = place(NoticeKey::of(user.as_str()), PEOPLE);
        Glance {
            at: self.clock.now(),
            all: self.all.load(Ordering::Acquire),
            person: self.people[person].load(Ordering::Acquire),
            any_object: self.any_object.load(Ordering::Acquire),
        }
    }

    /// Returns the current time.
    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// Returns the current version. Must be called before the data is read. `None` while change
    /// notices are not received.
    pub fn glance_of(&self, whom: Whom, now: DateTime<Utc>) -> Option<GlanceOf> {
        self.hears.load(Ordering::Acquire).then(|| GlanceOf {
            at: now,
            all: self.all.load(Ordering::Acquire),
            count: self.count(whom),
        })
    }

    /// Returns whether the version is still current, as far as this process knows.
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

    /// Caches the tag of a user's response to `question`, which depends on these objects. `before`
    /// has the versions from before the response was computed.
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
            .map(|key| place(NoticeKey::of(key.as_str()), OBJECTS) as u16)
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

    /// Records how long the store took for a response.
    pub fn took(&self, time: Duration) {
        let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let ease = |slowness: u64| Some(slowness - slowness / 8 + time / 8);
        let _always = self
            .slowness
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, ease);
    }

    /// Returns how many seconds this user's client should wait between two polls. The slower the
    /// store, the longer. Users are spread by ±10 %, so that they do not poll in step.
    pub fn interval(&self, user: &UserId) -> u32 {
        let base = match self.slowness.load(Ordering::Relaxed) / 1_000 {
            0..50 => 30,
            50..100 => 60,
            100..200 => 120,
            _ => 270,
        };
        let tenth = base / 10;
        base - tenth + NoticeKey::of(user.as_str()).0 % (2 * tenth + 1)
    }

    /// Returns the cached tag of this response, if it is still valid and `has` accepts it.
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

    /// Subscribes to changes of this user's feed.
    pub fn wait_for(self: &Arc<Self>, user: &UserId) -> Waiting {
        let (key, news) = (NoticeKey::of(user.as_str()), Arc::new(Notify::new()));
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

    fn waiting(&self) -> MutexGuard<'_, HashMap<NoticeKey, Vec<Arc<Notify>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(key: NoticeKey, count: usize) -> usize {
    key.0 as usize % count
}

impl Waiting {
    /// Waits for a change. Several changes wake it once. Changes between two waits are not missed.
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
