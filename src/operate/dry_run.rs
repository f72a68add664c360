//! Counts and shows the emails that a run of digests and open batches would send.
//!
//! It writes nothing, not even the secret that signs links: unsubscribe links in its samples lead
//! nowhere. The scan over digests is the run's own ([`Digests::rehearse`]). Batches count as if
//! each closed now; closed batches are read before open ones, so that none is counted twice.
//! [`report`] renders and measures. Start with [`DryRun::run`].

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::context::Context;
use crate::domain::{Batch, BatchState, DeliveryId, FanoutState, Occasion, Pause, User, UserId};
use crate::engine::batches::{BatchFilter, BatchService, leads, quiet_until};
use crate::engine::delivery::{Compose, Prospect};
use crate::engine::digest::{Digests, Effect, Request, count_email};
use crate::engine::{Result, Watcher};
use crate::render::report::{BatchSummary, DryRunPage};
use crate::store::Counted;
use crate::wire::digest::{BatchesAhead, Report};

mod report;

use report::Emails;

/// The most emails of digests, and of batches, that are rendered.
pub const MAX_RENDERED: usize = 10_000;

/// The number of batches that are read at once.
const PAGE: usize = 200;

/// When an email would be sent.
#[derive(Clone, Copy)]
enum Leaves {
    /// Its batch has closed.
    Closing,
    /// Its batch is due.
    Due,
    /// Its batch closes at this time. The flag is set if quiet hours defer it.
    At(DateTime<Utc>, bool),
}

/// A run of digests that only counts and renders.
pub struct DryRun {
    /// Scans the digests.
    pub digests: Digests,
    /// Lists the batches.
    pub batches: BatchService,
    /// Renders the emails.
    pub compose: Compose,
    pub(crate) context: Arc<Context>,
    /// See [`MAX_RENDERED`].
    pub max_rendered: usize,
}

impl DryRun {
    /// Counts the emails that the run would send, and describes them for the page.
    pub async fn run(
        &self,
        request: &Request,
        progress: &dyn Watcher,
    ) -> Result<(Report, DryRunPage)> {
        let request = self.dated(request);
        let at = request.at.unwrap_or_else(|| self.context.clock.now());
        let emails = || Emails::new(&self.compose, self.max_rendered, at);
        let (mut digests, mut of_batches) = (emails(), emails());
        let scan = self.digests.rehearse(&request, &mut digests, progress);
        let mut report = scan.await?;
        let counted = self.count_batches(&request, &mut report, &mut of_batches, progress);
        counted.await?;
        let people = report::people(&report, &request);
        let digests_mailed = report.emails_ahead();
        let digest_events = report.due.events - digests.events_without_brand;
        let failures = digests.failures.union(&of_batches.failures).cloned();
        let failures: Vec<String> = failures.collect();
        let digests = digests.summary(digests_mailed, digest_events);
        let batches = report.dry_run.batches.as_ref().map(|ahead| BatchSummary {
            lines: report::batches(ahead),
            next: ahead
                .next
                .map(|next| next.format("%-d %B, %H:%M UTC").to_string()),
            emails: of_batches.summary(ahead.mails, ahead.events),
        });
        let sizes = [Some(&digests), batches.as_ref().map(|of| &of.emails)];
        let sizes = || sizes.iter().flatten().map(|of| &of.sizes);
        let over = sizes().map(|of| of.over).sum();
        let failed: u64 = sizes().map(|of| of.failed).sum();
        let mut warnings = self.warnings(&report, failures, over).await?;
        if failed > 0 {
            warnings.push(format!("Emails that cannot be rendered: {failed}."));
        }
        let page = DryRunPage {
            at: at.format("%-d %B %Y, %H:%M UTC").to_string(),
            scope: report::scope(&request),
            warnings,
            people,
            mails_per_hour: self.context.config.delivery.mails_per_hour,
            digests,
            batches,
        };
        Ok((report, page))
    }

    /// Counts the emails that the run would send, and renders nothing.
    pub async fn count(&self, request: &Request, progress: &dyn Watcher) -> Result<Report> {
        let request = self.dated(request);
        let mut report = self.digests.run(&request, progress).await?;
        let mut none = Emails::new(&self.compose, 0, self.context.clock.now());
        let counted = self.count_batches(&request, &mut report, &mut none, progress);
        counted.await?;
        Ok(report)
    }

    fn dated(&self, request: &Request) -> Request {
        Request {
            effect: Effect::Rehearse,
            at: Some(request.at.unwrap_or_else(|| self.context.clock.now())),
            ..request.clone()
        }
    }

    /// Describes the settings that are missing for emails to users.
    fn lacking(&self) -> impl Iterator<Item = &'static str> {
        let identities = &self.compose.identities;
        let links = identities.lacks_links().then_some(
            "The emails carry no link to unsubscribe, as server.public_url is not set: users will report them as spam.",
        );
        let has_address = self.context.config.site.postal_address.is_some();
        let address = (!has_address && identities.outbox().is_none()).then_some(
            "The emails carry no postal address (site.postal_address), which commercial email needs.",
        );
        links.into_iter().chain(address)
    }

    /// Lists the problems to fix before sending.
    async fn warnings(
        &self,
        report: &Report,
        failures: Vec<String>,
        over: u64,
    ) -> Result<Vec<String>> {
        let pause = Pause::current(&*self.context.store).await?;
        let pending = Counted::Fanouts(FanoutState::Pending);
        let pending = self.context.store.count(&[pending]).await?.iter().sum();
        let mut warnings = report::warnings(report, over, pause.as_ref(), pending);
        warnings.extend(report.not_known.warnings(&self.context.policies));
        warnings.extend(failures);
        warnings.extend(report.dry_run.warnings());
        let of_batches = report.dry_run.batches.as_ref();
        let of_batches = of_batches.map_or(0, |ahead| ahead.mails);
        if report.due.users + of_batches > 0 {
            warnings.extend(self.lacking().map(str::to_owned));
        }
        Ok(warnings)
    }

    /// Counts the batches that the request is about, and adds their emails to `emails`. A request
    /// for certain digests is about none.
    async fn count_batches(
        &self,
        request: &Request,
        report: &mut Report,
        emails: &mut Emails<'_>,
        progress: &dyn Watcher,
    ) -> Result<()> {
        if request.cadence.is_some() || request.limit.is_some() {
            return Ok(());
        }
        report.dry_run.batches = Some(BatchesAhead::default());
        let at = request.at.unwrap_or_else(|| self.context.clock.now());
        let users = match &request.users {
            Some(users) => users.iter().map(Some).collect(),
            None => BTreeSet::from([None]),
        };
        for user in users {
            for state in [BatchState::Closing, BatchState::Open] {
                let filter = BatchFilter {
                    user: user.cloned(),
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
                    self.count_page(page, at, report, emails).await?;
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
        emails: &mut Emails<'_>,
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
        let deferred = quiet_until(&self.batches.context, &batches, now).await?;
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
                count_email(&mut report.dry_run, &self.compose, user, brand);
                if has_brand {
                    let occasion = Occasion::Batch {
                        batch: batch.id,
                        turn: batch.opened_at,
                    };
                    emails.add(user, brand, content, &occasion);
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
