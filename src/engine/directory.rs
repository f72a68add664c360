//! Users: their records, their import and export, and their erasure.

use std::collections::HashMap;

use crate::domain::{Address, User, UserId};
use crate::store::{Directory, PeopleFilter, Result};
use crate::wire::status::{UnreadableUser, UnreadableUsers};

pub(crate) mod fields;
pub mod import;
pub mod input;
pub mod people;
pub mod personal;
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
    let read = for_each_user(directory, most, |user| {
        if user.unreadable.is_empty() {
            return;
        }
        found.users += 1;
        if found.first.len() < NAMED {
            let (user, fields) = (user.id, user.unreadable);
            found.first.push(UnreadableUser { user, fields });
        }
    });
    found.read = read.await?;
    Ok(found)
}

/// Addresses that several user records share, ignoring case.
#[derive(Debug, Default)]
pub struct SharedAddresses {
    /// Number of records read.
    pub read: u64,
    /// Number of shared addresses.
    pub addresses: u64,
    /// Number of records with a shared address.
    pub users: u64,
    /// The lowest user id among the records with a shared address.
    pub first: Option<UserId>,
}

/// Counts the addresses that several records share, among at most `most` users in the order of
/// their ids.
pub async fn find_shared_addresses(
    directory: &dyn Directory,
    most: usize,
) -> Result<SharedAddresses> {
    let mut users_of: HashMap<Address, (u64, UserId)> = HashMap::new();
    let read = for_each_user(directory, most, |user| {
        if let Some(email) = user.email {
            let of_address = users_of.entry(email.folded());
            of_address.or_insert((0, user.id)).0 += 1;
        }
    });
    let read = read.await?;
    let shared = users_of.into_values().filter(|(users, _)| *users > 1);
    let mut found = SharedAddresses {
        read,
        ..SharedAddresses::default()
    };
    for (users, first) in shared {
        found.addresses += 1;
        found.users += users;
        found.first = found.first.into_iter().chain([first]).min();
    }
    Ok(found)
}

/// Reads at most `most` users in the order of their ids. Returns the number of users.
async fn for_each_user(
    directory: &dyn Directory,
    most: usize,
    mut each: impl FnMut(User),
) -> Result<u64> {
    let (mut read, mut last) = (0, None);
    while read < most {
        let limit = PAGE.min(most - read);
        let all = PeopleFilter::All;
        let page = directory.find_people(&all, last.as_ref(), limit).await?;
        read += page.len();
        let users = directory.users(&page).await?;
        users.into_iter().flatten().for_each(&mut each);
        if page.len() < limit {
            break;
        }
        last = page.last().cloned();
    }
    Ok(read as u64)
}
