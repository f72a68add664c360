//! Finds the start of a user whose id belonged to an erased user.
//!
//! The user's record contains it; without a record, the note of the erasure does (P8). A result is
//! cached until a change notice names the user, for at most `feed.fresh`. Start with
//! [`Starts::of`]; [`crate::domain::start`] defines starts.

use std::collections::HashMap;
use std::sync::Arc;

use moka::sync::Cache;

use crate::context::Context;
use crate::domain::start::{self, Erasure};
use crate::domain::{Start, User, UserId};
use crate::engine::Result;
use crate::engine::feed::cache::{FeedCache, Version};
use crate::store::{self, Error, NoteFilter, Notes};

/// The most cached starts.
const MAX_CACHED: u64 = 16_384;

/// Finds the starts of users and caches them.
pub struct Starts {
    context: Arc<Context>,
    feed_cache: Arc<FeedCache>,
    cached: Cache<UserId, (Option<Start>, Version)>,
}

impl Starts {
    /// Creates an empty cache.
    pub fn new(context: Arc<Context>, feed_cache: Arc<FeedCache>) -> Self {
        Self {
            context,
            feed_cache,
            cached: Cache::new(MAX_CACHED),
        }
    }

    /// Returns the user's start; `None` if no earlier user had the id.
    pub async fn of(&self, user: &UserId) -> Result<Option<Start>> {
        if let Some((start, version)) = self.cached.get(user)
            && self.feed_cache.is_current(&version)
        {
            return Ok(start);
        }
        let (version, store) = (self.feed_cache.version_of_user(user), &*self.context.store);
        let found = store
            .users(std::slice::from_ref(user))
            .await?
            .pop()
            .flatten();
        let start = of(store, user, found.as_ref()).await?;
        if let Some(version) = version {
            self.cached.insert(user.clone(), (start, version));
        }
        Ok(start)
    }
}

/// Returns the start of a user with this record, or of an id without one.
pub async fn of(notes: &dyn Notes, user: &UserId, record: Option<&User>) -> Result<Option<Start>> {
    match record {
        Some(record) => Ok(record.start),
        None => Ok(erasure(notes, user).await?.map(|erasure| erasure.start)),
    }
}

/// Returns the note about the erasure of an earlier user with this id.
pub async fn erasure(notes: &dyn Notes, user: &UserId) -> Result<Option<Erasure>> {
    let note = notes.note(&start::note_name(user)).await?;
    Ok(note.as_deref().map(read).transpose()?)
}

/// Returns these notes for many ids, in their order.
pub async fn erasures(notes: &dyn Notes, users: &[UserId]) -> Result<Vec<Option<Erasure>>> {
    let names: Vec<String> = users.iter().map(start::note_name).collect();
    let named: Vec<&str> = names.iter().map(String::as_str).collect();
    let found = notes.notes(NoteFilter::Named(&named)).await?;
    let found: HashMap<String, String> = found.into_iter().collect();
    let erasure = |name| Ok(found.get(name).map(|note| read(note)).transpose()?);
    names.iter().map(erasure).collect()
}

fn read(note: &str) -> store::Result<Erasure> {
    let corrupt =
        |why: crate::domain::Invalid| Error::corrupt("the note of an erasure", why.to_string());
    note.parse().map_err(corrupt)
}
