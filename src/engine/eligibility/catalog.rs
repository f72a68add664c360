//! Do these events still apply? One bulk look-up of objects, and of what was taken back, for many
//! events, remembered across people.
//!
//! The rule (P6): an object applies if its record is notifiable. One that nobody put a record of is
//! mailed only where its type says so (`unknown_objects`); in feeds, whose readers may know it
//! themselves, it is shown by its id, unless its type has a model. What was taken back applies to
//! nobody, and hides nothing that happened later to the same object
//! ([`crate::domain::classify`]). A mail about to leave asks with a fresh catalog, so that
//! what was withdrawn a moment ago is not in it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use foldhash::fast::RandomState;

use crate::context::Context;
use crate::domain::content::Told;
use crate::domain::retraction::reaches;
use crate::domain::{
    Details, Event, EventType, Facts, Id, Object, ObjectId, ObjectKey, ObjectState, PersonStacks,
    PokeKey, Policies, Position, Purpose, Stack, UnknownObjects, UserId, classify,
};
use crate::engine::feed::polls::GlanceOf;
use crate::engine::feed::shelf::{Looked, Shelf};
use crate::store::Result;

/// What is remembered is forgotten when it has grown to this many bytes.
const REMEMBERED: usize = 64 << 20;
/// About the bytes of what is remembered of an event besides the texts of its object and details.
const EACH: usize = 320;
/// Objects asked for in one look-up.
const AT_ONCE: usize = 1_000;

/// Which events of a stack are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StackEvents {
    /// All of them.
    All,
    /// Those that may be mailed still.
    Uncovered,
}

impl StackEvents {
    /// Returns the selected events of a user's stacks, with their positions.
    pub(super) fn events(self, person: &PersonStacks) -> Vec<(Position, &Event)> {
        let stacks = person.stacks.iter();
        match self {
            Self::All => stacks.flat_map(Stack::events).collect(),
            Self::Uncovered => stacks.flat_map(Stack::uncovered).collect(),
        }
    }
}

/// What is known of objects, by what happened to each. A run looks up each event of everybody's
/// stacks several times: the hasher is a fast one.
type ByObject = HashMap<ObjectId, Vec<(EventType, Known)>, RandomState>;

/// What was looked up of an object; each part, found or not, only where it was.
#[derive(Default)]
struct Known {
    /// Its record, notifiable or not.
    record: Option<Option<Arc<Object>>>,
    /// Up to when events were taken back.
    retracted: Option<Option<Id>>,
}

/// Where objects and retractions are looked up, and what types say of them.
#[derive(Clone)]
pub struct CatalogSource {
    /// The store, the clock and the other shared parts.
    pub context: Arc<Context>,
    /// What feeds have read lately; mails do not ask it.
    pub shelf: Option<Arc<Shelf>>,
}

impl CatalogSource {
    /// A catalog of what may be mailed.
    pub fn of_mails(&self) -> Catalog {
        let shelf = None;
        let source = Self {
            shelf,
            ..self.clone()
        };
        Catalog::of(false, source)
    }

    /// A catalog of what feeds show.
    pub fn of_feeds(&self) -> Catalog {
        Catalog::of(true, self.clone())
    }

    /// The records under these keys, in the order asked.
    pub async fn records(&self, keys: &[ObjectKey]) -> Result<Vec<Option<Object>>> {
        let mut found = Vec::with_capacity(keys.len());
        for keys in keys.chunks(AT_ONCE) {
            found.extend(self.context.store.objects(keys).await?);
        }
        Ok(found)
    }

    async fn look_up(&self, events: &[Event]) -> Result<Vec<Option<Object>>> {
        let keys = events
            .iter()
            .map(|event| self.context.policies.object_of(event));
        self.records(&keys.collect::<Vec<_>>()).await
    }

    async fn taken_back(&self, events: &[Event]) -> Result<Vec<Option<Id>>> {
        let mut found = Vec::with_capacity(events.len());
        for events in events.chunks(AT_ONCE) {
            found.extend(self.context.store.retractions(events).await?);
        }
        Ok(found)
    }
}

