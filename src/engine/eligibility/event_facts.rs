//! Loads the objects, retractions and details of events in bulk, and caches them across users.
//!
//! An event applies if its object is notifiable and it was not retracted
//! ([`crate::domain::classify`], P6). Emails include unknown objects only of types whose
//! `unknown_objects` permits it. Feeds show them by id, unless their type has a model. Retractions
//! do not affect later events. The check before sending loads fresh facts.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use foldhash::fast::RandomState;

use crate::context::Context;
use crate::domain::day_stack::retraction_covers;
use crate::domain::email_sections::DisplayData;
use crate::domain::{
    Details, EligibilityFacts, Event, EventType, Exclusion, Id, Object, ObjectId, ObjectKey,
    ObjectState, Policies, Position, Purpose, Stack, UnknownObjects, UserId, UserStacks, classify,
    distinct,
};
use crate::engine::feed::cache::{CacheVersion, FeedCache, ObjectFacts};
use crate::store::Result;

/// The loaded facts are dropped between chunks if they exceed this many bytes.
const MAX_LOADED_BYTES: usize = 64 << 20;
/// The estimated bytes of the facts about an event, besides the texts of its object and details.
const BYTES_PER_EVENT: usize = 320;
/// The most objects, retractions or details in one read.
const RECORDS_PER_READ: usize = 1_000;

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
    pub(super) fn events(
        self,
        user_stacks: &UserStacks,
    ) -> impl Iterator<Item = (Position, &Event)> {
        let stacks = user_stacks.stacks.as_slice();
        let (all, uncovered) = match self {
            Self::All => (stacks, [].as_slice()),
            Self::Uncovered => ([].as_slice(), stacks),
        };
        all.iter().flat_map(Stack::events).chain(uncovered.iter().flat_map(Stack::uncovered))
    }
}

/// The loaded facts, by event type and object. Uses a fast hasher, because a run looks up each
/// event several times.
type FactsByEvent = HashMap<EventType, HashMap<ObjectId, LoadedFacts, RandomState>, RandomState>;

/// The loaded facts about an object. An outer `None` means that a fact was not loaded.
#[derive(Default)]
struct LoadedFacts {
    /// The object, notifiable or not; the inner `None` if it is unknown.
    object: Option<Option<Arc<Object>>>,
    /// The latest retraction, which covers the events up to it.
    retracted: Option<Option<Id>>,
}

/// The loaded facts about events.
pub struct EventFacts {
    context: Arc<Context>,
    /// The feed cache, if the facts are for feeds. They show unknown objects by their ids, unless
    /// their type has a model.
    cache: Option<Arc<FeedCache>>,
    facts: FactsByEvent,
    /// Whether any loaded event was retracted.
    has_retractions: bool,
    /// The details of events, by event id.
    details: HashMap<Id, Option<Arc<Details>>>,
    /// The estimated bytes of all loaded facts.
    bytes: usize,
    /// When the oldest fact from the feed cache was read, if there is one.
    as_of: Option<DateTime<Utc>>,
    /// Retractions after this time are ignored.
    retractions_until: Option<DateTime<Utc>>,
}

impl EventFacts {
    /// Creates empty facts for emails. They are always loaded from the store.
    pub fn for_emails(context: &Arc<Context>) -> Self {
        Self {
            context: context.clone(),
            cache: None,
            facts: HashMap::default(),
            has_retractions: false,
            details: HashMap::new(),
            bytes: 0,
            as_of: None,
            retractions_until: None,
        }
    }

    /// Creates empty facts for feeds.
    pub fn for_feeds(context: &Arc<Context>, cache: &Arc<FeedCache>) -> Self {
        Self { cache: Some(cache.clone()), ..Self::for_emails(context) }
    }

    /// Returns the objects with these keys, in the same order.
    pub async fn read_objects(&self, keys: &[ObjectKey]) -> Result<Vec<Option<Object>>> {
        let mut objects = Vec::with_capacity(keys.len());
        for keys in keys.chunks(RECORDS_PER_READ) {
            objects.extend(self.context.store.objects(keys).await?);
        }
        Ok(objects)
    }

