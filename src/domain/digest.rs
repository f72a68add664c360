//! What a digest tells: which events go into it, in order, capped, with exact totals.
//!
//! The rule (P6): only what still applies and what the person wants is told; nothing left means no
//! mail. Within a section the newest comes first; what the caps cut off is counted ("+12 more") and
//! counts as mailed.

use std::cmp::Reverse;
use std::sync::Arc;

use super::content::{Caps, Content, Grouping, Item};
use super::delivery::Delivery;
use super::event::Event;
use super::object::Object;
use super::policy::Policies;
use super::stack::{Pending, PersonStacks};
use super::user::User;

/// The pending events that go into this person's digest, whatever became of their objects.
pub fn wanted<'a>(person: &'a PersonStacks, user: &User, policies: &Policies) -> Vec<Pending<'a>> {
    person.pending_that(|event, at| user.wants_in_digest(&event.t, at, policies))
}

/// The same of what this row covers.
pub fn wanted_by<'a>(
    row: &Delivery,
    person: &'a PersonStacks,
    user: &User,
    policies: &Policies,
) -> Vec<Pending<'a>> {
    let keep = |event: &Event, at| user.wants_in_digest(&event.t, at, policies);
    person.pending_within(&row.watermarks, row.marker, keep)
}

/// What is wanted and still applies, each item for itself; `None` if nothing is left.
///
/// `applies` gives the object of an event, or `None` where it no longer applies.
pub fn assemble(
    wanted: &[Pending<'_>],
    policies: &Policies,
    caps: Caps,
    applies: impl Fn(&Event) -> Option<Arc<Object>>,
) -> Option<Content> {
    let applying = wanted
        .iter()
        .filter_map(|pending| Some((pending, applies(pending.event)?)));
    let mut told: Vec<(&Pending<'_>, Arc<Object>)> = applying.collect();
    told.sort_by_key(|(pending, _)| Reverse((pending.at, pending.position)));
    let item = |(pending, object): (&Pending<'_>, Arc<Object>)| Item {
        id: pending.event.o.clone(),
        at: pending.at,
        object,
    };
    let told = told.into_iter().map(|told| (&told.0.event.t, item(told)));
    let mut content = Content::of(told.collect(), policies, Grouping::Each)?;
    content.cut(caps, 0);
    Some(content)
}

#[cfg(test)]
#[path = "digest_tests.rs"]
mod tests;
