//! Counts the emails of batches as they would be if each batch closed now.
//!
//! It reads closed batches before open ones, so a batch that closes meanwhile is not counted
//! twice. It excludes batches whose email is settled. A waiting lead is an email of its own. Quiet
//! hours are those of now.

use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, Utc};

use super::DryRun;
use super::emails::{Email, Emails};
use crate::domain::{Batch, BatchState, DeliveryId, Occasion, User, UserId};
use crate::engine::batches::{BatchFilter, leads};
use crate::engine::delivery::{Compose, Prospect};
use crate::engine::digest::{Request, looks};
use crate::engine::{Result, Watcher};
use crate::wire::digest::{BatchesAhead, Report};

/// The number of batches that are read at once.
const PAGE: usize = 200;

/// When an email would be sent.
#[derive(Debug, Clone, Copy)]
enum Leaves {
    /// Its batch has closed.
    Closing,
    /// Its batch is due.
    Due,
    /// Its batch closes at this time. The flag is set if quiet hours defer it.
    At(DateTime<Utc>, bool),
}

impl DryRun {
    /// Counts the batches that the request is about, and adds their emails to `emails`. A request
    /// for certain digests is about none.
    pub(super) async fn count_batches(
        &self,
        request: &Request,
        report: &mut Report,
        mut emails: Option<&mut Emails<'_>>,
        progress: &dyn Watcher,
    ) -> Result<()> {
        if request.cadence.is_some() || request.limit.is_some() {
            return Ok(());
        }
        report.dry_run.batches = Some(BatchesAhead::default());
        let at = request.at.unwrap_or_else(|| self.context.clock.now());
        let users: Vec<Option<UserId>> = match &request.users {
            Some(users) => {
                let users: BTreeSet<&UserId> = users.iter().collect();
                users.into_iter().cloned().map(Some).collect()
            }
            None => vec![None],
        };
        for user in users {
            for state in [BatchState::Closing, BatchState::Open] {
                let filter = BatchFilter {
                    user: user.clone(),
                    state: Some(state),
                    ..BatchFilter::default()
                };
                let mut before = None;
                while !progress.stopping() {
                    let mut page = self.batches.list(&filter, before, PAGE).await?;
                    let Some(last) = page.last() else {
                        break;
                    };
                    before = Some(last.id);
                    let count = page.len() as u64;
                    if let Some(sample) = request.sample {
                        page.retain(|batch| sample.includes(&batch.user));
                    }
                    self.count_page(page, at, report, emails.as_deref_mut())
                        .await?;
                    progress.advance(count);
                }
            }
        }
        Ok(())
    }

    async fn count_page(
        &self,
        mut batches: Vec<Batch>,
        at: DateTime<Utc>,
        report: &mut Report,
        mut emails: Option<&mut Emails<'_>>,
    ) -> Result<()> {
        // After a lead was sent, a batch is empty until another event joins it.
        batches.retain(|batch| !batch.contents.is_empty() || batch.is_leading());
        let ids: Vec<DeliveryId> = batches.iter().map(|b| DeliveryId::batch(b.id)).collect();
        let rows = self.context.store.deliveries(&ids).await?;
        let mut rows = rows.into_iter();
        batches.retain(|_| !rows.next().flatten().is_some_and(|row| row.state.settled()));
        report.dry_run.batches.get_or_insert_default().batches += batches.len() as u64;
        let users: BTreeSet<&UserId> = batches.iter().map(|batch| &batch.user).collect();
        let users: Vec<UserId> = users.into_iter().cloned().collect();
        let users = self.context.store.users(&users).await?;
        let users = users.into_iter().flatten();
        let users: HashMap<UserId, User> = users.map(|user| (user.id.clone(), user)).collect();
        let now = self.context.clock.now();
        let leads = leads(&mut batches, now);
        let deferred = self.batches.quiet.held(&batches, now).await?;
        let leaves = |(batch, deferred): (&Batch, Option<DateTime<Utc>>)| {
            let closes = deferred.unwrap_or(batch.closes_at);
            match batch.state {
                BatchState::Open if closes > at => Leaves::At(closes, deferred.is_some()),
                BatchState::Open => Leaves::Due,
                _ => Leaves::Closing,
            }
        };
        let of_leads = vec![Leaves::Due; leads.len()];
        let of_batches: Vec<Leaves> = batches.iter().zip(deferred).map(leaves).collect();
        // A lead has the id of its batch, so they are composed one after the other.
        for (batches, leaves) in [(leads, of_leads), (batches, of_batches)] {
            let prospects = self
                .compose
                .prospects(&batches, &users, &mut report.not_known)
                .await?;
            for ((batch, leaves), prospect) in batches.iter().zip(leaves).zip(prospects) {
                if batch.contents.is_empty() {
                    // All its events are in its lead.
                    continue;
                }
                let user = users.get(&batch.user);
                let brand = Compose::brand_of(user, Some(&batch.key));
                let brand = brand.as_ref();
                let has_brand =
                    brand.is_none_or(|of| self.compose.identities.brands.contains_key(of));
                count(report, leaves, &prospect, has_brand);
                let (Prospect::Email(content), Some(user)) = (&prospect, user) else {
                    continue;
                };
                looks::count(&mut report.dry_run, &self.compose, user, brand, content);
                if let Some(emails) = emails.as_deref_mut().filter(|_| has_brand) {
                    emails.add(&Email {
                        user,
                        brand,
                        content,
                        occasion: &Occasion::Batch {
                            batch: batch.id,
                            turn: batch.opened_at,
                        },
                    });
                }
            }
        }
        Ok(())
    }
}

fn count(report: &mut Report, leaves: Leaves, prospect: &Prospect, has_brand: bool) {
    let ahead = report.dry_run.batches.get_or_insert_default();
    let content = match prospect {
        Prospect::Email(_) if !has_brand => {
            ahead.no_brand += 1;
            return;
        }
        Prospect::Email(content) => content,
        Prospect::NothingLeft => {
            ahead.withdrawn += 1;
            return;
        }
        Prospect::Unmailable(why) => {
            *ahead.unmailable.entry(why.as_str()).or_default() += 1;
            return;
        }
    };
    ahead.mails += 1;
    ahead.events += content.total;
    match leaves {
        Leaves::Closing => ahead.closing += 1,
        Leaves::Due => ahead.due += 1,
        Leaves::At(then, deferred) => {
            ahead.later += 1;
            ahead.held += u64::from(deferred);
            ahead.next = Some(ahead.next.map_or(then, |next| next.min(then)));
        }
    }
}
