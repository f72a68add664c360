//! Shows a feed in groups: the items of one day and type about one thing.
//!
//! Later pages are cut from the feed as it was for the first page. Counts are of items, in the
//! current feed.

use std::sync::Arc;

use super::{Answer, Feeds, Request, counts, earlier, fitting, item, state_of};
use crate::domain::details::show_newest_names;
use crate::domain::feed::{GroupKey, PageEnd, grouped};
use crate::domain::feed::{Query, select};
use crate::domain::inbox::ItemState;
use crate::domain::object::topic_key;
use crate::domain::stack::EventAt;
use crate::domain::{Object, PersonStacks, Window};
use crate::engine::Result;
use crate::wire::feed::{Group, GroupPage};

/// The number of items that a group shows.
const SHOWN: usize = 3;

impl Feeds {
    /// Returns a page of groups, at most `limit`.
    ///
    /// # Errors
    ///
    /// Fails if `limit` or `days` is out of range.
    pub async fn groups(&self, request: &Request) -> Result<Answer<GroupPage>> {
        let back = self.days_back(request.limit, request.days)?;
        let query = &request.query;
        // A cached window is enough for a later page, if it contains the items up to the cursor.
        let stood = query.stood.as_ref();
        let will_do =
            |person: &PersonStacks| (stood.is_some() || request.lately) && query.is_within(person);
        let mut standing = self.standing_where(&request.user, will_do).await?;
        let mut catalog = std::mem::replace(&mut standing.catalog, self.catalog.of_feeds());
        let states = self.states(&standing);
        let (counts, mut rests_on) = counts(&standing, &states, &catalog);
        let days = Window::ending(standing.reading.window.last(), back);
        let cursor = stood.unwrap_or(&counts.cursor).clone();
        let mut asked = standing.person.within(&days);
        cursor.cut(&mut asked);
        // The end of the previous page applies to groups, not to items.
        let items = Query {
            before: None,
            ..query.clone()
        };
        let mut selected = select(&asked, &items);
        selected.retain(|entry| query.state.admits(state_of(&states, entry.event)));
        rests_on.extend(selected.iter().map(|entry| catalog.key(entry.event)));
        let applying = selected.iter().filter_map(|entry| {
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
        let sizes = groups.iter().map(|(_, items)| {
            let shown = items.iter().take(SHOWN);
            shown.map(|(_, object)| object.bytes()).sum()
        });
        let fitting = fitting(request.limit, sizes);
        let more = groups.len() > fitting;
        groups.truncate(fitting);
        let shown = groups
            .iter()
            .flat_map(|(_, items)| items.iter().take(SHOWN));
        let events = shown.map(|(entry, _)| entry.event);
        let mailed = self.load(&standing, &mut catalog, events).await?;
        let group = |(key, items): (GroupKey, Vec<(&EventAt<'_>, Arc<Object>)>)| {
            let states_of = || items.iter().map(|of| state_of(&states, of.0.event));
            let unseen = states_of().filter(|state| *state == ItemState::Unseen);
            let unread = states_of().filter(|state| state.is_unread());
            Group {
                id: items[0].0.position,
                at: items[0].0.at,
                count: items.len() as u64,
                unseen: unseen.count() as u64,
                unread: unread.count() as u64,
                items_url: Group::items_url(&request.user, &key, query, request.days),
                day: key.day,
                kind: key.kind,
                about: key.about,
                items: items
                    .into_iter()
                    .take(SHOWN)
                    .map(|(entry, object)| item(entry, object, &states, &mailed, &catalog))
                    .collect(),
            }
        };
        let mut groups: Vec<Group> = groups.into_iter().map(group).collect();
        let items = groups.iter_mut().flat_map(|group| &mut group.items);
        let details = items.filter_map(|item| item.details.as_mut());
        show_newest_names(&mut details.collect::<Vec<_>>());
        let last = groups.last().filter(|_| more).map(|group| group.id);
        let answer = GroupPage {
            next: last.map(|place| PageEnd {
                place,
                cursor: Some(cursor),
            }),
            groups,
            counts,
        };
        Ok(Answer {
            answer,
            about: rests_on,
            as_of: earlier(standing.as_of, catalog.as_of()),
        })
    }
}
