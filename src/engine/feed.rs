//! Serves a user's feed: the events of the window, newest first, with their objects and states.
//!
//! Pages do not shift while events arrive ([`crate::domain::feed`]). Counts are computed for each
//! response and never stored. Objects and details come from the feed cache ([`shelf`]) if possible.
//! So does the user's window, if the request names items in it or accepts recent data. Start with
//! [`Feeds::page`].

pub mod polls;
pub mod shelf;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::sync::OnceCell;

use super::Result;
use super::directory::starts;
use super::eligibility::catalog::{Catalog, CatalogSource};
use super::eligibility::mutes;
use super::eligibility::skip_seen::SkipSeen;
use super::feed::polls::Polls;
use super::feed::shelf::{Reading, Shelf};
use crate::context::Context;
use crate::domain::content::Caps;
use crate::domain::details::show_newest_names;
use crate::domain::feed::{Cursor, Query, select};
use crate::domain::inbox::ItemState;
use crate::domain::stack::EventAt;
use crate::domain::{
    Day, Event, EventType, Facts, Inbox, Invalid, Mutes, Object, ObjectId, ObjectKey, PersonStacks,
    Purpose, Stack, UserId, Window, classify,
};
use crate::wire::feed::{Counts, Item, Page};

mod groups;
mod mailed;
mod marks;

pub use marks::{MAX_IDS, MarksInput};

/// Reads feeds and marks their items.
pub struct Feeds {
    pub(crate) context: Arc<Context>,
    pub(crate) catalog: CatalogSource,
    pub(crate) polls: Arc<Polls>,
    pub(crate) shelf: Arc<Shelf>,
    /// How many days before today the window reaches back (`window.days_back`).
    pub window_back: u32,
    /// How many days before today marks are stored, at least those of the window.
    pub remembered_back: u32,
    /// Events before this time count as seen (`feed.since`).
    pub since: Option<DateTime<Utc>>,
    /// Knows whether digests skip events that were seen in the feed.
    pub skip_seen: SkipSeen,
    /// The most items in a section and in an email, to find out which items an email showed.
    pub caps: Caps,
}

/// A response, with the objects that it depends on.
pub struct Answer<T> {
    /// The response.
    pub answer: T,
    /// The response is valid for the UTC day, until one of these objects or the user's data
    /// changes.
    pub about: Vec<ObjectKey>,
    /// When the oldest cached data in the response was read, if there is any.
    pub as_of: Option<DateTime<Utc>>,
}

impl<T> Answer<T> {
    /// Applies a function to the response.
    pub fn map<U>(self, form: impl FnOnce(T) -> U) -> Answer<U> {
        Answer {
            answer: form(self.answer),
            about: self.about,
            as_of: self.as_of,
        }
    }
}

/// A user's current feed without retracted events and types that feeds do not show, and the loaded
/// facts about its events.
struct Standing {
    /// The data as it was read, with all events.
    reading: Arc<Reading>,
    person: PersonStacks,
    inbox: Inbox,
    /// The positions of muted events. They are shown, and count as read.
    muted: mutes::Places,
    catalog: Catalog,
    /// When the oldest cached part was read, if there is any.
    as_of: Option<DateTime<Utc>>,
}

/// Items, by type and object.
type Names<'a> = HashSet<(&'a EventType, &'a ObjectId)>;

/// The state of each item, by type and object.
type States<'a> = HashMap<(&'a EventType, &'a ObjectId), ItemState>;

/// A request for a page of items or groups.
#[derive(Debug, Clone)]
pub struct Request {
    /// The user, who may have no record.
    pub user: UserId,
    /// The requested part of the feed: after a cursor, before an item, of one type or day.
    pub query: Query,
    /// The most items or groups on the page, 1 to 200.
    pub limit: usize,
    /// The number of days to include, from 1 to the length of the window, which is the default.
    pub days: Option<u32>,
    /// Whether a valid cached window is enough, as for a poll. Otherwise a first page reads the
    /// store.
    pub lately: bool,
}

/// The most items or groups on a page.
pub const MAX_LIMIT: usize = 200;
/// The most bytes of the objects on a page. A page has at least one item, even if it is larger.
pub const MAX_PAGE_BYTES: usize = 2 << 20;

/// Returns how many of these items fit on a page, at least one, given the bytes of each.
fn fitting(limit: usize, bytes: impl Iterator<Item = usize>) -> usize {
    let mut all = 0;
    let fits = bytes.take(limit).take_while(|bytes| {
        all += bytes;
        all <= MAX_PAGE_BYTES
    });
    fits.count().max(1)
}

