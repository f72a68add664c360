//! Stores the objects that events refer to, and retracts events about them.
//!
//! A withdrawn object keeps a record with `notifiable: false`, because feeds may show an object
//! without a record ([`crate::engine::eligibility::event_facts`]). Objects of mapped models are in
//! the application's own collections and cannot be changed here.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::context::Context;
use crate::domain::fanout::check_objects;
use crate::domain::{
    ChangeNotice, Event, EventType, InvalidValue, ModelName, Object, ObjectId, ObjectKey,
    Retraction,
};
use crate::engine::Result;
use crate::engine::batches::BatchService;
use crate::engine::eligibility::event_facts::EventFacts;
use crate::engine::feed::cache::FeedCache;
use crate::wire::event::{Retracted, UnknownNames};

/// Stores objects, except those of mapped models, and retracts events about them.
pub struct ObjectService {
    pub(crate) context: Arc<Context>,
    pub(crate) batches: BatchService,
    pub(crate) feed_cache: Arc<FeedCache>,
}

/// Returns the key of an object of a model.
///
/// # Errors
///
/// [`InvalidValue`] if the model contains a colon, which separates it from the id in the key.
pub fn key_of(model: &ModelName, id: &ObjectId) -> Result<ObjectKey, InvalidValue> {
    if model.as_str().contains(':') {
        let why = "holds a colon, which ends the model in an object's key";
        return Err(InvalidValue::new("model", model, why));
    }
    ObjectKey::from_parts(Some(model), id).as_str().parse()
}

impl ObjectService {
    /// Creates or replaces these objects. If a key occurs twice, the last one wins.
    pub async fn put(&self, objects: Vec<Object>) -> Result<()> {
        for object in &objects {
            self.check(object)?;
        }
        self.store_checked(objects).await
    }

    /// Stores objects that were checked. If a key occurs twice, the last one wins.
    pub(crate) async fn store_checked(&self, objects: Vec<Object>) -> Result<()> {
        let last_by_key: BTreeMap<_, _> =
            objects.into_iter().map(|object| (object.key.clone(), object)).collect();
        let last: Vec<Object> = last_by_key.into_values().collect();
        self.context.store.put_objects(&last).await?;
        // Polls of this process see the change at once, before the store's change notice arrives.
        let keys = last.iter().map(|object| object.key.as_str());
        self.feed_cache.apply_notice(&ChangeNotice::objects(keys));
        Ok(())
    }

    /// Returns an error if an object cannot be stored.
    pub fn check(&self, object: &Object) -> Result<(), InvalidValue> {
        object.check()?;
        let model = object.key.split().map(|(model, _)| ModelName::stored(model));
        match model.filter(|model| self.context.config.models.contains_key(model)) {
            Some(model) => {
                let why = "is read from the application's own collection; change the object there";
                Err(InvalidValue::new("model", model, why))
            }
            None => Ok(()),
        }
    }

    /// Returns the object with this key, even if it was withdrawn.
    pub async fn get(&self, key: &ObjectKey) -> Result<Option<Object>> {
        Ok(self.context.store.objects(std::slice::from_ref(key)).await?.pop().flatten())
    }

    /// Returns the objects with these keys, in the order of the request.
    pub async fn get_many(&self, keys: &[ObjectKey]) -> Result<Vec<Option<Object>>> {
        Ok(self.context.store.objects(keys).await?)
    }

    /// Marks an object as withdrawn, even if it was unknown. Its other fields are removed.
    pub async fn withdraw(&self, key: ObjectKey) -> Result<()> {
        self.put(vec![Object { notifiable: false, ..Object::without_data(key) }]).await
    }

    /// Retracts all earlier events of this type about these objects, 1 to 100, so that feeds and
    /// emails no longer include them. Later events about them are not affected.
    ///
    /// A retraction is one small record per object, written first, for an audience of any size.
    /// Feeds, digests, batches, unsent emails and pending fan-outs check it
    /// ([`crate::engine::eligibility::event_facts`]). Then the events are removed from open
    /// batches, to keep their totals exact; this step can be repeated.
    ///
    /// Returns the keys of the objects, warnings about unknown ones, and what open batches lost.
    /// Does not find out which users were notified before.
    pub async fn retract(&self, kind: &EventType, objects: &[ObjectId]) -> Result<Retracted> {
        check_objects(objects.len())?;
        let objects: Vec<ObjectId> = objects
            .iter()
            .map(|object| self.context.policies.object_id(kind, object.clone()))
            .collect();
        let events: Vec<Event> =
            objects.iter().map(|object| Event::new(kind, object, None)).collect();
        let mut catalog = EventFacts::for_emails(&self.context);
        catalog.load_objects_and_retractions(events.iter()).await?;
        let mut unknown = UnknownNames::default();
        for event in &events {
            unknown.add_unknown(event, &catalog, &self.context.policies);
        }
        let at = self.context.ids.next(self.context.clock.now());
        let retraction =
            |object: &ObjectId| Retraction { kind: kind.clone(), object: object.clone(), at };
        let retractions: Vec<Retraction> = objects.iter().map(retraction).collect();
        let keys: Vec<_> = events.iter().map(|event| catalog.object_key(event)).collect();
        let notice = ChangeNotice::objects(keys.iter().map(|key| key.as_str()));
        self.context.store.retract(&retractions, &notice).await?;
        // Polls of this process see the change at once, before the store's change notice arrives.
        self.feed_cache.apply_notice(&notice);
        // Events that join a batch after `at` are not part of the retraction.
        Ok(Retracted {
            removed_events: self.batches.remove_events(kind, &objects, Some(at)).await?,
            objects: keys,
            warnings: unknown.retraction_warnings(&self.context.policies),
        })
    }
}
