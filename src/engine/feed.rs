//! Serves a user's feed: the events of the window, newest first, with their objects and states.
//!
//! Pages do not shift while events arrive ([`crate::domain::feed_page`]). Counts are of items in
//! the current feed; they are computed for each response and never stored. Start with
//! [`Feeds::page`].

pub mod cache;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::Result;
use super::coalescer::Coalescer;
use super::eligibility;
use super::eligibility::event_facts::Catalog;
use super::users::personal::start_of;
use crate::context::Context;
use crate::domain::day_stack::EventAt;
use crate::domain::feed_marks::ItemState;
use crate::domain::feed_page::{FeedCursor, GroupKey, Query, grouped, select};
use crate::domain::object::topic_key;
use crate::domain::user::TypePreference;
use crate::domain::{
    Day, DaySet, Event, EventType, Facts, Id, Inbox, Invalid, Object, ObjectId, ObjectKey, Purpose,
    Route, Stack, UserId, UserStacks, classify, distinct,
};
use crate::store::{self, FeedParts, Store};
use crate::wire::feed::{FeedCounts, FeedGroup, FeedItem, FeedPage, GroupPage};
use cache::{FeedCache, UserWindow};

mod marks;

pub use marks::{MAX_IDS, MarksInput};

/// Reads feeds and marks their items.
pub struct Feeds {
    pub(crate) context: Arc<Context>,
    pub(crate) cache: Arc<FeedCache>,
    /// Combines concurrent reads of feeds.
    pub(crate) reads: Arc<Coalescer<(DaySet, UserId), FeedParts>>,
    /// Combines concurrent marks.
    pub(crate) coalescer: Arc<Coalescer<(Inbox, Id), bool>>,
}

/// A response, with the objects that it depends on.
pub struct FeedResponse<T> {
    /// The response.
    pub answer: T,
    /// The response is valid for the UTC day, until one of these objects or the user's data
    /// changes.
    pub about: Vec<ObjectKey>,
    /// When the oldest cached data in the response was read, if there is any.
    pub as_of: Option<DateTime<Utc>>,
}

impl<T> FeedResponse<T> {
    /// Applies a function to the response.
    pub fn map<U>(self, form: impl FnOnce(T) -> U) -> FeedResponse<U> {
        FeedResponse { answer: form(self.answer), about: self.about, as_of: self.as_of }
    }
}

/// A user's current feed without retracted events and types that feeds do not show.
struct UserFeed {
    window: Arc<UserWindow>,
    person: UserStacks,
    inbox: Inbox,
    /// The positions of muted events. They are shown, and count as read.
    muted: eligibility::MutedPositions,
    /// When the window was read, if it is cached.
    as_of: Option<DateTime<Utc>>,
}

/// The name of an item.
type Name<'a> = (&'a EventType, &'a ObjectId);

/// The state of each item.
type States<'a> = HashMap<Name<'a>, ItemState>;

/// A request for a page of items or groups.
#[derive(Debug, Clone)]
pub struct FeedRequest {
    /// The user, who may have no record.
    pub user: UserId,
    /// The requested part of the feed: after a cursor, before an item, of one type or day.
    pub query: Query,
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
const SHOWN: usize = 3;

/// Cuts a list to what fits on a page, at least one, by `bytes` of each. Returns whether there is
/// more.
fn cut_to_fit<T>(list: &mut Vec<T>, limit: usize, bytes: impl Fn(&T) -> usize) -> bool {
    let mut all = 0;
    let fits = list.iter().take(limit).take_while(|item| {
        all += bytes(item);
        all <= MAX_PAGE_BYTES
    });
    let fitting = fits.count().max(1);
    let more = list.len() > fitting;
    list.truncate(fitting);
    more
}

impl Feeds {
    /// Returns one page of items.
    ///
    /// # Errors
    ///
    /// Fails if `limit` is out of range.
    pub async fn page(&self, request: &FeedRequest) -> Result<FeedResponse<FeedPage>> {
        let query = &request.query;
        let (feed, mut catalog) = self.read_for(request).await?;
        let (counts, mut about) = self.counts_of(&feed, &catalog);
        let mut shown = Vec::new();
        let states = self.states(&feed);
        for entry in selected(&feed.person, query, &states) {
            if shown.len() > request.limit {
                break;
            }
            about.push(catalog.key(entry.event));
            let object = catalog.applies(entry.event);
            let object = object.filter(|object| query.is_about(object));
            shown.extend(object.map(|object| (entry, object)));
        }
        let more = cut_to_fit(&mut shown, request.limit, |(_, object)| object.bytes());
        let mailed = self.mailed(&feed);
        let items = items(&mut catalog, &states, &mailed, shown).await?;
        let next = items.last().filter(|_| more).map(|item| item.id);
        let answer = FeedPage { items, next, counts };
        Ok(feed.answer(answer, about, &catalog))
    }