impl Feeds {
    /// Returns one page of items.
    ///
    /// # Errors
    ///
    /// Fails if `limit` or `days` is out of range.
    pub async fn page(&self, request: &Request) -> Result<Answer<Page>> {
        let back = self.days_back(request.limit, request.days)?;
        let Query { before, stood, .. } = &request.query;
        // A later page can use a cached window that contains the item from which it continues.
        let will_do = |person: &PersonStacks| {
            let names = before.is_some_and(|place| person.holds(place));
            (names || before.is_none() && request.lately) && request.query.is_within(person)
        };
        let mut standing = self.standing_where(&request.user, will_do).await?;
        let mut catalog = std::mem::replace(&mut standing.catalog, self.catalog.of_feeds());
        let states = self.states(&standing);
        let (counts, mut about) = counts(&standing, &states, &catalog);
        let days = Window::ending(standing.reading.window.last(), back);
        let mut asked = standing.person.within(&days);
        if let Some(stood) = stood {
            stood.cut(&mut asked);
        }
        let mut selected = select(&asked, &request.query);
        selected.retain(|entry| request.query.state.admits(state_of(&states, entry.event)));
        let mut shown = Vec::new();
        for entry in &selected {
            if shown.len() > request.limit {
                break;
            }
            about.push(catalog.key(entry.event));
            let object = catalog.applies(entry.event);
            let object = object.filter(|object| request.query.is_about(object));
            shown.extend(object.map(|object| (entry, object)));
        }
        let sizes = shown.iter().map(|(_, object)| object.bytes());
        let fitting = fitting(request.limit, sizes);
        let more = shown.len() > fitting;
        shown.truncate(fitting);
        let events = shown.iter().map(|(entry, _)| entry.event);
        let mailed = self.load(&standing, &mut catalog, events).await?;
        let item = |(entry, object)| item(entry, object, &states, &mailed, &catalog);
        let mut items: Vec<Item> = shown.into_iter().map(item).collect();
        let details = items.iter_mut().filter_map(|item| item.details.as_mut());
        show_newest_names(&mut details.collect::<Vec<_>>());
        let next = items.last().filter(|_| more).map(|item| item.id);
        let answer = Page {
            items,
            next,
            counts,
        };
        let as_of = earlier(standing.as_of, catalog.as_of());
        Ok(Answer {
            answer,
            about,
            as_of,
        })
    }

    /// Checks `limit` and `days`. Returns the number of days before today to include.
    fn days_back(&self, limit: usize, days: Option<u32>) -> Result<u32> {
        if !(1..=MAX_LIMIT).contains(&limit) {
            let why = format!("is not a number from 1 to {MAX_LIMIT}");
            return Err(Invalid::new("limit", limit, why).into());
        }
        match days {
            None => Ok(self.window_back),
            Some(days) if (1..=self.window_back + 1).contains(&days) => Ok(days - 1),
            Some(days) => {
                let most = self.window_back + 1;
                let why = format!("is not a number from 1 to {most}, the days in the window");
                Err(Invalid::new("days", days, why).into())
            }
        }
    }

    /// Counts the unseen and unread items. `lately` has the same meaning as in [`Request`].
    pub async fn counts(&self, user: &UserId, lately: bool) -> Result<Answer<Counts>> {
        let standing = self.standing_where(user, |_| lately).await?;
        Ok(self.counts_of(&standing))
    }

    fn counts_of(&self, standing: &Standing) -> Answer<Counts> {
        let states = self.states(standing);
        let (answer, about) = counts(standing, &states, &standing.catalog);
        let as_of = standing.as_of;
        Answer {
            answer,
            about,
            as_of,
        }
    }

    fn window(&self) -> Window {
        Window::ending(Day::of(self.context.clock.now()), self.window_back)
    }

    async fn inbox(&self, user: &UserId) -> Result<Inbox> {
        let store = &self.context.store;
        let found = store.inboxes(std::slice::from_ref(user)).await?;
        let found = found.into_iter().next().flatten();
        Ok(found.unwrap_or_else(|| Inbox::empty(user.clone())))
    }

