//! What of events is not known: types that nobody configured while others are, and objects that
//! nobody put a record of.
//!
//! The rule: both are accepted, as configuration and records may come later, and both are told: to
//! whoever hands an event in, in a rehearsal and by `status`. An object that is not known is not
//! mailed unless its type says so (P6).

use std::sync::Arc;

use super::Result;
use super::catalog::{Catalog, CatalogSource};
use super::joint::{self, Joint};
use super::notify::FEW_OBJECTS;
use crate::domain::{Event, Policies};
use crate::store::{self, Journal};
use crate::wire::unknown::{NAMED, Unknown};

/// Of so many objects of one call it is asked whether they are known.
const ASKED: usize = 1_000;
// Of whoever is looked up together nobody is left without an answer.
const _: () = assert!(joint::MOST * FEW_OBJECTS <= ASKED);

impl Unknown {
    /// Notes of an event what is not known of it; it must have been loaded.
    pub fn note(&mut self, event: &Event, catalog: &Catalog, policies: &Policies) {
        if policies.is_stray(&event.t) {
            *self.types.entry(event.t.clone()).or_default() += 1;
        }
        if catalog.record(event).is_none() {
            self.events += 1;
            if self.objects.len() <= NAMED {
                self.objects.insert(policies.object_of(event));
                self.of.insert(event.t.clone());
            }
        }
    }
}

/// Looks up what is known.
#[derive(Clone)]
pub struct Known {
    pub(crate) catalog: CatalogSource,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) policies: Arc<Policies>,
    /// Short events that come at the same time are looked up together.
    pub(crate) joint: Arc<Joint<Vec<Event>, Unknown>>,
}

impl Known {
    /// What is not known of each of these lists, in their order: of the first thousand objects they
    /// name. Whoever asks of one short list at the same time is answered by one look-up.
    pub async fn of(&self, events: &[Vec<Event>]) -> Result<Vec<Unknown>> {
        let [one] = events else {
            return Ok(self.look_up(events).await?);
        };
        if one.len() > FEW_OBJECTS {
            return Ok(self.look_up(events).await?);
        }
        let look_up = |all: Vec<Vec<Event>>| {
            let known = self.clone();
            async move { known.look_up(&all).await }
        };
        Ok(vec![self.joint.call(one.clone(), look_up).await?])
    }

    async fn look_up(&self, events: &[Vec<Event>]) -> store::Result<Vec<Unknown>> {
        let mut catalog = self.catalog.of_mails();
        catalog.load(events.iter().flatten().take(ASKED)).await?;
        let mut left = ASKED;
        let unknown = |events: &Vec<Event>| {
            let mut unknown = Unknown::default();
            for event in events.iter().take(left) {
                unknown.note(event, &catalog, &self.policies);
            }
            left -= events.len().min(left);
            unknown
        };
        Ok(events.iter().map(unknown).collect())
    }

    /// What is not known of the last so many events that were accepted.
    pub async fn lately(&self, fanouts: usize) -> Result<Unknown> {
        let events: Vec<Event> = self
            .journal
            .newest(fanouts)
            .await?
            .into_iter()
            .flatten()
            .collect();
        let mut catalog = self.catalog.of_mails();
        catalog.load(events.iter()).await?;
        let mut unknown = Unknown::default();
        for event in &events {
            unknown.note(event, &catalog, &self.policies);
        }
        Ok(unknown)
    }
}