    /// Returns a page of groups, at most `limit`.
    ///
    /// # Errors
    ///
    /// Fails if `limit` is out of range.
    pub async fn groups(&self, request: &FeedRequest) -> Result<FeedResponse<GroupPage>> {
        let query = &request.query;
        let (feed, mut catalog) = self.read_for(request).await?;
        let (counts, mut about) = self.counts_of(&feed, &catalog);
        // The end of the previous page applies to groups, not to items.
        let ungrouped = Query { before: None, ..query.clone() };
        let states = self.states(&feed);
        let selected = selected(&feed.person, &ungrouped, &states);
        about.extend(selected.iter().map(|entry| catalog.key(entry.event)));
        let applying = selected.into_iter().filter_map(|entry| {
            let object = catalog.applies(entry.event)?;
            if !query.is_about(&object) {
                return None;
            }
            let key = GroupKey {
                day: entry.position.stack.day,
                kind: entry.event.t.clone(),
                about: topic_key(&object).into_owned(),
            };
            Some((key, (entry, object)))
        });
        let mut groups = grouped(applying);
        groups.retain(|(_, items)| query.before.is_none_or(|end| items[0].0.position < end));
        let more = cut_to_fit(&mut groups, request.limit, |(_, items)| {
            let shown = items.iter().take(SHOWN);
            shown.map(|(_, object)| object.bytes()).sum()
        });
        let shown = groups.iter().flat_map(|(_, items)| items.iter().take(SHOWN));
        let shown = shown.cloned().collect();
        let mailed = self.mailed(&feed);
        let items = items(&mut catalog, &states, &mailed, shown).await?;
        let mut items = items.into_iter();
        let group = |(key, entries): (GroupKey, Vec<(EventAt<'_>, Arc<Object>)>)| {
            let states_of = || entries.iter().map(|of| state_of(&states, of.0.event));
            let unseen = states_of().filter(|state| *state == ItemState::Unseen);
            let unread = states_of().filter(|state| state.is_unread());
            FeedGroup {
                id: entries[0].0.position,
                at: entries[0].0.at,
                count: entries.len() as u64,
                unseen: unseen.count() as u64,
                unread: unread.count() as u64,
                items_url: FeedGroup::items_url(&request.user, &key, query),
                day: key.day,
                kind: key.kind,
                about: key.about,
                items: items.by_ref().take(entries.len().min(SHOWN)).collect(),
            }
        };
        let groups: Vec<FeedGroup> = groups.into_iter().map(group).collect();
        let answer = GroupPage {
            next: groups.last().filter(|_| more).map(|group| group.id),
            groups,
            counts,
        };
        Ok(feed.answer(answer, about, &catalog))
    }

    /// Counts the unseen and unread items. `accepts_cached` has the same meaning as in [`FeedRequest`].
    pub async fn counts(
        &self,
        user: &UserId,
        accepts_cached: bool,
    ) -> Result<FeedResponse<FeedCounts>> {
        let (feed, catalog) = self.read(user, |_| accepts_cached).await?;
        let (counts, about) = self.counts_of(&feed, &catalog);
        Ok(feed.answer(counts, about, &catalog))
    }

    /// Counts the unseen and unread items. Also returns the objects that the counts depend on.
    fn counts_of(&self, feed: &UserFeed, catalog: &Catalog) -> (FeedCounts, Vec<ObjectKey>) {
        let (mut unseen, mut unread, mut about) = (0, 0, Vec::new());
        for entry in feed.person.events() {
            let state = self.state(feed, &entry);
            if !state.is_unread() {
                continue;
            }
            about.push(catalog.key(entry.event));
            if catalog.applies(entry.event).is_some() {
                unread += 1;
                unseen += u64::from(state == ItemState::Unseen);
            }
        }
        let cursor = FeedCursor::at_end_of(&feed.person);
        let counts = FeedCounts { unseen, unread, cursor };
        (counts, about)
    }

    async fn inbox(&self, user: &UserId) -> Result<Inbox> {
        let store = &self.context.store;
        let found = store.inboxes(std::slice::from_ref(user)).await?;
        let found = found.into_iter().next().flatten();
        Ok(found.unwrap_or_else(|| Inbox::empty(user.clone())))
    }

    /// Returns the current feed for a page, with the loaded facts about its events.
    async fn read_for(&self, request: &FeedRequest) -> Result<(UserFeed, Catalog)> {
        if !(1..=MAX_LIMIT).contains(&request.limit) {
            let why = format!("is not a number from 1 to {MAX_LIMIT}");
            return Err(Invalid::new("limit", request.limit, why).into());
        }
        let query = &request.query;
        // A later page can use a cached window that contains the item from which it continues.
        let is_enough = |person: &UserStacks| {
            let names = query.before.is_some_and(|place| person.holds(place));
            (names || query.before.is_none() && request.accepts_cached) && query.is_within(person)
        };
        self.read(&request.user, is_enough).await
    }

    /// Returns the current feed, from a cached window if `is_enough` accepts its stacks, and the
    /// loaded facts about its events.
    async fn read(
        &self,
        user: &UserId,
        is_enough: impl FnOnce(&UserStacks) -> bool,
    ) -> Result<(UserFeed, Catalog)> {
        let now = self.context.clock.now();
        let days = DaySet::ending(Day::of(now), self.context.config.window_back);
        let cached = self.cache.window(user, &days);
        let cached = cached.filter(|(cached, _)| is_enough(&cached.person));
        let (window, as_of) = match cached {
            Some((cached, read)) => (cached, Some(read)),
            None => (self.read_window(user, days).await?, None),
        };
        let mut person = window.person.clone();
        let mut catalog = Catalog::of_feeds(&self.context, &self.cache);
        let events = person.stacks.iter().flat_map(Stack::events);
        catalog.load(events.map(|(_, event)| event)).await?;
        // Withdrawn objects stay: their items come back if they become notifiable again.
        person.exclude(|_, event| {
            let facts = Facts { retracted: catalog.is_retracted(event), ..Facts::default() };
            let (at, policies) = (|| DateTime::UNIX_EPOCH, &self.context.policies);
            classify(&event.t, at, facts, None, policies, Purpose::Feed).is_some()
        });
        let muted = eligibility::muted_positions(&person, &window.mutes, &mut catalog).await?;
        let feed = UserFeed { person, inbox: window.inbox.clone(), window, muted, as_of };
        Ok((feed, catalog))
    }

    async fn read_window(&self, user: &UserId, window: DaySet) -> Result<Arc<UserWindow>> {
        let version = self.cache.version_of_user(user);
        let store = &self.context.store;
        let read = |requests| read_feeds(Arc::clone(store), requests);
        let request = (window.clone(), user.clone());
        let mut parts = self.reads.call(request, read).await?;
        let start = start_of(&*self.context.store, user, parts.user.as_ref()).await?;
        parts.person.begin_at(start);
        let choices = parts.user.map(|user| (user.mutes, user.types)).unzip();
        let read = Arc::new(UserWindow {
            window,
            person: parts.person,
            inbox: parts.inbox.unwrap_or_else(|| Inbox::empty(user.clone())),
            mutes: choices.0.unwrap_or_default(),
            types: choices.1,
        });
        if let Some(version) = version {
            self.cache.put_window(Arc::clone(&read), version);
        }
        Ok(read)
    }

    /// Returns the state of each item. It is that of the item's oldest position in the window.
    fn states<'a>(&self, feed: &'a UserFeed) -> States<'a> {
        let events = feed.person.events().into_iter();
        let states = events.map(|entry| (name(entry.event), self.state(feed, &entry)));
        states.collect()
    }

