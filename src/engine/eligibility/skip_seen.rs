//! Digests skip events that the user saw in the feed, if the operator wants that
//! (`digest.skip_seen`).
//!
//! An event that arrives after the user marked its object is new: a mark covers the entries that
//! existed then. Events older than `feed.since` count as not seen here.

use std::sync::Arc;

use crate::context::Context;
use crate::domain::inbox::ItemState;
use crate::domain::{Inbox, Position, UserId};
use crate::store::Result;

/// Reads users' inboxes, if digests skip seen events.
#[derive(Clone)]
pub struct SkipSeen {
    /// `None` if `digest.skip_seen` is off.
    context: Option<Arc<Context>>,
}

impl SkipSeen {
    /// Creates a reader that reads no inboxes unless `is_on`.
    pub fn new(is_on: bool, context: Arc<Context>) -> Self {
        Self {
            context: is_on.then_some(context),
        }
    }

    /// Returns the inboxes of these users, in their order: `None` if a user has none, and for all
    /// users if it is off.
    pub async fn inboxes(&self, users: &[UserId]) -> Result<Vec<Option<Inbox>>> {
        match &self.context {
            Some(context) => context.store.inboxes(users).await,
            None => Ok(users.iter().map(|_| None).collect()),
        }
    }

    /// Returns whether digests skip seen events.
    pub fn is_on(&self) -> bool {
        self.context.is_some()
    }
}

/// Returns whether the user saw the entry at this position.
pub fn is_seen(inbox: &Inbox, place: Position) -> bool {
    inbox.state(place) > ItemState::Unseen
}
