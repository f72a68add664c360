//! Counts the emails that a run of digests and open batches would send, and renders some of them.
//!
//! It writes nothing, not even the secret that signs links: unsubscribe links in its samples lead
//! nowhere. The scan over digests is the run's own ([`Digests::rehearse`]). Batches count as if
//! each closed now; closed batches are read before open ones, so that none is counted twice.
//! Start with [`DryRun::run`].

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::context::Context;
use crate::domain::{
    Batch, BatchState, BrandName, Content, DeliveryId, Occasion, Stop, User, UserId,
};
use crate::email::Place;
use crate::engine::batches::{BatchFilter, BatchService, quiet_until};
use crate::engine::delivery::{Compose, Prospect};
use crate::engine::digest::{Digests, Effect, Found, Onlooker, Request, count_email};
use crate::engine::{Result, Watcher};
use crate::render::CLIP_BYTES;
use crate::render::report::{DryRunEmails, EmailSummary, Sample, Sizes};
use crate::wire::digest::{BatchesAhead, Report};

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
    /// Counts the emails that the run would send, and renders them.
    pub async fn run(
        &self,
        request: &Request,
        progress: &dyn Watcher,
    ) -> Result<(Report, DryRunEmails)> {
        let request = self.dated(request);
        let at = request.at.unwrap_or_else(|| self.context.clock.now());
        let emails = || Emails::new(&self.compose, self.max_rendered, at);
        let (mut digests, mut of_batches) = (emails(), emails());
        let scan = self.digests.rehearse(&request, &mut digests, progress);
        let mut report = scan.await?;
        let counted = self.count_batches(&request, &mut report, &mut of_batches, progress);
        counted.await?;
        let failures = digests.failures.union(&of_batches.failures).cloned();
        let emails = DryRunEmails {
            failures: failures.collect(),
            digests: digests.summary(),
            batches: report
                .dry_run
                .batches
                .as_ref()
                .map(|_| of_batches.summary()),
        };
        Ok((report, emails))
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
        batches.retain(|batch| !batch.contents.is_empty());
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
        let deferred = quiet_until(&self.context, batches.iter().cloned(), now).await?;
        let leaves = |batch: &Batch| {
            let deferred = deferred.get(&batch.id).copied();
            let closes = deferred.unwrap_or(batch.closes_at);
            match batch.state {
                BatchState::Open if closes > at => Leaves::At(closes, deferred.is_some()),
                BatchState::Open => Leaves::Due,
                _ => Leaves::Closing,
            }
        };
        let prospects = self
            .compose
            .prospects(&batches, &users, &mut report.not_known)
            .await?;
        for (batch, prospect) in batches.iter().zip(prospects) {
            let user = users.get(&batch.user);
            let brand = Compose::brand_of(user, Some(&batch.key));
            let brand = brand.as_ref();
            let has_brand = has_brand(&self.compose, brand);
            count(report, leaves(batch), &prospect, has_brand);
            let (Prospect::Email(content), Some(user)) = (&prospect, user) else {
                continue;
            };
            count_email(&mut report.dry_run, &self.compose, user, brand);
            if has_brand {
                let occasion = Occasion::Batch {
                    batch: batch.id,
                    queue_position: batch.opened_at,
                };
                emails.add(user, brand, content, &occasion);
            }
        }
        Ok(())
    }
}

/// Returns whether emails of this brand can be sent.
fn has_brand(compose: &Compose, brand: Option<&BrandName>) -> bool {
    brand.is_none_or(|of| compose.identities.brands.contains_key(of))
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

/// The most samples that a page shows.
const SAMPLES: usize = 5;
/// The most reasons that are reported for emails that cannot be rendered.
const REASONS: usize = 5;

/// The emails of digests, or of batches.
struct Emails<'a> {
    compose: &'a Compose,
    /// The moment of the dry run.
    at: DateTime<Utc>,
    /// The most emails that are rendered.
    max_rendered: usize,
    mails: u64,
    events: u64,
    /// The bytes of the HTML of each rendered email.
    sizes: Vec<u64>,
    /// The emails that cannot be rendered.
    failed: usize,
    /// Why emails cannot be rendered.
    failures: BTreeSet<String>,
    samples: Vec<Sample>,
}

