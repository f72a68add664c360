//! Removes events that no email may include from users' stacks.
//!
//! Digests, backlogs, flushes and previews use it, and so does the check just before sending. A
//! removed entry leaves a gap, so positions stay the same and markers stay valid.

use super::catalog::{Catalog, StackEvents};
use super::mutes;
use super::skip_seen::{SkipSeen, is_seen};
use crate::domain::{Facts, Inbox, Mutes, PersonStacks, Purpose, Stack, User, UserId, classify};
use crate::store::Result;

/// Removes the excluded events from stacks with pending events, and the users who have none left.
/// Returns the records of the other users in the order of their stacks.
pub async fn exclude_ineligible(
    people: &mut Vec<PersonStacks>,
    skip_seen: &SkipSeen,
    catalog: &mut Catalog,
) -> Result<Vec<Option<User>>> {
    let has_pending = |person: &PersonStacks| person.stacks.iter().any(Stack::has_uncovered);
    people.retain(has_pending);
    let (mut users, inboxes) = load_readers(people, skip_seen, catalog).await?;
    exclude(people, &users, &inboxes, StackEvents::Uncovered, catalog).await?;
    let mut left = people.iter().map(has_pending);
    users.retain(|_| left.next().unwrap_or(false));
    people.retain(has_pending);
    Ok(users)
}

/// Loads the records of these users, and their inboxes if digests skip seen events.
pub async fn load_readers(
    people: &[PersonStacks],
    skip_seen: &SkipSeen,
    catalog: &Catalog,
) -> Result<(Vec<Option<User>>, Vec<Option<Inbox>>)> {
    let ids: Vec<UserId> = people.iter().map(|person| person.user.clone()).collect();
    let users = catalog.context().store.users(&ids);
    futures::try_join!(users, skip_seen.inboxes(&ids))
}

/// Removes the excluded events from stacks, of users with these records and inboxes, all in the
/// same order. Facts are only loaded for the events that `which` selects.
pub async fn exclude(
    people: &mut [PersonStacks],
    users: &[Option<User>],
    inboxes: &[Option<Inbox>],
    which: StackEvents,
    catalog: &mut Catalog,
) -> Result<()> {
    catalog.begin_chunk();
    catalog.load_retractions(people, which).await?;
    let muting = people.iter().zip(users).filter_map(|(person, user)| {
        let mutes = user.as_ref().map(|user| &user.mutes);
        Some((person, mutes.filter(|mutes| !mutes.is_empty())?))
    });
    let muting = muting.flat_map(|(person, mutes)| {
        let events = which.events(person).into_iter();
        events.map(move |(place, event)| (mutes, event, event.at(place.stack.day)))
    });
    let muting = mutes::possible(muting, catalog.policies());
    mutes::look_up(muting, catalog).await?;
    let (catalog, none) = (&*catalog, Mutes::default());
    for ((person, user), inbox) in people.iter_mut().zip(users).zip(inboxes) {
        let start = user.as_ref().and_then(|user| user.start);
        let mutes = user.as_ref().map_or(&none, |user| &user.mutes);
        if !catalog.knows_retracted() && start.is_none() && inbox.is_none() && mutes.is_empty() {
            continue;
        }
        person.leave_out(|place, event| {
            let at = || event.at(place.stack.day);
            let facts = Facts {
                before_start: start.is_some_and(|start| start.hides(place, event)),
                retracted: catalog.is_retracted(event),
                muted: !mutes.is_empty() && mutes::is_muted(mutes, event, at(), catalog),
                seen: inbox.as_ref().is_some_and(|inbox| is_seen(inbox, place)),
                ..Facts::default()
            };
            let (policies, purpose) = (catalog.policies(), Purpose::Email);
            classify(&event.t, at, facts, None, policies, purpose).is_some()
        });
    }
    Ok(())
}
