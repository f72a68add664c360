//! What people muted is left out: of mails when they are built and when they leave, and of what is
//! owed.
//!
//! The rule (P7): whether an event is muted is asked of the person's record as it stands
//! ([`crate::domain::Mutes`]), of the event's object, and of what is said of the event. Whoever
//! muted nothing costs nothing: of them nothing is looked up. What is mandatory is never muted.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};

use super::catalog::{Catalog, StackEvents};
use crate::domain::{Event, Mutes, PersonStacks, Policies, Position, Stack, User};
use crate::store::Result;

/// Whether an event may be muted, before anything is looked up.
fn may_be(mutes: &Mutes, event: &Event, at: DateTime<Utc>, policies: &Policies) -> bool {
    mutes.may_cover(at) && !policies.is_mandatory(&event.t)
}

/// Whether these mute what the event is about; whatever that rests on is in the catalog
/// ([`look_up`]).
pub fn is_muted(mutes: &Mutes, event: &Event, at: DateTime<Utc>, catalog: &Catalog) -> bool {
    since(mutes, event, at, catalog).is_some()
}

/// Since when it is muted, if it is.
pub fn since(
    mutes: &Mutes,
    event: &Event,
    at: DateTime<Utc>,
    catalog: &Catalog,
) -> Option<DateTime<Utc>> {
    let policies = catalog.policies();
    if !may_be(mutes, event, at, policies) {
        return None;
    }
    let object = catalog.record(event);
    let phrase = policies.of(&event.t).phrase.as_ref();
    let details = catalog.details(event);
    let key = catalog.key(event);
    mutes.cover(at, &key, object.as_deref(), phrase, details.as_deref())
}

/// Those of these events that may be muted, as far as is known before anything is looked up.
pub fn possible<'a>(
    events: impl Iterator<Item = (&'a Mutes, &'a Event, DateTime<Utc>)>,
    policies: &Policies,
) -> Vec<Event> {
    let possible = events.filter(|(mutes, event, at)| may_be(mutes, event, *at, policies));
    possible.map(|(_, event, _)| event.clone()).collect()
}

/// Looks up what is needed to say which of these are muted.
pub async fn look_up(events: Vec<Event>, catalog: &mut Catalog) -> Result<()> {
    if events.is_empty() {
        return Ok(());
    }
    catalog.load(events.iter()).await?;
    catalog.load_details(events.iter()).await
}

/// Removes muted events, among those that `which` selects. `users` are in the order of `people`.
/// Entries keep their positions.
pub async fn exclude_muted(
    people: &mut [PersonStacks],
    users: &[Option<User>],
    which: StackEvents,
    catalog: &mut Catalog,
) -> Result<()> {
    let pairs = people.iter_mut().zip(users);
    let muting = pairs.filter_map(|(person, user)| Some((person, &user.as_ref()?.mutes)));
    let muting = muting.filter(|(_, mutes)| !mutes.is_empty());
    let mut muting: Vec<(&mut PersonStacks, &Mutes)> = muting.collect();
    if muting.is_empty() {
        return Ok(());
    }
    let asked = muting.iter().flat_map(|(person, mutes)| {
        let events = which.events(person).into_iter();
        events.map(|(place, event)| (*mutes, event, event.at(place.stack.day)))
    });
    let asked = possible(asked, catalog.policies());
    look_up(asked, catalog).await?;
    for (person, mutes) in &mut muting {
        let muted = which.events(person).into_iter().filter(|(place, event)| {
            let at = event.at(place.stack.day);
            is_muted(mutes, event, at, catalog)
        });
        let muted: HashSet<Position> = muted.map(|(place, _)| place).collect();
        if !muted.is_empty() {
            person.leave_out(|place, _| muted.contains(&place));
        }
    }
    Ok(())
}

/// Places of what is muted, and since when.
pub type Places = HashMap<Position, DateTime<Utc>>;

/// The places of what these mute of a person's stacks; of whoever muted nothing nothing is looked
/// up.
pub async fn places(person: &PersonStacks, mutes: &Mutes, catalog: &mut Catalog) -> Result<Places> {
    let events = || {
        let events = person.stacks.iter().flat_map(Stack::events);
        events.map(|(place, event)| (place, event, event.at(place.stack.day)))
    };
    let asked = possible(
        events().map(|(_, event, at)| (mutes, event, at)),
        catalog.policies(),
    );
    look_up(asked, catalog).await?;
    let muted = events().filter_map(|(place, event, at)| {
        let since = since(mutes, event, at, catalog)?;
        Some((place, since))
    });
    Ok(muted.collect())
}
