//! What batches have gathered, as far as it may still be told.
//!
//! The rule (P6, P7): an event is told while its person gets its type outside the digest, as they chose before it happened, and while its object
//! applies. Where all kept events may be told, those that are only counted are taken for the same; where one may not, the stacks say what
//! else had joined, so that nothing is counted that was withdrawn.

use std::collections::{HashMap, HashSet};

use crate::domain::batch::Item;
use crate::domain::{
    Batch, BatchKey, BatchState, Day, Delivery, Event, Id, Occasion, Policies, User, UserId, Window,
};
use crate::services::Result;
use crate::services::catalogue::Catalogue;
use crate::store::People;

use super::Deliver;

/// What a batch may tell.
#[derive(Debug)]
pub(super) struct Gathered {
    pub key: BatchKey,
    /// In the order of joining.
    pub items: Vec<Item>,
    /// How many more are counted.
    pub unseen: u64,
    /// It was taken for mailed once.
    pub marked: bool,
}

impl Deliver {
    /// What the batches of these rows may tell, by their ids; what has no record any more is left out. All of it is in the catalogue then.
    pub(super) async fn gathered(
        &self,
        rows: &[Delivery],
        people: &[Option<User>],
        catalogue: &mut Catalogue,
    ) -> Result<HashMap<Id, Gathered>> {
        let mut whose: HashMap<Id, &User> = HashMap::new();
        for (row, person) in rows.iter().zip(people) {
            if let (Occasion::Batch { batch, .. }, Some(user)) = (&row.occasion, person) {
                whose.insert(*batch, user);
            }
        }
        if whose.is_empty() {
            return Ok(HashMap::new());
        }
        let ids: Vec<Id> = whose.keys().copied().collect();
        let batches: Vec<Batch> = self
            .batches
            .filed(&ids)
            .await?
            .into_iter()
            .flatten()
            .collect();
        let kept: Vec<Event> = batches
            .iter()
            .flat_map(|batch| batch.contents.items.iter().cloned().map(Event::from))
            .collect();
        catalogue.load(kept.iter()).await?;
        let mut gathered = HashMap::with_capacity(batches.len());
        let mut doubtful = Vec::new();
        for batch in batches {
            let told = |item: &Item| {
                wants(whose[&batch.id], item, &self.policies)
                    && catalogue.applies(&Event::from(item.clone())).is_some()
            };
            let unseen = batch.contents.more();
            if unseen > 0 && !batch.contents.items.iter().all(told) {
                doubtful.push(batch);
                continue;
            }
            gathered.insert(
                batch.id,
                Gathered::new(&batch, batch.contents.items.clone(), unseen),
            );
        }
        for batch in doubtful {
            let items = self.joined(&batch).await?;
            let events: Vec<Event> = items.iter().cloned().map(Event::from).collect();
            catalogue.load(events.iter()).await?;
            gathered.insert(batch.id, Gathered::new(&batch, items, 0));
        }
        for (id, gathered) in &mut gathered {
            gathered
                .items
                .retain(|item| wants(whose[id], item, &self.policies));
        }
        Ok(gathered)
    }

    /// All that had joined, as the person's stacks have it.
    async fn joined(&self, batch: &Batch) -> Result<Vec<Item>> {
        let days = || batch.joined.iter().map(|fanout| Day::of(fanout.time()));
        let (Some(first), Some(last)) = (days().min(), days().max()) else {
            return Ok(Vec::new());
        };
        let (window, user): (_, &[UserId]) = (
            Window::between(first, last),
            std::slice::from_ref(&batch.user),
        );
        let stacks = self.stacks.windows(window, People::Each(user)).await?;
        let of_batch: HashSet<Id> = batch.joined.iter().copied().collect();
        let events = stacks.iter().flat_map(|person| &person.stacks);
        let events = events
            .flat_map(|stack| stack.events())
            .filter_map(|(_, event)| {
                let i = event.i.filter(|i| of_batch.contains(i))?;
                let (t, o) = (event.t.clone(), event.o.clone());
                Some(Item { i, t, o })
            });
        let mut items: Vec<Item> = events.filter(|item| !batch.taken.contains(item)).collect();
        // A day that is full has not stored all of it.
        let kept = batch
            .contents
            .items
            .iter()
            .filter(|item| !items.contains(item));
        let kept: Vec<Item> = kept.cloned().collect();
        items.extend(kept);
        Ok(items)
    }
}

impl Gathered {
    fn new(batch: &Batch, items: Vec<Item>, unseen: u64) -> Self {
        Self {
            key: batch.key.clone(),
            items,
            unseen,
            marked: batch.state != BatchState::Closing,
        }
    }
}

/// Whether this person gets this event on its own, as they chose before it happened.
fn wants(user: &User, item: &Item, policies: &Policies) -> bool {
    let route = user.route(&item.t, item.i.time(), policies);
    route.is_mailed_alone()
}
