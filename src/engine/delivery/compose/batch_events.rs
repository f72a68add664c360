//! Finds the events of batches that may still be included, also for batches that are still open.
//!
//! An event is included if its object applies (P6), and its user gets its type outside the digest
//! and has not muted it (P7). If all kept events are included and have different objects, events
//! that were only counted are assumed to be like them. Otherwise the stacks show which events had
//! joined. Start with [`Compose::batch_events`].

use std::collections::HashMap;

use super::{CandidateEvents, Compose, Selection, newest_first};
use crate::domain::batch::BatchItem;
use crate::domain::{
    Batch, BatchState, Day, DaySet, Delivery, EligibilityFacts, EmailContent, Event, Id, Purpose,
    User, UserId, UserStacks, classify, distinct,
};
use crate::engine::Result;
use crate::engine::eligibility;
use crate::engine::eligibility::event_facts::EventFacts;
use crate::engine::feedback::suppressions::SuppressedAddresses;
use crate::store::Stacks;

/// The user of each batch, and the events that they get.
type Recipients<'a> = HashMap<Id, (&'a User, Selection)>;

impl Compose {
    /// Returns the events that these rows' batches may include, by batch id, and loads the facts
    /// about them. Batches without a record are omitted.
    pub(super) async fn batch_events(
        &self,
        rows: &[Delivery],
        users: &[Option<User>],
        selections: &[Selection],
        event_facts: &mut EventFacts,
    ) -> Result<HashMap<Id, CandidateEvents>> {
        let (mut recipients, mut markers) = (Recipients::new(), HashMap::new());
        for ((row, user), selection) in rows.iter().zip(users).zip(selections) {
            if let (Some(batch), Some(user)) = (row.source.batch(), user) {
                recipients.insert(batch, (user, *selection));
                markers.insert(batch, row.marker);
            }
        }
        if recipients.is_empty() {
            return Ok(HashMap::new());
        }
        let ids: Vec<Id> = recipients.keys().copied().collect();
        let store = &self.context.store;
        let batches: Vec<Batch> = store.filed_batches(&ids).await?.into_iter().flatten().collect();
        // A settled batch is built again if its email failed, or was once recorded as accepted.
        let settled = batches.iter().filter(|batch| batch.state != BatchState::Closing);
        let settled: Vec<Batch> = settled.cloned().collect();
        let stacks = stacks_of(&**store, &settled).await?;
        let mut events = self.select(batches, &recipients, event_facts).await?;
        for batch in settled {
            if let Some(events) = events.get_mut(&batch.id) {
                let marker = markers[&batch.id];
                let stacks = stacks.get(&batch.user);
                events.has_markers = stacks.is_some_and(|stacks| stacks.has_batch_marker(marker));
            }
        }
        Ok(events)
    }

    /// Returns the events that these batches may include, by batch id, and loads the facts about
    /// them.
    async fn select(
        &self,
        batches: Vec<Batch>,
        recipients: &Recipients<'_>,
        event_facts: &mut EventFacts,
    ) -> Result<HashMap<Id, CandidateEvents>> {
        let (mut events, mut incomplete) = (HashMap::with_capacity(batches.len()), Vec::new());
        let items = batches.iter().flat_map(|batch| &batch.events.items);
        let kept: Vec<Event> = items.cloned().map(Event::from).collect();
        event_facts.load_objects_and_retractions(kept.iter()).await?;
        let kept = batches.iter().map(|batch| (batch.id, &batch.events.items[..]));
        self.load_mutes(kept, recipients, event_facts).await?;
        for batch in batches {
            let (user, selection) = recipients[&batch.id];
            let is_included = |item: &BatchItem| {
                wants(user, selection, item, event_facts)
                    && event_facts.applicable_object(&Event::from(item.clone())).is_some()
            };
            // Events that were only counted may be muted too.
            let may_mute = batch.events.omitted_count() > 0 && has_mutes(user, selection);
            if may_mute || !batch.determines_email(is_included) {
                incomplete.push(batch);
                continue;
            }
            let omitted = batch.events.omitted_count();
            events.insert(batch.id, CandidateEvents::new(batch.key, batch.events.items, omitted));
        }
        let stacks = stacks_of(&*self.context.store, &incomplete).await?;
        for batch in incomplete {
            let items = batch.all_events(stacks.get(&batch.user));
            let joined: Vec<Event> = items.iter().cloned().map(Event::from).collect();
            event_facts.load_objects_and_retractions(joined.iter()).await?;
            events.insert(batch.id, CandidateEvents::new(batch.key, items, 0));
        }
        let candidates = events.iter().map(|(id, events)| (*id, &events.items[..]));
        self.load_mutes(candidates, recipients, event_facts).await?;
        for (id, events) in &mut events {
            let (user, selection) = recipients[id];
            events.items.retain(|item| wants(user, selection, item, event_facts));
        }
        Ok(events)
    }

