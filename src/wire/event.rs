//! Accepted events, their progress and retractions, and the records that a run skips.
//!
//! A bad document affects only its user, and a bad fan-out only itself. The run skips it, counts
//! it, logs it once, and continues with everything else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::domain::batch::RemovedEvents;
use crate::domain::name::join_names;
use crate::domain::{
    Day, DefectiveStack, EventType, Fanout, FanoutCounts, FanoutState, Id, ObjectId, ObjectKey,
    Policies, UserId,
};
use crate::store::UnreadableFanout;

/// The answer to an accepted event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// The id of the event, which is also that of its fan-out.
    pub id: Id,
    /// Whether the event had already been accepted under the same key.
    pub duplicate: bool,
}

/// An accepted event, with warnings about its unknown type, objects and users.
#[derive(Debug, Serialize)]
pub(crate) struct AcceptedEvent {
    #[serde(flatten)]
    pub(crate) receipt: Receipt,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

/// The result of a retraction.
#[derive(Debug, Serialize)]
pub struct Retracted {
    /// The effect on open batches; flattened in JSON.
    #[serde(flatten)]
    pub removed_events: RemovedEvents,
    /// The keys of the retracted objects, in the order of the request.
    pub objects: Vec<ObjectKey>,
    /// Possible mistakes in the request; omitted from JSON if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Accepted events, in the order of the request.
#[derive(Debug, Serialize)]
pub(crate) struct AcceptedEvents {
    pub(crate) events: Vec<AcceptedEvent>,
}

/// An accepted event, and the progress of its fan-out so far.
#[derive(Debug, Serialize)]
pub(crate) struct Notified<'a> {
    #[serde(flatten)]
    pub(crate) receipt: Receipt,
    /// `None` if it could not be read.
    pub(crate) state: Option<FanoutState>,
    #[serde(flatten)]
    pub(crate) counts: Option<FanoutCounts>,
    #[serde(skip_serializing_if = "BadStacks::is_empty")]
    pub(crate) bad_stacks: &'a BadStacks,
    #[serde(skip_serializing_if = "BadFanouts::is_empty")]
    pub(crate) bad_fanouts: &'a BadFanouts,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

/// The progress of an event. It omits the cursor, which is a user's id.
#[derive(Debug, Serialize)]
pub(crate) struct EventProgress {
    id: Id,
    #[serde(rename = "type")]
    kind: EventType,
    objects: Vec<ObjectId>,
    batch_key: Option<String>,
    at: DateTime<Utc>,
    day: Day,
    state: FanoutState,
    counts: FanoutCounts,
}

impl From<Fanout> for EventProgress {
    fn from(fanout: Fanout) -> Self {
        Self {
            id: fanout.id,
            kind: fanout.kind,
            objects: fanout.objects,
            batch_key: fanout.batch_key.map(|key| key.as_str().to_owned()),
            at: fanout.at,
            day: fanout.day,
            state: fanout.state,
            counts: fanout.progress.counts,
        }
    }
}

/// The maximum number of names in a message.
pub(crate) const MAX_LISTED_NAMES: usize = 5;

/// The unknown types, objects and users of some events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct UnknownNames {
    /// Types that are not configured while others are, with the number of events of each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub types: BTreeMap<EventType, u64>,
    /// The number of events about unknown objects. These events are not emailed.
    #[serde(rename = "events", skip_serializing_if = "is_zero")]
    pub events_about_objects: u64,
    /// The first of these objects.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub objects: BTreeSet<ObjectKey>,
    /// The types of the events about these objects.
    #[serde(skip)]
    pub(crate) object_event_types: BTreeSet<EventType>,
    /// Users without a record that events name.
    #[serde(skip)]
    pub(crate) users: BTreeSet<UserId>,
}

pub(super) fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl UnknownNames {
    /// Returns whether nothing is unknown.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns a sentence for each problem, with advice.
    pub fn warnings(&self, policies: &Policies) -> Vec<String> {
        let mut warnings = self.unknown_types(policies, false);
        if !self.object_event_types.is_empty() {
            let options = self.object_event_types.iter().map(|kind| format!("types.{kind}"));
            // Feeds show unknown objects by id, unless their type has a model.
            let is_hidden =
                self.object_event_types.iter().all(|kind| policies.policy(kind).model.is_some());
            let effect =
                if is_hidden { "not shown in feeds and not emailed" } else { "not emailed" };
            warnings.push(format!(
                "objects without a record, such as {}: events about them are {effect}; put their \
                 records (tidings import objects, PUT /v1/objects), or set unknown_objects = \"mail\" \
                 in {}",
                self.named_objects(),
                join_names(options, MAX_LISTED_NAMES)
            ));
        }
        if !self.users.is_empty() {
            warnings.push(format!(
                "there is no record of {}: events are in their feeds, and nothing is emailed to \
                 them until you create one (tidings import users, PUT /v1/users)",
                join_names(&self.users, MAX_LISTED_NAMES)
            ));
        }
        warnings
    }

    /// Returns the sentences for a retraction, whose type or object may be mistyped.
    pub(crate) fn retraction_warnings(&self, policies: &Policies) -> Vec<String> {
        let mut doubts = self.unknown_types(policies, true);
        if !self.object_event_types.is_empty() {
            let objects = self.named_objects();
            doubts.push(format!("there is no record of {objects}; check the ids"));
        }
        doubts
    }

    /// Returns a sentence for each unknown type. Only its spelling can be wrong in a retraction.
    fn unknown_types(&self, policies: &Policies, is_retraction: bool) -> Vec<String> {
        let sentence = |kind: &EventType| {
            let advice = match (policies.nearest(kind), is_retraction) {
                (Some(meant), true) => format!("did you mean {meant:?}?"),
                (Some(meant), false) => {
                    format!("did you mean {meant:?}? If not, add [types.{kind}]")
                }
                (None, true) => "check its spelling".to_owned(),
                (None, false) => format!("check its spelling, or add [types.{kind}]"),
            };
            format!("type {kind:?} is not configured, though others are: {advice}")
        };
        self.types.keys().take(MAX_LISTED_NAMES).map(sentence).collect()
    }

    fn named_objects(&self) -> String {
        let keys = self.objects.iter().take(MAX_LISTED_NAMES).map(|key| format!("{key:?}"));
        join_names(keys, MAX_LISTED_NAMES)
    }
}

/// The maximum number of records in a report. Further ones are only counted.
const MAX_LISTED: usize = 1_000;

/// Documents that could not be read or written.
pub type BadStacks = SkippedRecords<DefectiveStack>;

/// Fan-outs that cannot be read, so they cannot be completed.
pub type BadFanouts = SkippedRecords<UnreadableFanout>;

/// The bad records that a run skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkippedRecords<T> {
    /// The number of records, including those that are not listed.
    pub count: u64,
    /// The first records, in the order in which the run met them.
    pub first: Vec<T>,
}

