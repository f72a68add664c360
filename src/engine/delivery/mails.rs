//! Who dealt with an event: a mail, somebody who flushed, or an older writer. What the mails of
//! batches told is in [`batch`].
//!
//! The rule: the marker that was written first over an event's place says it. Its id is that of a
//! delivery, or else of a flush, as the ledger remembers longer than the window is; a marker
//! without `n` is an older writer's. What came after a mail is not held against it: it may tell
//! what was taken back, seen or not wanted any more since. What it told is what comes to as many
//! events as its row says; where nothing does, nobody can tell.

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

/// Why no mail that was made then could tell the event, as far as its object is concerned.
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

/// The parts of these that a mail may have told: all, and what was not put aside, for each reason
/// and for all of them.
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

/// Where in a digest each event is, and why it was left out.
type Places = HashMap<Position, (Place, Option<LeftOut>)>;

/// A person's mails by their markers.
pub(crate) struct Mails<'a> {
    catalog: &'a Catalog,
    rows: HashMap<Id, (&'a Delivery, Places)>,
}

impl<'a> Mails<'a> {
    /// With where each event is in each digest that covers any of these stacks. `aside` says what a
    /// mail of that moment may have left out though it is wanted: what was seen, or muted by then.
    pub(crate) fn of(
        rows: impl IntoIterator<Item = &'a Delivery>,
        person: &PersonStacks,
        user: Option<&User>,
        policies: &Policies,
        caps: Caps,
        catalog: &'a Catalog,
        aside: impl Fn(Position, DateTime<Utc>) -> Option<LeftOut>,
    ) -> Self {
        // What was taken back by then is left out below.
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
            // Perhaps some was seen or muted by then, or they wanted nothing but what is mandatory.
            let mut ways = vec![whole.clone()];
            if told > 0 {
                ways = parts(&whole, aside);
                ways.extend(parts(&obliged, aside));
                if whole.iter().all(|pending| applies(pending.event).is_some()) {
                    // Nothing was withdrawn since, so if all is too little, they wanted more then.
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
                // Something applies or is wanted that did not or was not then, or the other way
                // round, and nobody can tell what.
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
                    // It may have applied then.
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

    /// Why the mail could not tell what stands there.
    fn why_never(&self, stack: &Stack, position: Position, row: &Delivery) -> LeftOut {
        let event = match stack.entries.get(position.index as usize) {
            Some(Entry::Event(event)) => Some(event),
            _ => None,
        };
        let why = event.and_then(|event| unfit(self.catalog, event, row.built_at()));
        why.unwrap_or(LeftOut::Repeated)
    }

    /// Who dealt with what stands there, if anybody did.
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
