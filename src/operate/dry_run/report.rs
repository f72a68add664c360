//! The page of a dry run: the users by outcome, the warnings, and the sizes and samples of the
//! emails.
//!
//! Every user with an event in the window is in exactly one line. Of many emails, only the first
//! are rendered, in the order of the scan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::domain::user::Unmailable;
use crate::domain::{BrandName, Content, EventType, Occasion, Pause, Stop, User};
use crate::email::Place;
use crate::engine::delivery::Compose;
use crate::engine::digest::{Found, Onlooker, Request, Timing};
use crate::render::CLIP_BYTES;
use crate::render::report::{EmailSummary, Line, Sample, Sizes, TypeLine, heading_of};
use crate::wire::digest::{BatchesAhead, Report};

const MAILED: &str = "Would get an email";
const NO_BRAND: &str = "Wait for a brand that is not configured";
const UNSUBSCRIBED: &str = "Unsubscribed";

/// Counts the users by outcome: first those who get an email, then the others, without zeros.
pub(super) fn people(report: &Report, request: &Request) -> Vec<Line> {
    let users = &report.users;
    let next = users
        .next_due
        .map(|next| next.format(" (next due %-d %B, %H:%M UTC)").to_string());
    let waiting = format!("Wait for their hour{}", next.unwrap_or_default());
    let (barred, unsubscribed) = barred(&users.unmailable);
    let mailed = report.emails_ahead();
    let mut lines = vec![
        line("Got the email of this period", users.mailed_already),
        line("Their email of this period failed", users.failed_already),
        line("Have an email that is not settled yet", report.due.busy),
        line(NO_BRAND, report.dry_run.no_brand),
        line(&waiting, users.waiting),
        line("No event applies any more", users.withdrawn),
    ];
    lines.extend(barred);
    lines.push(line(UNSUBSCRIBED, users.unsubscribed + unsubscribed));
    lines.push(line("Want no digest", users.turned_off));
    lines.push(line("Outside the sample", users.outside_sample));
    if !report.limited {
        let counted: u64 = mailed + lines.iter().map(|line| line.count).sum::<u64>();
        let rest = match request.cadence {
            Some(_) => "Nothing new that they want, or another cadence",
            None => "Nothing new that they want",
        };
        lines.push(line(rest, users.scanned.saturating_sub(counted)));
    }
    without_zeros(mailed, lines)
}

/// Counts the emails of batches: first those that would be sent and when their batches close, then
/// the others, without zeros.
pub(super) fn batches(ahead: &BatchesAhead) -> Vec<Line> {
    let (barred, unsubscribed) = barred(&ahead.unmailable);
    let mut lines = vec![
        line("of these, from batches that have closed", ahead.closing),
        line("of these, from batches that are due", ahead.due),
        line(
            "of these, from batches that close later",
            ahead.later - ahead.held,
        ),
        line("of these, deferred by quiet hours", ahead.held),
        line(NO_BRAND, ahead.no_brand),
        line("No event applies and is wanted", ahead.withdrawn),
    ];
    lines.extend(barred);
    lines.push(line(UNSUBSCRIBED, unsubscribed));
    without_zeros(ahead.mails, lines)
}

fn line(label: &str, count: u64) -> Line {
    Line {
        label: label.to_owned(),
        count,
    }
}

fn without_zeros(mailed: u64, mut lines: Vec<Line>) -> Vec<Line> {
    lines.retain(|line| line.count > 0);
    lines.insert(0, line(MAILED, mailed));
    lines
}

/// Counts the users who may not be emailed, by reason; and separately those who unsubscribed.
fn barred(unmailable: &BTreeMap<&'static str, u64>) -> (Vec<Line>, u64) {
    let (mut lines, mut unsubscribed) = (Vec::new(), 0);
    for (why, count) in unmailable {
        if *why == Unmailable::Unsubscribed.as_str() {
            unsubscribed += count;
        } else if *why == Unmailable::Unknown.as_str() {
            lines.push(line("Without a record", *count));
        } else {
            let (first, rest) = why.split_at(1);
            lines.push(line(&format!("{}{rest}", first.to_uppercase()), *count));
        }
    }
    (lines, unsubscribed)
}

/// Describes how the request narrows the run.
pub(super) fn scope(request: &Request) -> Vec<String> {
    let users = request.users.as_ref();
    let parts = [
        request
            .cadence
            .map(|cadence| format!("only {cadence} digests")),
        users.map(|users| format!("only {}", count(users.len() as u64, "user"))),
        request.sample.map(|share| format!("a sample of {share}")),
        request
            .limit
            .map(|limit| format!("at most {}", count(limit, "email"))),
        (request.timing == Timing::Now).then(|| "without waiting for users\u{2019} hours".into()),
    ];
    parts.into_iter().flatten().collect()
}

