//! Pages of a user's feed, and the objects on them.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::{Serialize, Serializer};

use crate::domain::feed_marks::{ItemState, StateFilter};
use crate::domain::feed_page::{FeedCursor, FeedQuery, GroupKey};
use crate::domain::{
    Day, Details, EventType, Json, Object, ObjectId, ObjectKey, Point, Position, UserId,
};

/// A page of items.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FeedPage {
    /// The items, newest first. Those that no longer apply are omitted.
    pub items: Vec<FeedItem>,
    /// The value of `before` for the next page; `None` on the last page.
    pub next: Option<Position>,
    /// The counts of the whole feed; flattened in JSON.
    #[serde(flatten)]
    pub counts: FeedCounts,
}

/// A page of groups: the items of one day, type and topic.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupPage {
    /// The groups, those with the newest items first.
    pub groups: Vec<FeedGroup>,
    /// The value of `before` for the next page; `None` on the last page.
    pub next: Option<Position>,
    /// The counts of the whole feed; flattened in JSON.
    #[serde(flatten)]
    pub counts: FeedCounts,
}

/// Items of one day, type and topic, shown as one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FeedGroup {
    /// The position of the newest item.
    pub id: Position,
    /// The day of the items.
    pub day: Day,
    /// The type of the events; `type` in JSON.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// The topic of the objects: see [`crate::domain::object::feed_topic`].
    #[serde(rename = "about")]
    pub topic: String,
    /// The number of items.
    pub count: u64,
    /// The number of items that were not shown yet.
    pub unseen: u64,
    /// The number of items that were not opened yet.
    pub unread: u64,
    /// The time of the newest event.
    pub at: DateTime<Utc>,
    /// The newest items, at most three.
    pub items: Vec<FeedItem>,
    /// The path that lists all items of the group.
    pub items_url: String,
}

impl FeedGroup {
    /// Returns the path that lists the items of a group, with the filters of the request.
    pub fn items_url(user: &UserId, key: &GroupKey, query: &FeedQuery) -> String {
        let user: String = form_urlencoded::byte_serialize(user.as_str().as_bytes()).collect();
        // A plus sign means a space in queries only.
        let path = format!("/v1/users/{}/feed?", user.replace('+', "%20"));
        let from = path.len();
        let mut url = form_urlencoded::Serializer::for_suffix(path, from);
        url.append_pair("day", &key.day.to_string());
        url.append_pair("type", key.kind.as_str());
        url.append_pair("about", &key.topic);
        if query.state != StateFilter::default() {
            url.append_pair("state", query.state.as_str());
        }
        if let Some(after) = &query.after {
            url.append_pair("after", &after.to_string());
        }
        url.finish()
    }
}

/// The counts of a whole feed, whichever part of it was requested.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FeedCounts {
    /// The number of items in the window that were not shown yet.
    pub unseen: u64,
    /// The number of items that were not opened yet, shown or not.
    pub unread: u64,
    /// The end of the feed. As `after`, it later selects newer items; as `to`, it limits marks to
    /// the items so far.
    pub cursor: FeedCursor,
}

/// An event in a feed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FeedItem {
    /// The position on the user's stacks, which never changes.
    pub id: Position,
    /// The event's type; `type` in JSON.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// The id of the object, as in the event.
    #[serde(skip)]
    pub object_id: ObjectId,
    /// The record of the object; `object` in JSON.
    #[serde(rename = "object", serialize_with = "serialize_object")]
    pub record: Arc<Object>,
    /// The time of the event.
    pub at: DateTime<Utc>,
    /// The item's state for its reader.
    pub state: ItemState,
    /// Whether no later email will include the item.
    #[serde(rename = "mailed")]
    pub is_emailed: bool,
    /// The details of the event; flattened in JSON, without unset ones.
    #[serde(flatten, serialize_with = "serialize_details")]
    pub details: Option<Arc<Details>>,
    /// What front ends show about the item's type; flattened in JSON. Only for requests with a
    /// language.
    #[serde(flatten)]
    pub words: Option<ItemWords>,
}

/// The words for an item in the language of a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ItemWords {
    /// The heading of the item's type.
    pub heading: String,
    /// A sentence with `{who}` and `{what}` in it. `None` if the type has no phrase in this
    /// language, or if the event and its object name no actor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phrase: Option<String>,
    /// The title of the object's topic, if it states one: the `{what}` of the sentence.
    #[serde(rename = "about", skip_serializing_if = "Option::is_none")]
    pub topic_title: Option<String>,
}

impl FeedItem {
    /// Returns the item on one line: the label of its object, and the text of the event, if any.
    pub(crate) fn summary(&self) -> String {
        let (label, details) = (self.record.label(), self.details.as_ref());
        match details.and_then(|details| details.text.as_deref()) {
            Some(text) => format!("{label}: “{text}”"),
            None => label.into_owned(),
        }
    }

    /// Returns the name of the event's actor, else the author of its object, else the actor's id.
    pub(crate) fn by(&self) -> Option<&str> {
        let actor = self.details.as_ref().and_then(|details| details.actor.as_ref());
        let actor_name = actor.and_then(|actor| actor.name.as_deref());
        actor_name.or(self.record.by.as_deref()).or_else(|| Some(actor?.id.as_str()))
    }
}

fn serialize_details<S: Serializer>(
    details: &Option<Arc<Details>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    details.as_deref().serialize(serializer)
}

/// An object, as the API returns it by itself and in feeds.
#[derive(Debug, Serialize)]
pub(crate) struct ObjectView<'a> {
    id: &'a ObjectKey,
    notifiable: bool,
    title: Option<&'a str>,
    url: Option<&'a str>,
    image: Option<&'a str>,
    by: Option<&'a str>,
    at: Option<DateTime<Utc>>,
    place: Option<Point>,
    data: &'a Json,
}

impl<'a> From<&'a Object> for ObjectView<'a> {
    fn from(object: &'a Object) -> Self {
        Self {
            id: &object.key,
            notifiable: object.notifiable,
            title: object.title.as_deref(),
            url: object.url.as_deref(),
            image: object.image.as_deref(),
            by: object.by.as_deref(),
            at: object.at,
            place: object.place,
            data: &object.data,
        }
    }
}

fn serialize_object<S: Serializer>(
    object: &impl AsRef<Object>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    ObjectView::from(object.as_ref()).serialize(serializer)
}
