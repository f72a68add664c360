//! What somebody would be mailed now, and whose pages they would see.
//!
//! The rule: it is found as a run finds it ([`Digests::rehearse`], as if their hour had come), and
//! as mails of batches are made ([`Compose::prospects`]); only read. Who may not be mailed is shown
//! nothing, and why.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Draft, Reader};
use crate::context::Context;
use crate::domain::{BatchState, BrandName, Occasion, User, UserId};
use crate::engine::batches::{BatchFilter, BatchService, leads};
use crate::engine::delivery::{Compose, Prospect};
use crate::engine::digest::{Digests, Found, Onlooker, Request, Timing};
use crate::engine::{Result, Silent};
use crate::wire::unknown::Unknown;

/// How many of a person's batches that gather are shown, and of those that have closed.
const BATCHES: usize = 20;

/// Finds what one person would be mailed.
pub struct OfPerson {
    /// Whose walk it is.
    pub digests: Digests,
    /// Shows the batches that are open.
    pub batches: BatchService,
    /// Makes their mails.
    pub compose: Compose,
    pub(crate) context: Arc<Context>,
    /// Whose look their mails are shown in: mails of another brand are left out.
    pub brand: Option<BrandName>,
}

/// Keeps what would be mailed.
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

    fn together(&mut self) {}
}

impl OfPerson {
    /// Their record; nothing where there is none.
    pub async fn reader(&self, user: &UserId) -> Result<Option<Reader>> {
        Ok(self.user(user).await?.map(|user| Reader { user }))
    }

    /// The mails they would get now: the digest of their period, and one of each batch that is not
    /// mailed yet.
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
        // One that closed between the two looks is in both.
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
                if let Prospect::Told(content) = prospect {
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