    fn state(&self, feed: &UserFeed, entry: &EventAt<'_>) -> ItemState {
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

    /// Returns the items that an email covers at any position: the marker of a batch names the
    /// event, or that of a digest covers the entry and the event's route was the digest then.
    fn mailed<'a>(&self, feed: &'a UserFeed) -> HashSet<Name<'a>> {
        let (types, policies) = (feed.window.types.as_ref(), &self.context.policies);
        let is_for_digest = |event: &Event, day: Day, marked: DateTime<Utc>| {
            types.is_none_or(|types| {
                let (chosen, at) = (types.get(&event.t), event.at(day));
                // A later choice does not say what the route was before.
                chosen.is_some_and(|chosen| chosen.since >= marked)
                    || TypePreference::route(chosen, &event.t, at, policies) == Route::Digest
            })
        };
        let mut found = HashSet::new();
        for stack in &feed.person.stacks {
            let by_batch = stack.emailed_ids();
            let mailed = stack.events().filter(|(place, event)| {
                // Markers of older writers name no email.
                let marker = stack.covering(place.index).filter(|of| of.n.is_some());
                let marked = marker.and_then(|marker| marker.id).map(Id::time);
                event.i.is_some_and(|id| by_batch.contains(&id))
                    || marked.is_some_and(|at| is_for_digest(event, stack.id.day, at))
            });
            found.extend(mailed.map(|(_, event)| name(event)));
        }
        found
    }
}

