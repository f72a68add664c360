//! Users: their records, their import and export, and their erasure.

use crate::store::{Directory, PeopleFilter, Result};
use crate::wire::status::{UnreadableUser, UnreadableUsers};

pub mod erasure;
pub mod export;
pub(crate) mod fields;
pub mod import;
pub mod input;
pub mod people;
pub mod starts;
pub mod unknown;

/// The number of users in one read.
const PAGE: usize = 1_000;
/// The most users that are named. All are counted.
const NAMED: usize = 10;

/// Finds users whose stored record has fields that this version cannot read. Such a field has its
/// default for now ([`crate::domain::user::UnreadableField`]).
///
/// Reads the records of at most `most` users, in the order of their ids.
pub async fn find_unreadable(directory: &dyn Directory, most: usize) -> Result<UnreadableUsers> {
    let mut found = UnreadableUsers::default();
    let mut last = None;
    while found.read < most as u64 {
        let limit = PAGE.min(most - found.read as usize);
        let page = directory
            .find_people(&PeopleFilter::All, last.as_ref(), limit)
            .await?;
        found.read += page.len() as u64;
        let users = directory.users(&page).await?;
        for user in users.into_iter().flatten() {
            if user.unreadable.is_empty() {
                continue;
            }
            found.users += 1;
            if found.first.len() < NAMED {
                let (user, fields) = (user.id, user.unreadable);
                found.first.push(UnreadableUser { user, fields });
            }
        }
        if page.len() < limit {
            break;
        }
        last = page.last().cloned();
    }
    Ok(found)
}
