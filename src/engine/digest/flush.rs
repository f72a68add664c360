//! Covers all pending events of a user with markers, without an email.
//!
//! It covers the window and all older days that still exist. A marker states how far the stack was
//! read, so an event that arrives meanwhile stays pending (P3).

use std::sync::Arc;

use super::backlog::BacklogDays;
use crate::context::Context;
use crate::domain::{PersonStacks, UserId};
use crate::engine::eligibility;
use crate::engine::eligibility::catalog::CatalogSource;
use crate::engine::{Error, Result};
use crate::store::NewMarker;

/// Marks a user's pending events as handled.
pub struct Flush {
    pub(crate) context: Arc<Context>,
    pub(crate) catalog: CatalogSource,
    /// Knows which days are in the window.
    pub backlog: BacklogDays,
}

impl Flush {
    /// Flushes one user. Returns the number of pending events, without those that no email may
    /// include (retracted, muted or seen ones).
    pub async fn user(&self, user: &UserId) -> Result<u64> {
        let now = self.context.clock.now();
        self.context.store.catch_up().await?;
        let days = self.backlog.days_read(now);
        let existing = self.context.store.days().await?.into_iter();
        let older = existing.filter(|day| *day < days.window.first());
        let window = days.window.with(older);
        let people = std::slice::from_ref(user);
        let mut found = self.context.store.windows(window, people).await?;
        let covers = found.first().map(PersonStacks::covers);
        let Some(watermarks) = covers.filter(|covers| !covers.is_empty()) else {
            return Ok(0);
        };
        let mut catalog = self.catalog.of_mails();
        eligibility::exclude_ineligible(&mut found, &mut catalog).await?;
        let pending = found.iter().map(|person| person.pending().len() as u64);
        let flushed = pending.sum();
        let marker = NewMarker::Flushed {
            user: user.clone(),
            marker: self.context.ids.next(now),
            watermarks,
        };
        let bad = self.context.store.write_markers(&[marker]).await?;
        match bad.first() {
            None => Ok(flushed),
            Some(bad) => {
                let why = format!("{bad}. It cannot be marked, and digests leave it out");
                Err(Error::Conflict(why))
            }
        }
    }
}