impl Onlooker for Emails<'_> {
    fn mail(&mut self, found: &Found<'_>) {
        let brand = found.user.brand.as_ref();
        if !has_brand(self.compose, brand) {
            return;
        }
        let occasion = Occasion::Digest {
            cadence: found.cadence,
            period: found.period.to_string(),
        };
        self.add(found.user, brand, found.content, &occasion);
    }
}

impl<'a> Emails<'a> {
    fn new(compose: &'a Compose, max_rendered: usize, at: DateTime<Utc>) -> Self {
        Self {
            compose,
            at,
            max_rendered,
            mails: 0,
            events: 0,
            sizes: Vec::new(),
            failed: 0,
            failures: BTreeSet::new(),
            samples: Vec::new(),
        }
    }

    /// Counts an email, and renders it unless there are too many.
    fn add(
        &mut self,
        user: &User,
        brand: Option<&BrandName>,
        content: &Content,
        occasion: &Occasion,
    ) {
        self.mails += 1;
        self.events += content.total;
        if self.sizes.len() + self.failed >= self.max_rendered {
            return;
        }
        match self.render(user, brand, content, occasion) {
            Ok(sample) => {
                let largest = self.sizes.iter().max().copied().unwrap_or(0);
                self.sizes.push(sample.bytes);
                if self.samples.len() < SAMPLES {
                    self.samples.push(sample);
                } else if sample.bytes > largest {
                    self.samples[SAMPLES - 1] = sample;
                }
            }
            Err(reason) => {
                self.failed += 1;
                if self.failures.len() < REASONS {
                    let failure = format!("some emails cannot be rendered: {reason}");
                    self.failures.insert(failure);
                }
            }
        }
    }

    /// Renders an email as it would be sent.
    fn render(
        &self,
        user: &User,
        brand: Option<&BrandName>,
        content: &Content,
        occasion: &Occasion,
    ) -> std::result::Result<Sample, String> {
        let branded = brand.and_then(|of| self.compose.of_brand(Some(of)));
        let compose = branded.as_ref().unwrap_or(self.compose);
        let policies = &compose.context.policies;
        let stop = Stop::of_mail(content, occasion, policies);
        let mute = Stop::of_subject(content, occasion, policies);
        let links = &compose.identity.links;
        let links = links.stand_in(user, stop.as_ref(), mute.as_ref());
        let rendered = compose.rendered(user, content, occasion, self.at)?;
        let to = user.reachable().map_err(|why| why.as_str().to_owned())?;
        let bytes = rendered.content.filled(links.as_ref()).html.len() as u64;
        let shown = rendered.content.with(Place::nowhere);
        Ok(Sample {
            to: to.to_string(),
            subject: shown.subject,
            html: shown.html,
            text: shown.text,
            bytes,
            events: content.total,
        })
    }

    fn summary(mut self) -> EmailSummary {
        self.sizes.sort_unstable();
        let sizes = &self.sizes;
        let at = |place: usize| sizes.get(place).copied().unwrap_or(0);
        let fits = sizes.partition_point(|bytes| *bytes <= CLIP_BYTES as u64);
        EmailSummary {
            mails: self.mails,
            events: self.events,
            sizes: Sizes {
                measured: sizes.len() as u64,
                failed: self.failed as u64,
                smallest: at(0),
                median: at(sizes.len() / 2),
                largest: sizes.last().copied().unwrap_or(0),
                over: (sizes.len() - fits) as u64,
                clip: CLIP_BYTES,
            },
            samples: self.samples,
        }
    }
}
