//! Rehearses a run of digests, and the mails of batches that gather, and tells all there is to know
//! of them before anything leaves: who, what, how large, how long.
//!
//! The rule: nothing is written, not even the secret that links are made with: in the mails that
//! are shown, links to unsubscribe lead nowhere. The walk over digests is the run's own
//! ([`Digests::rehearse`]), that over batches is in [`ahead`]; each mail is tried on and let go
//! ([`stage`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use crate::context::Context;
use crate::domain::{BrandName, FanoutState, Pause};
use crate::email::Mailer;
use crate::engine::batches::BatchService;
use crate::engine::delivery::Compose;
use crate::engine::digest::{Digests, Effect, Request};
use crate::engine::{Result, Watcher};
use crate::render::report::{OfBatches, Rehearsed, Sizes};
use crate::store::Counted;
use crate::wire::digest::{BatchesAhead, Report};

mod ahead;
mod compare;
mod measure;
mod pace;
mod stage;
mod tell;

use measure::bars;
pub use pace::Limits;
use stage::{Calling, KINDS, Stage};

/// Up to so many mails of digests are all rendered, and as many of batches; of more, between half
/// as many and so many.
pub const MOST_RENDERED: u64 = 10_000;
/// How far back a period and the one before it can have been mailed: two weeks, whatever the zone,
/// and a week for late ones.
const LOOK_BACK: TimeDelta = TimeDelta::days(22);

/// Rehearses runs of digests; nothing is written, and nothing leaves.
pub struct Rehearsal {
    /// Whose walk it is.
    pub digests: Digests,
    /// Lists batches whose mails have not left.
    pub batches: BatchService,
    /// Renders the mails that are looked at.
    pub compose: Compose,
    pub(crate) mailer: Arc<dyn Mailer>,
    pub(crate) context: Arc<Context>,
    /// Whom mails come from, masked.
    pub from: String,
    /// The same of mails of brands.
    pub from_brands: BTreeMap<BrandName, String>,
    /// What the configuration lacks for mails that leave this machine.
    pub lacking: Vec<String>,
    /// What decides how long the run would take.
    pub limits: Limits,
    /// Up to so many mails are rendered.
    pub most_rendered: u64,
}

impl Rehearsal {
    /// Rehearses this run; the first part of the answer is what the run itself would count.
    pub async fn run(
        &self,
        request: &Request,
        progress: &dyn Watcher,
    ) -> Result<(Report, Rehearsed)> {
        let at = request.at.unwrap_or_else(|| self.context.clock.now());
        let request = Request {
            at: Some(at),
            ..request.clone()
        };
        let mut stage = self.stage(at).with_calls();
        let mut of_batches = self.stage(at);
        let walked = self.digests.rehearse(&request, &mut stage, progress);
        let mut report = walked.await?;
        let onlooker = Some(&mut of_batches);
        self.look_ahead(&request, &mut report, onlooker, progress)
            .await?;
        let counted = self.context.store.settled_since(at - LOOK_BACK).await?;
        let mails = report.emails_ahead();
        let sizes = stage.sizes(mails);
        let batches = report.dry_run.batches.as_ref();
        let batches = batches.map(|ahead| self.of_batches(ahead, &of_batches));
        let mut failures = std::mem::take(&mut stage.failures);
        failures.extend(of_batches.failures);
        failures.sort_unstable();
        failures.dedup();
        failures.truncate(KINDS);
        let rehearsed = Rehearsed {
            at: at.format("%-d %B %Y, %H:%M UTC").to_string(),
            scope: tell::scope(&request),
            warnings: self
                .warnings(&report, failures, &sizes, batches.as_ref())
                .await?,
            mails,
            events: report.due.events - stage.events_absent,
            people: bars(tell::people(&report, &request)),
            types: stage.types(),
            pace: self.limits.pace(mails, stage.calls(mails)),
            comparisons: compare::comparisons(stage.periods.values(), &counted),
            samples: stage.samples(&self.from, &self.from_brands),
            sizes,
            batches,
        };
        Ok((report, rehearsed))
    }

    /// The same without looking at any mail: what would be counted.
    pub async fn count(&self, request: &Request, progress: &dyn Watcher) -> Result<Report> {
        let request = Request {
            effect: Effect::Rehearse,
            at: Some(request.at.unwrap_or_else(|| self.context.clock.now())),
            ..request.clone()
        };
        let mut report = self.digests.run(&request, progress).await?;
        self.look_ahead(&request, &mut report, None, progress)
            .await?;
        Ok(report)
    }

    fn stage(&self, at: DateTime<Utc>) -> Stage<'_> {
        let calling = Calling {
            mailer: &*self.mailer,
            chunk: self.digests.sender.gate.chunk(),
        };
        Stage::new(&self.compose, calling, self.most_rendered, at)
    }

    fn of_batches(&self, ahead: &BatchesAhead, stage: &Stage<'_>) -> OfBatches {
        OfBatches {
            mails: ahead.mails,
            events: ahead.events,
            what: bars(tell::batches(ahead)),
            when: bars(tell::closing(ahead)),
            next: (ahead.next).map(|next| next.format("%-d %B, %H:%M UTC").to_string()),
            types: stage.types(),
            sizes: stage.sizes(ahead.mails),
            samples: stage.samples(&self.from, &self.from_brands),
        }
    }

    /// What should be seen to before anything leaves.
    async fn warnings(
        &self,
        report: &Report,
        failures: Vec<String>,
        sizes: &Sizes,
        batches: Option<&OfBatches>,
    ) -> Result<Vec<String>> {
        let pause = Pause::standing(&*self.context.store).await?;
        let pending = Counted::Fanouts(FanoutState::Pending);
        let accepted = self.context.store.count(&[pending]).await?.iter().sum();
        let over = sizes.over + batches.map_or(0, |of| of.sizes.over);
        let mut warnings = tell::warnings(report, over, pause.as_ref(), accepted);
        warnings.extend(report.not_known.warnings(&self.context.policies));
        warnings.extend(failures);
        warnings.extend(report.dry_run.warnings());
        if report.due.users > 0 || batches.is_some_and(|of| of.mails > 0) {
            warnings.extend(self.lacking.iter().cloned());
        }
        Ok(warnings)
    }
}
