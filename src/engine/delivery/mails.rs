//! Finds out which email included an event, or who else covered it.
//!
//! The first marker over an event decides. Its id is that of a delivery, or else of a flush,
//! because the ledger is kept longer than the window. A marker without `n` is from an older writer.
//! The content of an email is reconstructed as of its build: the first variant with as many events
//! as its row recorded. If none fits, the place is unknown.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::domain::batch::Item;
use crate::domain::content::{Caps, gather};
use crate::domain::digest::{assemble, wanted_by};
use crate::domain::stack::EventAt;
use crate::domain::{
    Batch, Content, Delivery, EmailScope, Entry, Event, EventType, Facts, Id, Marker, Object,
    ObjectId, Occasion, PersonStacks, Policies, Position, Purpose, Stack, User, classify,
};
use crate::engine::eligibility::catalog::Catalog;
use crate::wire::explanation::{By, LeftOut, Place};

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

fn by_mail(row: &Delivery, place: Place, left_out: Option<LeftOut>) -> By {
    By::Mail {
        delivery: row.id.clone(),
        state: row.state,
        at: row.outcome.settled.unwrap_or(row.built_at()),
        place,
        left_out,
    }
}

/// Returns the variants of a digest's events: all of them, without the excluded ones, and without
/// those that are excluded for one reason only.
fn parts<'p>(
    whole: &[EventAt<'p>],
    excluded: impl Fn(Position) -> Option<LeftOut>,
) -> Vec<Vec<EventAt<'p>>> {
    let without = |is_out: &dyn Fn(LeftOut) -> bool| {
        let left = |of: &&EventAt<'p>| !excluded(of.position).is_some_and(is_out);
        whole.iter().filter(left).copied().collect()
    };
    let mut parts: Vec<Vec<EventAt<'p>>> = vec![whole.to_vec()];
    let some = |why: LeftOut| whole.iter().any(|of| excluded(of.position) == Some(why));
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
    /// Reconstructs the digests whose markers are on these stacks. `excluded` returns why an email
    /// built at that time may have excluded a wanted event: it was seen, or muted by then.
    pub(crate) fn of(
        rows: impl IntoIterator<Item = &'a Delivery>,
        person: &PersonStacks,
        user: Option<&User>,
        policies: &Policies,
        caps: Caps,
        catalog: &'a Catalog,
        excluded: impl Fn(Position, DateTime<Utc>) -> Option<LeftOut>,
    ) -> Self {
        // Events that were retracted by then are removed below.
        let applies = |event: &Event| catalog.mailable(event);
        let places = |row: &Delivery| {
            let Some(user) = user else {
                return HashMap::new();
            };
            let built = row.built_at();
            let excluded = |place| excluded(place, built);
            let mut person = person.clone();
            person.leave_out(|_, event| catalog.was_retracted(event, built));
            let pending = person.pending_within(&row.watermarks, row.marker, |_, _| true);
            let wanted = |scope| wanted_by(row, &person, user, scope, policies);
            let (whole, mandatory) = (wanted(EmailScope::All), wanted(EmailScope::MandatoryOnly));
            let sent = u64::from(row.outcome.items);
            let chosen: HashSet<Position> = whole.iter().map(|of| of.position).collect();
            // Some events may have been seen or muted by then, or only mandatory types were wanted.
            let mut ways = vec![whole.clone()];
            if sent > 0 {
                ways = parts(&whole, excluded);
                ways.extend(parts(&mandatory, excluded));
                if whole.iter().all(|pending| applies(pending.event).is_some()) {
                    // No object was withdrawn since. So if these are too few, the user wanted more
                    // types then.
                    ways.extend(parts(&pending, excluded));
                }
            }
            let total = |digest: &Option<Content>| digest.as_ref().map_or(0, |of| of.total);
            let assembled = |part: Vec<_>| {
                let digest = assemble(&part, policies, caps, applies);
                (part, digest)
            };
            let mut fitting = ways.into_iter().map(assembled);
            let fitting = fitting.find(|(_, digest)| total(digest) == sent);
            let (wanted, digest) = fitting.unwrap_or_else(|| assembled(whole));
            let now = total(&digest);
            if now > sent || now < sent && wanted.iter().all(|of| applies(of.event).is_some()) {
                // Objects or choices have changed since, and it is unknown which.
                return HashMap::new();
            }
            let unwanted = |place| {
                let why = excluded(place).filter(|_| chosen.contains(&place));
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
                    None if now < sent => Place::Unknown,
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
                by_mail(row, place, left_out)
            }
            (None, Some(id), Some(_)) => By::Flush { at: id.time() },
            (None, id, _) => By::OlderWriter {
                at: id.map(Id::time),
            },
        })
    }
}

/// Identifies an item. An email includes it once, even if the event happened several times.
type Name = (EventType, ObjectId);

/// The events that a user gets within a scope; `None` for all events, regardless of their choices.
type Choice<'a> = Option<(&'a User, EmailScope)>;

/// The email of a batch, which was sent or may have been.
pub(crate) struct BatchMail<'a> {
    batch: &'a Batch,
    row: &'a Delivery,
    catalog: &'a Catalog,
    items: Option<BatchItems>,
}

