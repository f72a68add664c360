//! Selects the events of a digest and builds its content: ordered, capped, with exact totals.
//!
//! Only events that still apply and that the user wants are included (P6). If none is left, no
//! email is sent. Each section shows its newest events first. Events cut off by the caps appear
//! only as a count ("+12 more"), but count as emailed.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::content::{Caps, Content, Grouping, Item, Told};
use super::day::Day;
use super::delivery::Delivery;
use super::eligibility::{Facts, Purpose, classify};
use super::event::Event;
use super::name::EventType;
use super::policy::{EmailScope, Policies};
use super::stack::{EventAt, PersonStacks};
use super::user::User;

/// Returns the pending events that the user's choices and this scope admit to digests.
pub fn wanted<'a>(
    person: &'a PersonStacks,
    user: &User,
    scope: EmailScope,
    policies: &Policies,
) -> Vec<EventAt<'a>> {
    person.pending_that(|event, day| is_wanted(event, day, user, scope, policies))
}

/// Returns the events of [`wanted`] that this delivery covers. Its own marker hides none of them.
pub fn wanted_by<'a>(
    row: &Delivery,
    person: &'a PersonStacks,
    user: &User,
    scope: EmailScope,
    policies: &Policies,
) -> Vec<EventAt<'a>> {
    let keep = |event: &Event, day| is_wanted(event, day, user, scope, policies);
    person.pending_within(&row.watermarks, row.marker, keep)
}

fn is_wanted(event: &Event, day: Day, user: &User, scope: EmailScope, policies: &Policies) -> bool {
    let (at, facts) = (|| event.at(day), Facts::default());
    let purpose = Purpose::Digest(scope);
    classify(&event.t, at, facts, Some(user), policies, purpose).is_none()
}

/// Builds the content of a digest, one item for each event. Returns `None` if no event applies.
///
/// `applies` returns the text to show for an event, or `None` if its object no longer applies.
pub fn assemble<T: Into<Told>>(
    wanted: &[EventAt<'_>],
    policies: &Policies,
    caps: Caps,
    applies: impl Fn(&Event) -> Option<T>,
) -> Option<Content> {
    let applying = wanted
        .iter()
        .filter_map(|pending| Some((pending, applies(pending.event)?.into())));
    let mut told: Vec<(&EventAt<'_>, Told)> = applying.collect();
    told.sort_by_key(|(pending, _)| Reverse((pending.at, pending.position)));
    let item = |(pending, told): (&EventAt<'_>, Told)| Item {
        id: pending.event.o.clone(),
        at: pending.at,
        object: told.object,
        details: told.details,
    };
    let told = told.into_iter().map(|told| (&told.0.event.t, item(told)));
    let mut content = Content::of(told.collect(), policies, Grouping::Each)?;
    content.cut(caps, 0);
    Some(content)
}

/// Returns the newest events that apply, at most `caps.section` of each type, newest first.
pub fn showable<'a>(
    wanted: &[EventAt<'a>],
    caps: Caps,
    applies: impl Fn(&Event) -> bool,
) -> Vec<&'a Event> {
    let mut newest: Vec<&EventAt<'a>> = wanted.iter().collect();
    newest.sort_by_key(|pending| Reverse((pending.at, pending.position)));
    let mut shown: HashMap<&EventType, usize> = HashMap::new();
    newest.retain(|pending| {
        let of_type = shown.entry(&pending.event.t).or_default();
        let shows = *of_type < caps.section && applies(pending.event);
        *of_type += usize::from(shows);
        shows
    });
    newest.into_iter().map(|pending| pending.event).collect()
}

#[cfg(test)]
#[path = "digest_tests.rs"]
mod tests;
