//! Inboxes: one row for each user.

use async_trait::async_trait;
use rusqlite::{OptionalExtension, Transaction};

use super::answer::Answer;
use super::columns::{Met, Table, fields};
use super::pokes::poke;
use super::{Sqlite, directory, stacks};
use crate::domain::{ChangeNotice, Id, Inbox, UserId, Window};
use crate::store::record::fields::As;
use crate::store::record::inbox::InboxRecord;
use crate::store::{FeedParts, Inboxes, Result};

pub(super) const INBOXES: Table = Table {
    name: "inboxes",
    columns: "user=_id stamp changed days:json",
};

#[async_trait]
impl Inboxes for Sqlite {
    async fn inboxes(&self, users: &[UserId]) -> Result<Vec<Option<Inbox>>> {
        self.read_each("reading what people have seen", users, find)
            .await
    }

    async fn feed(&self, window: Window, user: &UserId) -> Result<FeedParts> {
        let user = user.clone();
        let read = move |transaction: &Transaction<'_>| {
            let mut people = stacks::each(transaction, &window, vec![user.clone()])?;
            Ok(FeedParts {
                person: people.remove(0),
                inbox: find(transaction, &user)?,
                user: directory::find(transaction, &user)?,
            })
        };
        self.connections.read("reading a feed", read).await
    }

    async fn put_inbox(&self, inbox: &Inbox, revision: Id) -> Result<bool> {
        let inbox = inbox.clone();
        let put = move |transaction: &Transaction<'_>| put(transaction, inbox, revision);
        self.connections
            .write("putting what somebody has seen", put)
            .await
    }
}

fn find(transaction: &Transaction<'_>, user: &UserId) -> Answer<Option<Inbox>> {
    match INBOXES.find::<InboxRecord>(transaction, "user = ?1", [user.as_str()]) {
        Ok(mut found) => Ok(found.pop()),
        Err(failure) if failure.is_unreadable() => {
            let error = failure.told();
            tracing::warn!(error, "what somebody has seen cannot be read; all is new");
            Ok(Some(Inbox {
                revision: stamp(transaction, user)?,
                ..Inbox::empty(user.clone())
            }))
        }
        Err(failure) => Err(failure),
    }
}

/// Returns the revision of the stored record; `None` if there is no record or no valid revision.
fn stamp(transaction: &Transaction<'_>, user: &UserId) -> Answer<Option<Id>> {
    let mut standing = transaction.prepare_cached("SELECT stamp FROM inboxes WHERE user = ?1")?;
    let stamp: Option<String> = standing
        .query_row([user.as_str()], |row| row.get(0))
        .optional()?;
    Ok(stamp.and_then(|stamp| stamp.parse().ok()))
}

fn put(transaction: &Transaction<'_>, inbox: Inbox, revision: Id) -> Answer<bool> {
    let standing = stamp(transaction, &inbox.user)?;
    if standing != inbox.revision {
        return Ok(standing == Some(revision));
    }
    let (user, revision) = (inbox.user.clone(), Some(revision));
    let fields = fields(&InboxRecord::keep(&Inbox { revision, ..inbox }))?;
    poke(transaction, &ChangeNotice::people([user.as_str()]))?;
    Ok(INBOXES.insert(transaction, Met::Replaced, &fields)? == 1)
}
