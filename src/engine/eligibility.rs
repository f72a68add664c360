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
    EligibilityFacts, Event, Inbox, Mutes, Policies, Position, Purpose, Stack, User, UserId,
    UserStacks,
};
use crate::store::Result;
use event_facts::{EventFacts, StackEvents};

/// Removes the excluded events from stacks with pending events, and the users who have none left.
/// Returns the records of the other users in the order of their stacks.
pub async fn exclude_ineligible(
    stacks: &mut Vec<UserStacks>,
    event_facts: &mut EventFacts,
) -> Result<Vec<Option<User>>> {
    let has_pending =
        |user_stacks: &UserStacks| user_stacks.stacks.iter().any(Stack::has_uncovered);
    stacks.retain(has_pending);
    let (users, inboxes) = load_users_and_inboxes(stacks, event_facts).await?;
    exclude_events(stacks, &users, &inboxes, StackEvents::Uncovered, event_facts).await?;
    let with_users = std::mem::take(stacks).into_iter().zip(users);
    let (pending, users) = with_users.filter(|(user_stacks, _)| has_pending(user_stacks)).unzip();
    *stacks = pending;
    Ok(users)
}

/// Loads the records of these users, and their inboxes if digests skip seen events.
pub async fn load_users_and_inboxes(
    stacks: &[UserStacks],
    event_facts: &EventFacts,
) -> Result<(Vec<Option<User>>, Vec<Option<Inbox>>)> {
    let ids: Vec<UserId> = stacks.iter().map(|user_stacks| user_stacks.user.clone()).collect();
    let context = event_facts.context();
    futures::try_join!(context.store.users(&ids), load_inboxes(context, &ids))
}

/// Removes the excluded events from stacks. The records and inboxes of their users are in the same
/// order. Facts are only loaded for the events of the selection.
pub async fn exclude_events(
    stacks: &mut [UserStacks],
    users: &[Option<User>],
    inboxes: &[Option<Inbox>],
    selection: StackEvents,
    event_facts: &mut EventFacts,
) -> Result<()> {
    event_facts.begin_chunk();
    event_facts.load_retractions(stacks, selection).await?;
    let mut candidates = Vec::new();
    for (user_stacks, user) in stacks.iter().zip(users) {
        if let Some(user) = user {
            let events = selection.events(user_stacks);
            candidates.extend(possibly_muted(events, &user.mutes, event_facts.policies()));
        }
    }
    load_mute_facts(candidates, event_facts).await?;
    let (event_facts, no_mutes) = (&*event_facts, Mutes::default());
    for ((user_stacks, user), inbox) in stacks.iter_mut().zip(users).zip(inboxes) {
        let start = user.as_ref().and_then(|user| user.start);
        let mutes = user.as_ref().map_or(&no_mutes, |user| &user.mutes);
        if !event_facts.has_retractions() && start.is_none() && inbox.is_none() && mutes.is_empty()
        {
            continue;
        }
        user_stacks.hide(|position, event| {
            let at = || event.time(position.stack.day);
            let facts = EligibilityFacts {
                before_start: start.is_some_and(|start| start.hides(position, event)),
                retracted: event_facts.is_retracted(event),
                muted: !mutes.is_empty() && is_muted(mutes, event, at(), event_facts),
                seen: inbox.as_ref().is_some_and(|inbox| is_seen(inbox, position)),
                ..EligibilityFacts::default()
            };
            event_facts.exclusion(event, facts, Purpose::Email).is_some()
        });
    }
    Ok(())
}

/// Returns the inboxes of these users, in their order, if digests skip events that were seen in the
/// feed (`digest.skip_seen`); otherwise and for users without one, `None`. An event that arrives
/// after the user marked its object is new. Events older than `feed.since` count as not seen here.
pub async fn load_inboxes(context: &Context, users: &[UserId]) -> Result<Vec<Option<Inbox>>> {
    if context.config.digest.skip_seen {
        context.store.inboxes(users).await
    } else {
        Ok(vec![None; users.len()])
    }
}

/// Returns whether the user saw the entry at this position.
pub fn is_seen(inbox: &Inbox, position: Position) -> bool {
    inbox.state(position) > ItemState::Unseen
}

/// Returns whether a mute can exclude the event, before anything is looked up. `classify` ignores
/// mutes of mandatory types.
pub fn may_be_muted(mutes: &Mutes, event: &Event, at: DateTime<Utc>, policies: &Policies) -> bool {
    mutes.may_cover(at) && !policies.is_mandatory(&event.kind)
}

/// Returns whether the event's subject is muted. The event must have been loaded
/// ([`load_mute_facts`]).
pub fn is_muted(mutes: &Mutes, event: &Event, at: DateTime<Utc>, event_facts: &EventFacts) -> bool {
    muted_since(mutes, event, at, event_facts).is_some()
}

/// Returns since when the event's subject is muted; `None` if it is not.
pub fn muted_since(
    mutes: &Mutes,
    event: &Event,
    at: DateTime<Utc>,
    event_facts: &EventFacts,
) -> Option<DateTime<Utc>> {
    let policies = event_facts.policies();
    if !may_be_muted(mutes, event, at, policies) {
        return None;
    }
    let object = event_facts.object(event);
    let phrase = policies.policy(&event.kind).phrase.as_ref();
    let details = event_facts.details(event);
    let key = event_facts.object_key(event);
    mutes.covering_start(at, &key, object.as_deref(), phrase, details.as_deref())
}

/// Returns the events that may be muted, before anything is looked up.
fn possibly_muted<'a>(
    events: impl Iterator<Item = (Position, &'a Event)>,
    mutes: &Mutes,
    policies: &Policies,
) -> Vec<Event> {
    if mutes.is_empty() {
        return Vec::new();
    }
    events
        .filter(|(position, event)| {
            may_be_muted(mutes, event, event.time(position.stack.day), policies)
        })
        .map(|(_, event)| event.clone())
        .collect()
}

/// Loads the objects and details of these events, for [`is_muted`].
pub async fn load_mute_facts(events: Vec<Event>, event_facts: &mut EventFacts) -> Result<()> {
    if events.is_empty() {
        return Ok(());
    }
    event_facts.load_objects_and_retractions(events.iter()).await?;
    event_facts.load_details(events.iter()).await
}

/// The positions of muted events, and since when each is muted.
pub type MutedPositions = HashMap<Position, DateTime<Utc>>;

/// Returns the positions of muted events in a user's stacks, and since when each is muted.
pub async fn muted_positions(
    user_stacks: &UserStacks,
    mutes: &Mutes,
    event_facts: &mut EventFacts,
) -> Result<MutedPositions> {
    let events = || user_stacks.stacks.iter().flat_map(Stack::events);
    load_mute_facts(possibly_muted(events(), mutes, event_facts.policies()), event_facts).await?;
    let muted = events().filter_map(|(position, event)| {
        let since = muted_since(mutes, event, event.time(position.stack.day), event_facts)?;
        Some((position, since))
    });
    Ok(muted.collect())
}