/// Reads the feeds of these requests, in their order, those of the same window at once.
async fn read_feeds(
    store: Arc<dyn Store>,
    requests: Vec<(DaySet, UserId)>,
) -> store::Result<Vec<FeedParts>> {
    let mut all = Vec::with_capacity(requests.len());
    for same in requests.chunk_by(|one, next| one.0 == next.0) {
        let users = distinct(same.iter().map(|(_, user)| user.clone()));
        let parts = store.feeds(same[0].0.clone(), &users).await?;
        let places = same.iter().filter_map(|(_, user)| users.binary_search(user).ok());
        all.extend(places.map(|place| parts[place].clone()));
    }
    Ok(all)
}

impl UserFeed {
    fn answer<T>(&self, answer: T, about: Vec<ObjectKey>, catalog: &Catalog) -> FeedResponse<T> {
        let as_of = [self.as_of, catalog.as_of()];
        FeedResponse { answer, about, as_of: as_of.into_iter().flatten().min() }
    }
}

/// Returns these entries as items, with their states and details.
async fn items(
    catalog: &mut Catalog,
    states: &States<'_>,
    mailed: &HashSet<Name<'_>>,
    shown: Vec<(EventAt<'_>, Arc<Object>)>,
) -> Result<Vec<FeedItem>> {
    let events = shown.iter().map(|(entry, _)| entry.event);
    catalog.load_details(events).await?;
    let item = |(entry, about): (EventAt<'_>, Arc<Object>)| FeedItem {
        id: entry.position,
        kind: entry.event.t.clone(),
        object: entry.event.o.clone(),
        at: entry.at,
        state: state_of(states, entry.event),
        mailed: mailed.contains(&name(entry.event)),
        about,
        details: catalog.details(entry.event),
        words: None,
    };
    Ok(shown.into_iter().map(item).collect())
}

/// Returns the events that the query selects, newest first, without the filters by object.
fn selected<'a>(person: &'a UserStacks, query: &Query, states: &States<'_>) -> Vec<EventAt<'a>> {
    let mut selected = select(person, query);
    selected.retain(|entry| query.state.admits(state_of(states, entry.event)));
    selected
}

fn name(event: &Event) -> Name<'_> {
    (&event.t, &event.o)
}

/// Returns the state of an item; unlisted items are unseen.
fn state_of(states: &States<'_>, event: &Event) -> ItemState {
    let state = states.get(&name(event)).copied();
    state.unwrap_or(ItemState::Unseen)
}
