//! Serves a user's feed: the events of the window, newest first, with their objects and states.
//!
//! Pages do not shift while events arrive ([`crate::domain::feed_page`]). Counts are of items in
//! the current feed; they are computed for each response and never stored. Start with
//! [`FeedService::page`].

pub mod cache;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::Result;
use super::coalescer::Coalescer;
use super::eligibility;
use super::eligibility::event_facts::EventFacts;
use super::users::personal::load_start;
use crate::context::Context;
use crate::domain::day_stack::StackEvent;
use crate::domain::feed_marks::ItemState;
use crate::domain::feed_page::{FeedCursor, FeedQuery, GroupKey, group_items, select_events};
use crate::domain::object::feed_topic;
use crate::domain::user::TypePreference;
use crate::domain::{
    Day, DaySet, Event, EventType, Id, Inbox, InvalidValue, Object, ObjectId, ObjectKey, Route,
    Stack, UserId, UserStacks, distinct,
};
use crate::store::{self, FeedParts, Store};
use crate::wire::feed::{FeedCounts, FeedGroup, FeedItem, FeedPage, GroupPage};
use cache::{FeedCache, UserWindow};

mod marks;

pub use marks::{MAX_IDS, MarksInput};

/// Reads feeds and marks their items.
pub struct FeedService {
    pub(crate) context: Arc<Context>,
    pub(crate) cache: Arc<FeedCache>,
    /// Combines concurrent reads of feeds.
    pub(crate) feed_reads: Arc<Coalescer<(DaySet, UserId), FeedParts>>,
    /// Combines concurrent marks.
    pub(crate) mark_writes: Arc<Coalescer<(Inbox, Id), bool>>,
}

/// A response, with the objects that it depends on.
pub struct FeedResponse<T> {
    /// The response.
    pub answer: T,
    /// The response is valid for the UTC day, until one of these objects or the user's data
    /// changes.
    pub depends_on: Vec<ObjectKey>,
    /// When the oldest cached data in the response was read, if there is any.
    pub as_of: Option<DateTime<Utc>>,
}

impl<T> FeedResponse<T> {
    /// Converts the response, and keeps what it depends on.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> FeedResponse<U> {
        let Self { answer, depends_on, as_of } = self;
        FeedResponse { answer: convert(answer), depends_on, as_of }
    }
}

/// A user's current feed without retracted events and types that feeds do not show.
struct UserFeed {
    window: Arc<UserWindow>,
    user_stacks: UserStacks,
    inbox: Inbox,
    /// The positions of muted events. They are shown, and count as read.
    muted: eligibility::MutedPositions,
    /// When the window was read, if it is cached.
    as_of: Option<DateTime<Utc>>,
}

/// The identity of an item: its event type and object.
type ItemKey<'a> = (&'a EventType, &'a ObjectId);

type ItemStates<'a> = HashMap<ItemKey<'a>, ItemState>;

/// A request for a page of items or groups.
#[derive(Debug, Clone)]
pub struct FeedRequest {
    /// The user, who may have no record.
    pub user: UserId,
    /// The requested part of the feed: after a cursor, before an item, of one type or day.
    pub query: FeedQuery,
    /// The most items or groups on the page, 1 to 200.
    pub limit: usize,
    /// Whether a first page may be built from a valid cached window instead of the store.
    pub accepts_cached: bool,
}

/// The most items or groups on a page.
pub const MAX_LIMIT: usize = 200;
/// The most bytes of the objects on a page. A page has at least one item, even if it is larger.
pub const MAX_PAGE_BYTES: usize = 2 << 20;
/// The number of items that a group shows.
const ITEMS_PER_GROUP: usize = 3;

/// Cuts a list to the elements that fit on a page, but at least one. Returns whether it removed
/// any.
fn cut_to_fit<T>(list: &mut Vec<T>, limit: usize, bytes_of: impl Fn(&T) -> usize) -> bool {
    let mut bytes = 0;
    let fits = |element: &&T| {
        bytes += bytes_of(element);
        bytes <= MAX_PAGE_BYTES
    };
    let fitting = list.iter().take(limit).take_while(fits).count().max(1);
    let has_more = list.len() > fitting;
    list.truncate(fitting);
    has_more
}

