//! The feed cache: windows of users, objects, event details and entity tags.
//!
//! An entry is valid until a change notice names its user or one of its objects, for at most
//! `feed.fresh` (other programs send no notices), and only while notices arrive. Users share
//! version counters by hash, and so do objects; a collision only causes an extra read. Emails do
//! not use this cache. Start with [`FeedCache::version_of_user`], which callers store with what
//! they read afterwards.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use foldhash::fast::RandomState;
use futures::StreamExt;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::domain::user::TypePreference;
use crate::domain::{
    ChangeNotice, Day, DaySet, Details, Entry, Event, EventType, Id, Inbox, Mutes, NoticeKey,
    Object, ObjectId, ObjectKey, RecordStart, UserId, UserStacks, distinct,
};
use crate::mutex::lock;
use crate::store::ChangeNotices;

/// The number of version counters. The lower half is for users. The upper half is for objects, so
/// that notices of many users do not invalidate objects.
const COUNTERS: usize = 1 << 16;
const HALF: usize = COUNTERS / 2;
/// The index of the counter of all notices about objects.
const ANY_OBJECT: u16 = HALF as u16;
/// A tag that depends on more objects than this is invalidated when any object changes.
const MAX_OBJECTS_PER_TAG: usize = 128;
/// The most bytes of all tags, of all windows, of all objects, of all details and of all starts.
const TAG_BYTES: u64 = 8 << 20;
const WINDOW_BYTES: u64 = 12 << 20;
const OBJECT_BYTES: u64 = 12 << 20;
const DETAILS_BYTES: u64 = 4 << 20;
const START_BYTES: u64 = 4 << 20;
/// The estimated bytes that the cache adds to an entry, those of a muted subject, and those of a
/// choice for a type, without its name.
const ENTRY_BYTES: usize = 256;
const MUTE_BYTES: usize = 256;
const CHOICE_BYTES: usize = 128;
/// The most bytes of an entry. A larger one would evict many others.
const MAX_ENTRY_BYTES: usize = 96 << 10;
/// The delay before change notices are subscribed to again after an error.
const RESUBSCRIBE_DELAY: Duration = Duration::from_secs(1);

/// The hash of a response body, from which its entity tag is made.
pub type ResponseHash = [u8; 16];

/// A version of some users and objects. Taken before their data is read.
#[derive(Debug, Clone)]
pub struct CacheVersion {
    at: DateTime<Utc>,
    invalidations: u64,
    object_notices: u64,
    /// The counters of the user, the objects, or for a tag both, and the sum of their values.
    /// Values only grow.
    counters: Arc<[u16]>,
    sum: u64,
}

/// The state of an event's object.
#[derive(Debug, Clone)]
pub(crate) struct ObjectFacts {
    pub object: Option<Arc<Object>>,
    /// The latest retraction of events of this type about the object.
    pub retracted: Option<Id>,
}

/// A user's stacks, marks and choices, as they were read.
#[derive(Debug)]
pub(crate) struct UserWindow {
    pub window: DaySet,
    pub user_stacks: UserStacks,
    pub inbox: Inbox,
    pub mutes: Mutes,
    /// The choices by type; `None` if the user has no record.
    pub types: Option<BTreeMap<EventType, TypePreference>>,
}

/// A subscription to changes of a user's feed.
pub struct FeedSubscription {
    /// Several changes between two waits count once. Dropped before `_entry`, which counts it.
    pub changes: watch::Receiver<()>,
    _entry: SubscriberEntry,
}

/// Removes a user from the subscribers with the last subscription.
struct SubscriberEntry {
    cache: Arc<FeedCache>,
    key: NoticeKey,
}

impl Drop for SubscriberEntry {
    fn drop(&mut self) {
        let mut subscribers = lock(&self.cache.subscribers);
        let changes = subscribers.get(&self.key);
        if changes.is_some_and(|changes| changes.receiver_count() == 0) {
            subscribers.remove(&self.key);
        }
    }
}

/// Values with their versions, limited in bytes.
struct VersionedCache<K, V>(Cache<K, (V, CacheVersion, u32), RandomState>);

