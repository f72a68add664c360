//! What of events is not known: types that nobody configured while others are, and objects that
//! nobody put a record of.
//!
//! The rule: both are accepted, as configuration and records may come later, and both are told: to
//! whoever hands an event in, in a rehearsal and by `status`. An object that is not known is not
//! mailed unless its type says so (P6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use super::Result;
use super::catalogue::Catalogue;
use crate::domain::{Event, EventType, ObjectKey, Policies};
use crate::store::{Journal, Objects};

/// How many names are told of many.
const NAMED: usize = 5;
/// Of so many objects of one call it is asked whether they are known.
const ASKED: usize = 1_000;

/// What is not known, of some events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Unknown {
    /// Types that are not configured while others are, and how many events are of them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub types: BTreeMap<EventType, u64>,
    /// How many events are about objects that are not known, and are not mailed for it.
    #[serde(skip_serializing_if = "is_zero")]
    pub events: u64,
    /// The first of these objects.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub objects: BTreeSet<ObjectKey>,
    /// A type whose objects these are.
    #[serde(skip)]
    of: Option<EventType>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Unknown {
    /// Whether everything is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Notes of an event what is not known of it; it must have been loaded.
    pub fn note(&mut self, event: &Event, catalogue: &Catalogue, policies: &Policies) {
        if policies.is_stray(&event.t) {
            *self.types.entry(event.t.clone()).or_default() += 1;
        }
        if catalogue.record(event).is_none() {
            self.events += 1;
            self.of.get_or_insert_with(|| event.t.clone());
            if self.objects.len() <= NAMED {
                self.objects.insert(policies.object_of(event));
            }
        }
    }

    /// A sentence for each, and what to do.
    pub fn warnings(&self, policies: &Policies) -> Vec<String> {
        let mut warnings = Vec::new();
        for kind in self.types.keys().take(NAMED) {
            let meant = match policies.nearest(kind) {
                Some(meant) => format!("did you mean {meant:?}? If not, add [types.{kind}]"),
                None => format!("check its spelling, or add [types.{kind}]"),
            };
            warnings.push(format!(
                "type {kind:?} is not configured, though others are: it goes into digests; {meant}"
            ));
        }
        if let Some(kind) = &self.of {
            let named: Vec<String> = self
                .objects
                .iter()
                .take(NAMED)
                .map(|key| format!("{key:?}"))
                .collect();
            let more = if self.objects.len() > NAMED {
                " and more"
            } else {
                ""
            };
            let (is, it) = match self.objects.len() {
                1 => ("is", "it is"),
                _ => ("are", "they are"),
            };
            warnings.push(format!(
                "{}{more} {is} not known, so {it} not mailed: put a record (tidings import objects, PUT /v1/objects), or set types.{kind}.unknown_objects = \"mail\"",
                named.join(", ")
            ));
        }
        warnings
    }
}

/// Looks up what is known.
pub struct Known {
    pub(crate) objects: Arc<dyn Objects>,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) policies: Arc<Policies>,
}

impl Known {
    /// What is not known of each of these lists, in their order: of the first thousand objects they
    /// name.
    pub async fn of(&self, events: &[Vec<Event>]) -> Result<Vec<Unknown>> {
        let mut catalogue = self.catalogue();
        catalogue.load(events.iter().flatten().take(ASKED)).await?;
        let mut left = ASKED;
        let unknown = |events: &Vec<Event>| {
            let mut unknown = Unknown::default();
            for event in events.iter().take(left) {
                unknown.note(event, &catalogue, &self.policies);
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
        let mut catalogue = self.catalogue();
        catalogue.load(events.iter()).await?;
        let mut unknown = Unknown::default();
        for event in &events {
            unknown.note(event, &catalogue, &self.policies);
        }
        Ok(unknown)
    }

    fn catalogue(&self) -> Catalogue {
        Catalogue::new(Arc::clone(&self.objects), Arc::clone(&self.policies))
    }
}
