//! Finds the events of batches that may still be included.
//!
//! An event is included if its object applies (P6), and its user gets its type outside the digest
//! and has not muted it (P7). If all kept events are included and have different objects, events
//! that were only counted are assumed to be like them. Otherwise the stacks show which events had
//! joined.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::domain::EmailScope;
use crate::domain::batch::Item;
use crate::domain::content::gather;
use crate::domain::{
    Batch, BatchKey, BatchState, Content, Day, Delivery, Event, Facts, Id, Mutes, Occasion,
    PersonStacks, Policies, Purpose, User, UserId, Window, classify,
};
use crate::engine::Result;
use crate::engine::eligibility::catalog::Catalog;
use crate::engine::eligibility::mutes;
use crate::store::{People, Stacks};

use super::Compose;

/// The events that an email includes, of those that its row covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tells {
    /// Events of types that the user gets within this scope, unless muted.
    Wanted(EmailScope),
    /// The same, including muted ones.
    Chosen(EmailScope),
    /// All events, regardless of the user's choices.
    All,
}

/// The events of a batch that its email may include.
#[derive(Debug)]
pub(super) struct Gathered {
    pub key: BatchKey,
    /// In the order in which they joined.
    pub items: Vec<Item>,
    /// The number of further events, which were counted but not kept.
    pub not_kept: u64,
    /// Whether its markers are written: the provider once accepted its email.
    pub has_markers: bool,
}

impl Compose {
    /// Returns the events that these rows' batches may include, by batch id, and loads them into
    /// the catalog. Batches without a record are omitted.
    pub(super) async fn gathered(
        &self,
        rows: &[Delivery],
        people: &[Option<User>],
        tells: &[Tells],
        catalog: &mut Catalog,
    ) -> Result<HashMap<Id, Gathered>> {
        let mut whose: HashMap<Id, (&User, Tells)> = HashMap::new();
        let mut markers: HashMap<Id, Id> = HashMap::new();
        for ((row, person), tells) in rows.iter().zip(people).zip(tells) {
            if let (Occasion::Batch { batch, .. }, Some(user)) = (&row.occasion, person) {
                whose.insert(*batch, (user, *tells));
                markers.insert(*batch, row.marker);
            }
        }
        if whose.is_empty() {
            return Ok(HashMap::new());
        }
        let ids: Vec<Id> = whose.keys().copied().collect();
        let store = &self.context.store;
        let batches: Vec<Batch> = store.filed(&ids).await?.into_iter().flatten().collect();
        catalog.load(kept(&batches).iter()).await?;
        // A settled batch comes here again if its email failed, or was once recorded as accepted.
        let settled = |batch: &&Batch| batch.state != BatchState::Closing;
        let settled: Vec<Batch> = batches.iter().filter(settled).cloned().collect();
        let stacks = stacks_of(&*self.context.store, &settled).await?;
        let marked = |batch: &Batch| {
            let stacks = stacks.get(&batch.user);
            stacks.is_some_and(|stacks| stacks.are_mailed_by(markers[&batch.id]))
        };
        let marked: HashSet<Id> = settled
            .iter()
            .filter(|batch| marked(batch))
            .map(|batch| batch.id)
            .collect();
        let mut gathered = self.tellable(batches, &whose, catalog).await?;
        for id in marked {
            if let Some(gathered) = gathered.get_mut(&id) {
                gathered.has_markers = true;
            }
        }
        Ok(gathered)
    }

    /// Returns the events that these batches may include, by batch id, and loads them into the
    /// catalog. The kept events must have been loaded.
    pub(super) async fn tellable(
        &self,
        batches: Vec<Batch>,
        whose: &HashMap<Id, (&User, Tells)>,
        catalog: &mut Catalog,
    ) -> Result<HashMap<Id, Gathered>> {
        let mut gathered = HashMap::with_capacity(batches.len());
        let mut doubtful = Vec::new();
        let kept = batches
            .iter()
            .map(|batch| (batch.id, &batch.contents.items[..]));
        let muted = possible(kept, whose, &self.context.policies);
        mutes::look_up(muted, catalog).await?;
        for batch in batches {
            let told = |item: &Item| {
                wants(whose[&batch.id], item, catalog)
                    && catalog.applies(&Event::from(item.clone())).is_some()
            };
            // Events that were only counted may be muted too.
            let (user, tells) = whose[&batch.id];
            let is_doubted = batch.contents.more() > 0
                && matches!(tells, Tells::Wanted(_))
                && !user.mutes.is_empty();
            if is_doubted || !batch.is_told_by_kept(told) {
                doubtful.push(batch);
                continue;
            }
            let (items, not_kept) = (batch.contents.items.clone(), batch.contents.more());
            gathered.insert(batch.id, Gathered::new(&batch, items, not_kept));
        }
        let stacks = stacks_of(&*self.context.store, &doubtful).await?;
        for batch in &doubtful {
            let items = batch.all_of(stacks.get(&batch.user));
            let events: Vec<Event> = items.iter().cloned().map(Event::from).collect();
            catalog.load(events.iter()).await?;
            gathered.insert(batch.id, Gathered::new(batch, items, 0));
        }
        let all = gathered.iter().map(|(id, of)| (*id, &of.items[..]));
        let muted = possible(all, whose, &self.context.policies);
        mutes::look_up(muted, catalog).await?;
        for (id, gathered) in &mut gathered {
            gathered
                .items
                .retain(|item| wants(whose[id], item, catalog));
        }
        Ok(gathered)
    }
}

