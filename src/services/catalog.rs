//! Do these objects still apply? One bulk look-up for many events, remembered across people.
//!
//! The rule (P6): an object applies if its record is notifiable. One that nobody put a record of is
//! mailed only where its type says so (`unknown_objects`); in feeds, whose readers may know it
//! themselves, it is shown by its id, unless its type has a model. A mail about to leave asks with
//! a fresh catalog, so that what was withdrawn a moment ago is not in it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::domain::content::Told;
use crate::domain::{
    Details, Event, EventType, Id, Object, ObjectId, ObjectKey, Policies, UnknownObjects,
};
use crate::store::{Journal, Objects, Result};

/// What is remembered is forgotten when it has grown to this many objects.
const REMEMBERED: usize = 200_000;
/// Objects asked for in one look-up.
const AT_ONCE: usize = 1_000;

/// For whom objects are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Mail,
    Feed,
}

/// The records of objects that were looked up, found or not.
pub struct Catalog {
    purpose: Purpose,
    objects: Arc<dyn Objects>,
    policies: Arc<Policies>,
    /// Records as they were found, notifiable or not.
    known: HashMap<EventType, HashMap<ObjectId, Option<Arc<Object>>>>,
    /// What is said of events, by their fan-outs.
    details: HashMap<Id, Option<Arc<Details>>>,
    size: usize,
}

impl Catalog {
    /// A catalog of what may be mailed.
    pub fn new(objects: Arc<dyn Objects>, policies: Arc<Policies>) -> Self {
        Self::of(Purpose::Mail, objects, policies)
    }

    /// A catalog of what feeds show.
    pub fn of_feeds(objects: Arc<dyn Objects>, policies: Arc<Policies>) -> Self {
        Self::of(Purpose::Feed, objects, policies)
    }

    fn of(purpose: Purpose, objects: Arc<dyn Objects>, policies: Arc<Policies>) -> Self {
        Self {
            purpose,
            objects,
            policies,
            known: HashMap::new(),
            details: HashMap::new(),
            size: 0,
        }
    }

    /// Looks up the objects of these events that are not known yet.
    pub async fn load<'a>(&mut self, events: impl Iterator<Item = &'a Event>) -> Result<()> {
        if self.size > REMEMBERED {
            self.known.clear();
            self.details.clear();
            self.size = 0;
        }
        let mut asked: Vec<&Event> = Vec::new();
        for event in events {
            let missing = self
                .known
                .get(&event.t)
                .is_none_or(|of_type| !of_type.contains_key(&event.o));
            if missing {
                self.known
                    .entry(event.t.clone())
                    .or_default()
                    .insert(event.o.clone(), None);
                asked.push(event);
            }
        }
        self.size += asked.len();
        for events in asked.chunks(AT_ONCE) {
            let keys: Vec<_> = events
                .iter()
                .map(|event| self.policies.object_of(event))
                .collect();
            let found = self.objects.objects(&keys).await?;
            for ((event, key), record) in events.iter().zip(keys).zip(found) {
                let object =
                    record.or_else(|| self.shows_unknown(&event.t).then(|| Object::bare(key)));
                self.known
                    .entry(event.t.clone())
                    .or_default()
                    .insert(event.o.clone(), object.map(Arc::new));
            }
        }
        Ok(())
    }

    fn shows_unknown(&self, kind: &EventType) -> bool {
        let policy = self.policies.of(kind);
        policy.unknown_objects == UnknownObjects::Mail
            || (self.purpose == Purpose::Feed && policy.model.is_none())
    }

    /// Looks up what is said of these events that is not known yet.
    pub async fn load_details<'a>(
        &mut self,
        journal: &dyn Journal,
        events: impl Iterator<Item = &'a Event>,
    ) -> Result<()> {
        let missing = events.filter_map(|event| event.i);
        let missing = missing.filter(|id| !self.details.contains_key(id));
        let asked: Vec<Id> = missing.collect::<HashSet<_>>().into_iter().collect();
        self.size += asked.len();
        for ids in asked.chunks(AT_ONCE) {
            let found = journal.details(ids).await?.into_iter();
            let found = found.map(|details| details.map(Arc::new));
            self.details.extend(ids.iter().copied().zip(found));
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

    /// The keys of all that was looked up.
    pub fn keys(&self) -> Vec<ObjectKey> {
        let of_type = |(t, objects): (&EventType, &HashMap<ObjectId, _>)| {
            let (t, i) = (t.clone(), None);
            let event = |o: &ObjectId| Event {
                t: t.clone(),
                o: o.clone(),
                i,
            };
            let keys = objects.keys().map(|o| self.policies.object_of(&event(o)));
            keys.collect::<Vec<_>>()
        };
        self.known.iter().flat_map(of_type).collect()
    }

    /// The event's object, if it still applies; the event must have been loaded.
    pub fn applies(&self, event: &Event) -> Option<Arc<Object>> {
        self.record(event).filter(|object| object.notifiable)
    }

    /// What is known of the event's object, withdrawn or not; the event must have been loaded.
    pub fn record(&self, event: &Event) -> Option<Arc<Object>> {
        self.known.get(&event.t)?.get(&event.o)?.clone()
    }
}
