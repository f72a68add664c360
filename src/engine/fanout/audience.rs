//! Reads audiences page by page, in the order of user ids.
//!
//! A page contains users after a cursor, ascending, each once. The pages together contain all
//! users. Therefore a cursor is one id that survives a crash, and audiences can be merged like
//! sorted lists.

use crate::domain::{Audience, FollowKey, Selector, UserId};
use crate::store::{Directory, PeopleFilter, Result};

/// A part of an audience.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The users, ascending, without those that the audience excludes.
    pub people: Vec<UserId>,
    /// Where the next page starts; `None` if this is the last. It may be beyond the last of
    /// `people`, if later users are excluded.
    pub next: Option<UserId>,
}

/// Returns about `limit` users of the audience after `after`.
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

/// Returns the followers of any of these keys. Merges one page of each, up to the lowest end of a
/// page that is not its key's last.
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
