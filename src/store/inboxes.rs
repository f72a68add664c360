//! The interface for inboxes: the seen, read and archived marks of each user's feed.
//!
//! There is one small record per user, replaced by compare-and-set. [`crate::domain::inbox`]
//! decides how a mark changes it.

use async_trait::async_trait;

use super::Result;
use crate::domain::{Id, Inbox, PersonStacks, User, UserId, Window};

/// The parts of a user's feed, except for objects and event details.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedParts {
    /// Stacks in the window, possibly none.
    pub person: PersonStacks,
    /// Inbox, as [`Inboxes::inboxes`] returns it.
    pub inbox: Option<Inbox>,
    /// User, as [`Directory::users`](super::Directory::users) returns it.
    pub user: Option<User>,
}

/// The seen, read and archived marks of feeds.
#[async_trait]
pub trait Inboxes: Send + Sync {
    /// Returns the records of these users, in the order of the request. An unreadable record is
    /// logged and returned as an empty one, which the caller may replace.
    async fn inboxes(&self, users: &[UserId]) -> Result<Vec<Option<Inbox>>>;

    /// Reads all parts of this user's feed together.
    async fn feed(&self, window: Window, user: &UserId) -> Result<FeedParts>;

    /// Writes a record under this new revision if its own revision is the stored one, or if it has
    /// none and none is stored. Returns whether it is stored under `revision`, so the call may be
    /// repeated. Of two callers that change the same version, one gets `false`.
    async fn put_inbox(&self, inbox: &Inbox, revision: Id) -> Result<bool>;
}
