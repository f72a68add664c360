//! What batches have gathered, as far as it may still be told.
//!
//! The rule (P6, P7): an event is told while its person gets its type outside the digest, as they
//! chose before it happened, has not muted what it is about, and while its object applies. Where
//! all kept events may be told, and are of different things, those that are only counted are taken
//! for the same; otherwise the stacks say what else had joined.

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

/// How much of what a row covers its mail tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tells {
    /// What the person gets by their choices and has not muted, as far as this.
    Wanted(EmailScope),
    /// The same, muted or not.
    Chosen(EmailScope),
    /// All of it, whatever they chose since.
    All,
}

/// What a batch may tell.
#[derive(Debug)]
pub(super) struct Gathered {
    pub key: BatchKey,
    /// In the order of joining.
    pub items: Vec<Item>,
    /// How many more are counted.
    pub not_kept: u64,
    /// It was taken for mailed once: its markers stand.
    pub has_markers: bool,
}

impl Compose {
    /// What the batches of these rows may tell, by their ids; what has no record any more is left
    /// out. All of it is in the catalog then.
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
        // One that is settled and comes again had failed, or was taken for mailed.
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

    /// What these batches may tell, by their ids; what they keep is in the catalog already, and all
    /// of it is then.
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
            // What is only counted may be muted as well.
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

/// What may be muted of these batches.
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

/// The events that these batches keep.
pub(super) fn kept(batches: &[Batch]) -> Vec<Event> {
    let items = batches.iter().flat_map(|batch| &batch.contents.items);
    items.cloned().map(Event::from).collect()
}

/// What these batches have gathered, each the newest first.
pub(super) fn newest_first(gathered: &HashMap<Id, Gathered>) -> HashMap<Id, Vec<Event>> {
    let newest = |of: &Gathered| of.items.iter().rev().cloned().map(Event::from).collect();
    gathered.iter().map(|(id, of)| (*id, newest(of))).collect()
}

/// What stands on the stacks of these batches' people, on the days of what joined them.
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

    /// What its mail tells; `None` if nothing of it applies.
    pub(super) fn content(&self, policies: &Policies, catalog: &Catalog) -> Option<Content> {
        let told = |event: &Event| catalog.told(event);
        gather(&self.key, &self.items, self.not_kept, policies, told)
    }
}

/// Returns whether a batch may include this event for this user, whatever became of its object.
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