impl FeedService {
    /// Returns one page of items.
    ///
    /// # Errors
    ///
    /// Fails if `limit` is out of range.
    pub async fn page(&self, request: &FeedRequest) -> Result<FeedResponse<FeedPage>> {
        let query = &request.query;
        let (feed, mut event_facts) = self.read_for(request).await?;
        let (counts, mut depends_on) = self.counts_of(&feed, &event_facts);
        let states = self.states(&feed);
        let mut shown = Vec::new();
        for entry in selected(&feed.user_stacks, query, &states) {
            if shown.len() > request.limit {
                break;
            }
            depends_on.push(event_facts.object_key(entry.event));
            if let Some(object) = event_facts.applicable_object(entry.event)
                && query.selects_object(&object)
            {
                shown.push((entry, object));
            }
        }
        let has_more = cut_to_fit(&mut shown, request.limit, |(_, object)| object.bytes());
        let items = build_items(&mut event_facts, &states, &self.emailed(&feed), shown).await?;
        let next = items.last().filter(|_| has_more).map(|item| item.id);
        Ok(feed.respond(FeedPage { items, next, counts }, depends_on, &event_facts))
    }

    /// Returns a page of groups, at most `limit`.
    ///
    /// # Errors
    ///
    /// Fails if `limit` is out of range.
    pub async fn groups(&self, request: &FeedRequest) -> Result<FeedResponse<GroupPage>> {
        let query = &request.query;
        let (feed, mut event_facts) = self.read_for(request).await?;
        let (counts, mut depends_on) = self.counts_of(&feed, &event_facts);
        // The end of the previous page applies to groups, not to items.
        let ungrouped = FeedQuery { before: None, ..query.clone() };
        let states = self.states(&feed);
        let selected = selected(&feed.user_stacks, &ungrouped, &states);
        depends_on.extend(selected.iter().map(|entry| event_facts.object_key(entry.event)));
        let mut groups = group_items(selected.into_iter().filter_map(|entry| {
            let object = event_facts
                .applicable_object(entry.event)
                .filter(|object| query.selects_object(object))?;
            let key = GroupKey {
                day: entry.position.stack.day,
                kind: entry.event.kind.clone(),
                topic: feed_topic(&object).into_owned(),
            };
            Some((key, (entry, object)))
        }));
        groups.retain(|(_, entries)| query.before.is_none_or(|end| entries[0].0.position < end));
        let has_more = cut_to_fit(&mut groups, request.limit, |(_, entries)| {
            entries.iter().take(ITEMS_PER_GROUP).map(|(_, object)| object.bytes()).sum()
        });
        let entries = groups.iter().flat_map(|(_, entries)| entries.iter().take(ITEMS_PER_GROUP));
        let shown = entries.cloned().collect();
        let emailed = self.emailed(&feed);
        let mut items = build_items(&mut event_facts, &states, &emailed, shown).await?.into_iter();
        let build_group = |(key, entries): (GroupKey, Vec<(StackEvent<'_>, Arc<Object>)>)| {
            let (mut unseen, mut unread) = (0, 0);
            for (entry, _) in &entries {
                let state = state_of(&states, entry.event);
                unseen += u64::from(state == ItemState::Unseen);
                unread += u64::from(state.is_unread());
            }
            FeedGroup {
                id: entries[0].0.position,
                at: entries[0].0.at,
                count: entries.len() as u64,
                unseen,
                unread,
                items_url: FeedGroup::items_url(&request.user, &key, query),
                day: key.day,
                kind: key.kind,
                topic: key.topic,
                items: items.by_ref().take(entries.len().min(ITEMS_PER_GROUP)).collect(),
            }
        };
        let groups: Vec<FeedGroup> = groups.into_iter().map(build_group).collect();
        let next = groups.last().filter(|_| has_more).map(|group| group.id);
        Ok(feed.respond(GroupPage { groups, next, counts }, depends_on, &event_facts))
    }

    /// Counts the unseen and unread items. `accepts_cached` has the same meaning as in
    /// [`FeedRequest`].
    pub async fn counts(
        &self,
        user: &UserId,
        accepts_cached: bool,
    ) -> Result<FeedResponse<FeedCounts>> {
        let (feed, event_facts) = self.read(user, |_| accepts_cached).await?;
        let (counts, depends_on) = self.counts_of(&feed, &event_facts);
        Ok(feed.respond(counts, depends_on, &event_facts))
    }

    /// Counts the unseen and unread items. Also returns the objects that the counts depend on.
    fn counts_of(&self, feed: &UserFeed, event_facts: &EventFacts) -> (FeedCounts, Vec<ObjectKey>) {
        let (mut unseen, mut unread, mut depends_on) = (0, 0, Vec::new());
        for entry in feed.user_stacks.events() {
            let state = self.state(feed, &entry);
            if !state.is_unread() {
                continue;
            }
            depends_on.push(event_facts.object_key(entry.event));
            if event_facts.applicable_object(entry.event).is_some() {
                unread += 1;
                unseen += u64::from(state == ItemState::Unseen);
            }
        }
        let cursor = FeedCursor::at_end_of(&feed.user_stacks);
        (FeedCounts { unseen, unread, cursor }, depends_on)
    }

    async fn inbox(&self, user: &UserId) -> Result<Inbox> {
        let mut inboxes = self.context.store.inboxes(std::slice::from_ref(user)).await?;
        Ok(inboxes.pop().flatten().unwrap_or_else(|| Inbox::empty(user.clone())))
    }

    /// Returns the current feed for a page, with the loaded facts about its events.
    async fn read_for(&self, request: &FeedRequest) -> Result<(UserFeed, EventFacts)> {
        if !(1..=MAX_LIMIT).contains(&request.limit) {
            let why = format!("is not a number from 1 to {MAX_LIMIT}");
            return Err(InvalidValue::new("limit", request.limit, why).into());
        }
        let query = &request.query;
        // A later page can use a cached window that contains the item from which it continues.
        let is_enough = |user_stacks: &UserStacks| {
            let has_cursor_item = query.before.is_some_and(|before| user_stacks.contains(before));
            (has_cursor_item || query.before.is_none() && request.accepts_cached)
                && query.is_contained_in(user_stacks)
        };
        self.read(&request.user, is_enough).await
    }

    /// Returns the current feed, from a cached window if `is_enough` accepts its stacks, and the
    /// loaded facts about its events.
    async fn read(
        &self,
        user: &UserId,
        is_enough: impl FnOnce(&UserStacks) -> bool,
    ) -> Result<(UserFeed, EventFacts)> {
        let now = self.context.clock.now();
        let days = DaySet::ending(Day::of(now), self.context.config.window_days_back);
        let cached = self.cache.window(user, &days);
        let (window, as_of) = match cached.filter(|(window, _)| is_enough(&window.user_stacks)) {
            Some((window, read_at)) => (window, Some(read_at)),
            None => (self.read_window(user, days).await?, None),
        };
        let mut user_stacks = window.user_stacks.clone();
        let mut event_facts = EventFacts::for_feeds(&self.context, &self.cache);
        let events = user_stacks.stacks.iter().flat_map(Stack::events);
        event_facts.load_objects_and_retractions(events.map(|(_, event)| event)).await?;
        user_stacks.hide(|_, event| !event_facts.is_in_feed(event));
        let muted =
            eligibility::muted_positions(&user_stacks, &window.mutes, &mut event_facts).await?;
        let inbox = window.inbox.clone();
        Ok((UserFeed { window, user_stacks, inbox, muted, as_of }, event_facts))
    }

    async fn read_window(&self, user: &UserId, window: DaySet) -> Result<Arc<UserWindow>> {
        let version = self.cache.version_of_user(user);
        let store = &self.context.store;
        let read = |requests| read_feeds(Arc::clone(store), requests);
        let mut parts = self.feed_reads.call((window.clone(), user.clone()), read).await?;
        let start = load_start(&**store, user, parts.user.as_ref()).await?;
        parts.stacks.hide_before_start(start);
        let (mutes, types) = parts.user.map(|user| (user.mutes, user.types)).unzip();
        let user_window = Arc::new(UserWindow {
            window,
            user_stacks: parts.stacks,
            inbox: parts.inbox.unwrap_or_else(|| Inbox::empty(user.clone())),
            mutes: mutes.unwrap_or_default(),
            types,
        });
        if let Some(version) = version {
            self.cache.put_window(Arc::clone(&user_window), version);
        }
        Ok(user_window)
    }

    /// Returns the state of each item. It is that of the item's oldest position in the window.
    fn states<'a>(&self, feed: &'a UserFeed) -> ItemStates<'a> {
        let events = feed.user_stacks.events().into_iter();
        events.map(|entry| (item_key(entry.event), self.state(feed, &entry))).collect()
    }

    fn state(&self, feed: &UserFeed, entry: &StackEvent<'_>) -> ItemState {
        let state = feed.inbox.state(entry.position);
        let since = self.context.config.feed.since;
        if feed.muted.contains_key(&entry.position) {
            state.max(ItemState::Read)
        } else if since.is_some_and(|since| entry.at < since) {
            state.max(ItemState::Seen)
        } else {
            state
        }
    }

    /// Returns the items that no later email will include. At one of their positions, a batch
    /// marker names the event; or a digest marker covers the position, and the event's route was
    /// the digest. A flush writes such markers too.
    fn emailed<'a>(&self, feed: &'a UserFeed) -> HashSet<ItemKey<'a>> {
        let was_for_digest = |event: &Event, day: Day, marked_at: DateTime<Utc>| {
            let Some(types) = &feed.window.types else { return true };
            let chosen = types.get(&event.kind);
            // A later choice does not say what the route was before.
            chosen.is_some_and(|chosen| chosen.since >= marked_at)
                || TypePreference::route(
                    chosen,
                    &event.kind,
                    event.time(day),
                    &self.context.policies,
                ) == Route::Digest
        };
        let mut emailed = HashSet::new();
        for stack in &feed.user_stacks.stacks {
            let batch_events = stack.emailed_ids();
            for (position, event) in stack.events() {
                // Markers of older writers name no email.
                let marker =
                    stack.covering_marker(position.index).filter(|marker| marker.n.is_some());
                let marked_at = marker.and_then(|marker| marker.id).map(Id::time);
                if event.fanout_id.is_some_and(|id| batch_events.contains(&id))
                    || marked_at.is_some_and(|at| was_for_digest(event, stack.id.day, at))
                {
                    emailed.insert(item_key(event));
                }
            }
        }
        emailed
    }
}

