//! What a batch's mail tells: what is kept of the batch and still applies, by what it is about.
//!
//! The rule (P6): each object of a type is told once, as of the last time; nothing left of what was
//! kept means no mail. Decision 10 says what an object is about.

use super::{Caps, Content, Grouping, Item, Told};
use crate::domain::batch::{BatchKey, Item as Kept};
use crate::domain::event::Event;
use crate::domain::name::EventType;
use crate::domain::policy::Policies;

/// How many sections a mail shows.
const SECTIONS: usize = 20;

/// Groups what is kept of a batch, in the order of joining, and `not_kept` more that are counted;
/// `None` if nothing that is kept applies.
///
/// `applies` gives what is told of an event, or `None` where its object no longer applies.
pub fn gather<T: Into<Told>>(
    key: &BatchKey,
    kept: &[Kept],
    not_kept: u64,
    policies: &Policies,
    applies: impl Fn(&Event) -> Option<T>,
) -> Option<Content> {
    let told = newest_first(kept, applies);
    let mut content = Content::of(told, policies, Grouping::ByAbout)?;
    content.total += not_kept;
    content.not_kept = not_kept;
    if let (Some(kind), Some(section)) = (key.kind(), content.sections.first_mut())
        && *kind == section.kind
    {
        section.not_kept = not_kept;
        section.total += not_kept;
    }
    content.sections.truncate(SECTIONS);
    // Every section shows something, before one has more than its part.
    content.cut(Caps::default(), 1);
    Some(content)
}

/// Those that apply, each object of a type once: the last time it happened.
fn newest_first<T: Into<Told>>(
    kept: &[Kept],
    applies: impl Fn(&Event) -> Option<T>,
) -> Vec<(&EventType, Item)> {
    let mut items: Vec<(usize, &EventType, Item)> = Vec::new();
    for (index, kept) in kept.iter().enumerate() {
        let Some(told) = applies(&Event::from(kept.clone())) else {
            continue;
        };
        let Told { object, details } = told.into();
        let (id, at) = (kept.o.clone(), kept.i.time());
        let item = Item {
            id,
            at,
            object,
            details,
        };
        let same = |(_, kind, known): &&mut (usize, &EventType, Item)| {
            **kind == kept.t && known.id == item.id
        };
        match items.iter_mut().find(same) {
            Some(known) if known.2.at <= item.at => (known.0, known.2) = (index, item),
            Some(_) => {}
            None => items.push((index, &kept.t, item)),
        }
    }
    items.sort_by_key(|(index, _, item)| std::cmp::Reverse((item.at, *index)));
    let told = items.into_iter().map(|(_, kind, item)| (kind, item));
    told.collect()
}

#[cfg(test)]
#[path = "gather_tests.rs"]
mod tests;
