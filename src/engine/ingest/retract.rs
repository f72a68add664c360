//! Takes events back: whoever was told of them is told of them no more.
//!
//! The rule: one small record says it, however many people have the events, and it is written
//! before anything else. Whatever shows, counts or mails events asks for it
//! ([`crate::engine::eligibility::catalog`]): feeds, digests, batches, mails that have not left,
//! and what is accepted and not fanned out yet. Open batches are changed as well, so that their
//! totals are right; that is tidying up, and can be repeated.

use std::sync::Arc;

use crate::context::Context;
use crate::domain::fanout::check_objects;
use crate::domain::{Event, EventType, ObjectId, Poke, Retraction};
use crate::engine::Result;
use crate::engine::batches::BatchService;
use crate::engine::eligibility::catalog::CatalogSource;
use crate::engine::feed::polls::Polls;
use crate::wire::event::Retracted;
use crate::wire::unknown::Unknown;

/// Takes events back.
pub struct Retract {
    pub(crate) context: Arc<Context>,
    pub(crate) batches: BatchService,
    pub(crate) catalog: CatalogSource,
    pub(crate) polls: Arc<Polls>,
}

impl Retract {
    /// Takes back what happened up to now: events of this type about these objects, as many as an
    /// event can have. Says which objects these are, what of them is not known, and what open
    /// batches lost; who was told of them is not looked for. What happens to them later is told as
    /// ever.
    pub async fn events(&self, kind: &EventType, objects: &[ObjectId]) -> Result<Retracted> {
        check_objects(objects.len())?;
        let objects: Vec<ObjectId> = objects
            .iter()
            .map(|object| self.context.policies.object_id(kind, object.clone()))
            .collect();
        let event = |o: &ObjectId| {
            let (t, o, i) = (kind.clone(), o.clone(), None);
            Event { t, o, i }
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
        let about = Poke::objects(keys.iter().map(|key| key.as_str()));
        self.context.store.retract(&retractions, &about).await?;
        // Whoever polls this process next sees it, before the store tells.
        self.polls.hear(&about);
        // What joins meanwhile happened later.
        Ok(Retracted {
            out: self.batches.take_out(kind, &objects, Some(at)).await?,
            objects: keys,
            warnings: unknown.doubts(&self.context.policies),
        })
    }
}
