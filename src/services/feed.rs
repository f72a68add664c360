//! A person's feed: the window, newest first, objects filled in, what no longer applies left out;
//! and what they have seen and read of it.
//!
//! The rule: pages stay put while events arrive (see [`crate::domain::feed`]). Every answer says
//! how many items are unseen and unread: counted each time, of what applies, and never kept. So a
//! page costs one read of the window and one of what was marked, a look-up of the objects that are
//! unread or may be shown, and one of what is said of the events it shows.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::Result;
use super::catalog::Catalog;
use super::polls::Polls;
use crate::clock::{Clock, Ids};
use crate::domain::feed::{Cursor, Query, select};
use crate::domain::inbox::ItemState;
use crate::domain::stack::Pending;
use crate::domain::user::MAX_TYPES;
use crate::domain::{
    Day, Event, EventType, Inbox, Invalid, ObjectId, ObjectKey, PersonStacks, Policies, UserId,
    Window,
};
use crate::store::{Inboxes, Journal, Objects, People, Stacks};
use crate::wire::feed::{Counts, Item, Page};

mod marks;

pub use marks::{MAX_IDS, MarksInput};

/// Reads feeds, and notes what people did to their items.
pub struct Feeds {
    pub(crate) stacks: Arc<dyn Stacks>,
    pub(crate) inboxes: Arc<dyn Inboxes>,
    pub(crate) objects: Arc<dyn Objects>,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<Ids>,
    pub(crate) polls: Arc<Polls>,
    /// How many days before today the window reaches back (`window.days_back`).
    pub window_back: u32,
    /// What happened before is taken for seen (`feed.since`).
    pub since: Option<DateTime<Utc>>,
}

/// What was asked for, and the objects that it is about.
pub struct Answer<T> {
    /// What was asked for.
    pub answer: T,
    /// If none of these changes, nor anything of the person's, it stays the same for the day.
    pub about: Vec<ObjectKey>,
}

impl<T> Answer<T> {
    /// The same in another form.
    pub fn map<U>(self, form: impl FnOnce(T) -> U) -> Answer<U> {
        let (answer, about) = (form(self.answer), self.about);
        Answer { answer, about }
    }
}

/// A person's feed as it stands.
struct Standing {
    window: Window,
    person: PersonStacks,
    inbox: Inbox,
}

/// The state of each item, by what it is.
type States<'a> = HashMap<(&'a EventType, &'a ObjectId), ItemState>;

/// Which page of whose feed.
#[derive(Debug, Clone)]
pub struct Request {
    /// Whose feed it is; there need not be a record of them.
    pub user: UserId,
    /// Which part of the feed: after a cursor, before an item, of one type.
    pub query: Query,
    /// Items on the page, 1 to 200.
    pub limit: usize,
    /// How many days to look back over, 1 to the window; all of the window if left out.
    pub days: Option<u32>,
}

/// The most items on a page.
pub const MAX_LIMIT: usize = 200;

impl Feeds {
    /// The types of everything that is on somebody's stacks in the window, by name.
    pub async fn types(&self, user: &UserId) -> Result<Vec<EventType>> {
        let person = self.window_of(user, &self.window()).await?;
        let types: BTreeSet<EventType> = person
            .stacks
            .iter()
            .flat_map(|stack| stack.events())
            .map(|(_, event)| &event.t)
            // What older writers stored may be no name.
            .filter(|kind| EventType::new(kind.as_str()).is_ok())
            .cloned()
            .collect();
        Ok(types.into_iter().take(MAX_TYPES).collect())
    }