    /// Returns the current feed, from a cached window if `will_do` accepts it.
    async fn standing_where(
        &self,
        user: &UserId,
        will_do: impl FnOnce(&PersonStacks) -> bool,
    ) -> Result<Standing> {
        let window = self.window();
        let lately = self.shelf.reading(user, &window);
        let lately = lately.filter(|(reading, _)| will_do(&reading.person));
        let (reading, read) = match lately {
            Some((reading, read)) => (reading, Some(read)),
            None => (self.read(user, window).await?, None),
        };
        let mut person = reading.person.clone();
        let mut catalog = self.catalog.of_feeds();
        let excludes = |event: &Event, facts: Facts| {
            let (at, policies) = (|| DateTime::UNIX_EPOCH, &self.context.policies);
            classify(&event.t, at, facts, None, policies, Purpose::Feed).is_some()
        };
        person.leave_out(|_, event| excludes(event, Facts::default()));
        let events = person.stacks.iter().flat_map(Stack::events);
        catalog.load(events.map(|(_, event)| event)).await?;
        // Withdrawn objects stay: their items come back if they become notifiable again.
        person.leave_out(|_, event| {
            let facts = Facts {
                retracted: catalog.is_retracted(event),
                ..Facts::default()
            };
            excludes(event, facts)
        });
        let muted = mutes::places(&reading.person, &reading.mutes, &mut catalog).await?;
        let as_of = earlier(read, catalog.as_of());
        Ok(Standing {
            inbox: reading.inbox.clone(),
            reading,
            person,
            muted,
            catalog,
            as_of,
        })
    }

    async fn read(&self, user: &UserId, window: Window) -> Result<Arc<Reading>> {
        let glance = self.shelf.glance_of_person(user);
        let mut parts = self.context.store.feed(window.clone(), user).await?;
        let start = starts::of(&*self.context.store, user, parts.user.as_ref()).await?;
        parts.person.begin_at(start);
        let mutes = parts.user.map_or_else(Mutes::default, |user| user.mutes);
        let reading = Arc::new(Reading {
            window,
            person: parts.person,
            inbox: parts.inbox.unwrap_or_else(|| Inbox::empty(user.clone())),
            mutes,
            digests: OnceCell::new(),
        });
        if let Some(glance) = glance {
            self.shelf.keep_reading(Arc::clone(&reading), glance);
        }
        Ok(reading)
    }

    /// Returns the state of each item. It is that of the item's oldest position in the whole
    /// window, even if the request includes fewer days.
    fn states<'a>(&self, standing: &'a Standing) -> States<'a> {
        let state = |entry: EventAt<'a>| {
            let state = standing.inbox.state(entry.position);
            let is_old = self.since.is_some_and(|since| entry.at < since);
            let state = if is_old {
                state.max(ItemState::Seen)
            } else {
                state
            };
            let state = if standing.muted.contains_key(&entry.position) {
                state.max(ItemState::Read)
            } else {
                state
            };
            (name(entry.event), state)
        };
        standing.person.events().into_iter().map(state).collect()
    }
}

fn item(
    entry: &EventAt<'_>,
    object: Arc<Object>,
    states: &States<'_>,
    mailed: &Names<'_>,
    catalog: &Catalog,
) -> Item {
    Item {
        id: entry.position,
        kind: entry.event.t.clone(),
        object: entry.event.o.clone(),
        at: entry.at,
        state: state_of(states, entry.event),
        mailed: mailed.contains(&name(entry.event)),
        about: object,
        details: catalog.details(entry.event),
    }
}

fn name(event: &Event) -> (&EventType, &ObjectId) {
    (&event.t, &event.o)
}

/// Returns the earlier of two times at which cached data was read, if any was used.
fn earlier(one: Option<DateTime<Utc>>, other: Option<DateTime<Utc>>) -> Option<DateTime<Utc>> {
    [one, other].into_iter().flatten().min()
}

/// Returns the state of an item; unlisted items are unseen.
fn state_of(states: &States<'_>, event: &Event) -> ItemState {
    let state = states.get(&name(event)).copied();
    state.unwrap_or(ItemState::Unseen)
}

/// Counts the unseen and unread items. Also returns the objects that the counts depend on.
fn counts(standing: &Standing, states: &States<'_>, catalog: &Catalog) -> (Counts, Vec<ObjectKey>) {
    let (mut unseen, mut unread, mut about) = (0, 0, Vec::new());
    for entry in standing.person.events() {
        let state = state_of(states, entry.event);
        if !state.is_unread() {
            continue;
        }
        about.push(catalog.key(entry.event));
        if catalog.applies(entry.event).is_some() {
            unread += 1;
            unseen += u64::from(state == ItemState::Unseen);
        }
    }
    let counts = Counts {
        unseen,
        unread,
        cursor: Cursor::at_end_of(&standing.person),
    };
    (counts, about)
}
