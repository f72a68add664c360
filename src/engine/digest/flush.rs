//! Covers all that a person has pending by markers, without mailing it: of the window, and of
//! older days that still stand.
//!
//! The rule (P3): a marker says how far it was read; what arrives meanwhile stays pending. Counted
//! is what a digest could have told: neither what was taken back, nor what was seen where digests
//! leave that out.

use std::sync::Arc;

use super::owed::OwedDays;
use crate::context::Context;
use crate::domain::UserId;
use crate::domain::start::hide_earlier;
use crate::engine::eligibility::catalog::{CatalogSource, Meant};
use crate::engine::eligibility::mutes;
use crate::engine::eligibility::skip_seen::SkipSeen;
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
        let standing = self.owed.context.store.days().await?;
        let older = standing
            .into_iter()
            .filter(|day| *day < days.window.first());
        let window = days.window.with(older);
        let found = self
            .context
            .store
            .windows(window, People::Each(std::slice::from_ref(user)))
            .await?;
        let mut flushed = 0;
        let mut catalog = self.catalog.of_mails();
        for mut person in found {
            let watermarks = person.covers();
            if !watermarks.is_empty() {
                let people = std::slice::from_mut(&mut person);
                catalog
                    .leave_out_taken_back(&mut *people, Meant::Uncovered)
                    .await?;
                self.skip_seen.leave_out(people).await?;
                let users = self
                    .owed
                    .context
                    .store
                    .users(std::slice::from_ref(user))
                    .await?;
                hide_earlier(&mut *people, &users);
                let (muting, journal) = (mutes::muting(people, &users), &*self.owed.context.store);
                mutes::leave_out(muting, mutes::uncovered, &mut catalog, journal).await?;
                flushed += person.pending().len() as u64;
                let bad = self
                    .context
                    .store
                    .write_markers(&[NewMarker::Flushed {
                        user: person.user.clone(),
                        marker: self.context.ids.next(now),
                        watermarks,
                    }])
                    .await?;
                if let Some(bad) = bad.first() {
                    let why = format!("{bad}. It cannot be marked, and digests leave it out");
                    return Err(Error::Conflict(why));
                }
            }
        }
        Ok(flushed)
    }
}
