//! Finds out which email included an event, or who else covered it. For batches, see [`batch`].
//!
//! The first marker over an event decides. Its id is that of a delivery, or else of a flush,
//! because the ledger is kept longer than the window. A marker without `n` is from an older writer.
//! A digest's content is reconstructed as of its build: the first variant with as many events as
//! its row recorded. If none fits, the place is unknown.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};

use crate::domain::EmailScope;
use crate::domain::content::Caps;
use crate::domain::digest::{assemble, wanted_by};
use crate::domain::stack::EventAt;
use crate::domain::{
    Content, Delivery, Entry, Event, Id, Marker, Occasion, PersonStacks, Policies, Position, Stack,
    User,
};
use crate::engine::eligibility::catalog::Catalog;
use crate::wire::explanation::{By, LeftOut, Place};

mod batch;

pub(crate) use batch::BatchMail;

/// Returns the reason why no email built at that time could include the event, by its object and
/// retraction.
fn unfit(catalog: &Catalog, event: &Event, built: DateTime<Utc>) -> Option<LeftOut> {
    if catalog.was_retracted(event, built) {
        return Some(LeftOut::Retracted);
    }
    match catalog.mailable(event) {
        Some(_) => None,
        None if catalog.recorded(event).is_some() => Some(LeftOut::Withdrawn),
        None => Some(LeftOut::UnknownObject),
    }
}

/// Returns the variants of a digest's events: all of them, without those set aside, and without
/// those set aside for one reason only.
fn parts<'p>(
    whole: &[EventAt<'p>],
    aside: impl Fn(Position) -> Option<LeftOut>,
) -> Vec<Vec<EventAt<'p>>> {
    let without = |is_out: &dyn Fn(LeftOut) -> bool| {
        let left = |of: &&EventAt<'p>| !aside(of.position).is_some_and(is_out);
        whole.iter().filter(left).copied().collect()
    };
    let mut parts: Vec<Vec<EventAt<'p>>> = vec![whole.to_vec()];
    let some = |why: LeftOut| whole.iter().any(|of| aside(of.position) == Some(why));
    let (seen, muted) = (some(LeftOut::Seen), some(LeftOut::Muted));
    if seen || muted {
        parts.push(without(&|_| true));
    }
    if seen && muted {
        parts.push(without(&|why| why == LeftOut::Muted));
        parts.push(without(&|why| why == LeftOut::Seen));
    }
    parts
}

/// The place of each event in a digest, and why the digest excluded it.
type Places = HashMap<Position, (Place, Option<LeftOut>)>;

/// A user's digests, by their markers.
pub(crate) struct Mails<'a> {
    catalog: &'a Catalog,
    rows: HashMap<Id, (&'a Delivery, Places)>,
}