/// Lists the problems to fix before sending.
pub(super) fn warnings(
    report: &Report,
    over: u64,
    pause: Option<&Pause>,
    pending: u64,
) -> Vec<String> {
    let parts = [
        pause.map(|pause| {
            format!(
                "Sending is paused: {}. Nothing leaves until tidings digest --resume.",
                pause.reason
            )
        }),
        (pending > 0).then(|| {
            format!(
                "Accepted and not fanned out yet: {}, not counted here. A run fans them out first; \
                 so does tidings worker --once.",
                count(pending, "event")
            )
        }),
        (!report.backlog.older.is_nothing()).then(|| {
            format!(
                "Earlier digests were late or failed: {} of {} are from days that have left the \
                 window. The next digests include them.",
                count(report.backlog.older.events, "event"),
                count(report.backlog.older.people, "user")
            )
        }),
        report.limited.then(|| {
            format!(
                "The limit ended the dry run after {}; all counts are of these.",
                count(report.users.scanned, "user")
            )
        }),
        (over > 0).then(|| {
            format!(
                "Longer than {CLIP_BYTES} bytes: {}. Mail programs hide their end, and with it the \
                 link to unsubscribe.",
                count(over, "email")
            )
        }),
    ];
    parts.into_iter().flatten().collect()
}

fn count(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

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

/// The emails of digests, or of batches.
pub(super) struct Emails<'a> {
    compose: &'a Compose,
    /// The moment of the dry run.
    at: DateTime<Utc>,
    /// The most emails that are rendered.
    max_rendered: usize,
    /// The number of emails so far.
    count: u64,
    /// The bytes of the HTML of each rendered email.
    sizes: Vec<u64>,
    /// The rendered emails of which a section ends in "+N more".
    capped: usize,
    /// The emails that cannot be rendered.
    failed: usize,
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
        let occasion = Occasion::Digest {
            cadence: found.cadence,
            period: found.period.to_string(),
        };
        self.add(found.user, brand, found.content, &occasion);
    }
}

impl<'a> Emails<'a> {
    pub(super) fn new(compose: &'a Compose, max_rendered: usize, at: DateTime<Utc>) -> Self {
        Self {
            compose,
            at,
            max_rendered,
            count: 0,
            sizes: Vec::new(),
            capped: 0,
            failed: 0,
            chosen: Default::default(),
            first: Vec::new(),
            failures: BTreeSet::new(),
            types: BTreeMap::new(),
            events_without_brand: 0,
        }
    }

    /// Counts an email, and renders it unless there are too many.
    pub(super) fn add(
        &mut self,
        user: &User,
        brand: Option<&BrandName>,
        content: &Content,
        occasion: &Occasion,
    ) {
        for section in &content.sections {
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
        self.count += 1;
        if self.sizes.len() + self.failed >= self.max_rendered {
            return;
        }
        if let Err(reason) = self.render(user, brand, content, occasion) {
            self.failed += 1;
            if self.failures.len() < REASONS {
                let failure = format!("Some emails cannot be rendered: {reason}.");
                self.failures.insert(failure);
            }
        }
    }

    /// Renders an email as it would be sent, and notes its size.
    fn render(
        &mut self,
        user: &User,
        brand: Option<&BrandName>,
        content: &Content,
        occasion: &Occasion,
    ) -> Result<(), String> {
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
        self.sizes.push(bytes);
        self.capped += usize::from((rendered.shown as u64) < content.total);
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

    fn sizes(&mut self, count: u64) -> Sizes {
        self.sizes.sort_unstable();
        let html = &self.sizes;
        let tried = html.len() + self.failed;
        // An estimate where only a part was rendered.
        let all = |part: usize| (part as u64 * count).div_ceil(tried.max(1) as u64);
        let at = |place: usize| html.get(place).copied().unwrap_or(0);
        let fits = html.partition_point(|bytes| *bytes <= CLIP_BYTES as u64);
        Sizes {
            measured: html.len() as u64,
            failed: all(self.failed),
            estimated: self.count > tried as u64,
            smallest: at(0),
            median: at(html.len() / 2),
            largest: html.last().copied().unwrap_or(0),
            capped: all(self.capped),
            over: all(html.len() - fits),
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
