//! Rehearses a run of digests and tells all there is to know of it before anything leaves: who,
//! what, how large, how long.
//!
//! The rule: nothing is written, not even the secret that links are made with: in the mails that
//! are shown, links to unsubscribe lead nowhere. The walk is the run's own ([`Digests::rehearse`]);
//! here each mail is rendered as [`super::mailing`] would, measured and let go, so that memory does
//! not grow with the number of people. Of very many mails a part is rendered ([`measure`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use super::digest::{Digests, Found, Onlooker, Request};
use super::mailing::{Compose, Contents};
use super::{Result, Watcher};
use crate::domain::{BrandName, Cadence, EventType, FanoutState, Occasion, Pause, Period, Stop};
use crate::mail::{Mailer, Message, Place};
use crate::render::CLIP_BYTES;
use crate::render::report::{Bar, Rehearsed, Sample, Sizes, TypeBar, heading_of, preheader};
use crate::store::{Counted, Diagnostics, Feedbacks, Notes};
use crate::wire::digest::Report;

mod compare;
mod measure;
mod pace;
mod tell;

use measure::{Candidate, Levels, Picks, Shown, draw};
pub use pace::Limits;

/// Up to so many mails are all rendered; of more, between half as many and so many.
pub const MOST_RENDERED: u64 = 10_000;
/// How far back a period and the one before it can have been mailed: two weeks, whatever the zone,
/// and a week for late ones.
const LOOK_BACK: TimeDelta = TimeDelta::days(22);

/// Rehearses runs of digests; nothing is written, and nothing leaves.
pub struct Rehearsal {
    /// Whose walk it is.
    pub digests: Digests,
    /// Renders the mails that are looked at.
    pub compose: Compose,
    pub(crate) mailer: Arc<dyn Mailer>,
    pub(crate) notes: Arc<dyn Notes>,
    pub(crate) feedbacks: Arc<dyn Feedbacks>,
    pub(crate) diagnostics: Arc<dyn Diagnostics>,
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
        let at = request.at.unwrap_or_else(|| self.digests.clock.now());
        let request = Request {
            at: Some(at),
            ..request.clone()
        };
        let mut stage = Stage::new(self, at);
        let report = self
            .digests
            .rehearse(&request, &mut stage, progress)
            .await?;
        let counted = self.feedbacks.settled_since(at - LOOK_BACK).await?;
        let mails = report.due - report.busy;
        let sizes = stage.sizes(mails);
        let rehearsed = Rehearsed {
            at: at.format("%-d %B %Y, %H:%M UTC").to_string(),
            scope: tell::scope(&request),
            warnings: self.warnings(&report, &stage, &sizes).await?,
            mails,
            events: report.events,
            people: bars(tell::people(&report, &request)),
            types: stage.types(),
            pace: self.limits.pace(mails, stage.calls(mails)),
            comparisons: compare::comparisons(stage.periods.values(), &counted),
            samples: stage.samples(self),
            sizes,
        };
        Ok((report, rehearsed))
    }

    /// What should be seen to before anything leaves.
    async fn warnings(
        &self,
        report: &Report,
        stage: &Stage<'_>,
        sizes: &Sizes,
    ) -> Result<Vec<String>> {
        let pause = Pause::standing(&*self.notes).await?;
        let pending = Counted::Fanouts(FanoutState::Pending);
        let accepted = self.diagnostics.count(&[pending]).await?.iter().sum();
        let mut warnings = tell::warnings(report, sizes, pause.as_ref(), accepted);
        warnings.extend(report.not_known.warnings(&self.digests.policies));
        warnings.extend(stage.failures.iter().cloned());
        warnings.extend(report.other_locales());
        warnings.extend(report.of_brands());
        if report.due > 0 {
            warnings.extend(self.lacking.iter().cloned());
        }
        Ok(warnings)
    }
}

/// What is due of one period.
#[derive(Debug)]
struct OfPeriod {
    cadence: Cadence,
    period: Period,
    mails: u64,
    events: u64,
}

#[derive(Debug, Default)]
struct OfType {
    heading: String,
    rank: usize,
    events: u64,
    people: u64,
}

/// Where mails are tried on: each is looked at and let go.
struct Stage<'a> {
    compose: &'a Compose,
    calling: Calling<'a>,
    at: DateTime<Utc>,
    levels: Levels,
    picks: Picks,
    types: BTreeMap<EventType, OfType>,
    periods: BTreeMap<String, OfPeriod>,
    /// Why mails cannot be rendered: the first few reasons.
    failures: Vec<String>,
    calls: Calls,
}