impl<'a> Mails<'a> {
    /// Reconstructs the digests whose markers are on these stacks. `aside` returns why an email
    /// built at that time may have excluded a wanted event: it was seen, or muted by then.
    pub(crate) fn of(
        rows: impl IntoIterator<Item = &'a Delivery>,
        person: &PersonStacks,
        user: Option<&User>,
        policies: &Policies,
        caps: Caps,
        catalog: &'a Catalog,
        aside: impl Fn(Position, DateTime<Utc>) -> Option<LeftOut>,
    ) -> Self {
        // Events that were retracted by then are removed below.
        let applies = |event: &Event| catalog.mailable(event);
        let places = |row: &Delivery| {
            let Some(user) = user else {
                return HashMap::new();
            };
            let built = row.built_at();
            let aside = |place| aside(place, built);
            let mut person = person.clone();
            person.leave_out(|_, event| catalog.was_retracted(event, built));
            let pending = person.pending_within(&row.watermarks, row.marker, |_, _| true);
            let wanted = |scope| wanted_by(row, &person, user, scope, policies);
            let (whole, obliged) = (wanted(EmailScope::All), wanted(EmailScope::MandatoryOnly));
            let told = u64::from(row.outcome.items);
            let chosen: HashSet<Position> = whole.iter().map(|of| of.position).collect();
            // Some events may have been seen or muted by then, or only mandatory types were wanted.
            let mut ways = vec![whole.clone()];
            if told > 0 {
                ways = parts(&whole, aside);
                ways.extend(parts(&obliged, aside));
                if whole.iter().all(|pending| applies(pending.event).is_some()) {
                    // No object was withdrawn since. So if these are too few, the user wanted more
                    // types then.
                    ways.extend(parts(&pending, aside));
                }
            }
            let total = |digest: &Option<Content>| digest.as_ref().map_or(0, |of| of.total);
            let assembled = |part: Vec<_>| {
                let digest = assemble(&part, policies, caps, applies);
                (part, digest)
            };
            let mut fitting = ways.into_iter().map(assembled);
            let fitting = fitting.find(|(_, digest)| total(digest) == told);
            let (wanted, digest) = fitting.unwrap_or_else(|| assembled(whole));
            let now = total(&digest);
            if now > told || now < told && wanted.iter().all(|of| applies(of.event).is_some()) {
                // Objects or choices have changed since, and it is unknown which.
                return HashMap::new();
            }
            let unwanted = |place| {
                let why = aside(place).filter(|_| chosen.contains(&place));
                why.unwrap_or(LeftOut::NotWanted)
            };
            let left_out = |place| (place, (Place::LeftOut, Some(unwanted(place))));
            let mut places: Places = pending.iter().map(|of| left_out(of.position)).collect();
            let items = digest.iter().flat_map(Content::items);
            let shown: HashSet<_> = items.map(|(kind, item)| (kind, &item.id)).collect();
            for pending in &wanted {
                let event = pending.event;
                let place = match applies(event) {
                    Some(_) if shown.contains(&(&event.t, &event.o)) => Place::Shown,
                    Some(_) => Place::Counted,
                    // Its object may have been notifiable then.
                    None if now < told => Place::Unknown,
                    None => Place::LeftOut,
                };
                let why = (place == Place::LeftOut).then(|| unfit(catalog, event, built));
                places.insert(pending.position, (place, why.flatten()));
            }
            places
        };
        let digests = rows
            .into_iter()
            .filter(|row| matches!(row.occasion, Occasion::Digest { .. }))
            .filter(|row| person.hold_marker(row.marker));
        Self {
            catalog,
            rows: digests
                .map(|row| (row.marker, (row, places(row))))
                .collect(),
        }
    }

    /// Returns why the email could not include the event at this position.
    fn why_never(&self, stack: &Stack, position: Position, row: &Delivery) -> LeftOut {
        let event = match stack.entries.get(position.index as usize) {
            Some(Entry::Event(event)) => Some(event),
            _ => None,
        };
        let why = event.and_then(|event| unfit(self.catalog, event, row.built_at()));
        why.unwrap_or(LeftOut::Repeated)
    }

    /// Returns the email, flush or older writer that covered the event at this position, if any.
    pub(crate) fn by(&self, stack: &Stack, position: Position) -> Option<By> {
        let marker = stack.covering(position.index)?;
        let Marker { id, n } = marker;
        let mail = id.and_then(|id| self.rows.get(&id));
        Some(match (mail, id, n) {
            (Some((row, places)), _, _) => {
                let (place, left_out) = match places.get(&position) {
                    _ if places.is_empty() => (Place::Unknown, None),
                    Some(place) => *place,
                    None => (Place::LeftOut, Some(self.why_never(stack, position, row))),
                };
                By::Mail {
                    delivery: row.id.clone(),
                    state: row.state,
                    at: row.outcome.settled.unwrap_or(row.built_at()),
                    place,
                    left_out,
                }
            }
            (None, Some(id), Some(_)) => By::Flush { at: id.time() },
            (None, id, _) => By::OlderWriter {
                at: id.map(Id::time),
            },
        })
    }
}