/// Reads the feeds of these requests, in their order, those of the same window at once.
async fn read_feeds(
    store: Arc<dyn Store>,
    requests: Vec<(DaySet, UserId)>,
) -> store::Result<Vec<FeedParts>> {
    let mut feeds = Vec::with_capacity(requests.len());
    for same_window in requests.chunk_by(|(window, _), (next, _)| window == next) {
        let users = distinct(same_window.iter().map(|(_, user)| user.clone()));
        let parts = store.feeds(same_window[0].0.clone(), &users).await?;
        let indexes = same_window.iter().filter_map(|(_, user)| users.binary_search(user).ok());
        feeds.extend(indexes.map(|index| parts[index].clone()));
    }
    Ok(feeds)
}

impl UserFeed {
    fn respond<T>(
        &self,
        answer: T,
        depends_on: Vec<ObjectKey>,
        event_facts: &EventFacts,
    ) -> FeedResponse<T> {
        let as_of = [self.as_of, event_facts.as_of()].into_iter().flatten().min();
        FeedResponse { answer, depends_on, as_of }
    }
}

/// Loads the details of these entries and builds their items.
async fn build_items(
    event_facts: &mut EventFacts,
    states: &ItemStates<'_>,
    emailed: &HashSet<ItemKey<'_>>,
    entries: Vec<(StackEvent<'_>, Arc<Object>)>,
) -> Result<Vec<FeedItem>> {
    event_facts.load_details(entries.iter().map(|(entry, _)| entry.event)).await?;
    let build = |(entry, object): (StackEvent<'_>, Arc<Object>)| FeedItem {
        id: entry.position,
        kind: entry.event.kind.clone(),
        object_id: entry.event.object.clone(),
        at: entry.at,
        state: state_of(states, entry.event),
        is_emailed: emailed.contains(&item_key(entry.event)),
        record: object,
        details: event_facts.details(entry.event),
        words: None,
    };
    Ok(entries.into_iter().map(build).collect())
}

/// Returns the events that the query selects, newest first, without the filters by object.
fn selected<'a>(
    user_stacks: &'a UserStacks,
    query: &FeedQuery,
    states: &ItemStates<'_>,
) -> Vec<StackEvent<'a>> {
    let mut selected = select_events(user_stacks, query);
    selected.retain(|entry| query.state.admits(state_of(states, entry.event)));
    selected
}

fn item_key(event: &Event) -> ItemKey<'_> {
    (&event.kind, &event.object)
}

/// Returns the state of an item; unlisted items are unseen.
fn state_of(states: &ItemStates<'_>, event: &Event) -> ItemState {
    states.get(&item_key(event)).copied().unwrap_or(ItemState::Unseen)
}
