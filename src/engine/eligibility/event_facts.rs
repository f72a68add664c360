//! Loads the objects, retractions and details of events in bulk, and caches them across users.
//!
//! An event applies if its object is notifiable and it was not retracted
//! ([`crate::domain::classify`], P6). Emails include unknown objects only of types whose
//! `unknown_objects` permits it. Feeds show them by id, unless their type has a model. Retractions
//! do not affect later events. The check before sending uses a fresh catalog.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use foldhash::fast::RandomState;

use crate::context::Context;
use crate::domain::day_stack::retracts;
use crate::domain::email_content::EventData;
use crate::domain::{
    Details, Event, EventType, Facts, Id, Object, ObjectId, ObjectKey, ObjectState, Policies,
    Position, Purpose, Stack, UnknownObjects, UserId, UserStacks, classify, distinct,
};
use crate::engine::feed::cache::{FeedCache, ObjectFacts};
use crate::store::Result;

/// The loaded records are dropped between chunks if they exceed this many bytes.
const REMEMBERED: usize = 64 << 20;
/// The estimated bytes of the facts about an event, besides the texts of its object and details.
const EACH: usize = 320;
/// The most objects, retractions or details in one read.
const AT_ONCE: usize = 1_000;

/// Selects events of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StackEvents {
    /// All events.
    All,
    /// The events that no marker covers. They may still be emailed.
    Uncovered,
}

impl StackEvents {
    /// Returns the selected events of a user's stacks, with their positions.
    pub(super) fn events(self, person: &UserStacks) -> impl Iterator<Item = (Position, &Event)> {
        let (all, uncovered) = match self {
            Self::All => (person.stacks.as_slice(), [].as_slice()),
            Self::Uncovered => ([].as_slice(), person.stacks.as_slice()),
        };
        let uncovered = uncovered.iter().flat_map(Stack::uncovered);
        all.iter().flat_map(Stack::events).chain(uncovered)
    }
}

/// The loaded facts, by event type and object. Uses a fast hasher, because a run looks up each
/// event several times.
type ByEvent = HashMap<EventType, HashMap<ObjectId, Known, RandomState>, RandomState>;

/// The loaded facts about an object. An outer `None` means that a fact was not loaded.
#[derive(Default)]
struct Known {
    /// The object, notifiable or not; the inner `None` if it is unknown.
    record: Option<Option<Arc<Object>>>,
    /// The latest retraction, which covers the events up to it.
    retracted: Option<Option<Id>>,
}

/// The loaded facts about events.
pub struct Catalog {
    context: Arc<Context>,
    /// The feed cache, if the catalog is for feeds. They show unknown objects by their ids, unless
    /// their type has a model.
    cache: Option<Arc<FeedCache>>,
    known: ByEvent,
    /// Whether any retraction was loaded.
    knows_retracted: bool,
    /// The details of events, by event id.
    details: HashMap<Id, Option<Arc<Details>>>,
    /// The estimated bytes of all loaded facts.
    size: usize,
    /// When the oldest fact from the feed cache was read, if there is one.
    as_of: Option<DateTime<Utc>>,
    /// Retractions after this time are ignored.
    until: Option<DateTime<Utc>>,
}

impl Catalog {
    /// Creates a catalog for emails, which always reads the store.
    pub fn of_emails(context: &Arc<Context>) -> Self {
        Self {
            context: context.clone(),
            cache: None,
            known: HashMap::default(),
            knows_retracted: false,
            details: HashMap::new(),
            size: 0,
            as_of: None,
            until: None,
        }
    }

    /// Creates a catalog for feeds.
    pub fn of_feeds(context: &Arc<Context>, cache: &Arc<FeedCache>) -> Self {
        Self { cache: Some(cache.clone()), ..Self::of_emails(context) }
    }

    /// Returns the objects with these keys, in the same order.
    pub async fn records(&self, keys: &[ObjectKey]) -> Result<Vec<Option<Object>>> {
        let mut found = Vec::with_capacity(keys.len());
        for keys in keys.chunks(AT_ONCE) {
            found.extend(self.context.store.objects(keys).await?);
        }
        Ok(found)
    }

    async fn retractions(&self, events: &[Event]) -> Result<Vec<Option<Id>>> {
        let mut found = Vec::with_capacity(events.len());
        for events in events.chunks(AT_ONCE) {
            found.extend(self.context.store.retractions(events).await?);
        }
        Ok(found)
    }

    /// Ignores retractions after `at`. An email that was built then included these events.
    pub fn for_email_of(mut self, at: DateTime<Utc>) -> Self {
        self.until = Some(at);
        self
    }

    /// Returns when the oldest fact from the feed cache was read, if there is one.
    pub fn as_of(&self) -> Option<DateTime<Utc>> {
        self.as_of
    }

