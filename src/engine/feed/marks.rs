//! Marks items of a feed as seen, read or archived.
//!
//! A mark applies to items that the reader was shown, named by a cursor or by ids, never to later
//! ones. It is applied to the current inbox and retried if another writer changed that first. Every
//! call returns the new counts, so clients do not have to count. Start with [`FeedService::mark`].

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::FeedService;
use crate::domain::feed_marks::{Mark, MarkTargets};
use crate::domain::feed_page::{FeedCursor, FeedQuery, KindFilter, select_events};
use crate::domain::{
    Category, ChangeNotice, Day, DaySet, EventType, Id, Inbox, InvalidValue, Policies, Position,
    UserId, UserStacks,
};
use crate::engine::Result;
use crate::engine::json_fields;
use crate::store;
use crate::wire::feed::FeedCounts;

/// The most items in one call.
pub const MAX_IDS: usize = 1_000;
/// The most attempts to write an inbox that other writers change concurrently.
const MAX_ATTEMPTS: usize = 100;

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
    /// Returns the selection in the form that the inbox expects, and the filter by day or object,
    /// if there is one.
    fn selection(
        self,
        policies: &Policies,
    ) -> Result<(MarkTargets, Option<FeedQuery>), InvalidValue> {
        if self.to.is_none() {
            let why = "is only known beside to; with ids, leave it out";
            let filters = [
                ("type", self.kind.as_ref().map(ToString::to_string)),
                ("category", self.category.as_ref().map(ToString::to_string)),
                ("day", self.day.map(|day| day.to_string())),
                ("about", self.about.clone()),
            ];
            for (name, value) in filters {
                if let Some(value) = value {
                    return Err(InvalidValue::new(name, value, why));
                }
            }
        }
        let kinds = KindFilter::selecting(self.kind, self.category.as_ref(), policies);
        let filter = (self.day.is_some() || self.about.is_some()).then(|| FeedQuery {
            kinds: kinds.clone(),
            day: self.day,
            topic: self.about,
            ..FeedQuery::default()
        });
        let marked = match (self.to, self.ids) {
            (Some(to), None) => MarkTargets::UpTo(to, kinds),
            (None, Some(ids)) if (1..=MAX_IDS).contains(&ids.len()) => MarkTargets::Items(ids),
            (None, Some(ids)) if ids.is_empty() => {
                return Err(InvalidValue::new("ids", "[]", "names none: give one at least"));
            }
            (None, Some(ids)) => {
                let why = format!("is not a number of items from 1 to {MAX_IDS}");
                return Err(InvalidValue::new("ids", ids.len(), why));
            }
            (to, _) => {
                let why = if to.is_some() {
                    "has both to and ids: give one of them"
                } else {
                    "names no items: give to, the cursor of what was shown, or ids"
                };
                return Err(InvalidValue::new("mark", self.mark.as_str(), why));
            }
        };
        Ok((marked, filter))
    }
}

impl FeedService {
    /// Marks items of a user's feed. Returns the counts after the change.
    pub async fn mark(&self, user: &UserId, input: MarksInput) -> Result<FeedCounts> {
        let mark = input.mark;
        let (mut marked, filter) = input.selection(&self.context.policies)?;
        // A cached window is enough if it contains the items, which any process may have shown.
        let is_enough = |user_stacks: &UserStacks| match &marked {
            MarkTargets::UpTo(cursor, _) => cursor.is_contained_in(user_stacks),
            MarkTargets::Items(positions) => positions.iter().all(|id| user_stacks.contains(*id)),
        };
        let (mut feed, event_facts) = self.read(user, is_enough).await?;
        if let (MarkTargets::UpTo(cursor, _), Some(filter)) = (&marked, &filter) {
            let mut shown = feed.user_stacks.clone();
            cursor.truncate(&mut shown);
            let mut items = select_events(&shown, filter);
            items.retain(|item| {
                event_facts.object(item.event).is_some_and(|object| filter.selects_object(&object))
            });
            marked = MarkTargets::Items(items.iter().map(|item| item.position).collect());
        }
        let kept = DaySet::ending(feed.window.window.last(), self.context.config.mark_days_back());
        for attempt in 0..MAX_ATTEMPTS {
            let now = self.context.clock.now();
            let is_stored = if feed.inbox.mark(&feed.user_stacks, &kept, &marked, mark, now) {
                self.put_inbox(feed.inbox.clone(), now).await?
            } else {
                // There is nothing to change. The first inbox may come from the cache, so read it
                // from the store once.
                attempt > 0
            };
            if is_stored {
                // Polls of this process see the change at once, before the store's change notice
                // arrives.
                self.cache.apply_notice(&ChangeNotice::users([user.as_str()]));
                return Ok(self.counts_of(&feed, &event_facts).0);
            }
            feed.inbox = self.inbox(user).await?;
        }
        let why = format!("{MAX_ATTEMPTS} others marked something first, each time");
        Err(store::Error::database("marking items of a feed", why).into())
    }

    /// Stores an inbox in one call with those of concurrent requests. Returns `false` if another
    /// writer changed it first.
    async fn put_inbox(&self, inbox: Inbox, now: DateTime<Utc>) -> store::Result<bool> {
        let put = |inboxes: Vec<(Inbox, Id)>| {
            let store = Arc::clone(&self.context.store);
            async move { store.put_inboxes(&inboxes).await }
        };
        self.mark_writes.call((inbox, self.context.ids.next(now)), put).await
    }
}
