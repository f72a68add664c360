//! Removes from stacks the events that their users are not told of.
//!
//! Digests, backlogs, flushes and emails that are about to leave read stacks through this module.
//! The places of removed events stay, so markers keep their meaning.

use super::catalog::{Catalog, Which};
use super::mutes;
use super::skip_seen::SkipSeen;
use crate::domain::start::hide_earlier;
use crate::domain::{PersonStacks, User, UserId};
use crate::store::Result;

/// Removes retracted events, events that were seen in the feed (`digest.skip_seen`), events from
/// before the user's record began, and muted events. Returns the users' records in the order of the
/// stacks.
///
/// With [`Which::Uncovered`], stacks of users with nothing left to email are removed before the
/// records are read.
pub async fn leave_out(
    people: &mut Vec<PersonStacks>,
    which: Which,
    skip_seen: &SkipSeen,
    catalog: &mut Catalog,
) -> Result<Vec<Option<User>>> {
    catalog.leave_out_taken_back(&mut *people, which).await?;
    skip_seen.leave_out(people).await?;
    if which == Which::Uncovered {
        people.retain(|person| !person.covers().is_empty());
    }
    let ids: Vec<UserId> = people.iter().map(|person| person.user.clone()).collect();
    let users = catalog.context().store.users(&ids).await?;
    hide_earlier(&mut *people, &users);
    mutes::leave_out(people, &users, which, catalog).await?;
    Ok(users)
}
