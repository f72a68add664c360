//! What stands in a digest: sections by type, in order, capped, with exact totals.
//!
//! The rule (P6): only what still applies and what the person wants is told; nothing left means no
//! mail. Within a section the newest comes first; what the caps cut off is counted ("+12 more") and
//! counts as mailed.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::delivery::Delivery;
use super::event::Event;
use super::name::{EventType, ObjectId};
use super::object::Object;
use super::policy::Policies;
use super::stack::{Pending, PersonStacks, Position};
use super::user::User;

/// How much one mail shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Items a section.
    pub section: usize,
    /// Items in all.
    pub total: usize,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            section: 12,
            total: 40,
        }
    }
}

/// One event with the object it is about.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// Where the event stands on the person's stacks.
    pub position: Position,
    /// What happened; the same throughout a section.
    pub kind: EventType,
    /// The object's id as the event names it, without the model.
    pub id: ObjectId,
    /// When it happened; the day's first moment where the event carries no time.
    pub at: DateTime<Utc>,
    /// The object's record, or a bare one where unknown objects are mailed.
    pub object: Arc<Object>,
}

/// All items of one type.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// The type; sections of a digest differ in it.
    pub kind: EventType,
    /// As configured; the type's name where no heading is.
    pub heading: String,
    /// Newest first.
    pub items: Vec<Item>,
    /// How many more there are than items shown.
    pub more: usize,
}

impl Section {
    /// How many events of the type there are, shown or only counted.
    pub fn total(&self) -> usize {
        self.items.len() + self.more
    }
}

/// What one mail tells one person.
#[derive(Debug, Clone, PartialEq)]
pub struct Digest {
    /// In the order of the configuration, then by name; each has at least one event.
    pub sections: Vec<Section>,
    /// All events it tells of, shown or counted.
    pub total: usize,
    /// When the oldest of them happened.
    pub oldest: DateTime<Utc>,
}

impl Digest {
    /// How many items it shows, at most [`Caps::total`].
    pub fn shown(&self) -> usize {
        self.sections
            .iter()
            .map(|section| section.items.len())
            .sum()
    }
}

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

/// Builds the digest of what is wanted and still applies; `None` if nothing is left.
///
/// `applies` gives the object of an event, or `None` where it no longer applies.
pub fn assemble(
    wanted: &[Pending<'_>],
    policies: &Policies,
    caps: Caps,
    applies: impl Fn(&Event) -> Option<Arc<Object>>,
) -> Option<Digest> {
    let mut sections: Vec<Section> = Vec::new();
    let mut oldest = None;
    for pending in wanted {
        let Some(object) = applies(pending.event) else {
            continue;
        };
        oldest = oldest.min(Some(pending.at)).or(Some(pending.at));
        let kind = &pending.event.t;
        let index = sections
            .iter()
            .position(|section| section.kind == *kind)
            .unwrap_or_else(|| {
                let heading = policies.heading(kind).to_owned();
                sections.push(Section {
                    kind: kind.clone(),
                    heading,
                    items: Vec::new(),
                    more: 0,
                });
                sections.len() - 1
            });
        let item = Item {
            position: pending.position,
            kind: kind.clone(),
            id: pending.event.o.clone(),
            at: pending.at,
            object,
        };
        sections[index].items.push(item);
    }
    let oldest = oldest?;
    let total = sections.iter().map(|section| section.items.len()).sum();
    sections.sort_by(|a, b| policies.rank(&a.kind).cmp(&policies.rank(&b.kind)));
    let mut room = caps.total;
    for section in &mut sections {
        section
            .items
            .sort_by_key(|item| std::cmp::Reverse((item.at, item.position)));
        let shown = section.items.len().min(caps.section).min(room);
        section.more = section.items.len() - shown;
        section.items.truncate(shown);
        room -= shown;
    }
    Some(Digest {
        sections,
        total,
        oldest,
    })
}

#[cfg(test)]
#[path = "digest_tests.rs"]
mod tests;
