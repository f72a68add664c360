//! Counts and shows the emails that a run of digests and open batches would send.
//!
//! It writes nothing, not even the secret that signs links: unsubscribe links in its samples lead
//! nowhere. The scan over digests is the run's own ([`Digests::rehearse`]); [`batches`] scans the
//! batches. [`emails`] renders and measures. Start with [`DryRun::run`].

use std::sync::Arc;

use crate::context::Context;
use crate::domain::{FanoutState, Pause};
use crate::engine::batches::BatchService;
use crate::engine::delivery::Compose;
use crate::engine::digest::{Digests, Effect, Request};
use crate::engine::{Result, Watcher};
use crate::render::report::{BatchSummary, DryRunPage};
use crate::store::Counted;
use crate::wire::digest::Report;

mod batches;
mod emails;
mod lines;

use emails::Emails;

/// The most emails of digests, and of batches, that are rendered. Of more emails, between half as
/// many and this many are rendered.
pub const MAX_RENDERED: usize = 10_000;

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
        self.count_batches(&request, &mut report, Some(&mut of_batches), progress)
            .await?;
        let people = lines::people(&report, &request);
        let digests_mailed = report.emails_ahead();
        let digest_events = report.due.events - digests.events_without_brand;
        let failures = digests.failures.union(&of_batches.failures).cloned();
        let failures: Vec<String> = failures.collect();
        let digests = digests.summary(digests_mailed, digest_events);
        let batches = report.dry_run.batches.as_ref().map(|ahead| BatchSummary {
            lines: lines::batches(ahead),
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
            scope: lines::scope(&request),
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
        self.count_batches(&request, &mut report, None, progress)
            .await?;
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
        let mut warnings = lines::warnings(report, over, pause.as_ref(), pending);
        warnings.extend(report.not_known.warnings(&self.context.policies));
        warnings.extend(failures);
        warnings.extend(report.dry_run.warnings());
        let of_batches = report
            .dry_run
            .batches
            .as_ref()
            .map_or(0, |ahead| ahead.mails);
        if report.due.users + of_batches > 0 {
            warnings.extend(self.lacking().map(str::to_owned));
        }
        Ok(warnings)
    }
}