    /// Loads the facts that show which of these events are muted.
    async fn load_mutes<'a>(
        &self,
        items: impl Iterator<Item = (Id, &'a [BatchItem])>,
        recipients: &Recipients<'_>,
        event_facts: &mut EventFacts,
    ) -> Result<()> {
        let (policies, mut events) = (&self.context.policies, Vec::<Event>::new());
        for (batch, items) in items {
            let (user, selection) = recipients[&batch];
            if !has_mutes(user, selection) {
                continue;
            }
            for item in items {
                let (at, event) = (item.fanout_id.time(), Event::from(item.clone()));
                if eligibility::may_be_muted(&user.mutes, &event, at, policies) {
                    events.push(event);
                }
            }
        }
        Ok(eligibility::load_mute_facts(events, event_facts).await?)
    }

    /// Returns the batches of this user that would become an email if they closed now, each with
    /// its content. Ids must be distinct.
    pub(crate) async fn select_sendable_batches(
        &self,
        batches: Vec<Batch>,
        user: &User,
    ) -> Result<Vec<(Batch, EmailContent)>> {
        let suppressed = SuppressedAddresses::load_for(&*self.context.store, [user]).await?;
        let Ok(scope) = suppressed.email_scope(user) else {
            return Ok(Vec::new());
        };
        let recipient = |batch: &Batch| (batch.id, (user, Selection::Wanted(scope)));
        let recipients: Recipients = batches.iter().map(recipient).collect();
        let mut event_facts = EventFacts::for_emails(&self.context);
        let events = self.select(batches.clone(), &recipients, &mut event_facts).await?;
        let newest = newest_first(&events);
        let shown = newest.values().map(|events| (&user.id, events.iter().collect()));
        let shown: Vec<(&UserId, Vec<&Event>)> = shown.collect();
        let reasons = self.load_reasons(&shown, &mut event_facts).await?;
        let with_content = |batch: Batch| {
            let mut content = self.batch_content(events.get(&batch.id)?, &event_facts)?;
            content.follow_reasons = reasons.followed_things(&user.id, &content);
            Some((batch, content))
        };
        Ok(batches.into_iter().filter_map(with_content).collect())
    }
}

/// Returns the stacks of these batches' users, for the days on which events joined.
pub(in crate::engine::delivery) async fn stacks_of(
    stacks: &dyn Stacks,
    batches: &[Batch],
) -> Result<HashMap<UserId, UserStacks>> {
    let fanouts = batches.iter().flat_map(Batch::fanouts_without_lead);
    let Some(window) = DaySet::from_days(fanouts.map(|fanout| Day::of(fanout.time()))) else {
        return Ok(HashMap::new());
    };
    let users = distinct(batches.iter().map(|batch| batch.user.clone()));
    let stacks = stacks.windows(window, &users).await?;
    Ok(users.into_iter().zip(stacks).collect())
}

/// Returns whether a batch has to exclude events that its user has muted.
fn has_mutes(user: &User, selection: Selection) -> bool {
    matches!(selection, Selection::Wanted(_)) && !user.mutes.is_empty()
}

/// Returns whether a batch may include this event for this user, regardless of its object.
fn wants(user: &User, selection: Selection, item: &BatchItem, event_facts: &EventFacts) -> bool {
    let Selection::Wanted(scope) = selection else {
        return true;
    };
    let (at, policies) = (item.fanout_id.time(), event_facts.policies());
    let is_muted = || eligibility::is_muted(&user.mutes, &item.clone().into(), at, event_facts);
    let facts = EligibilityFacts {
        before_start: user.start.is_some_and(|start| start.is_after(item.fanout_id)),
        muted: has_mutes(user, selection) && is_muted(),
        ..EligibilityFacts::default()
    };
    let purpose = Purpose::Batch(scope);
    classify(&item.kind, || at, facts, Some(user), policies, purpose).is_none()
}
