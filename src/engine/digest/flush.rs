//! Covers all that a person has pending by markers, without mailing it: of the window, and of
//! older days that still stand.
//!
//! The rule (P3): a marker says how far it was read; what arrives meanwhile stays pending. Counted
//! is what a digest could have told: neither what was taken back, nor what was seen where digests
//! leave that out.

use std::sync::Arc;

use super::owed::OwedDays;
use crate::context::Context;
use crate::domain::{PersonStacks, UserId};
use crate::engine::eligibility::catalog::CatalogSource;
use crate::engine::eligibility::skip_seen::SkipSeen;
use crate::engine::eligibility::stacks;
use crate::engine::{Error, Result};
use crate::store::{NewMarker, People};

/// Writes markers over what a person has pending, without a mail.
pub struct Flush {
    pub(crate) context: Arc<Context>,
    pub(crate) catalog: CatalogSource,
    pub(crate) skip_seen: SkipSeen,
    /// Says which days stand, and which of them are in the window.
    pub owed: OwedDays,
}

impl Flush {
    /// Flushes one person; says how many events were pending.
    pub async fn user(&self, user: &UserId) -> Result<u64> {
        let now = self.context.clock.now();
        self.context.store.catch_up().await?;
        let days = self.owed.days_read(now);
        let standing = self.context.store.days().await?;
        let older = standing
            .into_iter()
            .filter(|day| *day < days.window.first());
        let window = days.window.with(older);
        let people = People::Each(std::slice::from_ref(user));
        let mut found = self.context.store.windows(window, people).await?;
        let covers = found.first().map(PersonStacks::covers);
        let Some(watermarks) = covers.filter(|covers| !covers.is_empty()) else {
            return Ok(0);
        };
        let mut catalog = self.catalog.of_mails();
        stacks::exclude_ineligible(&mut found, &self.skip_seen, &mut catalog).await?;
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
