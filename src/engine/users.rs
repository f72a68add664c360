//! Users: their records, their import and export, and their erasure.

use crate::store::{Directory, PeopleFilter, Result};
use crate::wire::status::{UnreadableUser, UnreadableUsers};

pub mod import;
pub mod input;
pub(crate) mod json_fields;
pub mod personal;
pub mod records;
pub mod unknown_names;

/// The number of users in one read.
const PAGE: usize = 1_000;
/// The most users that are named. All are counted.
const NAMED: usize = 10;

/// Finds users whose stored record has fields that this version cannot read. Such a field has its
/// default for now ([`crate::domain::user::UnreadableField`]).
///
/// Reads the records of at most `most` users, in the order of their ids.
pub async fn find_unreadable(directory: &dyn Directory, most: usize) -> Result<UnreadableUsers> {
    let (mut found, mut read, mut last) = (UnreadableUsers::default(), 0, None);
    while read < most {
        let limit = PAGE.min(most - read);
        let all = PeopleFilter::All;
        let page = directory.find_people(&all, last.as_ref(), limit).await?;
        read += page.len();
        let users = directory.users(&page).await?.into_iter().flatten();
        for user in users.filter(|user| !user.unreadable.is_empty()) {
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
    found.read = read as u64;
    Ok(found)
}
