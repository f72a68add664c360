//! A person's feed: the window, newest first, objects filled in, what no longer applies left out.
//!
//! The rule: pages stay put while events arrive (see [`crate::domain::feed`]); a page costs one
//! read of the window, a look-up of the objects it may show, and one of what is said of its events;
//! where objects no longer apply, the next ones are looked up as well.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Result;
use super::catalog::Catalog;
use crate::clock::Clock;
use crate::domain::feed::{Cursor, Query, select};
use crate::domain::user::MAX_TYPES;
use crate::domain::{Day, Event, EventType, Invalid, PersonStacks, Policies, UserId, Window};
use crate::store::{Journal, Objects, People, Stacks};
use crate::wire::feed::{Item, Page};

/// Reads feeds; it writes nothing.
pub struct Feeds {
    pub(crate) stacks: Arc<dyn Stacks>,
    pub(crate) objects: Arc<dyn Objects>,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) clock: Arc<dyn Clock>,
    /// How many days before today the window reaches back (`window.days_back`).
    pub window_back: u32,
}

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
        let window = Window::ending(Day::of(self.clock.now()), self.window_back);
        let people = People::Each(std::slice::from_ref(user));
        let found = self.stacks.windows(window, people).await?;
        let types: BTreeSet<EventType> = found
            .iter()
            .flat_map(|person| &person.stacks)
            .flat_map(|stack| stack.events())
            .map(|(_, event)| &event.t)
            // What older writers stored may be no name.
            .filter(|kind| EventType::new(kind.as_str()).is_ok())
            .cloned()
            .collect();
        Ok(types.into_iter().take(MAX_TYPES).collect())
    }

    /// One page; a `limit` or `days` out of its range is refused as invalid.
    pub async fn page(&self, request: &Request) -> Result<Page> {
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
        let window = Window::ending(Day::of(self.clock.now()), back);
        let found = self
            .stacks
            .windows(window, People::Each(std::slice::from_ref(&request.user)))
            .await?;
        let person = found.into_iter().next().unwrap_or(PersonStacks {
            user: request.user.clone(),
            stacks: Vec::new(),
        });
        let selected = select(&person, &request.query);
        let mut catalog = Catalog::of_feeds(Arc::clone(&self.objects), Arc::clone(&self.policies));
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
        Ok(Page {
            items,
            next,
            cursor: Cursor::at_end_of(&person),
        })
    }
}