    async fn retractions(&self, events: &[Event]) -> Result<Vec<Option<Id>>> {
        let mut retractions = Vec::with_capacity(events.len());
        for events in events.chunks(RECORDS_PER_READ) {
            retractions.extend(self.context.store.retractions(events).await?);
        }
        Ok(retractions)
    }

    /// Ignores retractions after `at`. An email that was built then included these events.
    pub fn ignoring_retractions_after(mut self, at: DateTime<Utc>) -> Self {
        self.retractions_until = Some(at);
        self
    }

    /// Returns when the oldest fact from the feed cache was read, if there is one.
    pub fn as_of(&self) -> Option<DateTime<Utc>> {
        self.as_of
    }

    /// Loads the objects and retractions of these events that are not loaded yet.
    pub async fn load_objects_and_retractions<'a>(
        &mut self,
        events: impl Iterator<Item = &'a Event>,
    ) -> Result<()> {
        let mut missing_objects: Vec<(Event, Option<CacheVersion>)> = Vec::new();
        let mut missing_retractions = Vec::new();
        for event in events {
            if !self.has(event, |facts| facts.object.is_some()) && !self.load_cached(event) {
                self.facts_mut(event).object = Some(None);
                // Taken before the object is read.
                let cache = self.cache.as_ref();
                let version =
                    cache.and_then(|cache| cache.version_of_object(&self.object_key(event)));
                missing_objects.push((event.clone(), version));
            }
            missing_retractions.extend(self.first_request(event));
        }
        self.bytes += BYTES_PER_EVENT * missing_objects.len().max(missing_retractions.len());
        let keys: Vec<ObjectKey> =
            missing_objects.iter().map(|(event, _)| self.object_key(event)).collect();
        let (objects, retractions) =
            futures::try_join!(self.read_objects(&keys), self.retractions(&missing_retractions))?;
        for ((event, _), object) in missing_objects.iter().zip(objects) {
            self.bytes += object.as_ref().map_or(0, Object::bytes);
            self.facts_mut(event).object = Some(object.map(Arc::new));
        }
        self.add_retractions(&missing_retractions, retractions);
        for (event, version) in missing_objects {
            if let (Some(cache), Some(version)) = (&self.cache, version) {
                let facts = ObjectFacts {
                    object: self.loaded(&event).and_then(|facts| facts.object.clone()?),
                    retracted: self.retracted_at(&event),
                };
                cache.put_object(&event, facts, version);
            }
        }
        Ok(())
    }

    /// Loads the facts about the event's object from the feed cache. Returns whether it has them.
    fn load_cached(&mut self, event: &Event) -> bool {
        let cached = self.cache.as_ref().and_then(|cache| cache.object(event));
        let Some((ObjectFacts { object, retracted }, read_at)) = cached else {
            return false;
        };
        self.as_of = self.as_of.min(Some(read_at)).or(Some(read_at));
        self.facts_mut(event).object = Some(object);
        self.add_retractions(std::slice::from_ref(event), [retracted]);
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

    /// Forgets the loaded facts once they are too large. Called between chunks of users only,
    /// because a chunk relies on all facts that were loaded for it.
    pub(super) fn begin_chunk(&mut self) {
        if self.bytes > MAX_LOADED_BYTES {
            self.facts.clear();
            self.has_retractions = false;
            self.details.clear();
            self.bytes = 0;
        }
    }

    /// Loads the retractions of the selected events.
    pub(super) async fn load_retractions(
        &mut self,
        stacks: &[UserStacks],
        selection: StackEvents,
    ) -> Result<()> {
        let events = stacks.iter().flat_map(|user_stacks| selection.events(user_stacks));
        let missing: Vec<Event> =
            events.filter_map(|(_, event)| self.first_request(event)).collect();
        self.bytes += BYTES_PER_EVENT * missing.len();
        let retractions = self.retractions(&missing).await?;
        self.add_retractions(&missing, retractions);
        Ok(())
    }

    /// Returns whether any loaded event was retracted.
    pub(super) fn has_retractions(&self) -> bool {
        self.has_retractions
    }

    fn loaded(&self, event: &Event) -> Option<&LoadedFacts> {
        self.facts.get(&event.kind)?.get(&event.object)
    }

    fn has(&self, event: &Event, fact: fn(&LoadedFacts) -> bool) -> bool {
        self.loaded(event).is_some_and(fact)
    }

    /// Returns the event if its retraction was not loaded or requested yet, and records the
    /// request.
    fn first_request(&mut self, event: &Event) -> Option<Event> {
        if self.has(event, |facts| facts.retracted.is_some()) {
            return None;
        }
        self.facts_mut(event).retracted = Some(None);
        Some(event.clone())
    }

    fn facts_mut(&mut self, event: &Event) -> &mut LoadedFacts {
        let facts_of_type = self.facts.entry(event.kind.clone()).or_default();
        facts_of_type.entry(event.object.clone()).or_default()
    }

    fn add_retractions(&mut self, events: &[Event], at: impl IntoIterator<Item = Option<Id>>) {
        for (event, at) in events.iter().zip(at) {
            self.facts_mut(event).retracted = Some(at);
            self.has_retractions |= at.is_some();
        }
    }

    /// Returns whether the event was retracted. False if its retraction was not loaded.
    pub fn is_retracted(&self, event: &Event) -> bool {
        self.retracted_at(event).is_some_and(|at| retraction_covers(at, event))
    }

    /// Returns whether the event had been retracted by `at`.
    pub fn was_retracted_by(&self, event: &Event, at: DateTime<Utc>) -> bool {
        let retracted = self.retracted_at(event).filter(|retracted| retracted.time() <= at);
        retracted.is_some_and(|retracted| retraction_covers(retracted, event))
    }

    fn retracted_at(&self, event: &Event) -> Option<Id> {
        if !self.has_retractions {
            return None;
        }
        let retracted = self.loaded(event)?.retracted?;
        retracted.filter(|at| self.retractions_until.is_none_or(|until| at.time() <= until))
    }

    fn shows_unknown(&self, kind: &EventType) -> bool {
        let policy = self.context.policies.policy(kind);
        policy.unknown_objects == UnknownObjects::Mail
            || (self.cache.is_some() && policy.model.is_none())
    }

    /// Loads the details of these events that are not loaded yet, with the names of their actors.
    pub async fn load_details<'a>(
        &mut self,
        events: impl Iterator<Item = &'a Event>,
    ) -> Result<()> {
        let cache = self.cache.as_ref();
        let (mut missing, mut added) = (Vec::<Id>::new(), Vec::new());
        for id in events.filter_map(|event| event.fanout_id).collect::<HashSet<_>>() {
            if self.details.contains_key(&id) {
                continue;
            }
            added.push(id);
            match cache.and_then(|cache| cache.details(id)) {
                Some(details) => drop(self.details.insert(id, details)),
                None => missing.push(id),
            }
        }
        self.bytes += BYTES_PER_EVENT * missing.len();
        let version = cache.and_then(|cache| cache.version_of_details());
        for ids in missing.chunks(RECORDS_PER_READ) {
            let found = self.context.store.details(ids).await?;
            for (id, details) in ids.iter().zip(found) {
                self.bytes += details.as_ref().map_or(0, Details::bytes);
                let details = details.map(Arc::new);
                if let (Some(cache), Some(version)) = (cache, &version) {
                    cache.put_details(*id, details.clone(), version.clone());
                }
                self.details.insert(*id, details);
            }
        }
        self.name_actors(added).await
    }

    /// Adds missing names of actors from their user records, which are read in bulk.
    async fn name_actors(&mut self, events: Vec<Id>) -> Result<()> {
        let actor_without_name = |event: Id| {
            let actor = self.details.get(&event)?.as_ref()?.actor.as_ref()?;
            actor.name.is_none().then(|| (event, actor.id.clone()))
        };
        let nameless: Vec<(Id, UserId)> =
            events.into_iter().filter_map(actor_without_name).collect();
        let actors = distinct(nameless.iter().map(|(_, actor)| actor.clone()));
        let mut names: HashMap<UserId, String> = HashMap::new();
        for ids in actors.chunks(RECORDS_PER_READ) {
            let users = self.context.store.users(ids).await?.into_iter().flatten();
            names.extend(users.filter_map(|user| Some((user.id, user.name?))));
        }
        names.retain(|_, name| !name.trim().is_empty());
        for (event, actor) in nameless {
            if let Some(name) = names.get(&actor)
                && let Some(Some(details)) = self.details.get_mut(&event)
                && let Some(actor) = &mut Arc::make_mut(details).actor
            {
                actor.name = Some(name.clone());
            }
        }
        Ok(())
    }

    /// Returns the details of the event; `None` if it has none or they were not loaded.
    pub fn details(&self, event: &Event) -> Option<Arc<Details>> {
        self.details.get(&event.fanout_id?)?.clone()
    }

    /// Returns the event's object and details if the event still applies.
    pub fn event_data(&self, event: &Event) -> Option<DisplayData> {
        let (object, details) = (self.applicable_object(event)?, self.details(event));
        Some(DisplayData { object, details })
    }

    /// Returns the key of the event's object.
    pub fn object_key(&self, event: &Event) -> ObjectKey {
        self.context.policies.object_key(event)
    }

    /// Returns the loaded facts about the event and its object.
    pub fn facts(&self, event: &Event) -> EligibilityFacts {
        let is_loaded = self.has(event, |facts| facts.object.is_some());
        EligibilityFacts {
            retracted: self.is_retracted(event),
            object: match self.object(event) {
                Some(object) => ObjectState::from_object(&object),
                None if is_loaded => ObjectState::Unknown,
                None => ObjectState::NotLoaded,
            },
            ..EligibilityFacts::default()
        }
    }

    /// Returns why these facts exclude the event. The route by which a user gets its type is not
    /// considered, so the time of the event does not matter.
    pub(super) fn exclusion(
        &self,
        event: &Event,
        facts: EligibilityFacts,
        purpose: Purpose,
    ) -> Option<Exclusion> {
        // The event's time matters only for the choices of a user.
        let at = || DateTime::UNIX_EPOCH;
        classify(&event.kind, at, facts, None, self.policies(), purpose)
    }

    /// Returns whether feeds may show the event. Its object is not considered: items of withdrawn
    /// objects come back if these become notifiable again.
    pub fn is_in_feed(&self, event: &Event) -> bool {
        let facts =
            EligibilityFacts { retracted: self.is_retracted(event), ..EligibilityFacts::default() };
        self.exclusion(event, facts, Purpose::Feed).is_none()
    }

    /// Returns the event's object if the event may be included for a user who gets its type. The
    /// event must have been loaded.
    pub fn applicable_object(&self, event: &Event) -> Option<Arc<Object>> {
        let object = self.object(event)?;
        let excluded = self.exclusion(event, self.facts(event), Purpose::Email);
        excluded.is_none().then_some(object)
    }

    /// Returns the object if an email may include it, ignoring retractions.
    pub fn notifiable_object(&self, event: &Event) -> Option<Arc<Object>> {
        self.object_or_withdrawn(event).filter(|object| object.notifiable)
    }

    /// Returns the object if an email may have included it before it was withdrawn, ignoring
    /// retractions.
    pub fn object_or_withdrawn(&self, event: &Event) -> Option<Arc<Object>> {
        let policy = self.context.policies.policy(&event.kind);
        let object = self.loaded(event)?.object.clone()?;
        let is_emailed = policy.unknown_objects == UnknownObjects::Mail;
        object.or_else(|| is_emailed.then(|| self.bare(event)))
    }

    /// Returns the event's object, notifiable or not. The event must have been loaded. An unknown
    /// object has only its id, and is `None` where such objects are not shown.
    pub fn object(&self, event: &Event) -> Option<Arc<Object>> {
        let object = self.loaded(event)?.object.clone()?;
        object.or_else(|| self.shows_unknown(&event.kind).then(|| self.bare(event)))
    }

    fn bare(&self, event: &Event) -> Arc<Object> {
        Arc::new(Object::without_data(self.object_key(event)))
    }
}
