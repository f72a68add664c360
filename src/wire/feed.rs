//! A page of a person's feed.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::{Serialize, Serializer};

use super::object::shown;
use crate::domain::feed::{Cursor, Query};
use crate::domain::group::{GroupKey, PageEnd};
use crate::domain::inbox::{ItemState, StateFilter};
use crate::domain::{Day, Details, EventType, Object, ObjectId, Position, UserId};

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

/// A page of groups: of a day, of one type, about one thing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupPage {
    /// Those with the newest items first.
    pub groups: Vec<Group>,
    /// Ask `before` this for the next page; `None` on the last one.
    pub next: Option<PageEnd>,
    /// How the feed as a whole stands; its fields are the page's in JSON.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Items that are shown as one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// Where its newest item stands.
    pub id: Position,
    /// The day on which its items stand.
    pub day: Day,
    /// Their events' type; `type` in JSON.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// What their objects are about: see [`crate::domain::about::key`].
    pub about: String,
    /// How many items it has.
    pub count: u64,
    /// How many of these were not shown yet.
    pub unseen: u64,
    /// How many of these are to be opened still.
    pub unread: u64,
    /// When the newest of them happened.
    pub at: DateTime<Utc>,
    /// The newest of them, at most three.
    pub items: Vec<Item>,
    /// Where all of them are listed.
    pub items_url: String,
}

impl Group {
    /// Where the items of this group are listed, asked for in the same way.
    pub fn items_url(user: &UserId, key: &GroupKey, asked: &Query, days: Option<u32>) -> String {
        let user: String = form_urlencoded::byte_serialize(user.as_str().as_bytes()).collect();
        // A plus is a space in a query alone.
        let path = format!("/v1/users/{}/feed?", user.replace('+', "%20"));
        let from = path.len();
        let mut url = form_urlencoded::Serializer::for_suffix(path, from);
        url.append_pair("day", &key.day.to_string());
        url.append_pair("type", key.kind.as_str());
        url.append_pair("about", &key.about);
        if asked.state != StateFilter::default() {
            url.append_pair("state", asked.state.as_str());
        }
        if let Some(after) = &asked.after {
            url.append_pair("after", &after.to_string());
        }
        if let Some(days) = days {
            url.append_pair("days", &days.to_string());
        }
        url.finish()
    }
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
    /// Whether a mail told it: a digest, or one of its own.
    pub mailed: bool,
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
            None => label.into_owned(),
        }
    }

    /// The name of the event's actor, or else the author of its object, or else the actor's id.
    pub(crate) fn by(&self) -> Option<&str> {
        let actor = self.details.as_ref().and_then(|of| of.actor.as_ref());
        let name = actor.and_then(|actor| actor.name.as_deref());
        let name = name.or(self.about.by.as_deref());
        name.or_else(|| Some(actor?.id.as_str()))
    }
}

fn said<S: Serializer>(details: &Option<Arc<Details>>, to: S) -> Result<S::Ok, S::Error> {
    details.as_deref().serialize(to)
}