    /// Loads the objects and retractions of these events that are not loaded yet.
    pub async fn load<'a>(&mut self, events: impl Iterator<Item = &'a Event>) -> Result<()> {
        let (mut objects, mut versions, mut retracted) = (Vec::new(), Vec::new(), Vec::new());
        for event in events {
            if !self.knows(event, |known| known.record.is_some()) && !self.load_cached(event) {
                self.known_mut(event).record = Some(None);
                // Must be known before the object is read.
                let cache = self.cache.as_ref();
                versions.push(cache.and_then(|cache| cache.version_of_object(&self.key(event))));
                objects.push(event.clone());
            }
            retracted.extend(self.first_request(event));
        }
        self.size += EACH * objects.len().max(retracted.len());
        let keys: Vec<ObjectKey> = objects.iter().map(|event| self.key(event)).collect();
        let (found, retracted_at) =
            futures::try_join!(self.records(&keys), self.retractions(&retracted))?;
        for (event, record) in objects.iter().zip(found) {
            self.size += record.as_ref().map_or(0, Object::bytes);
            self.known_mut(event).record = Some(record.map(Arc::new));
        }
        self.note_retracted(&retracted, retracted_at);
        for (event, version) in objects.iter().zip(versions) {
            if let (Some(cache), Some(version)) = (&self.cache, version) {
                let facts = ObjectFacts {
                    object: self.known(event).and_then(|known| known.record.clone()?),
                    retracted: self.retracted_at(event),
                };
                cache.put_object(event, facts, version);
            }
        }
        Ok(())
    }

    /// Loads the facts about the event's object from the feed cache. Returns whether it has them.
    fn load_cached(&mut self, event: &Event) -> bool {
        let cached = self.cache.as_ref().and_then(|cache| cache.object(event));
        let Some((ObjectFacts { object, retracted }, read)) = cached else {
            return false;
        };
        self.as_of = self.as_of.min(Some(read)).or(Some(read));
        self.known_mut(event).record = Some(object);
        self.note_retracted(std::slice::from_ref(event), [retracted]);
        true
    }

    /// Returns the store, the clock and the policies.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the configured policies.
    pub fn policies(&self) -> &Policies {
        &self.context.policies
    }

    /// Forgets the loaded records once they are too large. Called between chunks of users only,
    /// because a chunk relies on all facts that were loaded for it.
    pub(super) fn begin_chunk(&mut self) {
        if self.size > REMEMBERED {
            self.known.clear();
            self.knows_retracted = false;
            self.details.clear();
            self.size = 0;
        }
    }

    /// Loads the retractions of the selected events.
    pub(super) async fn load_retractions(
        &mut self,
        people: &[UserStacks],
        which: StackEvents,
    ) -> Result<()> {
        let events = people.iter().flat_map(|person| which.events(person));
        let new = events.filter_map(|(_, event)| self.first_request(event));
        let new: Vec<Event> = new.collect();
        self.size += EACH * new.len();
        let at = self.retractions(&new).await?;
        self.note_retracted(&new, at);
        Ok(())
    }

    /// Returns whether any loaded event was retracted.
    pub(super) fn knows_retracted(&self) -> bool {
        self.knows_retracted
    }

    fn known(&self, event: &Event) -> Option<&Known> {
        self.known.get(&event.t)?.get(&event.o)
    }

    fn knows(&self, event: &Event, part: fn(&Known) -> bool) -> bool {
        self.known(event).is_some_and(part)
    }

    /// Returns the event if its retraction was not loaded or requested yet, and records the
    /// request.
    fn first_request(&mut self, event: &Event) -> Option<Event> {
        if self.knows(event, |known| known.retracted.is_some()) {
            return None;
        }
        self.known_mut(event).retracted = Some(None);
        Some(event.clone())
    }

    fn known_mut(&mut self, event: &Event) -> &mut Known {
        let of_type = self.known.entry(event.t.clone()).or_default();
        of_type.entry(event.o.clone()).or_default()
    }

    fn note_retracted(&mut self, events: &[Event], at: impl IntoIterator<Item = Option<Id>>) {
        for (event, at) in events.iter().zip(at) {
            self.known_mut(event).retracted = Some(at);
            self.knows_retracted |= at.is_some();
        }
    }

    /// Returns whether the event was retracted. False if its retraction was not loaded.
    pub fn is_retracted(&self, event: &Event) -> bool {
        self.retracted_at(event).is_some_and(|at| retracts(at, event))
    }

    /// Returns whether the event had been retracted by `at`.
    pub fn was_retracted(&self, event: &Event, at: DateTime<Utc>) -> bool {
        let by_then = |retracted: &Id| retracted.time() <= at;
        let retracted = self.retracted_at(event).filter(by_then);
        retracted.is_some_and(|retracted| retracts(retracted, event))
    }

    fn retracted_at(&self, event: &Event) -> Option<Id> {
        if !self.knows_retracted {
            return None;
        }
        let at = self.known(event)?.retracted?;
        at.filter(|at: &Id| self.until.is_none_or(|until| at.time() <= until))
    }

    fn shows_unknown(&self, kind: &EventType) -> bool {
        let policy = self.context.policies.of(kind);
        policy.unknown_objects == UnknownObjects::Mail
            || (self.cache.is_some() && policy.model.is_none())
    }

    /// Loads the details of these events that are not loaded yet, with the names of their actors.
    pub async fn load_details<'a>(
        &mut self,
        events: impl Iterator<Item = &'a Event>,
    ) -> Result<()> {
        let cache = self.cache.as_ref();
        let (mut unread, mut loaded) = (Vec::<Id>::new(), Vec::new());
        for id in events.filter_map(|event| event.i).collect::<HashSet<_>>() {
            if self.details.contains_key(&id) {
                continue;
            }
            loaded.push(id);
            match cache.and_then(|cache| cache.details(id)) {
                Some(details) => drop(self.details.insert(id, details)),
                None => unread.push(id),
            }
        }
        self.size += EACH * unread.len();
        let version = cache.and_then(|cache| cache.version_of_details());
        for ids in unread.chunks(AT_ONCE) {
            let found = self.context.store.details(ids).await?;
            for (id, details) in ids.iter().zip(found) {
                self.size += details.as_ref().map_or(0, Details::bytes);
                let details = details.map(Arc::new);
                if let (Some(cache), Some(version)) = (cache, &version) {
                    cache.put_details(*id, details.clone(), version.clone());
                }
                self.details.insert(*id, details);
            }
        }
        self.name_actors(loaded).await
    }

    /// Adds missing names of actors from their user records, which are read in bulk.
    async fn name_actors(&mut self, fanouts: Vec<Id>) -> Result<()> {
        let nameless = fanouts.into_iter().filter_map(|fanout| {
            let details = self.details.get(&fanout)?.as_ref()?;
            let actor = details.actor.as_ref()?;
            actor.name.is_none().then(|| (fanout, actor.id.clone()))
        });
        let nameless: Vec<(Id, UserId)> = nameless.collect();
        let actors = distinct(nameless.iter().map(|(_, actor)| actor.clone()));
        let mut names: HashMap<UserId, String> = HashMap::new();
        for ids in actors.chunks(AT_ONCE) {
            let users = self.context.store.users(ids).await?.into_iter().flatten();
            names.extend(users.filter_map(|user| Some((user.id, user.name?))));
        }
        names.retain(|_, name| !name.trim().is_empty());
        for (fanout, actor) in nameless {
            if let Some(name) = names.get(&actor)
                && let Some(Some(details)) = self.details.get_mut(&fanout)
                && let Some(actor) = &mut Arc::make_mut(details).actor
            {
                actor.name = Some(name.clone());
            }
        }
        Ok(())
    }

    /// Returns the details of the event; `None` if it has none or they were not loaded.
    pub fn details(&self, event: &Event) -> Option<Arc<Details>> {
        self.details.get(&event.i?)?.clone()
    }

    /// Returns the event's object and details if the event still applies.
    pub fn event_data(&self, event: &Event) -> Option<EventData> {
        let (object, details) = (self.applies(event)?, self.details(event));
        Some(EventData { object, details })
    }

    /// Returns the key of the event's object.
    pub fn key(&self, event: &Event) -> ObjectKey {
        self.context.policies.object_of(event)
    }

    /// Returns the loaded facts about the event and its object.
    pub fn facts(&self, event: &Event) -> Facts {
        let is_loaded = self.knows(event, |known| known.record.is_some());
        Facts {
            retracted: self.is_retracted(event),
            object: match self.record(event) {
                Some(object) => ObjectState::of(&object),
                None if is_loaded => ObjectState::Unknown,
                None => ObjectState::NotLoaded,
            },
            ..Facts::default()
        }
    }

    /// Returns the event's object if the event may be included for a user who gets its type. The
    /// event must have been loaded.
    pub fn applies(&self, event: &Event) -> Option<Arc<Object>> {
        let (object, at) = (self.record(event)?, || DateTime::UNIX_EPOCH);
        let (facts, policies) = (self.facts(event), self.policies());
        let excluded = classify(&event.t, at, facts, None, policies, Purpose::Email);
        excluded.is_none().then_some(object)
    }

    /// Returns the object if an email may include it, ignoring retractions.
    pub fn mailable(&self, event: &Event) -> Option<Arc<Object>> {
        self.recorded(event).filter(|object| object.notifiable)
    }

    /// Returns the object if an email may have included it before it was withdrawn, ignoring
    /// retractions.
    pub fn recorded(&self, event: &Event) -> Option<Arc<Object>> {
        let policy = self.context.policies.of(&event.t);
        let found = self.known(event)?.record.clone()?;
        let is_emailed = policy.unknown_objects == UnknownObjects::Mail;
        found.or_else(|| is_emailed.then(|| self.bare(event)))
    }

    /// Returns the event's object, notifiable or not. The event must have been loaded. An unknown
    /// object has only its id, and is `None` where such objects are not shown.
    pub fn record(&self, event: &Event) -> Option<Arc<Object>> {
        let found = self.known(event)?.record.clone()?;
        found.or_else(|| self.shows_unknown(&event.t).then(|| self.bare(event)))
    }

    fn bare(&self, event: &Event) -> Arc<Object> {
        Arc::new(Object::bare(self.key(event)))
    }
}
