//! Finds the items of a page that an email has included at any of their positions in the window.
//!
//! Such an email is that of a batch, or a digest that was sent or may have been
//! ([`crate::engine::delivery::mails`]). The ledger is read only if a digest's marker covers an
//! item of the page. Start with [`Feeds::load`].

use std::collections::HashSet;

use super::{Feeds, Names, Standing, name};
use crate::domain::{Event, Id, Position, Stack};
use crate::engine::Result;
use crate::engine::delivery::mails::Mails;
use crate::engine::eligibility::catalog::Catalog;
use crate::engine::eligibility::skip_seen::is_seen;
use crate::engine::feed::shelf::Digests;
use crate::store::DeliveryFilter;
use crate::wire::explanation::{By, LeftOut, Place};

/// The most digests that are read. A window has far fewer: one a day, and a few late ones.
const DIGESTS: usize = 1_000;

/// The items of a page, by the markers that cover them.
struct Told<'a> {
    standing: &'a Standing,
    /// Items that a batch emailed.
    told: Names<'a>,
    /// Positions of other items that a digest's marker may cover.
    covered: Vec<(&'a Stack, Position, &'a Event)>,
}

impl<'a> Told<'a> {
    fn of(standing: &'a Standing, events: impl Iterator<Item = &'a Event>) -> Self {
        let asked: Names<'_> = events.map(name).collect();
        let (mut told, mut covered) = (HashSet::new(), Vec::new());
        for stack in &standing.person.stacks {
            let (mailed, end) = (stack.mailed(), stack.covered());
            if mailed.is_empty() && end == 0 {
                continue;
            }
            for (place, event) in stack.events() {
                if !asked.contains(&name(event)) {
                    continue;
                }
                if event.i.is_some_and(|i| mailed.contains(&i)) {
                    told.insert(name(event));
                } else if (place.index as usize) < end {
                    covered.push((stack, place, event));
                }
            }
        }
        Self {
            standing,
            told,
            covered,
        }
    }

    /// Returns the ids of the markers over `covered`, without those of older writers.
    fn markers(&self) -> impl Iterator<Item = Id> {
        let covering = |(stack, place, _): &(&Stack, Position, _)| {
            let marker = stack.covering(place.index)?;
            marker.n.and(marker.id)
        };
        self.covered.iter().filter_map(covering)
    }
}

impl Feeds {
    /// Loads the details of these events, and returns those that an email has included.
    pub(super) async fn load<'a>(
        &self,
        standing: &'a Standing,
        catalog: &mut Catalog,
        events: impl Iterator<Item = &'a Event> + Clone,
    ) -> Result<Names<'a>> {
        let marked = Told::of(standing, events.clone());
        let details = async { Ok(catalog.load_details(events).await?) };
        let (digests, ()) = futures::try_join!(self.digests_over(&marked), details)?;
        self.mailed(marked, digests, catalog).await
    }

    /// Returns the digests whose markers are in the window, loaded on first use. `None` if no
    /// marker covers an item of the page.
    async fn digests_over<'a>(&self, marked: &Told<'a>) -> Result<Option<&'a Digests>> {
        if marked.markers().next().is_none() {
            return Ok(None);
        }
        let reading = &marked.standing.reading;
        let look = || async {
            let person = &reading.person;
            // A row is opened when its marker is made, or later.
            let markers = person.stacks.iter().flat_map(Stack::markers);
            let since = markers.filter_map(|marker| marker.n.and(marker.id)).min();
            let Some(since) = since.map(Id::time) else {
                return Ok(Digests::default());
            };
            let digests = DeliveryFilter::Digests(&person.user, since);
            let users = self.context.store.users(std::slice::from_ref(&person.user));
            let rows = self.context.store.find_deliveries(&digests, DIGESTS);
            let (users, mut rows) = futures::try_join!(users, rows)?;
            rows.retain(|row| person.hold_marker(row.marker));
            let user = users.into_iter().next().flatten();
            Ok(Digests { user, rows })
        };
        reading.digests.get_or_try_init(look).await.map(Some)
    }

    /// Returns the items that an email has included.
    async fn mailed<'a>(
        &self,
        marked: Told<'a>,
        digests: Option<&Digests>,
        catalog: &mut Catalog,
    ) -> Result<Names<'a>> {
        let markers: HashSet<Id> = marked.markers().collect();
        let Told {
            standing,
            mut told,
            covered,
        } = marked;
        let Some(Digests { user, rows }) = digests else {
            return Ok(told);
        };
        let rows = rows.iter().filter(|row| markers.contains(&row.marker));
        // Digests also include types that feeds do not show.
        let person = &standing.reading.person;
        let events = person.stacks.iter().flat_map(Stack::events);
        catalog.load(events.map(|(_, event)| event)).await?;
        let inbox = &standing.reading.inbox;
        let aside = |place: Position, then| match standing.muted.get(&place) {
            Some(since) if *since <= then => Some(LeftOut::Muted),
            _ => (self.skip_seen.is_on() && is_seen(inbox, place)).then_some(LeftOut::Seen),
        };
        let mails = Mails::of(
            rows,
            person,
            user.as_ref(),
            &self.context.policies,
            self.caps,
            catalog,
            aside,
        );
        for (stack, place, event) in covered {
            let is_told = match mails.by(stack, place) {
                Some(By::Mail { state, place, .. }) => state.flushes() && place != Place::LeftOut,
                Some(By::Flush { .. } | By::OlderWriter { .. }) | None => false,
            };
            if is_told {
                told.insert(name(event));
            }
        }
        Ok(told)
    }
}
