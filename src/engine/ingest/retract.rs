//! Retracts events about objects, so that feeds and emails no longer include them.

use super::objects::ObjectService;
use crate::domain::fanout::check_objects;
use crate::domain::{ChangeNotice, Event, EventType, ObjectId, Retraction};
use crate::engine::Result;
use crate::engine::eligibility::event_facts::EventFacts;
use crate::wire::event::{Retracted, UnknownNames};

impl ObjectService {
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
        let mut event_facts = EventFacts::for_emails(&self.context);
        event_facts.load_objects_and_retractions(events.iter()).await?;
        let mut unknown = UnknownNames::default();
        for event in &events {
            unknown.add_unknown(event, &event_facts, &self.context.policies);
        }
        let at = self.context.ids.next(self.context.clock.now());
        let retraction =
            |object: &ObjectId| Retraction { kind: kind.clone(), object: object.clone(), at };
        let retractions: Vec<Retraction> = objects.iter().map(retraction).collect();
        let keys: Vec<_> = events.iter().map(|event| event_facts.object_key(event)).collect();
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
