//! Finds the emails that a user would get now.
//!
//! Digests come from a dry run, as if the user's hour had come ([`Digests::rehearse`]). Batches
//! come from [`Compose::prospects`]. Nothing is written. A user who may not be emailed has no
//! drafts.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Draft, Reader};
use crate::context::Context;
use crate::domain::{BatchState, BrandName, Occasion, User, UserId};
use crate::engine::batches::{BatchFilter, BatchService, leads};
use crate::engine::delivery::{Compose, Prospect};
use crate::engine::digest::{Digests, Found, Onlooker, Request, Timing};
use crate::engine::{Result, Silent};
use crate::wire::event::Unknown;

/// The most open batches of a user that are shown, and the most closing ones.
const BATCHES: usize = 20;

/// Finds the emails that one user would get.
pub struct OfPerson {
    /// Finds the user's digest.
    pub digests: Digests,
    /// Finds the user's batches.
    pub batches: BatchService,
    /// Builds the emails of batches.
    pub compose: Compose,
    pub(crate) context: Arc<Context>,
    /// The brand of the preview. Batches of other brands are excluded.
    pub brand: Option<BrandName>,
}

/// Collects the drafts of a dry run.
#[derive(Default)]
struct Caught(Vec<Draft>);

impl Onlooker for Caught {
    fn mail(&mut self, mail: &Found<'_>) {
        self.0.push(Draft {
            name: format!("{} {}", mail.cadence, mail.period),
            user: mail.user.clone(),
            content: mail.content.clone(),
            occasion: Occasion::Digest {
                cadence: mail.cadence,
                period: mail.period.to_string(),
            },
        });
    }
}

impl OfPerson {
    /// Returns the user's record, if there is one.
    pub async fn reader(&self, user: &UserId) -> Result<Option<Reader>> {
        Ok(self.user(user).await?.map(|user| Reader { user }))
    }

    /// Returns the emails that the user would get now: the digest of their period, and one per
    /// unsent batch.
    pub async fn drafts(&self, user: &UserId) -> Result<Vec<Draft>> {
        let request = Request {
            users: Some(vec![user.clone()]),
            timing: Timing::Now,
            ..Request::default()
        };
        let mut caught = Caught::default();
        let walked = self.digests.rehearse(&request, &mut caught, &Silent);
        walked.await?;
        let mut drafts = caught.0;
        drafts.extend(self.of_batches(user).await?);
        Ok(drafts)
    }

    async fn user(&self, user: &UserId) -> Result<Option<User>> {
        let found = self.context.store.users(std::slice::from_ref(user)).await?;
        Ok(found.into_iter().next().flatten())
    }

    async fn of_batches(&self, id: &UserId) -> Result<Vec<Draft>> {
        let Some(user) = self.user(id).await? else {
            return Ok(Vec::new());
        };
        let mut batches = Vec::new();
        for state in [BatchState::Closing, BatchState::Open] {
            let theirs = BatchFilter {
                user: Some(id.clone()),
                state: Some(state),
                ..BatchFilter::default()
            };
            batches.extend(self.batches.list(&theirs, None, BATCHES).await?);
        }
        batches.retain(|batch| {
            let brand = batch.key.brand().or(user.brand.as_ref());
            brand == self.brand.as_ref()
        });
        // A batch that closed between the two reads is in both.
        batches.sort_by_key(|batch| std::cmp::Reverse(batch.id));
        batches.dedup_by_key(|batch| batch.id);
        let leads = leads(&mut batches, self.digests.context.clock.now());
        let people = HashMap::from([(id.clone(), user)]);
        let mut drafts = Vec::new();
        for (batches, what) in [(leads, " lead"), (batches, "")] {
            let not_known = &mut Unknown::default();
            let prospects = self.compose.prospects(&batches, &people, not_known);
            let prospects = prospects.await?;
            for (batch, prospect) in batches.into_iter().zip(prospects) {
                if let Prospect::Email(content) = prospect {
                    drafts.push(Draft {
                        name: format!("{} {}{what}", batch.key, batch.id),
                        user: people[id].clone(),
                        content,
                        occasion: Occasion::Batch {
                            batch: batch.id,
                            turn: batch.opened_at,
                        },
                    });
                }
            }
        }
        Ok(drafts)
    }
}
