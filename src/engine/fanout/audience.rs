//! Resolves audiences page by page, in the order of user ids.
//!
//! The rule: a page holds people after a cursor, ascending, each once; where the pages end,
//! everybody has been named. So one id is a cursor that survives a crash, and audiences can be
//! merged like sorted lists.

use crate::domain::{Audience, FollowKey, Selector, UserId};
use crate::store::{Directory, PeopleFilter, Result};

/// Some people of an audience.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Ascending; without those the audience leaves out.
    pub people: Vec<UserId>,
    /// Where the next page begins; `None` if there is none. May lie behind the last of `people`,
    /// where those after were left out.
    pub next: Option<UserId>,
}

/// The people of this audience after `after`, about `limit` of them.
pub async fn page(
    directory: &dyn Directory,
    audience: &Audience,
    after: Option<&UserId>,
    limit: usize,
) -> Result<Page> {
    let mut page = match &audience.to {
        Selector::Users(users) => {
            let from = after.map_or(0, |after| users.partition_point(|user| user <= after));
            let until = users.len().min(from + limit);
            full(users[from..until].to_vec(), until < users.len())
        }
        Selector::FollowersOf(keys) => followers(directory, keys, after, limit).await?,
        Selector::Near { point, km } => {
            let (point, km) = (*point, *km);
            let near = PeopleFilter::Near { point, km };
            let people = directory.find_people(&near, after, limit).await?;
            let more = people.len() == limit;
            full(people, more)
        }
    };
    if !audience.except.is_empty() {
        page.people.retain(|user| !audience.leaves_out(user));
    }
    Ok(page)
}

fn full(people: Vec<UserId>, more: bool) -> Page {
    let next = people.last().filter(|_| more).cloned();
    Page { people, next }
}

/// The followers of any of these keys: sorted pages of each, merged up to where every one of them
/// is known.
async fn followers(
    directory: &dyn Directory,
    keys: &[FollowKey],
    after: Option<&UserId>,
    limit: usize,
) -> Result<Page> {
    if let [key] = keys {
        let following = PeopleFilter::Follow(key);
        let people = directory.find_people(&following, after, limit).await?;
        let more = people.len() == limit;
        return Ok(full(people, more));
    }
    let page = |key| async move {
        let following = PeopleFilter::Follow(key);
        directory.find_people(&following, after, limit).await
    };
    let pages = futures::future::try_join_all(keys.iter().map(page)).await?;
    let known = pages
        .iter()
        .filter(|people| people.len() == limit)
        .filter_map(|people| people.last())
        .min()
        .cloned();
    let mut people: Vec<UserId> = pages
        .into_iter()
        .flatten()
        .filter(|user| known.as_ref().is_none_or(|end| user <= end))
        .collect();
    people.sort_unstable();
    people.dedup();
    Ok(Page {
        people,
        next: known,
    })
}