/// The records of objects that were looked up, found or not.
pub struct Catalog {
    /// Feeds show objects without a record by their ids, unless their type has a model.
    is_for_feeds: bool,
    source: CatalogSource,
    known: ByObject,
    /// Whether anything was taken back of what is known.
    knows_retracted: bool,
    /// What is said of events, by their fan-outs.
    details: HashMap<Id, Option<Arc<Details>>>,
    /// The names of user records that were read for actors without one.
    names: HashMap<UserId, Option<String>>,
    /// The bytes of what is remembered.
    size: usize,
    /// When the oldest of what came from the shelf was read, if anything did.
    as_of: Option<DateTime<Utc>>,
    /// What was taken back later than then does not count, if this is said.
    until: Option<DateTime<Utc>>,
}

impl Catalog {
    fn of(is_for_feeds: bool, source: CatalogSource) -> Self {
        Self {
            is_for_feeds,
            source,
            known: HashMap::default(),
            knows_retracted: false,
            details: HashMap::new(),
            names: HashMap::new(),
            size: 0,
            as_of: None,
            until: None,
        }
    }

    /// The same for a mail that left then: what was taken back since had its place in it.
    pub fn for_mail_of(mut self, at: DateTime<Utc>) -> Self {
        self.until = Some(at);
        self
    }

    /// When the oldest of what was taken from the shelf was read.
    pub fn as_of(&self) -> Option<DateTime<Utc>> {
        self.as_of
    }

