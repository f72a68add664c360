//! A page of a person's feed.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::object::shown;
use crate::domain::feed::Cursor;
use crate::domain::{EventType, Object, ObjectId, Position};

/// A page.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Page {
    /// Newest first; what no longer applies is left out.
    pub items: Vec<Item>,
    /// Ask `before` this for the next page; `None` on the last one.
    pub next: Option<Position>,
    /// Ask `after` this, later, for what is new.
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
}
