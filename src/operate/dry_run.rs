//! Counts the emails that a run of digests would send, and renders some of them.
//!
//! It writes nothing, not even the secret that signs links: unsubscribe links in its samples lead
//! nowhere. The scan over digests is the run's own ([`Digests::rehearse`]). Start with
//! [`DryRun::run`].

use std::collections::BTreeSet;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::context::Context;
use crate::domain::{BrandName, Stop};
use crate::email::Place;
use crate::engine::delivery::Compose;
use crate::engine::digest::{Digests, Request};
use crate::engine::{Result, Watcher};
use crate::render::report::{DryRunEmails, EmailSummary, Sample, Sizes};
use crate::render::{CLIP_BYTES, Draft};
use crate::wire::digest::Report;

/// The most emails that are rendered.
pub const MAX_RENDERED: usize = 10_000;

/// A run of digests that only counts and renders.
pub struct DryRun {
    /// Scans the digests.
    pub digests: Digests,
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
        let at = request.at.unwrap_or_else(|| self.context.clock.now());
        let request = Request {
            at: Some(at),
            ..request.clone()
        };
        let mut digests = Emails::new(&self.compose, self.max_rendered, at);
        let mut add = |draft| digests.add(&draft);
        let report = self.digests.rehearse(&request, &mut add, progress).await?;
        Ok((report, digests.summary()))
    }
}

/// Returns whether emails of this brand can be sent.
fn has_brand(compose: &Compose, brand: Option<&BrandName>) -> bool {
    brand.is_none_or(|of| compose.identities.brands.contains_key(of))
}

/// The most samples that a page shows.
const SAMPLES: usize = 5;
/// The most reasons that are reported for emails that cannot be rendered.
const REASONS: usize = 5;

/// The emails of digests.
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
    fn add(&mut self, draft: &Draft) {
        if !has_brand(self.compose, draft.user.brand.as_ref()) {
            return;
        }
        self.mails += 1;
        self.events += draft.content.total;
        if self.sizes.len() + self.failed >= self.max_rendered {
            return;
        }
        match self.render(draft) {
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
    fn render(&self, draft: &Draft) -> std::result::Result<Sample, String> {
        let (user, content, occasion) = (&draft.user, &draft.content, &draft.occasion);
        let brand = user.brand.as_ref();
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

    fn summary(mut self) -> DryRunEmails {
        self.sizes.sort_unstable();
        let sizes = &self.sizes;
        let at = |place: usize| sizes.get(place).copied().unwrap_or(0);
        let fits = sizes.partition_point(|bytes| *bytes <= CLIP_BYTES as u64);
        let digests = EmailSummary {
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
        };
        DryRunEmails {
            digests,
            failures: self.failures.into_iter().collect(),
        }
    }
}
