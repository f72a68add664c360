//! Events that were accepted, and how far they have come.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::trouble::{BadFanouts, BadStacks};
use crate::domain::batch::TakenOut;
use crate::domain::{Counts, Day, EventType, Fanout, FanoutState, Id, ObjectId, ObjectKey};

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// The event's fan-out.
    pub id: Id,
    /// Whether it had been accepted before, under the same key.
    pub known: bool,
}

/// An event that was accepted, and what of it is not known.
#[derive(Debug, Serialize)]
pub(crate) struct Accepted {
    #[serde(flatten)]
    pub(crate) receipt: Receipt,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

/// Events that were taken back.
#[derive(Debug, Serialize)]
pub struct Retracted {
    /// What open batches lost.
    #[serde(flatten)]
    pub out: TakenOut,
    /// The objects that are meant, by their keys, in the order in which they were named.
    pub objects: Vec<ObjectKey>,
    /// What of it looks like a mistake; left out in JSON if nothing does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Many of them, in the order in which they were sent.
#[derive(Debug, Serialize)]
pub(crate) struct AllAccepted {
    pub(crate) events: Vec<Accepted>,
}

/// The same of one event, and whom it has reached by now.
#[derive(Debug, Serialize)]
pub(crate) struct Notified<'a> {
    #[serde(flatten)]
    pub(crate) receipt: Receipt,
    /// Null where that was not found out.
    pub(crate) state: Option<FanoutState>,
    #[serde(flatten)]
    pub(crate) counts: Option<Counts>,
    #[serde(skip_serializing_if = "BadStacks::is_empty")]
    pub(crate) bad_stacks: &'a BadStacks,
    #[serde(skip_serializing_if = "BadFanouts::is_empty")]
    pub(crate) bad_fanouts: &'a BadFanouts,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

/// How far an event has come. The cursor is a user's id, and not shown.
#[derive(Debug, Serialize)]
pub(crate) struct Progress {
    id: Id,
    #[serde(rename = "type")]
    kind: EventType,
    objects: Vec<ObjectId>,
    batch_key: Option<String>,
    at: DateTime<Utc>,
    day: Day,
    state: FanoutState,
    counts: Counts,
}

impl From<Fanout> for Progress {
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
