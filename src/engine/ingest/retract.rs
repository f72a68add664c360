//! Retracts events, so that feeds and emails no longer include them.
//!
//! A retraction is one small record per object, written first and independent of the audience's
//! size. Feeds, digests, batches, unsent emails and pending fan-outs check it
//! ([`crate::engine::eligibility::catalog`]). Then the events are removed from open batches, to
//! keep their totals exact; this step can be repeated.

use std::sync::Arc;

use crate::context::Context;
use crate::domain::fanout::check_objects;
use crate::domain::{ChangeNotice, Event, EventType, ObjectId, Retraction};
use crate::engine::Result;
use crate::engine::batches::BatchService;
use crate::engine::eligibility::catalog::CatalogSource;
use crate::engine::feed::cache::FeedCache;
use crate::wire::event::{Retracted, Unknown};

/// Retracts events.
pub struct Retract {
    pub(crate) context: Arc<Context>,
    pub(crate) batches: BatchService,
    pub(crate) catalog: CatalogSource,
    pub(crate) feed_cache: Arc<FeedCache>,
}

impl Retract {
    /// Retracts all earlier events of this type about these objects, 1 to 100. Later events about
    /// them are not affected.
    ///
    /// Returns the keys of the objects, warnings about unknown ones, and what open batches lost.
    /// Does not find out which users were notified before.
    pub async fn events(&self, kind: &EventType, objects: &[ObjectId]) -> Result<Retracted> {
        check_objects(objects.len())?;
        let objects: Vec<ObjectId> = objects
            .iter()
            .map(|object| self.context.policies.object_id(kind, object.clone()))
            .collect();
        let event = |o: &ObjectId| Event {
            t: kind.clone(),
            o: o.clone(),
            i: None,
        };
        let events: Vec<Event> = objects.iter().map(event).collect();
        let mut catalog = self.catalog.of_mails();
        catalog.load(events.iter()).await?;
        let mut unknown = Unknown::default();
        for event in &events {
            unknown.note(event, &catalog, &self.context.policies);
        }
        let at = self.context.ids.next(self.context.clock.now());
        let retraction = |o: &ObjectId| Retraction {
            t: kind.clone(),
            o: o.clone(),
            at,
        };
        let retractions: Vec<Retraction> = objects.iter().map(retraction).collect();
        let keys: Vec<_> = events.iter().map(|event| catalog.key(event)).collect();
        let about = ChangeNotice::objects(keys.iter().map(|key| key.as_str()));
        self.context.store.retract(&retractions, &about).await?;
        // Polls of this process see the change at once, before the store's change notice arrives.
        self.feed_cache.apply(&about);
        // Events that join a batch after `at` are not part of the retraction.
        Ok(Retracted {
            out: self.batches.remove_events(kind, &objects, Some(at)).await?,
            objects: keys,
            warnings: unknown.doubts(&self.context.policies),
        })
    }
}