impl<K, V> VersionedCache<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    fn new(bytes: u64) -> Self {
        let cache = Cache::builder()
            .max_capacity(bytes)
            .eviction_policy(EvictionPolicy::lru())
            .weigher(|_, (_, _, bytes): &(V, CacheVersion, u32)| *bytes);
        Self(cache.build_with_hasher(RandomState::default()))
    }

    /// Stores a value that uses `bytes`.
    fn put(&self, key: K, value: V, version: CacheVersion, bytes: usize) {
        if bytes <= MAX_ENTRY_BYTES {
            self.0.insert(key, (value, version, (ENTRY_BYTES + bytes) as u32));
        }
    }

    fn get(&self, key: &K) -> Option<(V, CacheVersion)> {
        self.0.get(key).map(|(value, version, _)| (value, version))
    }
}

/// The feed cache of a process, which also notifies the streams of changed feeds.
pub struct FeedCache {
    clock: Arc<dyn Clock>,
    max_age: TimeDelta,
    /// Whether change notices arrive.
    is_connected: AtomicBool,
    /// How often everything was invalidated.
    invalidations: AtomicU64,
    counters: Box<[AtomicU32]>,
    tags: VersionedCache<(UserId, String), (ResponseHash, Day)>,
    windows: VersionedCache<UserId, Arc<UserWindow>>,
    objects: VersionedCache<(EventType, ObjectId), ObjectFacts>,
    details: VersionedCache<Id, Option<Arc<Details>>>,
    starts: VersionedCache<UserId, Option<RecordStart>>,
    subscribers: Mutex<HashMap<NoticeKey, watch::Sender<()>>>,
}

impl FeedCache {
    /// Creates an empty cache. Its entries are valid for `max_age` without a change notice.
    pub fn new(clock: Arc<dyn Clock>, max_age: TimeDelta) -> Self {
        Self {
            clock,
            max_age,
            is_connected: AtomicBool::new(false),
            invalidations: AtomicU64::new(0),
            counters: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect(),
            tags: VersionedCache::new(TAG_BYTES),
            windows: VersionedCache::new(WINDOW_BYTES),
            objects: VersionedCache::new(OBJECT_BYTES),
            details: VersionedCache::new(DETAILS_BYTES),
            starts: VersionedCache::new(START_BYTES),
            subscribers: Mutex::default(),
        }
    }

