//! Excludes events that no email may include, and finds muted ones.
//!
//! Digests, backlogs, flushes and previews use it, and so does the check just before sending. A
//! removed entry leaves a gap, so positions stay the same and markers stay valid. Mutes depend on
//! the event's object and details (P7); nothing is looked up for users without mutes. Start with
//! [`exclude_ineligible`].

pub mod event_facts;

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use crate::context::Context;
use crate::domain::feed_marks::ItemState;
use crate::domain::{
    Event, Facts, Inbox, Mutes, Policies, Position, Purpose, Stack, User, UserId, UserStacks,
    classify,
};
use crate::store::Result;
use event_facts::{Catalog, StackEvents};

/// Removes the excluded events from stacks with pending events, and the users who have none left.
/// Returns the records of the other users in the order of their stacks.
pub async fn exclude_ineligible(
    people: &mut Vec<UserStacks>,
    catalog: &mut Catalog,
) -> Result<Vec<Option<User>>> {
    let has_pending = |person: &UserStacks| person.stacks.iter().any(Stack::has_uncovered);
    people.retain(has_pending);
    let (mut users, inboxes) = load_readers(people, catalog).await?;
    exclude(people, &users, &inboxes, StackEvents::Uncovered, catalog).await?;
    let mut left = people.iter().map(has_pending);
    users.retain(|_| left.next().unwrap_or(false));
    people.retain(has_pending);
    Ok(users)
}

/// Loads the records of these users, and their inboxes if digests skip seen events.
pub async fn load_readers(
    people: &[UserStacks],
    catalog: &Catalog,
) -> Result<(Vec<Option<User>>, Vec<Option<Inbox>>)> {
    let ids: Vec<UserId> = people.iter().map(|person| person.user.clone()).collect();
    let context = catalog.context();
    futures::try_join!(context.store.users(&ids), load_inboxes(context, &ids))
}

/// Removes the excluded events from stacks, of users with these records and inboxes, all in the
/// same order. Facts are only loaded for the events that `which` selects.
pub async fn exclude(
    people: &mut [UserStacks],
    users: &[Option<User>],
    inboxes: &[Option<Inbox>],
    which: StackEvents,
    catalog: &mut Catalog,
) -> Result<()> {
    catalog.begin_chunk();
    catalog.load_retractions(people, which).await?;
    let muting = people.iter().zip(users).filter_map(|(person, user)| {
        let mutes = user.as_ref().map(|user| &user.mutes);
        Some((person, mutes.filter(|mutes| !mutes.is_empty())?))
    });
    let muting = muting.flat_map(|(person, mutes)| {
        let events = which.events(person);
        events.map(move |(place, event)| (mutes, event, event.at(place.stack.day)))
    });
    let muting = possibly_muted(muting, catalog.policies());
    load_mute_facts(muting, catalog).await?;
    let (catalog, none) = (&*catalog, Mutes::default());
    for ((person, user), inbox) in people.iter_mut().zip(users).zip(inboxes) {
        let start = user.as_ref().and_then(|user| user.start);
        let mutes = user.as_ref().map_or(&none, |user| &user.mutes);
        if !catalog.knows_retracted() && start.is_none() && inbox.is_none() && mutes.is_empty() {
            continue;
        }
        person.exclude(|place, event| {
            let at = || event.at(place.stack.day);
            let facts = Facts {
                before_start: start.is_some_and(|start| start.hides(place, event)),
                retracted: catalog.is_retracted(event),
                muted: !mutes.is_empty() && is_muted(mutes, event, at(), catalog),
                seen: inbox.as_ref().is_some_and(|inbox| is_seen(inbox, place)),
                ..Facts::default()
            };
            let (policies, purpose) = (catalog.policies(), Purpose::Email);
            classify(&event.t, at, facts, None, policies, purpose).is_some()
        });
    }
    Ok(())
}

/// Returns the inboxes of these users, in their order, if digests skip events that were seen in the
/// feed (`digest.skip_seen`); otherwise and for users without one, `None`. An event that arrives
/// after the user marked its object is new. Events older than `feed.since` count as not seen here.
pub async fn load_inboxes(context: &Context, users: &[UserId]) -> Result<Vec<Option<Inbox>>> {
    match context.config.digest.skip_seen {
        true => context.store.inboxes(users).await,
        false => Ok(vec![None; users.len()]),
    }
}

/// Returns whether the user saw the entry at this position.
pub fn is_seen(inbox: &Inbox, place: Position) -> bool {
    inbox.state(place) > ItemState::Unseen
}

/// Returns whether a mute can exclude the event, before anything is looked up. `classify` ignores
/// mutes of mandatory types.
pub fn may_be_muted(mutes: &Mutes, event: &Event, at: DateTime<Utc>, policies: &Policies) -> bool {
    mutes.may_cover(at) && !policies.is_mandatory(&event.t)
}

/// Returns whether the event's subject is muted. The event must have been loaded
/// ([`load_mute_facts`]).
pub fn is_muted(mutes: &Mutes, event: &Event, at: DateTime<Utc>, catalog: &Catalog) -> bool {
    muted_since(mutes, event, at, catalog).is_some()
}

/// Returns since when the event's subject is muted; `None` if it is not.
pub fn muted_since(
    mutes: &Mutes,
    event: &Event,
    at: DateTime<Utc>,
    catalog: &Catalog,
) -> Option<DateTime<Utc>> {
    let policies = catalog.policies();
    if !may_be_muted(mutes, event, at, policies) {
        return None;
    }
    let object = catalog.record(event);
    let phrase = policies.of(&event.t).phrase.as_ref();
    let details = catalog.details(event);
    let key = catalog.key(event);
    mutes.cover(at, &key, object.as_deref(), phrase, details.as_deref())
}

/// Returns the events that may be muted, before anything is looked up.
fn possibly_muted<'a>(
    events: impl Iterator<Item = (&'a Mutes, &'a Event, DateTime<Utc>)>,
    policies: &Policies,
) -> Vec<Event> {
    let possible = events.filter(|(mutes, event, at)| may_be_muted(mutes, event, *at, policies));
    possible.map(|(_, event, _)| event.clone()).collect()
}

/// Loads the objects and details of these events, for [`is_muted`].
pub async fn load_mute_facts(events: Vec<Event>, catalog: &mut Catalog) -> Result<()> {
    if events.is_empty() {
        return Ok(());
    }
    catalog.load(events.iter()).await?;
    catalog.load_details(events.iter()).await
}

/// The positions of muted events, and since when each is muted.
pub type MutedPositions = HashMap<Position, DateTime<Utc>>;

/// Returns the positions of muted events in a user's stacks, and since when each is muted.
pub async fn muted_positions(
    person: &UserStacks,
    mutes: &Mutes,
    catalog: &mut Catalog,
) -> Result<MutedPositions> {
    let events = || {
        let events = person.stacks.iter().flat_map(Stack::events);
        events.map(|(place, event)| (place, event, event.at(place.stack.day)))
    };
    let mutable = events().map(|(_, event, at)| (mutes, event, at));
    let mutable = possibly_muted(mutable, catalog.policies());
    load_mute_facts(mutable, catalog).await?;
    let muted = events().filter_map(|(place, event, at)| {
        let since = muted_since(mutes, event, at, catalog)?;
        Some((place, since))
    });
    Ok(muted.collect())
}