impl<T> Default for SkippedRecords<T> {
    fn default() -> Self {
        Self { count: 0, first: Vec::new() }
    }
}

impl<T: Display + PartialEq> SkippedRecords<T> {
    /// Returns whether nothing was skipped.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Counts and logs each record once. A record that is not listed counts each time.
    pub fn add(&mut self, bad: impl IntoIterator<Item = T>) {
        for bad in bad {
            if !self.first.contains(&bad) {
                tracing::warn!("skipped: {bad}");
                *self += Self { count: 1, first: vec![bad] };
            }
        }
    }
}

impl<T: PartialEq> std::ops::AddAssign for SkippedRecords<T> {
    fn add_assign(&mut self, other: Self) {
        let unlisted = other.count - other.first.len() as u64;
        for bad in other.first {
            if !self.first.contains(&bad) {
                self.count += 1;
                if self.first.len() < MAX_LISTED {
                    self.first.push(bad);
                }
            }
        }
        self.count += unlisted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Defect;

    fn bad(user: &str, reason: Defect) -> DefectiveStack {
        DefectiveStack { user: UserId::stored(user), day: "20140422".parse().unwrap(), reason }
    }

    #[test]
    fn a_bad_stack_is_counted_once_even_if_found_twice() {
        let mut one = BadStacks::default();
        one.add([bad("ada", Defect::NoRoom), bad("ada", Defect::NoRoom)]);
        let mut other = BadStacks::default();
        other.add([bad("ada", Defect::NoRoom), bad("ben", Defect::NoList)]);

        one += other;

        assert_eq!(one.count, 2);
        assert_eq!(one.first, [bad("ada", Defect::NoRoom), bad("ben", Defect::NoList)]);
        assert!(BadStacks::default().is_empty());
    }
}
