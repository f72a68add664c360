//! The mails of batches that have not left, as they would be if the batches closed as they are.
//!
//! The rule: those that have closed are looked at before those that gather, so one that closes
//! meanwhile is missed and none counted twice; one whose mail is settled is mailed no more. A lead
//! that waits is a mail of its own. When a batch closes is told as of now, quiet hours with it, and
//! set against the moment of the rehearsal.

use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, Utc};

use super::Rehearsal;
use super::measure::draw;
use super::stage::{Mail, Stage};
use crate::domain::{Batch, BatchState, DeliveryId, Occasion, User, UserId};
use crate::engine::batches::{BatchFilter, leads};
use crate::engine::delivery::{Compose, Prospect};
use crate::engine::digest::{Request, looks};
use crate::engine::{Result, Watcher};
use crate::wire::digest::{BatchesAhead, Report};

/// Batches looked at in one step.
const AT_ONCE: usize = 200;

/// When a mail leaves.
#[derive(Debug, Clone, Copy)]
enum Leaves {
    /// Its batch has closed.
    Closing,
    /// Its batch is due.
    Due,
    /// Its batch closes then, as it is held by quiet hours or as it gathers that long.
    At(DateTime<Utc>, bool),
}

impl Rehearsal {
    /// Counts in the report the emails that the requested batches become, and shows them to the
    /// stage, if there is one. A request for certain digests, by cadence or number, has no batches.
    pub(super) async fn look_ahead(
        &self,
        request: &Request,
        report: &mut Report,
        mut stage: Option<&mut Stage<'_>>,
        progress: &dyn Watcher,
    ) -> Result<()> {
        if request.cadence.is_some() || request.limit.is_some() {
            return Ok(());
        }
        let at = request.at.unwrap_or_else(|| self.context.clock.now());
        report.dry_run.batches = Some(BatchesAhead::default());
        let whose: Vec<Option<UserId>> = match &request.users {
            Some(users) => {
                let users: BTreeSet<&UserId> = users.iter().collect();
                users.into_iter().cloned().map(Some).collect()
            }
            None => vec![None],
        };
        for user in whose {
            for state in [BatchState::Closing, BatchState::Open] {
                let filter = BatchFilter {
                    user: user.clone(),
                    state: Some(state),
                    ..BatchFilter::default()
                };
                let mut before = None;
                while !progress.stopping() {
                    let mut batches = self.batches.list(&filter, before, AT_ONCE).await?;
                    let Some(last) = batches.last() else {
                        break;
                    };
                    before = Some(last.id);
                    let found = batches.len() as u64;
                    if let Some(sample) = request.sample {
                        batches.retain(|batch| sample.includes(&batch.user));
                    }
                    self.look_at(batches, at, report, stage.as_deref_mut())
                        .await?;
                    progress.advance(found);
                }
            }
        }
        Ok(())
    }

    async fn look_at(
        &self,
        mut batches: Vec<Batch>,
        at: DateTime<Utc>,
        report: &mut Report,
        mut stage: Option<&mut Stage<'_>>,
    ) -> Result<()> {
        // One whose lead has left, and that nothing joined since, gathers nothing yet.
        batches.retain(|batch| !batch.contents.is_empty() || batch.is_leading());
        let ids: Vec<DeliveryId> = batches.iter().map(|b| DeliveryId::batch(b.id)).collect();
        let rows = self.context.store.deliveries(&ids).await?;
        let mut rows = rows.into_iter();
        batches.retain(|_| !rows.next().flatten().is_some_and(|row| row.state.settled()));
        report.dry_run.batches.get_or_insert_default().batches += batches.len() as u64;
        let users: BTreeSet<&UserId> = batches.iter().map(|batch| &batch.user).collect();
        let users: Vec<UserId> = users.into_iter().cloned().collect();
        let people = self.context.store.users(&users).await?;
        let people = people.into_iter().flatten();
        let people: HashMap<UserId, User> = people.map(|user| (user.id.clone(), user)).collect();
        let now = self.context.clock.now();
        let leads = leads(&mut batches, now);
        let held = self.batches.quiet.held(&batches, now).await?;
        let leaves = |(batch, held): (&Batch, &Option<DateTime<Utc>>)| {
            let closes = held.unwrap_or(batch.closes_at);
            match batch.state {
                BatchState::Open if closes > at => Leaves::At(closes, held.is_some()),
                BatchState::Open => Leaves::Due,
                _ => Leaves::Closing,
            }
        };
        let of_leads = vec![Leaves::Due; leads.len()];
        let of_batches: Vec<Leaves> = batches.iter().zip(&held).map(leaves).collect();
        for (is_lead, batches, leaves) in [(true, leads, of_leads), (false, batches, of_batches)] {
            let not_known = &mut report.not_known;
            let prospects = self.compose.prospects(&batches, &people, not_known);
            let prospects = prospects.await?;
            for ((batch, leaves), prospect) in batches.iter().zip(leaves).zip(prospects) {
                if batch.contents.is_empty() {
                    // All it has is its lead.
                    continue;
                }
                let user = people.get(&batch.user);
                let brand = Compose::brand_of(user, Some(&batch.key));
                let brand = brand.as_ref();
                let has_brand = brand.is_none_or(|of| self.compose.looks.contains_key(of));
                count(report, leaves, &prospect, has_brand);
                if let (Prospect::Told(content), Some(user)) = (&prospect, user) {
                    looks::count(&mut report.dry_run, &self.compose, user, brand, content);
                    if let Some(stage) = stage.as_deref_mut().filter(|_| has_brand) {
                        let id = DeliveryId::batch(batch.id);
                        let drawn = draw(&id).rotate_left(if is_lead { 32 } else { 0 });
                        stage.take(&Mail {
                            id: &id,
                            drawn,
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
        }
        Ok(())
    }
}

fn count(report: &mut Report, leaves: Leaves, prospect: &Prospect, has_brand: bool) {
    let ahead = report.dry_run.batches.get_or_insert_default();
    let content = match prospect {
        Prospect::Told(_) if !has_brand => {
            ahead.no_brand += 1;
            return;
        }
        Prospect::Told(content) => content,
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
        Leaves::At(then, held) => {
            ahead.later += 1;
            ahead.held += u64::from(held);
            ahead.next = Some(ahead.next.map_or(then, |next| next.min(then)));
        }
    }
}
