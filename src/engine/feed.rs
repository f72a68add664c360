//! A person's feed: the window, newest first, objects filled in, what no longer applies left out;
//! and what they have seen and read of it.
//!
//! The rule: pages stay put while events arrive (see [`crate::domain::feed`]). Every answer says
//! how many items are unseen and unread: counted each time, of what applies, and never kept. What
//! its reader muted is shown, and taken for read. So a page costs one read of all that rests on the
//! person: window, inbox and record. Objects, and what is said of events, are looked up where that
//! was not done lately ([`shelf`]). What names things that its reader was shown, a
//! mark or a further page, is answered from a window that was read lately, if that holds them; and
//! so is a first page, where what is as old as an unchanged poll will do.

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

/// Reads feeds, and notes what people did to their items.
pub struct Feeds {
    pub(crate) context: Arc<Context>,
    pub(crate) catalog: CatalogSource,
    pub(crate) polls: Arc<Polls>,
    pub(crate) shelf: Arc<Shelf>,
    /// How many days before today the window reaches back (`window.days_back`).
    pub window_back: u32,
    /// How many days before today it is remembered what was seen: at least those of the window.
    pub remembered_back: u32,
    /// What happened before is taken for seen (`feed.since`).
    pub since: Option<DateTime<Utc>>,
    /// Says what digests left out as it was seen.
    pub skip_seen: SkipSeen,
    /// How many items a section and a mail show.
    pub caps: Caps,
}

/// What was asked for, and the objects that it is about.
pub struct Answer<T> {
    /// What was asked for.
    pub answer: T,
    /// If none of these changes, nor anything of the person's, it stays the same for the day.
    pub about: Vec<ObjectKey>,
    /// When the oldest of what it rests on was read, where that was not just now.
    pub as_of: Option<DateTime<Utc>>,
}

impl<T> Answer<T> {
    /// The same in another form.
    pub fn map<U>(self, form: impl FnOnce(T) -> U) -> Answer<U> {
        Answer {
            answer: form(self.answer),
            about: self.about,
            as_of: self.as_of,
        }
    }
}

/// A person's feed as it stands, without what was taken back and types that feeds do not show, and
/// all that is known of its events.
struct Standing {
    /// All that was read.
    reading: Arc<Reading>,
    person: PersonStacks,
    inbox: Inbox,
    /// Where what they muted stands.
    muted: mutes::Places,
    catalog: Catalog,
    /// When the oldest part was read, where any was not just now.
    as_of: Option<DateTime<Utc>>,
}

/// Items by what they are.
type Names<'a> = HashSet<(&'a EventType, &'a ObjectId)>;

/// The state of each item, by what it is.
type States<'a> = HashMap<(&'a EventType, &'a ObjectId), ItemState>;

/// Which page of whose feed, of items or of groups.
#[derive(Debug, Clone)]
pub struct Request {
    /// Whose feed it is; there need not be a record of them.
    pub user: UserId,
    /// Which part of the feed: after a cursor, before an item, of one type or day.
    pub query: Query,
    /// Items or groups on the page, 1 to 200.
    pub limit: usize,
    /// How many days to look back over, 1 to the window; all of the window if left out.
    pub days: Option<u32>,
    /// Whether what was read lately will do, if it stands still as far as is known: as for a poll
    /// of what did not change.
    pub lately: bool,
}

/// The most items on a page.
pub const MAX_LIMIT: usize = 200;
/// A page ends before the item that brings its objects to more bytes, if it has any item.
pub const MAX_PAGE_BYTES: usize = 2 << 20;

/// How many of these belong on a page of at most `limit`, by the bytes of each: at least one.
fn fitting(limit: usize, bytes: impl Iterator<Item = usize>) -> usize {
    let mut all = 0;
    let fits = bytes.take(limit).take_while(|bytes| {
        all += bytes;
        all <= MAX_PAGE_BYTES
    });
    fits.count().max(1)
}

impl Feeds {
    /// One page; a `limit` or `days` out of its range is refused as invalid.
    pub async fn page(&self, request: &Request) -> Result<Answer<Page>> {
        let back = self.days_back(request.limit, request.days)?;
        let Query { before, stood, .. } = &request.query;
        // Whoever goes on reading was shown the item from which they do.
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

    /// How many days before today are asked for, if that many items or groups may be.
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

    /// How many items are unseen and unread; `lately` as in a [`Request`].
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

    /// How the feed stands, as it was read lately if that will do.
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

    /// An item is as its oldest place says, however few days are asked for.
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

/// When the older of two parts was read, where either was not just now.
fn earlier(one: Option<DateTime<Utc>>, other: Option<DateTime<Utc>>) -> Option<DateTime<Utc>> {
    [one, other].into_iter().flatten().min()
}

/// What is not named is new.
fn state_of(states: &States<'_>, event: &Event) -> ItemState {
    let state = states.get(&name(event)).copied();
    state.unwrap_or(ItemState::Unseen)
}

/// How many items are unseen and unread, and the objects that this rests on.
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
