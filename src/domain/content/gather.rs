//! Builds the content of a batch's email: the kept events that still apply, grouped by topic.
//!
//! Each object of a type appears once, at the time of its last event. If no kept event applies, no
//! email is sent (P6). Decision 10 in `docs/decisions` defines the topic.

use super::{Caps, Content, Grouping, Item, Told};
use crate::domain::batch::{BatchKey, Item as Kept};
use crate::domain::event::Event;
use crate::domain::name::EventType;
use crate::domain::policy::Policies;

/// The most sections that an email shows.
const SECTIONS: usize = 20;

/// Groups the kept events of a batch, given in the order of joining. `not_kept` more are only
/// counted.
///
/// `applies` returns the data to show for an event, or `None` if its object no longer applies. The
/// result is `None` if no kept event applies.
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
    // Every section shows at least one item before another gets more than its share.
    content.cut(Caps::default(), 1);
    Some(content)
}

/// Returns the events that apply, newest first. Each object of a type appears once, at the time of
/// its last event.
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
