//! Renders and measures the emails of a dry run.
//!
//! The rule: of a mail its numbers are kept, so that memory does not grow with the number of
//! people, and of a few all that is shown. Of very many mails a part is rendered
//! ([`super::measure`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::compare::OfPeriod;
use super::measure::{Candidate, Levels, Picks, Shown, bars, draw, percent, scaled};
use crate::domain::{BrandName, Content, DeliveryId, EventType, Occasion, Stop, User};
use crate::email::{Mailer, Message, Place};
use crate::engine::delivery::{Compose, Contents};
use crate::engine::digest::{Found, Onlooker};
use crate::render::CLIP_BYTES;
use crate::render::report::{Sample, Sizes, TypeBar, heading_of, preheader};

#[derive(Debug, Default)]
struct OfType {
    heading: String,
    rank: usize,
    events: u64,
    people: u64,
}

/// So many reasons are told why mails cannot be rendered.
pub(super) const KINDS: usize = 5;

/// A mail that would leave.
pub(super) struct Mail<'a> {
    /// The row of the ledger that it would be of.
    pub id: &'a DeliveryId,
    /// Whether it is measured and shown rests on this number.
    pub drawn: u64,
    pub user: &'a User,
    /// Of which brand it is.
    pub brand: Option<&'a BrandName>,
    pub content: &'a Content,
    pub occasion: &'a Occasion,
}

/// Mails of one kind that are tried on, and what is known of them.
pub(super) struct Stage<'a> {
    compose: &'a Compose,
    calling: Calling<'a>,
    at: DateTime<Utc>,
    levels: Levels,
    picks: Picks,
    types: BTreeMap<EventType, OfType>,
    /// What is due, by period.
    pub periods: BTreeMap<String, OfPeriod>,
    /// Why mails cannot be rendered: the first few reasons.
    pub failures: Vec<String>,
    /// Events of digests that wait, as their brand is not configured.
    pub events_absent: u64,
    /// How they come together in calls, where that is asked.
    calls: Option<Calls>,
}

impl Onlooker for Stage<'_> {
    fn mail(&mut self, found: &Found<'_>) {
        let brand = found.user.brand.as_ref();
        if !self.has(brand) {
            // It would wait, and the report says so.
            self.events_absent += found.content.total;
            return;
        }
        let name = format!("{} {}", found.cadence, found.period);
        let period = self.periods.entry(name).or_insert(OfPeriod {
            cadence: found.cadence,
            period: found.period,
            mails: 0,
            events: 0,
        });
        period.mails += 1;
        period.events += found.content.total;
        self.take(&Mail {
            id: found.id,
            drawn: draw(found.id),
            user: found.user,
            brand,
            content: found.content,
            occasion: &Occasion::Digest {
                cadence: found.cadence,
                period: found.period.to_string(),
            },
        });
    }

    fn together(&mut self) {
        let sampled = self.levels.sampled();
        if let Some(calls) = &mut self.calls {
            calls.together(self.calling, sampled);
        }
    }
}

impl<'a> Stage<'a> {
    pub(super) fn new(
        compose: &'a Compose,
        calling: Calling<'a>,
        most: u64,
        at: DateTime<Utc>,
    ) -> Self {
        Self {
            compose,
            calling,
            at,
            levels: Levels::new(most),
            picks: Picks::default(),
            types: BTreeMap::new(),
            periods: BTreeMap::new(),
            failures: Vec::new(),
            events_absent: 0,
            calls: None,
        }
    }

    /// The same, and it counts the calls that its mails take.
    pub(super) fn with_calls(self) -> Self {
        let calls = Some(Calls::default());
        Self { calls, ..self }
    }

    /// Counts a mail, and looks at it unless there are too many.
    pub(super) fn take(&mut self, mail: &Mail<'_>) {
        if let Some(calls) = &mut self.calls {
            calls.mails += 1;
        }
        self.count(mail.content);
        if self.levels.takes(mail.drawn) {
            self.try_on(mail);
        }
    }

    /// Whether there is this brand.
    fn has(&self, brand: Option<&BrandName>) -> bool {
        brand.is_none_or(|brand| self.compose.identities.brands.contains_key(brand))
    }

    fn count(&mut self, content: &Content) {
        for section in &content.sections {
            if !self.types.contains_key(&section.kind) {
                let of_type = OfType {
                    heading: heading_of(&section.heading, &section.kind),
                    rank: self.compose.context.policies.rank(&section.kind).0,
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
    fn try_on(&mut self, mail: &Mail<'_>) {
        let Mail {
            drawn,
            brand,
            occasion,
            ..
        } = *mail;
        let branded = brand.and_then(|brand| self.compose.of_brand(Some(brand)));
        let compose = branded.as_ref().unwrap_or(self.compose);
        let stop = Stop::of_mail(mail.content, occasion, &compose.context.policies);
        let mute = Stop::of_subject(mail.content, occasion, &compose.context.policies);
        let (links, stop, mute) = (&compose.links, stop.as_ref(), mute.as_ref());
        let stand_in = links.stand_in(mail.user, stop, mute);
        let rendered = compose.rendered(mail.user, mail.content, occasion, self.at);
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
        if let Some(calls) = &mut self.calls {
            let message = Message {
                delivery: mail.id.clone(),
                to: to.clone(),
                to_name: mail.user.name.clone(),
                content: calls.contents.share(content),
                personal: stand_in,
                further: Vec::new(),
                at: self.at,
            };
            calls.add(self.calling, message);
        }
    }

    fn failed(&mut self, reason: &str) {
        let told = format!("Some mails cannot be rendered: {reason}.");
        if self.failures.len() < KINDS && !self.failures.contains(&told) {
            self.failures.push(told);
        }
    }

    /// How large so many mails are.
    pub(super) fn sizes(&self, mails: u64) -> Sizes {
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

    pub(super) fn types(&self) -> Vec<TypeBar> {
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

    /// How many calls so many mails take; none where that was not asked.
    pub(super) fn calls(&mut self, mails: u64) -> u64 {
        self.calls.as_mut().map_or(0, |calls| {
            calls.cut(self.calling);
            scaled(calls.calls, calls.called, mails)
        })
    }

    pub(super) fn samples(&self) -> Vec<Sample> {
        let from = |brand: &Option<BrandName>| {
            let config = &self.compose.context.config;
            let own = brand.as_ref().and_then(|brand| config.brands.get(brand));
            let mail = own.map_or(&config.mail, |brand| &brand.mail);
            format!("{} <{}>", mail.from_name, mail.from)
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
pub(super) struct Calling<'a> {
    pub mailer: &'a dyn Mailer,
    pub chunk: usize,
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