    /// Looks up the objects of these events, and what was taken back of them, where that is not
    /// known yet.
    pub async fn load<'a>(&mut self, events: impl Iterator<Item = &'a Event>) -> Result<()> {
        let events: Vec<&Event> = events.collect();
        self.recall(&events);
        let (mut objects, mut retracted) = (Vec::new(), Vec::new());
        for event in events {
            if !self.knows(event, |known| known.record.is_some()) {
                self.known_mut(event).record = Some(None);
                objects.push(event.clone());
            }
            retracted.extend(self.first_asked(event));
        }
        self.size += EACH * objects.len().max(retracted.len());
        let glances = self.glances(&objects);
        let (found, taken_back) = futures::try_join!(
            self.source.look_up(&objects),
            self.source.taken_back(&retracted)
        )?;
        for (event, record) in objects.iter().zip(found) {
            self.size += record.as_ref().map_or(0, Object::bytes);
            self.known_mut(event).record = Some(record.map(Arc::new));
        }
        self.note_retracted(&retracted, taken_back);
        self.shelve(&objects, glances);
        Ok(())
    }

    /// The store and the other shared parts.
    pub(super) fn context(&self) -> &Context {
        &self.source.context
    }

    /// What is configured of types.
    pub fn policies(&self) -> &Policies {
        &self.source.context.policies
    }

    fn keys(&self, events: &[Event]) -> Vec<ObjectKey> {
        let policies = &self.source.context.policies;
        events
            .iter()
            .map(|event| policies.object_of(event))
            .collect()
    }

    /// Takes from the shelf what is not known yet.
    fn recall(&mut self, events: &[&Event]) {
        let Some(shelf) = self.source.shelf.clone() else {
            return;
        };
        let now = shelf.now();
        for event in events {
            if self.knows(event, |known| known.record.is_some()) {
                continue;
            }
            if let Some((Looked { object, retracted }, read)) = shelf.object(event, now) {
                self.as_of = self.as_of.min(Some(read)).or(Some(read));
                self.known_mut(event).record = Some(object);
                self.note_retracted(std::slice::from_ref(*event), [retracted]);
            }
        }
    }

    /// How the objects of these events stand before they are looked up.
    fn glances(&self, events: &[Event]) -> Vec<(PokeKey, Option<GlanceOf>)> {
        let Some(shelf) = &self.source.shelf else {
            return Vec::new();
        };
        let now = shelf.now();
        let glance = |key: ObjectKey| {
            let key = PokeKey::of(key.as_str());
            (key, shelf.glance_of_object(key, now))
        };
        self.keys(events).into_iter().map(glance).collect()
    }

    /// Puts on the shelf what was found of the objects of these events, which stood so before.
    fn shelve(&self, events: &[Event], glances: Vec<(PokeKey, Option<GlanceOf>)>) {
        let Some(shelf) = &self.source.shelf else {
            return;
        };
        for (event, (key, glance)) in events.iter().zip(glances) {
            let Some(glance) = glance else { continue };
            let looked = Looked {
                object: self.found(event).cloned(),
                retracted: self.retracted_at(event),
            };
            shelf.keep_object(event, key, looked, glance);
        }
    }

    /// Forgets the loaded records once they are too large. Called between chunks of users only,
    /// because a chunk relies on all facts that were loaded for it.
    pub(super) fn begin_chunk(&mut self) {
        if self.size > REMEMBERED {
            self.known.clear();
            self.knows_retracted = false;
            self.details.clear();
            self.names.clear();
            self.size = 0;
        }
    }

    /// Loads the retractions of the selected events.
    pub(super) async fn load_retractions(
        &mut self,
        people: &[PersonStacks],
        which: StackEvents,
    ) -> Result<()> {
        let mut asked = Vec::new();
        let mut ask = |event: &Event| asked.extend(self.first_asked(event));
        for stack in people.iter().flat_map(|person| &person.stacks) {
            match which {
                StackEvents::All => stack.events().for_each(|(_, event)| ask(event)),
                StackEvents::Uncovered => stack.uncovered().for_each(|(_, event)| ask(event)),
            }
        }
        self.size += EACH * asked.len();
        let taken_back = self.source.taken_back(&asked).await?;
        self.note_retracted(&asked, taken_back);
        Ok(())
    }

    /// Returns whether any loaded event was retracted.
    pub(super) fn knows_retracted(&self) -> bool {
        self.knows_retracted
    }

    fn known(&self, event: &Event) -> Option<&Known> {
        let of_object = self.known.get(&event.o)?;
        let found = of_object.iter().find(|(kind, _)| *kind == event.t);
        found.map(|(_, known)| known)
    }

    fn knows(&self, event: &Event, part: fn(&Known) -> bool) -> bool {
        self.known(event).is_some_and(part)
    }

    /// The event, if it was not looked up yet whether it was taken back; asked once.
    fn first_asked(&mut self, event: &Event) -> Option<Event> {
        if self.knows(event, |known| known.retracted.is_some()) {
            return None;
        }
        self.known_mut(event).retracted = Some(None);
        Some(event.clone())
    }

    fn known_mut(&mut self, event: &Event) -> &mut Known {
        let of_object = self.known.entry(event.o.clone()).or_default();
        let found = of_object.iter().position(|(kind, _)| *kind == event.t);
        let place = found.unwrap_or_else(|| {
            of_object.push((event.t.clone(), Known::default()));
            of_object.len() - 1
        });
        &mut of_object[place].1
    }

    fn note_retracted(&mut self, events: &[Event], at: impl IntoIterator<Item = Option<Id>>) {
        for (event, at) in events.iter().zip(at) {
            self.known_mut(event).retracted = Some(at);
            self.knows_retracted |= at.is_some();
        }
    }

    /// Whether the event was taken back, as far as that was looked up.
    pub fn is_retracted(&self, event: &Event) -> bool {
        self.retracted_at(event)
            .is_some_and(|at| reaches(at, event))
    }

    /// Whether that was so at this moment.
    pub fn was_retracted(&self, event: &Event, at: DateTime<Utc>) -> bool {
        let by_then = |retracted: &Id| retracted.time() <= at;
        let retracted = self.retracted_at(event).filter(by_then);
        retracted.is_some_and(|retracted| reaches(retracted, event))
    }

    fn retracted_at(&self, event: &Event) -> Option<Id> {
        if !self.knows_retracted {
            return None;
        }
        let at = self.known(event)?.retracted?;
        at.filter(|at: &Id| self.until.is_none_or(|until| at.time() <= until))
    }

    fn shows_unknown(&self, kind: &EventType) -> bool {
        let policy = self.source.context.policies.of(kind);
        policy.unknown_objects == UnknownObjects::Mail
            || (self.is_for_feeds && policy.model.is_none())
    }

    /// Looks up what is said of these events that is not known yet.
    pub async fn load_details<'a>(
        &mut self,
        events: impl Iterator<Item = &'a Event>,
    ) -> Result<()> {
        let shelf = self.source.shelf.as_ref();
        let (mut asked, mut loaded) = (Vec::<Id>::new(), Vec::new());
        for id in events.filter_map(|event| event.i).collect::<HashSet<_>>() {
            if self.details.contains_key(&id) {
                continue;
            }
            loaded.push(id);
            match shelf.and_then(|shelf| shelf.details(id)) {
                Some(details) => drop(self.details.insert(id, details)),
                None => asked.push(id),
            }
        }
        self.size += EACH * asked.len();
        let read = shelf.and_then(|shelf| shelf.invalidations());
        for ids in asked.chunks(AT_ONCE) {
            let found = self.source.context.store.details(ids).await?;
            for (id, details) in ids.iter().zip(found) {
                self.size += details.as_ref().map_or(0, Details::bytes);
                let details = details.map(Arc::new);
                if let (Some(shelf), Some(read)) = (shelf, read) {
                    shelf.keep_details(*id, details.clone(), read);
                }
                self.details.insert(*id, details);
            }
        }
        self.name_actors(loaded).await
    }

    /// Names the actors of these fan-outs that are only an id, as their user records do. All
    /// records that are missing here are read at once.
    async fn name_actors(&mut self, fanouts: Vec<Id>) -> Result<()> {
        let nameless = fanouts.into_iter().filter_map(|fanout| {
            let details = self.details.get(&fanout)?.as_ref()?;
            let actor = details.actor.as_ref()?;
            actor.name.is_none().then(|| (fanout, actor.id.clone()))
        });
        let nameless: Vec<(Id, UserId)> = nameless.collect();
        let actors = nameless.iter().map(|(_, actor)| actor.clone());
        let mut unread: Vec<UserId> = actors.filter(|id| !self.names.contains_key(id)).collect();
        unread.sort_unstable();
        unread.dedup();
        for ids in unread.chunks(AT_ONCE) {
            let users = self.source.context.store.users(ids).await?;
            let names = users.into_iter().map(|user| user?.name);
            let names = names.map(|name| name.filter(|name| !name.trim().is_empty()));
            self.names.extend(ids.iter().cloned().zip(names));
        }
        for (fanout, actor) in nameless {
            if let Some(Some(name)) = self.names.get(&actor)
                && let Some(Some(details)) = self.details.get_mut(&fanout)
                && let Some(actor) = &mut Arc::make_mut(details).actor
            {
                actor.name = Some(name.clone());
            }
        }
        Ok(())
    }

    /// What is said of the event; nothing where that was not looked up.
    pub fn details(&self, event: &Event) -> Option<Arc<Details>> {
        self.details.get(&event.i?)?.clone()
    }

    /// The event's object with what is said of the event, if it still applies.
    pub fn told(&self, event: &Event) -> Option<Told> {
        let (object, details) = (self.applies(event)?, self.details(event));
        Some(Told { object, details })
    }

    /// Under which key the event's object has its record.
    pub fn key(&self, event: &Event) -> ObjectKey {
        self.source.context.policies.object_of(event)
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
        let object = self.record(event)?;
        let facts = Facts {
            retracted: self.is_retracted(event),
            object: ObjectState::of(&object),
            ..Facts::default()
        };
        let (at, policies) = (|| DateTime::UNIX_EPOCH, self.policies());
        let excluded = classify(&event.t, at, facts, None, policies, Purpose::Email);
        excluded.is_none().then_some(object)
    }

    /// The object as a mail may have told it before the event was taken back.
    pub fn mailable(&self, event: &Event) -> Option<Arc<Object>> {
        self.recorded(event).filter(|object| object.notifiable)
    }

    /// The object as a mail may have told it before it was withdrawn, too.
    pub fn recorded(&self, event: &Event) -> Option<Arc<Object>> {
        let policy = self.source.context.policies.of(&event.t);
        let found = self.known(event)?.record.clone()?;
        let is_told = policy.unknown_objects == UnknownObjects::Mail;
        found.or_else(|| is_told.then(|| self.bare(event)))
    }

    /// What is known of the event's object, withdrawn or not; the event must have been loaded. Of
    /// one that nobody put a record of its id is known, where unknown objects are shown.
    pub fn record(&self, event: &Event) -> Option<Arc<Object>> {
        let found = self.known(event)?.record.clone()?;
        found.or_else(|| self.shows_unknown(&event.t).then(|| self.bare(event)))
    }

    fn found(&self, event: &Event) -> Option<&Arc<Object>> {
        self.known(event)?.record.as_ref()?.as_ref()
    }

    fn bare(&self, event: &Event) -> Arc<Object> {
        Arc::new(Object::bare(self.key(event)))
    }
}
