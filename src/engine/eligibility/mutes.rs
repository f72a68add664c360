//! Finds the events whose subjects a user muted (P7).
//!
//! That depends on the user's current mutes ([`crate::domain::Mutes`]), the event's object and its
//! details. Nothing is looked up for users without mutes, or for mandatory types.

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use super::catalog::Catalog;
use crate::domain::{Event, Mutes, PersonStacks, Policies, Position, Stack};
use crate::store::Result;

/// Returns whether a mute can exclude the event, before anything is looked up. `classify` ignores
/// mutes of mandatory types.
fn may_be(mutes: &Mutes, event: &Event, at: DateTime<Utc>, policies: &Policies) -> bool {
    mutes.may_cover(at) && !policies.is_mandatory(&event.t)
}

/// Returns whether the event's subject is muted. The event must have been loaded ([`look_up`]).
pub fn is_muted(mutes: &Mutes, event: &Event, at: DateTime<Utc>, catalog: &Catalog) -> bool {
    since(mutes, event, at, catalog).is_some()
}

/// Returns since when the event's subject is muted; `None` if it is not.
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

/// Returns the events that may be muted, before anything is looked up.
pub fn possible<'a>(
    events: impl Iterator<Item = (&'a Mutes, &'a Event, DateTime<Utc>)>,
    policies: &Policies,
) -> Vec<Event> {
    let possible = events.filter(|(mutes, event, at)| may_be(mutes, event, *at, policies));
    possible.map(|(_, event, _)| event.clone()).collect()
}

/// Loads the objects and details of these events, for [`is_muted`].
pub async fn look_up(events: Vec<Event>, catalog: &mut Catalog) -> Result<()> {
    if events.is_empty() {
        return Ok(());
    }
    catalog.load(events.iter()).await?;
    catalog.load_details(events.iter()).await
}

/// The positions of muted events, and since when each is muted.
pub type Places = HashMap<Position, DateTime<Utc>>;

/// Returns the positions of muted events in a user's stacks, and since when each is muted.
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
