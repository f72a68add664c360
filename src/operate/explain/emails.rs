//! Finds out which email included an event, or why the email excluded it.
//!
//! The content of an email is reconstructed ([`SentEmail`]). If it does not fit the row, the place
//! of an event is unknown. Start with [`Loaded::by_email`].

use super::{Case, Loaded};
use crate::domain::content::Item;
use crate::domain::{Batch, Delivery, Event, EventType, Id, Marker};
use crate::engine::delivery::{Selected, SentEmail};
use crate::engine::eligibility::catalog::Catalog;
use crate::wire::explanation::{By, LeftOut, Place};

impl Loaded<'_> {
    /// Returns the email, flush or older writer whose marker covers the event, if any.
    ///
    /// The first marker over an event decides. Its id is that of a delivery, or else of a flush,
    /// because the ledger is kept longer than the window.
    pub(super) fn by_marker(&self, case: &Case<'_>, catalog: &Catalog) -> Option<By> {
        let Marker { id, n } = *case.stack.covering(case.position.index)?;
        let email = id.and_then(|id| self.by_email(case, id, catalog));
        email.or(Some(match (id, n) {
            (Some(id), Some(_)) => By::Flush { at: id.time() },
            (id, _) => By::OlderWriter {
                at: id.map(Id::time),
            },
        }))
    }

    /// Returns the email with this marker, and the place of the event in it.
    pub(super) fn by_email(&self, case: &Case<'_>, marker: Id, catalog: &Catalog) -> Option<By> {
        let (row, sent) = self.sent.get(&marker)?;
        let (place, left_out) = self.place(case, row, sent, catalog);
        Some(By::Mail {
            delivery: row.id.clone(),
            state: row.state,
            at: row.outcome.settled.unwrap_or(row.built_at()),
            place,
            left_out,
        })
    }

    /// Returns where in a sent email the event is, or why the email excluded it.
    fn place(
        &self,
        case: &Case<'_>,
        row: &Delivery,
        sent: &SentEmail,
        catalog: &Catalog,
    ) -> (Place, Option<LeftOut>) {
        let (event, built) = (case.event, row.built_at());
        let included = |email: &&Selected| {
            // Fewer events than were recorded lack only objects that were withdrawn since.
            sent.is_exact || email.content.total < u64::from(row.outcome.items)
        };
        let email = sent.email.as_ref().ok().filter(included);
        if let Some(email) = email {
            let is_kept =
                |batch: &Batch| batch.kept().any(|item| Event::from(item.clone()) == *event);
            let is_it = |(kind, item): (&EventType, &Item)| *kind == event.t && item.id == event.o;
            if email.included.contains(event) {
                let is_shown = email.content.items().any(is_it);
                let place = if is_shown {
                    Place::Shown
                } else {
                    Place::Counted
                };
                return (place, None);
            } else if email.counts_others && !case.batch.is_some_and(is_kept) {
                return (Place::Counted, None);
            }
        }
        let is_same = |other: &Event| other.t == event.t && other.o == event.o;
        let is_repeated = email.is_some_and(|email| email.included.iter().any(is_same));
        let muted = self.muted.get(&case.position);
        let why = if catalog.was_retracted(event, built) {
            LeftOut::Retracted
        } else if catalog.recorded(event).is_none() {
            LeftOut::UnknownObject
        } else if catalog.mailable(event).is_none() {
            LeftOut::Withdrawn
        } else if muted.is_some_and(|since| *since <= built) {
            LeftOut::Muted
        } else if is_repeated {
            LeftOut::Repeated
        } else if self.has_seen(case.position) && case.batch.is_none() {
            LeftOut::Seen
        } else {
            LeftOut::NotWanted
        };
        match sent.is_exact || matches!(why, LeftOut::Retracted | LeftOut::UnknownObject) {
            true => (Place::LeftOut, Some(why)),
            false => (Place::Unknown, None),
        }
    }
}