    /// One page; a `limit` or `days` out of its range is refused as invalid.
    pub async fn page(&self, request: &Request) -> Result<Answer<Page>> {
        if !(1..=MAX_LIMIT).contains(&request.limit) {
            return Err(Invalid::new(
                "limit",
                request.limit,
                format!("is not a number from 1 to {MAX_LIMIT}"),
            )
            .into());
        }
        let back = match request.days {
            None => self.window_back,
            Some(days) if (1..=self.window_back + 1).contains(&days) => days - 1,
            Some(days) => {
                let why = format!(
                    "is not a number from 1 to {}, the days in the window",
                    self.window_back + 1
                );
                return Err(Invalid::new("days", days, why).into());
            }
        };
        let standing = self.standing(&request.user).await?;
        let states = self.states(&standing);
        let mut catalog = self.catalog();
        let counts = counts(&standing, &states, &mut catalog).await?;
        let asked = standing.person.within(&self.window_back_to(back));
        let mut selected = select(&asked, &request.query);
        selected.retain(|pending| request.query.state.admits(state_of(&states, pending.event)));
        let mut items = Vec::new();
        let mut rest = selected.as_slice();
        // Looked up a page at a time: of most feeds only the first is ever read.
        while items.len() <= request.limit && !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(request.limit + 1));
            catalog
                .load(now.iter().map(|pending| pending.event))
                .await?;
            items.extend(now.iter().filter_map(|pending| {
                let about = catalog.applies(pending.event)?;
                let (kind, object) = (pending.event.t.clone(), pending.event.o.clone());
                let item = Item {
                    id: pending.position,
                    kind,
                    object,
                    at: pending.at,
                    state: state_of(&states, pending.event),
                    about,
                    details: None,
                };
                Some((item, pending.event))
            }));
            rest = later;
        }
        let more = items.len() > request.limit;
        items.truncate(request.limit);
        let shown = items.iter().map(|(_, event)| *event);
        catalog.load_details(&*self.journal, shown).await?;
        let with_details = |(item, event): (Item, &Event)| Item {
            details: catalog.details(event),
            ..item
        };
        let items: Vec<Item> = items.into_iter().map(with_details).collect();
        let next = items.last().filter(|_| more).map(|item| item.id);
        let answer = Page {
            items,
            next,
            counts,
        };
        let about = catalog.keys();
        Ok(Answer { answer, about })
    }

    /// How many items are unseen and unread.
    pub async fn counts(&self, user: &UserId) -> Result<Answer<Counts>> {
        let standing = self.standing(user).await?;
        self.counts_of(&standing).await
    }

    async fn counts_of(&self, standing: &Standing) -> Result<Answer<Counts>> {
        let mut catalog = self.catalog();
        let answer = counts(standing, &self.states(standing), &mut catalog).await?;
        let about = catalog.keys();
        Ok(Answer { answer, about })
    }

    fn catalog(&self) -> Catalog {
        Catalog::of_feeds(Arc::clone(&self.objects), Arc::clone(&self.policies))
    }

    fn window(&self) -> Window {
        self.window_back_to(self.window_back)
    }

    fn window_back_to(&self, back: u32) -> Window {
        Window::ending(Day::of(self.clock.now()), back)
    }

    async fn window_of(&self, user: &UserId, window: &Window) -> Result<PersonStacks> {
        let people = People::Each(std::slice::from_ref(user));
        let found = self.stacks.windows(window.clone(), people).await?;
        Ok(found.into_iter().next().unwrap_or_else(|| PersonStacks {
            user: user.clone(),
            stacks: Vec::new(),
        }))
    }

    async fn inbox(&self, user: &UserId) -> Result<Inbox> {
        let found = self.inboxes.inboxes(std::slice::from_ref(user)).await?;
        let found = found.into_iter().next().flatten();
        Ok(found.unwrap_or_else(|| Inbox::empty(user.clone())))
    }

    async fn standing(&self, user: &UserId) -> Result<Standing> {
        let window = self.window();
        let (person, inbox) = futures::try_join!(self.window_of(user, &window), self.inbox(user))?;
        Ok(Standing {
            window,
            person,
            inbox,
        })
    }

    /// An item is as its oldest place says, however few days are asked for.
    fn states<'a>(&self, standing: &'a Standing) -> States<'a> {
        let state = |pending: Pending<'a>| {
            let state = standing.inbox.state(pending.position);
            let is_old = self.since.is_some_and(|since| pending.at < since);
            let state = if is_old {
                state.max(ItemState::Seen)
            } else {
                state
            };
            ((&pending.event.t, &pending.event.o), state)
        };
        standing.person.events().into_iter().map(state).collect()
    }
}

/// What is not named is new.
fn state_of(states: &States<'_>, event: &Event) -> ItemState {
    let state = states.get(&(&event.t, &event.o)).copied();
    state.unwrap_or(ItemState::Unseen)
}

async fn counts(standing: &Standing, states: &States<'_>, catalog: &mut Catalog) -> Result<Counts> {
    let events = standing.person.events().into_iter();
    let states = events.map(|pending| (pending.event, state_of(states, pending.event)));
    let unread: Vec<(&Event, ItemState)> = states.filter(|(_, state)| state.is_unread()).collect();
    catalog.load(unread.iter().map(|(event, _)| *event)).await?;
    let applies = |(event, _): &&(&Event, ItemState)| catalog.applies(event).is_some();
    let unread: Vec<_> = unread.iter().filter(applies).collect();
    let unseen = unread
        .iter()
        .filter(|(_, state)| *state == ItemState::Unseen);
    Ok(Counts {
        unseen: unseen.count() as u64,
        unread: unread.len() as u64,
        cursor: Cursor::at_end_of(&standing.person),
    })
}