    /// Receives change notices until `stop` is set. Subscribes again after an error.
    pub async fn listen(&self, notices: &dyn ChangeNotices, mut stop: watch::Receiver<bool>) {
        let receive = async {
            loop {
                let error = match notices.change_notices().await {
                    Ok(mut notices) => loop {
                        match notices.next().await {
                            Some(Ok(notice)) => self.apply_notice(&notice),
                            Some(Err(error)) => break error.to_string(),
                            None => break "it ended".to_owned(),
                        }
                    },
                    Err(error) => error.to_string(),
                };
                self.is_connected.store(false, Ordering::Release);
                tracing::debug!(error, "change notices do not arrive; subscribing again");
                tokio::time::sleep(RESUBSCRIBE_DELAY).await;
            }
        };
        tokio::select! {
            () = receive => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    /// Applies a change notice. Writers of this process call it too, so that later reads of the
    /// process see the change at once.
    pub fn apply_notice(&self, notice: &ChangeNotice) {
        let increment = |counter: u16| {
            self.counters[usize::from(counter)].fetch_add(1, Ordering::AcqRel);
        };
        match notice {
            ChangeNotice::All => {
                self.invalidate_all();
                // Every subscription starts with `All`. No notice is missed from here on.
                self.is_connected.store(true, Ordering::Release);
                lock(&self.subscribers).values().for_each(|changes| changes.send_replace(()));
            }
            ChangeNotice::Users(keys) => {
                keys.iter().copied().map(user_counter).for_each(increment);
                let subscribers = lock(&self.subscribers);
                let changed = keys.iter().filter_map(|key| subscribers.get(key));
                changed.for_each(|changes| changes.send_replace(()));
            }
            ChangeNotice::Objects(keys) => {
                // Incremented before the other counters, because `put_tag` reads it last.
                increment(ANY_OBJECT);
                keys.iter().copied().map(object_counter).for_each(increment);
            }
        }
    }

    /// Invalidates all entries.
    pub fn invalidate_all(&self) {
        self.invalidations.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the version of a user. Must be called before the data is read. `None` while change
    /// notices do not arrive: nothing may be cached then.
    pub fn version_of_user(&self, user: &UserId) -> Option<CacheVersion> {
        self.version(&[user_counter(NoticeKey::from_name(user.as_str()))])
    }

    /// Returns the version of an object, like [`Self::version_of_user`].
    pub(crate) fn version_of_object(&self, key: &ObjectKey) -> Option<CacheVersion> {
        self.version(&[object_counter(NoticeKey::from_name(key.as_str()))])
    }

    /// Returns the version of all details, like [`Self::version_of_user`].
    pub(crate) fn version_of_details(&self) -> Option<CacheVersion> {
        self.version(&[])
    }

    fn version(&self, counters: &[u16]) -> Option<CacheVersion> {
        let is_connected = self.is_connected.load(Ordering::Acquire);
        is_connected.then(|| CacheVersion {
            at: self.clock.now(),
            invalidations: self.invalidations.load(Ordering::Acquire),
            object_notices: self.sum(&[ANY_OBJECT]),
            sum: self.sum(counters),
            counters: counters.into(),
        })
    }

    /// Returns whether the version is younger than `max_age` and, as far as this process knows,
    /// nothing has changed since.
    pub fn is_current(&self, version: &CacheVersion) -> bool {
        let age = self.clock.now() - version.at;
        self.has_all_notices_since(version)
            && (TimeDelta::zero()..self.max_age).contains(&age)
            && self.sum(&version.counters) == version.sum
    }

    fn has_all_notices_since(&self, version: &CacheVersion) -> bool {
        self.is_connected.load(Ordering::Acquire)
            && self.invalidations.load(Ordering::Acquire) == version.invalidations
    }

    fn sum(&self, counters: &[u16]) -> u64 {
        let value = |counter: &u16| self.counters[usize::from(*counter)].load(Ordering::Acquire);
        counters.iter().map(|counter| u64::from(value(counter))).sum()
    }

    fn current<K, V>(&self, entries: &VersionedCache<K, V>, key: &K) -> Option<(V, DateTime<Utc>)>
    where
        K: Hash + Eq + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
    {
        let (value, version) = entries.get(key)?;
        self.is_current(&version).then_some((value, version.at))
    }

    /// Returns the tag of a user's response to a request for `uri`, if it is cached and valid.
    pub fn tag(&self, user: &UserId, uri: &str) -> Option<ResponseHash> {
        let ((tag, day), _) = self.current(&self.tags, &(user.clone(), uri.to_owned()))?;
        (day == Day::of(self.clock.now())).then_some(tag)
    }

    /// Caches the tag of a user's response to a request for `uri`. The response depends on these
    /// objects; `before` is the user's version, and `as_of` the time of the oldest cached data in
    /// it. Stores nothing if any object at all has changed since that version.
    pub fn put_tag(
        &self,
        user: &UserId,
        uri: &str,
        tag: ResponseHash,
        before: CacheVersion,
        objects: &[ObjectKey],
        as_of: Option<DateTime<Utc>>,
    ) {
        let keys = objects.iter().map(|key| NoticeKey::from_name(key.as_str()));
        let mut counters = distinct(keys.map(object_counter));
        if counters.len() > MAX_OBJECTS_PER_TAG {
            counters = vec![ANY_OBJECT];
        }
        let sum = before.sum + self.sum(&counters);
        counters.extend(&*before.counters);
        // Read `ANY_OBJECT` last. Notices increment it first, so if it is unchanged, `sum` includes
        // no change since `before`.
        if self.sum(&[ANY_OBJECT]) != before.object_notices {
            return;
        }
        let bytes = user.as_str().len() + uri.len() + size_of_val(&*counters);
        let day = Day::of(before.at);
        let version = CacheVersion {
            at: as_of.map_or(before.at, |as_of| as_of.min(before.at)),
            counters: counters.into(),
            sum,
            ..before
        };
        self.tags.put((user.clone(), uri.to_owned()), (tag, day), version, bytes);
    }

    /// Returns the user's window and when it was read, if it is cached and valid.
    pub(crate) fn window(
        &self,
        user: &UserId,
        window: &DaySet,
    ) -> Option<(Arc<UserWindow>, DateTime<Utc>)> {
        self.current(&self.windows, user).filter(|(cached, _)| cached.window == *window)
    }

    /// Caches a user's window, with the user's version from before the read.
    pub(crate) fn put_window(&self, window: Arc<UserWindow>, before: CacheVersion) {
        let entries = window.user_stacks.stacks.iter().flat_map(|stack| &stack.entries);
        let kinds = window.types.iter().flat_map(BTreeMap::keys);
        let bytes = size_of::<UserWindow>()
            + entries.map(|entry| size_of::<Entry>() + entry.bytes()).sum::<usize>()
            + window.mutes.len() * MUTE_BYTES
            + kinds.map(|kind| CHOICE_BYTES + kind.as_str().len()).sum::<usize>();
        self.windows.put(window.user_stacks.user.clone(), window, before, bytes);
    }

    /// Returns the state of the event's object and when it was read, if it is cached and valid.
    pub(crate) fn object(&self, event: &Event) -> Option<(ObjectFacts, DateTime<Utc>)> {
        self.current(&self.objects, &(event.kind.clone(), event.object.clone()))
    }

    /// Caches the state of the event's object, with the object's version from before the read.
    pub(crate) fn put_object(&self, event: &Event, state: ObjectFacts, before: CacheVersion) {
        let bytes = size_of::<Object>() + state.object.as_deref().map_or(0, Object::bytes);
        self.objects.put((event.kind.clone(), event.object.clone()), state, before, bytes);
    }

    /// Returns the cached details of an event. The outer `None` means not cached, the inner one
    /// that the event has none. They change only when a user is erased, which invalidates
    /// everything.
    pub(crate) fn details(&self, id: Id) -> Option<Option<Arc<Details>>> {
        let (details, version) = self.details.get(&id)?;
        self.has_all_notices_since(&version).then_some(details)
    }

    /// Caches the details of an event, with any version from before the read.
    pub(crate) fn put_details(&self, id: Id, details: Option<Arc<Details>>, before: CacheVersion) {
        let bytes = size_of::<Details>() + details.as_deref().map_or(0, Details::bytes);
        self.details.put(id, details, before, bytes);
    }

    /// Returns the cached [`RecordStart`] of a user. The outer `None` means not cached, the inner
    /// one that no erased user had this id.
    pub(crate) fn start(&self, user: &UserId) -> Option<Option<RecordStart>> {
        self.current(&self.starts, user).map(|(start, _)| start)
    }

    /// Caches the start of a user, with the user's version from before the read.
    pub(crate) fn put_start(
        &self,
        user: &UserId,
        start: Option<RecordStart>,
        before: CacheVersion,
    ) {
        let bytes = size_of::<RecordStart>() + user.as_str().len();
        self.starts.put(user.clone(), start, before, bytes);
    }

    /// Subscribes to changes of this user's feed.
    pub fn subscribe(self: &Arc<Self>, user: &UserId) -> FeedSubscription {
        let key = NoticeKey::from_name(user.as_str());
        let changes = lock(&self.subscribers).entry(key).or_default().subscribe();
        let cache = Arc::clone(self);
        FeedSubscription { changes, _entry: SubscriberEntry { cache, key } }
    }
}

fn user_counter(key: NoticeKey) -> u16 {
    (key.0 as usize % HALF) as u16
}

/// Returns the index of an object's version counter, which is never [`ANY_OBJECT`].
fn object_counter(key: NoticeKey) -> u16 {
    (HALF + 1 + key.0 as usize % (HALF - 1)) as u16
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
