//! Finds users whose stored record has fields that this version cannot read.
//!
//! Such a field has its default meanwhile ([`crate::domain::user::UnreadableField`]), so operators
//! learn of it from `status`, `doctor` and `explain`.

use crate::store::{Directory, PeopleFilter, Result};
use crate::wire::status::{UnreadableUser, UnreadableUsers};

/// Users read at once.
const PAGE: usize = 1_000;
/// How many users are named; the others are counted.
const NAMED: usize = 10;

/// Reads the records of at most `most` users, in the order of their ids.
pub async fn find(directory: &dyn Directory, most: usize) -> Result<UnreadableUsers> {
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