/// Returns the events of these batches that may be muted.
fn possible<'a>(
    items: impl Iterator<Item = (Id, &'a [Item])>,
    whose: &HashMap<Id, (&User, Tells)>,
    policies: &Policies,
) -> Vec<Event> {
    let mut events: Vec<(&Mutes, Event)> = Vec::new();
    for (batch, items) in items {
        let (user, tells) = whose[&batch];
        if matches!(tells, Tells::Wanted(_)) && !user.mutes.is_empty() {
            let items = items.iter().cloned();
            events.extend(items.map(|item| (&user.mutes, item.into())));
        }
    }
    let events = events.iter().filter_map(|(mutes, event)| {
        let at = event.i?.time();
        Some((*mutes, event, at))
    });
    mutes::possible(events, policies)
}

/// Returns the events that these batches keep.
pub(super) fn kept(batches: &[Batch]) -> Vec<Event> {
    let items = batches.iter().flat_map(|batch| &batch.contents.items);
    items.cloned().map(Event::from).collect()
}

/// Returns the events of each batch, newest first.
pub(super) fn newest_first(gathered: &HashMap<Id, Gathered>) -> HashMap<Id, Vec<Event>> {
    let newest = |of: &Gathered| of.items.iter().rev().cloned().map(Event::from).collect();
    gathered.iter().map(|(id, of)| (*id, newest(of))).collect()
}

/// Returns the stacks of these batches' users, for the days on which events joined.
pub(in crate::engine::delivery) async fn stacks_of(
    stacks: &dyn Stacks,
    batches: &[Batch],
) -> Result<HashMap<UserId, PersonStacks>> {
    let fanouts = batches.iter().flat_map(Batch::own_fanouts);
    let days: BTreeSet<Day> = fanouts.map(|fanout| Day::of(fanout.time())).collect();
    let (Some(first), Some(last)) = (days.first(), days.last()) else {
        return Ok(HashMap::new());
    };
    let users: BTreeSet<&UserId> = batches.iter().map(|batch| &batch.user).collect();
    let users: Vec<UserId> = users.into_iter().cloned().collect();
    let window = Window::between(*first, *last);
    let stacks = stacks.windows(window, People::Each(&users)).await?;
    Ok(users.into_iter().zip(stacks).collect())
}

impl Gathered {
    fn new(batch: &Batch, items: Vec<Item>, not_kept: u64) -> Self {
        Self {
            key: batch.key.clone(),
            items,
            not_kept,
            has_markers: false,
        }
    }

    /// Returns the content of the batch's email; `None` if no event applies.
    pub(super) fn content(&self, policies: &Policies, catalog: &Catalog) -> Option<Content> {
        let told = |event: &Event| catalog.told(event);
        gather(&self.key, &self.items, self.not_kept, policies, told)
    }
}

/// Returns whether a batch may include this event for this user, regardless of its object.
fn wants((user, tells): (&User, Tells), item: &Item, catalog: &Catalog) -> bool {
    let (Tells::Wanted(scope) | Tells::Chosen(scope)) = tells else {
        return true;
    };
    let (at, policies) = (item.i.time(), catalog.policies());
    let heeds_mutes = matches!(tells, Tells::Wanted(_)) && !user.mutes.is_empty();
    let is_muted = || mutes::is_muted(&user.mutes, &item.clone().into(), at, catalog);
    let facts = Facts {
        before_start: user.start.is_some_and(|start| start.is_after(item.i)),
        muted: heeds_mutes && is_muted(),
        ..Facts::default()
    };
    let purpose = Purpose::Batch(scope);
    classify(&item.t, || at, facts, Some(user), policies, purpose).is_none()
}