impl Onlooker for Stage<'_> {
    fn mail(&mut self, mail: &Found<'_>) {
        self.calls.mails += 1;
        self.count(mail);
        let drawn = draw(mail.id);
        if self.levels.takes(drawn) {
            self.try_on(mail, drawn);
        }
    }

    fn together(&mut self) {
        let sampled = self.levels.sampled();
        self.calls.together(self.calling, sampled);
    }
}

impl<'a> Stage<'a> {
    fn new(rehearsal: &'a Rehearsal, at: DateTime<Utc>) -> Self {
        Self {
            compose: &rehearsal.compose,
            calling: Calling {
                mailer: &*rehearsal.mailer,
                chunk: rehearsal.digests.sender.gate.chunk(),
            },
            at,
            levels: Levels::new(rehearsal.most_rendered),
            picks: Picks::default(),
            types: BTreeMap::new(),
            periods: BTreeMap::new(),
            failures: Vec::new(),
            calls: Calls::default(),
        }
    }

    fn count(&mut self, mail: &Found<'_>) {
        let events = mail.content.total;
        let name = format!("{} {}", mail.cadence, mail.period);
        let period = self.periods.entry(name).or_insert(OfPeriod {
            cadence: mail.cadence,
            period: mail.period,
            mails: 0,
            events: 0,
        });
        period.mails += 1;
        period.events += events;
        for section in &mail.content.sections {
            if !self.types.contains_key(&section.kind) {
                let of_type = OfType {
                    heading: heading_of(&section.heading, &section.kind),
                    rank: self.compose.policies.rank(&section.kind).0,
                    ..OfType::default()
                };
                self.types.insert(section.kind.clone(), of_type);
            }
            if let Some(of_type) = self.types.get_mut(&section.kind) {
                of_type.events += section.total;
                of_type.people += 1;
            }
        }
    }

    /// Renders a mail as it would be sent, and notes what became of it.
    fn try_on(&mut self, mail: &Found<'_>, drawn: u64) {
        let occasion = Occasion::Digest {
            cadence: mail.cadence,
            period: mail.period.to_string(),
        };
        let brand = mail.user.brand.as_ref();
        let branded = brand.map(|brand| self.compose.of_brand(Some(brand)));
        let compose = match &branded {
            None => self.compose,
            Some(Some(own)) => own,
            // It would wait, and the report says so.
            Some(None) => return,
        };
        let stop = Stop::of_mail(mail.content, &occasion, &compose.policies);
        let links = &compose.links;
        let stand_in = links.stand_in(&mail.user.id, stop.as_ref());
        let rendered = compose.rendered(mail.user, mail.content, &occasion, self.at);
        let (rendered, to) = match (rendered, mail.user.reachable()) {
            (Ok(rendered), Ok(to)) => (rendered, to),
            (Ok(_), Err(_)) => return,
            (Err(error), _) => {
                self.levels.of(drawn).failed += 1;
                return self.failed(&error);
            }
        };
        let shown = match rendered.shown as u64 {
            shown if shown < mail.content.shown() => Shown::Cut,
            shown if shown < mail.content.total => Shown::Capped,
            _ => Shown::All,
        };
        let content = rendered.content;
        let whole = content.filled(stand_in.as_ref());
        let bytes = whole.html.len();
        self.levels.of(drawn).add(bytes, whole.text.len(), shown);
        let types = mail.content.sections.len();
        self.picks.offer(drawn, bytes, types, || {
            let shown = content.with(Place::nowhere);
            Candidate {
                drawn,
                brand: brand.cloned(),
                to: to.to_string(),
                subject: shown.subject,
                html: shown.html,
                text: shown.text,
                bytes,
                events: mail.content.total,
                types,
            }
        });
        let message = Message {
            delivery: mail.id.clone(),
            to: to.clone(),
            to_name: mail.user.name.clone(),
            content: self.calls.contents.share(content),
            personal: stand_in,
            further: Vec::new(),
            at: self.at,
        };
        self.calls.add(self.calling, message);
    }

    fn failed(&mut self, reason: &str) {
        const KINDS: usize = 5;
        let told = format!("Some mails cannot be rendered: {reason}.");
        if self.failures.len() < KINDS && !self.failures.contains(&told) {
            self.failures.push(told);
        }
    }

