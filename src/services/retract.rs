//! Takes events back: whoever was told of them is told of them no more.
//!
//! The rule: one small record says it, however many people have the events, and it is written before
//! anything else. Whatever shows, counts or mails events asks for it ([`super::catalog`]): feeds,
//! digests, batches, mails that have not left, and what is accepted and not fanned out yet. Open
//! batches are changed as well, so that their totals are right; that is tidying up, and can be
//! repeated.

use std::sync::Arc;

use super::Result;
use super::batches::BatchService;
use super::polls::Polls;
use crate::clock::{Clock, Ids};
use crate::domain::batch::TakenOut;
use crate::domain::fanout::check_objects;
use crate::domain::{Event, EventType, ObjectId, Poke, Policies, Retraction};
use crate::store::Retractions;

/// Takes events back.
pub struct Retract {
    pub(crate) retractions: Arc<dyn Retractions>,
    pub(crate) batches: BatchService,
    pub(crate) policies: Arc<Policies>,
    pub(crate) polls: Arc<Polls>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<Ids>,
}

impl Retract {
    /// Takes back what happened up to now: events of this type about these objects, as many as an
    /// event can have. Says what open batches lost. What happens to them later is told as ever.
    pub async fn events(&self, kind: &EventType, objects: &[ObjectId]) -> Result<TakenOut> {
        check_objects(objects.len())?;
        let at = self.ids.next(self.clock.now());
        let retraction = |o: &ObjectId| Retraction {
            t: kind.clone(),
            o: o.clone(),
            at,
        };
        let retractions: Vec<Retraction> = objects.iter().map(retraction).collect();
        let key = |o: &ObjectId| {
            let (t, o, i) = (kind.clone(), o.clone(), None);
            self.policies.object_of(&Event { t, o, i })
        };
        let keys: Vec<_> = objects.iter().map(key).collect();
        let about = Poke::objects(keys.iter().map(|key| key.as_str()));
        self.retractions.retract(&retractions, &about).await?;
        // Whoever polls this process next sees it, before the store tells.
        self.polls.hear(&about);
        // What joins meanwhile happened later.
        self.batches.take_out(kind, objects, Some(at)).await
    }
}
