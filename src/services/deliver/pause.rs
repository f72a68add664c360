//! The brake: nothing leaves any process until somebody resumes.
//!
//! The rule: it is pulled where going on would do harm, by a provider that refuses everything or by a share of failures that is too
//! high; it is a note that all processes read before every call; and only a person lets go of it.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{Deliver, Road};
use crate::services::Result;
use crate::store::Notes;

/// The note's name.
const NOTE: &str = "pause";

/// Why nothing leaves, since when, and who stopped it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    pub at: DateTime<Utc>,
    pub reason: String,
    /// The process, as its leases name it.
    pub by: String,
}

impl Pause {
    /// The pause that stands, if one does.
    pub async fn standing(notes: &dyn Notes) -> Result<Option<Self>> {
        let note = notes.note(NOTE).await?;
        // A note that cannot be read was meant to stop mails all the same.
        Ok(note.map(|note| {
            serde_json::from_str(&note).unwrap_or_else(|_| Self {
                at: DateTime::UNIX_EPOCH,
                reason: note,
                by: "unknown".into(),
            })
        }))
    }

    /// Lets mails leave again; says which pause ended.
    pub async fn lift(notes: &dyn Notes) -> Result<Option<Self>> {
        let standing = Self::standing(notes).await?;
        notes.drop_note(NOTE).await?;
        Ok(standing)
    }
}

impl Deliver {
    /// Stops all processes. Whoever was first says why.
    pub(super) async fn pause(&self, reason: &str) -> Result<()> {
        let pause = Pause {
            at: self.clock.now(),
            reason: reason.to_owned(),
            by: self.owner.clone(),
        };
        let note = serde_json::to_string(&pause).unwrap_or_else(|_| reason.to_owned());
        self.notes.keep_note(NOTE, &note).await?;
        Ok(())
    }

    /// Whether anything may be handed over at this moment.
    pub(super) async fn barrier(&self) -> Result<Road> {
        if let Some(pause) = Pause::standing(self.notes.as_ref()).await? {
            return Ok(Road::Paused(pause));
        }
        let closed = self.traffic.closed(self.clock.now());
        Ok(closed.map_or(Road::Free, Road::Closed))
    }
}