/// The reconstructed items of a batch's email.
struct BatchItems {
    shown: HashSet<Name>,
    /// All included items, shown or only counted.
    all: HashSet<Name>,
    /// Whether it counts events that the batch did not keep.
    counts: bool,
}

impl<'a> BatchMail<'a> {
    /// Reconstructs the email of a batch. The catalog must have loaded the kept events and those on
    /// the user's stacks. `muted` returns since when an event is muted.
    ///
    /// The variants are: with current choices and objects, without mutes or choices, with mandatory
    /// types only, and with withdrawn objects.
    pub(crate) fn of(
        batch: &'a Batch,
        row: &'a Delivery,
        person: &PersonStacks,
        user: Option<&User>,
        policies: &Policies,
        catalog: &'a Catalog,
        muted: impl Fn(&Event) -> Option<DateTime<Utc>>,
    ) -> Self {
        let built = row.built_at();
        let is_muted = |event: &Event| muted(event).is_some_and(|since| since <= built);
        let reconstruct = |choice: Choice<'_>, withdrawn: bool, with_muted: bool| {
            let applies = |event: &Event| {
                let object = match withdrawn {
                    true => catalog.recorded(event),
                    false => catalog.mailable(event),
                };
                let was_retracted = || catalog.was_retracted(event, built);
                object.filter(|_| !was_retracted() && (with_muted || !is_muted(event)))
            };
            batch_items(batch, person, choice, policies, applies)
        };
        let chosen = |scope| user.map(|user| Some((user, scope)));
        let (wanted, mandatory) = (chosen(EmailScope::All), chosen(EmailScope::MandatoryOnly));
        let ways = [
            (wanted, false, false),
            (wanted, false, true),
            (Some(None), false, true),
            (mandatory, false, true),
            (wanted, true, false),
            (wanted, true, true),
            (Some(None), true, true),
        ];
        let ways = ways.into_iter();
        let mut ways =
            ways.filter_map(|(choice, withdrawn, muted)| reconstruct(choice?, withdrawn, muted));
        let fitting = ways.find(|(total, _)| *total == u64::from(row.outcome.items));
        Self {
            batch,
            row,
            catalog,
            items: fitting.map(|(_, items)| items),
        }
    }

    /// Returns the place of this event of the batch. `muted` is the time since which it is muted.
    pub(crate) fn by(&self, event: &Event, muted: Option<DateTime<Utc>>) -> By {
        let is_muted = muted.is_some_and(|since| since <= self.row.built_at());
        let (place, left_out) = self.place(event, is_muted);
        by_mail(self.row, place, left_out)
    }

    fn place(&self, event: &Event, is_muted: bool) -> (Place, Option<LeftOut>) {
        let is_it = |item: &Item| Some(item.i) == event.i && item.t == event.t && item.o == event.o;
        let is_kept = self.batch.kept().any(is_it);
        let unfit = || unfit(self.catalog, event, self.row.built_at());
        let Some(items) = &self.items else {
            // Events that were retracted by then, or whose objects are still unknown, were in no
            // email.
            let never = |why: &LeftOut| matches!(why, LeftOut::Retracted | LeftOut::UnknownObject);
            return match unfit().filter(|why| is_kept && never(why)) {
                Some(why) => (Place::LeftOut, Some(why)),
                None => (Place::Unknown, None),
            };
        };
        let name = (event.t.clone(), event.o.clone());
        let unwanted = match is_muted {
            true => LeftOut::Muted,
            false => LeftOut::NotWanted,
        };
        if items.shown.contains(&name) {
            (Place::Shown, None)
        } else if items.all.contains(&name) || (items.counts && !is_kept) {
            (Place::Counted, None)
        } else {
            (Place::LeftOut, unfit().or(Some(unwanted)))
        }
    }
}

/// Returns the number and the items of a batch's events, if any applies.
fn batch_items(
    batch: &Batch,
    person: &PersonStacks,
    choice: Choice<'_>,
    policies: &Policies,
    applies: impl Fn(&Event) -> Option<Arc<Object>>,
) -> Option<(u64, BatchItems)> {
    let is_chosen = |item: &Item| {
        choice.is_none_or(|(user, scope)| {
            let (at, facts) = (|| item.i.time(), Facts::default());
            let purpose = Purpose::Batch(scope);
            classify(&item.t, at, facts, Some(user), policies, purpose).is_none()
        })
    };
    let is_included =
        |item: &Item| is_chosen(item) && applies(&Event::from(item.clone())).is_some();
    let (mut items, not_kept) = match batch.is_complete(is_included) {
        true => (batch.contents.items.clone(), batch.contents.more()),
        false => (batch.all_of(Some(person)), 0),
    };
    items.retain(is_chosen);
    let content = gather(&batch.key, &items, not_kept, policies, &applies)?;
    let shown = content.items();
    let shown = shown.map(|(kind, item)| (kind.clone(), item.id.clone()));
    let all = items.into_iter().filter(is_included);
    let items = BatchItems {
        shown: shown.collect(),
        all: all.map(|item| (item.t, item.o)).collect(),
        counts: not_kept > 0,
    };
    Some((content.total, items))
}
