//! Counts the emails of a dry run, and renders them to measure sizes and to show samples.
//!
//! Of many emails it renders every second, every fourth and so on, in the order of the scan. So
//! memory is bounded, and two dry runs render the same emails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::domain::{BrandName, Content, EventType, Occasion, Stop, User};
use crate::email::Place;
use crate::engine::delivery::Compose;
use crate::engine::digest::{Found, Onlooker};
use crate::render::CLIP_BYTES;
use crate::render::report::{EmailSummary, Sample, Sizes, TypeLine, heading_of};

/// The most samples that a page shows.
const SAMPLES: usize = 5;
/// The most reasons that are reported for emails that cannot be rendered.
const REASONS: usize = 5;
/// Why a sample is shown, and whether a new email replaces the earlier sample.
type Role = (&'static str, fn(&Sample, &Sample) -> bool);
/// The samples that are chosen among all rendered emails.
const ROLES: [Role; 3] = [
    ("the smallest", |new, old| new.bytes < old.bytes),
    ("the largest", |new, old| new.bytes > old.bytes),
    ("with the most types", |new, old| new.types > old.types),
];

/// An email that would be sent.
pub(super) struct Email<'a> {
    pub user: &'a User,
    pub brand: Option<&'a BrandName>,
    pub content: &'a Content,
    pub occasion: &'a Occasion,
}

/// An email that was rendered, or could not be.
struct Size {
    /// Its number in the order of the scan.
    number: u64,
    /// The bytes of its HTML; `None` if it cannot be rendered.
    html: Option<u64>,
    /// Whether a section ends in "+N more".
    capped: bool,
}

/// The emails of digests, or of batches.
pub(super) struct Emails<'a> {
    compose: &'a Compose,
    /// The moment of the dry run.
    at: DateTime<Utc>,
    max_rendered: usize,
    /// The number of emails so far.
    count: u64,
    /// One of this many emails is rendered.
    step: u64,
    sizes: Vec<Size>,
    /// By [`ROLES`].
    chosen: [Option<Arc<Sample>>; ROLES.len()],
    first: Vec<Arc<Sample>>,
    /// Why emails cannot be rendered.
    pub failures: BTreeSet<String>,
    types: BTreeMap<EventType, TypeLine>,
    /// Events of digests that wait for a brand which is not configured.
    pub events_without_brand: u64,
}

impl Onlooker for Emails<'_> {
    fn mail(&mut self, found: &Found<'_>) {
        let brand = found.user.brand.as_ref();
        if brand.is_some_and(|brand| !self.compose.identities.brands.contains_key(brand)) {
            self.events_without_brand += found.content.total;
            return;
        }
        self.add(&Email {
            user: found.user,
            brand,
            content: found.content,
            occasion: &Occasion::Digest {
                cadence: found.cadence,
                period: found.period.to_string(),
            },
        });
    }
}

impl<'a> Emails<'a> {
    pub(super) fn new(compose: &'a Compose, max_rendered: usize, at: DateTime<Utc>) -> Self {
        Self {
            compose,
            at,
            max_rendered,
            count: 0,
            step: 1,
            sizes: Vec::new(),
            chosen: Default::default(),
            first: Vec::new(),
            failures: BTreeSet::new(),
            types: BTreeMap::new(),
            events_without_brand: 0,
        }
    }

    /// Counts an email, and renders it unless there are too many.
    pub(super) fn add(&mut self, email: &Email<'_>) {
        for section in &email.content.sections {
            let line = self.types.entry(section.kind.clone());
            let line = line.or_insert_with(|| TypeLine {
                heading: heading_of(&section.heading, &section.kind),
                kind: section.kind.to_string(),
                events: 0,
                people: 0,
            });
            line.events += section.total;
            line.people += 1;
        }
        let number = self.count;
        self.count += 1;
        if !number.is_multiple_of(self.step) {
            return;
        }
        if self.sizes.len() >= self.max_rendered {
            self.step *= 2;
            let step = self.step;
            self.sizes.retain(|size| size.number.is_multiple_of(step));
        }
        if let Err(reason) = self.render(email, number) {
            let (html, capped) = (None, false);
            self.sizes.push(Size {
                number,
                html,
                capped,
            });
            if self.failures.len() < REASONS {
                let failure = format!("Some emails cannot be rendered: {reason}.");
                self.failures.insert(failure);
            }
        }
    }

