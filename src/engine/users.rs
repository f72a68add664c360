//! Users: their records, their export, and their erasure.

use crate::store::{Directory, Result, UserFilter};
use crate::wire::status::{UnreadableUser, UnreadableUsers};

pub mod input;
pub mod personal;
pub mod service;

const USERS_PER_READ: usize = 1_000;
/// The most users that are named. All are counted.
const MAX_NAMED: usize = 10;

/// Finds users whose stored record has fields that this version cannot read. Such a field has its
/// default for now ([`crate::domain::user::UnreadableField`]).
///
/// Reads the records of at most `max` users, in the order of their ids.
pub async fn find_unreadable(directory: &dyn Directory, max: usize) -> Result<UnreadableUsers> {
    let (mut unreadable, mut checked, mut last) = (UnreadableUsers::default(), 0, None);
    while checked < max {
        let limit = USERS_PER_READ.min(max - checked);
        let ids = directory.find_users(&UserFilter::All, last.as_ref(), limit).await?;
        checked += ids.len();
        let users = directory.users(&ids).await?.into_iter().flatten();
        for user in users.filter(|user| !user.unreadable.is_empty()) {
            unreadable.users += 1;
            if unreadable.first.len() < MAX_NAMED {
                let (user, fields) = (user.id, user.unreadable);
                unreadable.first.push(UnreadableUser { user, fields });
            }
        }
        if ids.len() < limit {
            break;
        }
        last = ids.last().cloned();
    }
    unreadable.records_read = checked as u64;
    Ok(unreadable)
}