    fn sizes(&self, mails: u64) -> Sizes {
        let sum = self.levels.sum();
        let looked_at = sum.mails + sum.failed;
        let whole = |part: u64| scaled(part, looked_at, mails);
        let bars = sum.bars().into_iter();
        let bars = bars.map(|(label, count)| (label, whole(count))).collect();
        Sizes {
            measured: looked_at,
            estimated: self.levels.sampled(),
            smallest: if sum.mails > 0 { sum.smallest } else { 0 },
            median: 1_000 * sum.median() as u64,
            mean: sum.html.checked_div(sum.mails).unwrap_or(0),
            largest: sum.largest,
            total: whole(sum.html + sum.text),
            bars: self::bars(bars),
            capped: whole(sum.capped),
            cut: whole(sum.cut),
            over: whole(sum.over),
            clip: CLIP_BYTES,
            failed: whole(sum.failed),
        }
    }

    fn types(&self) -> Vec<TypeBar> {
        let mut types: Vec<_> = self.types.iter().collect();
        types.sort_by_key(|(kind, of_type)| (of_type.rank, *kind));
        let most = types.iter().map(|(_, one)| one.events).max().unwrap_or(0);
        let bar = |(kind, one): (&EventType, &OfType)| TypeBar {
            heading: one.heading.clone(),
            kind: kind.to_string(),
            events: one.events,
            people: one.people,
            percent: percent(one.events, most),
        };
        types.into_iter().map(bar).collect()
    }

    /// How many calls so many mails take.
    fn calls(&mut self, mails: u64) -> u64 {
        self.calls.cut(self.calling);
        scaled(self.calls.calls, self.calls.called, mails)
    }

    fn samples(&self, rehearsal: &Rehearsal) -> Vec<Sample> {
        let from = |brand: &Option<BrandName>| {
            let own = brand
                .as_ref()
                .and_then(|brand| rehearsal.from_brands.get(brand));
            own.unwrap_or(&rehearsal.from).clone()
        };
        let chosen = self.picks.chosen(self.levels.sum().median());
        let sample = |(one, whys): (Arc<Candidate>, Vec<&str>)| Sample {
            why: whys.join(", "),
            from: from(&one.brand),
            to: one.to.clone(),
            subject: one.subject.clone(),
            preheader: preheader(&one.html),
            html: one.html.clone(),
            text: one.text.clone(),
            bytes: one.bytes as u64,
            events: one.events,
            types: one.types as u64,
        };
        chosen.into_iter().map(sample).collect()
    }
}

/// Who would make the calls, and how many mails are handed over together.
#[derive(Clone, Copy)]
struct Calling<'a> {
    mailer: &'a dyn Mailer,
    chunk: usize,
}

/// How mails come together in calls, asked of whoever would make them.
#[derive(Default)]
struct Calls {
    /// All mails, measured or not, and how often some of them came together.
    mails: u64,
    groups: u64,
    /// Calls, and the mails that are in them.
    calls: u64,
    called: u64,
    waiting: Vec<Message>,
    contents: Contents,
}

impl Calls {
    fn add(&mut self, calling: Calling<'_>, message: Message) {
        self.waiting.push(message);
        if self.waiting.len() >= calling.chunk || self.contents.is_full() {
            self.cut(calling);
        }
    }

    /// Some mails came together. Where they are but a sample, as many are waited for as usually
    /// come together.
    fn together(&mut self, calling: Calling<'_>, sampled: bool) {
        self.groups += 1;
        let usual = self.mails.div_ceil(self.groups);
        if !sampled || self.waiting.len() as u64 >= usual {
            self.cut(calling);
        }
    }

    fn cut(&mut self, calling: Calling<'_>) {
        self.called += self.waiting.len() as u64;
        self.calls += calling.mailer.calls(&self.waiting).len() as u64;
        self.waiting.clear();
        self.contents = Contents::default();
    }
}

/// What of `whole` has what `part` of `looked_at` have.
fn scaled(part: u64, looked_at: u64, whole: u64) -> u64 {
    if looked_at == 0 || looked_at == whole {
        return part;
    }
    let product = u128::from(part) * u128::from(whole);
    u64::try_from(product.div_ceil(u128::from(looked_at))).unwrap_or(u64::MAX)
}

fn percent(part: u64, of: u64) -> f64 {
    if of == 0 {
        return 0.0;
    }
    (part as f64 * 1_000.0 / of as f64).round() / 10.0
}

fn bars(counts: Vec<(String, u64)>) -> Vec<Bar> {
    let most = counts.iter().map(|(_, count)| *count).max().unwrap_or(0);
    let bar = |(label, count)| Bar {
        label,
        count,
        percent: percent(count, most),
    };
    counts.into_iter().map(bar).collect()
}
