//! What people have seen, read and put away of their feeds: the trait.
//!
//! The rule: one small record a person, in the place of which another is put only where it is the
//! one that was read. What a mark does to it is [`crate::domain::inbox`]'s to say.

use async_trait::async_trait;

use super::Result;
use crate::domain::{Id, Inbox, PersonStacks, User, UserId, Window};

/// All that a person's feed rests on but objects and what is said of events.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedParts {
    /// Their stacks in the window, of which there may be none.
    pub person: PersonStacks,
    /// As [`Inboxes::inboxes`] tells it.
    pub inbox: Option<Inbox>,
    /// As [`Directory::users`](super::Directory::users) tells it.
    pub user: Option<User>,
}

/// What people have seen, read and put away of their feeds.
#[async_trait]
pub trait Inboxes: Send + Sync {
    /// The records of these people, in the order asked. One that cannot be read is told in the log
    /// and is as good as an empty one, which may be put in its place.
    async fn inboxes(&self, users: &[UserId]) -> Result<Vec<Option<Inbox>>>;

    /// What this person's feed rests on, all asked for together.
    async fn feed(&self, window: Window, user: &UserId) -> Result<FeedParts>;

    /// Puts a record, under this new revision, in the place of the one that was read (its
    /// revision), or where none was read and none stands. Says whether it was put; the same call
    /// may be repeated. Of two who read the same record and put different ones, one is told no.
    async fn put_inbox(&self, inbox: &Inbox, revision: Id) -> Result<bool>;
}
