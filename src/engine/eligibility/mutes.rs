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

/// Places of what is muted, and since when.
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
