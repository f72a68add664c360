//! A page of a person's feed.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::{Serialize, Serializer};

use super::object::shown;
use crate::domain::feed::Cursor;
use crate::domain::inbox::ItemState;
use crate::domain::{Details, EventType, Object, ObjectId, Position};

/// A page.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Page {
    /// Newest first; what no longer applies is left out.
    pub items: Vec<Item>,
    /// Ask `before` this for the next page; `None` on the last one.
    pub next: Option<Position>,
    /// How the feed as a whole stands; its fields are the page's in JSON.
    #[serde(flatten)]
    pub counts: Counts,
}

/// How a feed stands, whatever part of it was asked for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Counts {
    /// Items of the window that were not shown yet.
    pub unseen: u64,
    /// Items that are to be opened still, shown or not.
    pub unread: u64,
    /// Ask `after` this, later, for what is new; mark up to this what is shown.
    pub cursor: Cursor,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Item {
    /// Where it stands on their stacks. It never changes.
    pub id: Position,
    /// The event's type; `type` in JSON.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// What it is about, by the id in the event.
    #[serde(skip)]
    pub object: ObjectId,
    /// The record of what it is about; `object` in JSON.
    #[serde(rename = "object", serialize_with = "shown")]
    pub about: Arc<Object>,
    /// When it happened.
    pub at: DateTime<Utc>,
    /// How it stands with its reader.
    pub state: ItemState,
    /// What is said of the event: `text`, `data` and `reason` in JSON, each where it is known.
    #[serde(flatten, serialize_with = "said")]
    pub details: Option<Arc<Details>>,
}

impl Item {
    /// What happened, in a line: what it is about, and what was said.
    pub(crate) fn told(&self) -> String {
        let (label, details) = (self.about.label(), self.details.as_ref());
        match details.and_then(|details| details.text.as_deref()) {
            Some(text) => format!("{label}: “{text}”"),
            None => label.to_owned(),
        }
    }

    /// Who did it: the event's actor, or else who its object is by.
    pub(crate) fn by(&self) -> Option<&str> {
        let actor = self.details.as_ref().and_then(|of| of.actor.as_ref());
        let name = actor.map(|actor| actor.name.as_deref().unwrap_or(actor.id.as_str()));
        name.or(self.about.by.as_deref())
    }
}

fn said<S: Serializer>(details: &Option<Arc<Details>>, to: S) -> Result<S::Ok, S::Error> {
    details.as_deref().serialize(to)
}
