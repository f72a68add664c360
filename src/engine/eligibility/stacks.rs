//! Removes events from stacks that must not be emailed.
//!
//! Digests, backlogs, flushes and emails that are about to leave filter the stacks here that they
//! have read. Entries keep their positions, so markers stay valid.

use super::catalog::{Catalog, StackEvents};
use super::mutes;
use super::skip_seen::SkipSeen;
use crate::domain::start::hide_earlier;
use crate::domain::{PersonStacks, User, UserId};
use crate::store::Result;

/// Removes retracted events, events that were seen in the feed (`digest.skip_seen`), events from
/// before the user's record began, and muted events. Returns the users' records in the order of the
/// stacks.
///
/// With [`StackEvents::Uncovered`], users with nothing left to email are removed before the records
/// are read.
pub async fn exclude_ineligible(
    people: &mut Vec<PersonStacks>,
    which: StackEvents,
    skip_seen: &SkipSeen,
    catalog: &mut Catalog,
) -> Result<Vec<Option<User>>> {
    catalog.exclude_retracted(people, which).await?;
    skip_seen.exclude_seen(people).await?;
    if which == StackEvents::Uncovered {
        people.retain(|person| !person.covers().is_empty());
    }
    let ids: Vec<UserId> = people.iter().map(|person| person.user.clone()).collect();
    let users = catalog.context().store.users(&ids).await?;
    hide_earlier(people, &users);
    mutes::exclude_muted(people, &users, which, catalog).await?;
    Ok(users)
}