    /// Renders an email as it would be sent, and notes its size.
    fn render(&mut self, email: &Email<'_>, number: u64) -> Result<(), String> {
        let branded = email.brand.and_then(|of| self.compose.of_brand(Some(of)));
        let compose = branded.as_ref().unwrap_or(self.compose);
        let Email {
            user,
            content,
            occasion,
            ..
        } = *email;
        let policies = &compose.context.policies;
        let stop = Stop::of_mail(content, occasion, policies);
        let mute = Stop::of_subject(content, occasion, policies);
        let links = compose
            .identity
            .links
            .stand_in(user, stop.as_ref(), mute.as_ref());
        let rendered = compose.rendered(user, content, occasion, self.at)?;
        let to = user.reachable().map_err(|why| why.as_str().to_owned())?;
        let bytes = rendered.content.filled(links.as_ref()).html.len() as u64;
        self.sizes.push(Size {
            number,
            html: Some(bytes),
            capped: (rendered.shown as u64) < content.total,
        });
        let shown = rendered.content.with(Place::nowhere);
        let sample = Arc::new(Sample {
            why: Vec::new(),
            to: to.to_string(),
            subject: shown.subject,
            html: shown.html,
            text: shown.text,
            bytes,
            events: content.total,
            types: content.sections.len() as u64,
        });
        for ((_, replaces), chosen) in ROLES.iter().zip(&mut self.chosen) {
            if chosen.as_ref().is_none_or(|old| replaces(&sample, old)) {
                *chosen = Some(Arc::clone(&sample));
            }
        }
        if self.first.len() < SAMPLES {
            self.first.push(sample);
        }
        Ok(())
    }

    /// Describes these emails; `count` is their number.
    pub(super) fn summary(mut self, count: u64, events: u64) -> EmailSummary {
        let mut types: Vec<_> = std::mem::take(&mut self.types).into_iter().collect();
        let policies = &self.compose.context.policies;
        types.sort_by_key(|(kind, _)| policies.rank(kind).0);
        EmailSummary {
            mails: count,
            events,
            types: types.into_iter().map(|(_, line)| line).collect(),
            sizes: self.sizes(count),
            samples: self.samples(),
        }
    }

    fn sizes(&self, count: u64) -> Sizes {
        let mut html: Vec<u64> = self.sizes.iter().filter_map(|size| size.html).collect();
        html.sort_unstable();
        let tried = self.sizes.len() as u64;
        // An estimate where only a part was rendered.
        let all = |part: usize| (part as u64 * count).div_ceil(tried.max(1));
        let at = |place: usize| html.get(place).copied().unwrap_or(0);
        Sizes {
            measured: html.len() as u64,
            failed: all(self.sizes.len() - html.len()),
            estimated: self.step > 1,
            smallest: at(0),
            median: at(html.len() / 2),
            largest: html.last().copied().unwrap_or(0),
            capped: all(self.sizes.iter().filter(|size| size.capped).count()),
            over: all(html
                .iter()
                .filter(|bytes| **bytes > CLIP_BYTES as u64)
                .count()),
            clip: CLIP_BYTES,
        }
    }

    /// Returns the emails to show, each once, with the reasons for each.
    fn samples(&self) -> Vec<Sample> {
        let chosen = ROLES.iter().zip(&self.chosen);
        let chosen = chosen.filter_map(|((why, _), one)| Some((one.as_ref()?, Some(*why))));
        let others = self.first.iter().map(|one| (one, None));
        let mut samples: Vec<(&Arc<Sample>, Vec<&'static str>)> = Vec::new();
        for (sample, why) in chosen.chain(others) {
            match samples.iter_mut().find(|(one, _)| Arc::ptr_eq(one, sample)) {
                Some((_, whys)) => whys.extend(why),
                None => samples.push((sample, why.into_iter().collect())),
            }
        }
        let with_why = |(sample, why): (&Arc<Sample>, Vec<&'static str>)| Sample {
            why,
            ..Sample::clone(sample)
        };
        samples.into_iter().take(SAMPLES).map(with_why).collect()
    }
}
