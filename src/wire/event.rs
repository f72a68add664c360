//! Accepted events, their progress, and retractions.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::trouble::{BadFanouts, BadStacks};
use crate::domain::batch::TakenOut;
use crate::domain::{Counts, Day, EventType, Fanout, FanoutState, Id, ObjectId, ObjectKey};

/// The answer to an accepted event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// The id of the event, which is also that of its fan-out.
    pub id: Id,
    /// Whether the event had already been accepted under the same key.
    pub known: bool,
}

/// An accepted event, with warnings about its unknown type, objects and users.
#[derive(Debug, Serialize)]
pub(crate) struct Accepted {
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
    pub out: TakenOut,
    /// The keys of the retracted objects, in the order of the request.
    pub objects: Vec<ObjectKey>,
    /// Possible mistakes in the request; omitted from JSON if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Accepted events, in the order of the request.
#[derive(Debug, Serialize)]
pub(crate) struct AllAccepted {
    pub(crate) events: Vec<Accepted>,
}

/// An accepted event, and the progress of its fan-out so far.
#[derive(Debug, Serialize)]
pub(crate) struct Notified<'a> {
    #[serde(flatten)]
    pub(crate) receipt: Receipt,
    /// `None` if it could not be read.
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

/// The progress of an event. It omits the cursor, which is a user's id.
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
