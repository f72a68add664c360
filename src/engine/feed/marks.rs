//! Marks items of a feed as seen, read or archived.
//!
//! A mark applies to items that the reader was shown, named by a cursor or by ids, never to later
//! ones. It is applied to the current inbox and retried if another writer changed that first. Every
//! call returns the new counts, so clients do not have to count. Start with [`Feeds::mark`].

use std::sync::Arc;

use serde::Deserialize;

use super::Feeds;
use crate::domain::feed_marks::{Mark, Marked};
use crate::domain::feed_page::{FeedCursor, Kinds, Query, select};
use crate::domain::{
    Category, ChangeNotice, Day, DaySet, EventType, Id, Inbox, Invalid, Policies, Position, UserId,
    UserStacks,
};
use crate::engine::Result;
use crate::engine::users::json_fields;
use crate::store;
use crate::wire::feed::FeedCounts;

/// The most items in one call.
pub const MAX_IDS: usize = 1_000;
/// The most attempts to write an inbox that other writers change concurrently.
const ROUNDS: usize = 100;

/// A request to mark items, up to a cursor or by their ids. `null` is rejected where a field may be
/// absent: a type that was lost on the way would mark all types.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with mark and to or ids")]
pub struct MarksInput {
    /// The mark: `seen`, `read`, `unread`, `archive` or `restore`.
    pub mark: Mark,
    /// The cursor of a response. Marks everything up to the items that it showed.
    #[serde(default, deserialize_with = "json_fields::given")]
    pub to: Option<FeedCursor>,
    /// Only items of this type; only with `to`.
    #[serde(rename = "type", default, deserialize_with = "json_fields::given")]
    pub kind: Option<EventType>,
    /// Only items of types in this category; only with `to`.
    #[serde(default, deserialize_with = "json_fields::given")]
    pub category: Option<Category>,
    /// Only items of this day; only with `to`.
    #[serde(default, deserialize_with = "json_fields::given")]
    pub day: Option<Day>,
    /// Only items whose objects are about this, as in groups; only with `to`.
    #[serde(default, deserialize_with = "json_fields::given")]
    pub about: Option<String>,
    /// Items by their ids, 1 to 1,000. Ids of items that no longer exist are ignored.
    #[serde(default, deserialize_with = "json_fields::given")]
    pub ids: Option<Vec<Position>>,
}

impl MarksInput {
    /// Returns the selection in the form that the inbox expects, and the part of the feed to which
    /// a day or an object restricts it.
    fn selection(self, policies: &Policies) -> Result<(Marked, Option<Query>), Invalid> {
        if self.to.is_none() {
            let why = "is only known beside to; with ids, leave it out";
            let beside = [
                ("type", self.kind.as_ref().map(ToString::to_string)),
                ("category", self.category.as_ref().map(ToString::to_string)),
                ("day", self.day.map(|day| day.to_string())),
                ("about", self.about.clone()),
            ];
            for (what, given) in beside {
                if let Some(given) = given {
                    return Err(Invalid::new(what, given, why));
                }
            }
        }
        let kinds = Kinds::of(self.kind, self.category.as_ref(), policies);
        let part = (self.day.is_some() || self.about.is_some()).then(|| Query {
            kinds: kinds.clone(),
            day: self.day,
            about: self.about,
            ..Query::default()
        });
        let marked = match (self.to, self.ids) {
            (Some(to), None) => Marked::To(to, kinds),
            (None, Some(ids)) if (1..=MAX_IDS).contains(&ids.len()) => Marked::Items(ids),
            (None, Some(ids)) if ids.is_empty() => {
                return Err(Invalid::new("ids", "[]", "names none: give one at least"));
            }
            (None, Some(ids)) => {
                let why = format!("is not a number of items from 1 to {MAX_IDS}");
                return Err(Invalid::new("ids", ids.len(), why));
            }
            (to, _) => {
                let why = match to {
                    Some(_) => "has both to and ids: give one of them",
                    None => "names no items: give to, the cursor of what was shown, or ids",
                };
                return Err(Invalid::new("mark", self.mark.as_str(), why));
            }
        };
        Ok((marked, part))
    }
}

impl Feeds {
    /// Marks items of a user's feed. Returns the counts after the change.
    pub async fn mark(&self, user: &UserId, input: MarksInput) -> Result<FeedCounts> {
        let mark = input.mark;
        let (marked, part) = input.selection(&self.context.policies)?;
        // A cached window is enough if it contains the items, which any process may have shown.
        let shown = |person: &UserStacks| match &marked {
            Marked::To(cursor, _) => cursor.is_within(person),
            Marked::Items(places) => places.iter().all(|place| person.holds(*place)),
        };
        let (mut feed, catalog) = self.read(user, shown).await?;
        let marked = match (marked, part) {
            (Marked::To(to, _), Some(part)) => {
                let mut shown = feed.person.clone();
                to.cut(&mut shown);
                let mut items = select(&shown, &part);
                items.retain(|item| {
                    let object = catalog.record(item.event);
                    object.is_some_and(|object| part.is_about(&object))
                });
                Marked::Items(items.iter().map(|item| item.position).collect())
            }
            (marked, _) => marked,
        };
        let kept = DaySet::ending(feed.window.window.last(), self.context.config.remembered_back());
        for round in 0..ROUNDS {
            let now = self.context.clock.now();
            let inbox = &mut feed.inbox;
            let done = if inbox.mark(&feed.person, &kept, &marked, mark, now) {
                let store = Arc::clone(&self.context.store);
                let put = |inboxes: Vec<(Inbox, Id)>| {
                    let store = Arc::clone(&store);
                    async move { store.put_inboxes(&inboxes).await }
                };
                let request = (inbox.clone(), self.context.ids.next(now));
                self.coalescer.call(request, put).await?
            } else {
                // If there is nothing to change, the inbox must be read again, because it may come
                // from the cache.
                round > 0
            };
            if done {
                // Polls of this process see the change at once, before the store's change notice
                // arrives.
                self.cache.apply(&ChangeNotice::people([user.as_str()]));
                return Ok(self.counts_of(&feed, &catalog).0);
            }
            feed.inbox = self.inbox(user).await?;
        }
        let why = format!("{ROUNDS} others marked something first, each time");
        Err(store::Error::database("marking items of a feed", why).into())
    }
}
