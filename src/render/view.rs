//! What templates see of a mail: words ready to be shown, nothing that must still be cut, cleaned
//! or counted.
//!
//! The rule: everything a template can print is harmless as text (one line, no direction marks) and
//! of bounded length; only HTML escaping is left to do, and the template engine does it. Field
//! names are the contract with templates that applications write: they may be added to, not
//! changed.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use minijinja::Value;
use serde::Serialize;

use super::color::{self, Color};
use super::ends::EndsView;
use super::following::FollowedView;
use super::naming::{NAME, Named, SAID, SHORT, TITLE, by_all, label, named, names, short, words};
use super::sentence::{AboutView, NAMES, SentenceView};
use super::text::link;
use super::voice::Voice;
use super::wording::{further, heading, mandatory, named_by, news, says, things};
use super::{Links, Mail, Site, data};
use crate::domain::content::{About, Group, Item, Section};
use crate::domain::{Cadence, Invalid, Occasion, Stop};

/// How many lines a postal address may have.
const ADDRESS_LINES: usize = 8;
/// What an object was made at may be so much later than its event, and it takes no place then.
const AT_ONCE: TimeDelta = TimeDelta::minutes(1);

/// `site` in every template.
#[derive(Serialize)]
pub(super) struct SiteView {
    name: String,
    url: Option<String>,
    /// Where a picture of the name is.
    logo: Option<String>,
    /// Line by line.
    postal_address: Vec<String>,
    /// The accent color as it can be read on the light page …
    accent: String,
    /// … and on the dark one.
    accent_dark: String,
}

impl SiteView {
    pub(super) fn of(site: &Site) -> Result<Self, Invalid> {
        let accent = Color::parse(&site.accent)?;
        let postal = site.postal_address.as_deref().unwrap_or_default();
        Ok(Self {
            name: short(&site.name, SHORT),
            url: site.url.as_deref().and_then(link).map(str::to_owned),
            logo: site.logo.as_deref().and_then(link).map(str::to_owned),
            postal_address: postal
                .lines()
                .map(|line| short(line, NAME))
                .filter(|line| !line.is_empty())
                .take(ADDRESS_LINES)
                .collect(),
            accent: accent.readable_on(color::PAPER).to_string(),
            accent_dark: accent.readable_on(color::NIGHT).to_string(),
        })
    }
}

/// Everything but `site` in a mail's templates.
#[derive(Serialize)]
pub(super) struct MailView<'a> {
    /// See [`super::recipient`].
    user: Value,
    /// The mail's day, such as `22 April 2014`.
    date: String,
    /// The recipient's zone, such as `Europe/London`.
    tz: &'static str,
    /// When the oldest event happened that is known: its day in a digest, its time in a batch.
    since: String,
    /// How many events the mail tells of.
    total: u64,
    /// What they are called together, after a number: `new works` if all are known to be of one
    /// section, whose heading is `New works`; else `new things`.
    things: String,
    /// Whether `things` says no more than that they are new.
    unnamed: bool,
    /// The event, if it is the only one.
    one: Option<ItemView<'a>>,
    /// Up to three names that tell best what is inside: by-lines, else titles.
    names: Vec<String>,
    /// How many events there are beside those that the names are of.
    others: u64,
    /// By whom all of it is, if by one.
    by_all: Option<String>,
    /// The beginnings of the first items.
    preview: Vec<String>,
    sections: Vec<SectionView<'a>>,
    /// How many events stand in sections that are not shown, or nobody knows where.
    elsewhere: u64,
    links: LinksView<'a>,
    /// What its reader follows, which is why something of it concerns them: most of it first.
    because: Vec<FollowedView<'a>>,
    /// What the link to unsubscribe ends, where there is one.
    ends: Option<EndsView>,
    /// What can be muted, as it is called; `None` where that has no name.
    mutes: Option<String>,
    /// The reason why its reader cannot turn the email off, without a full stop; `None` unless all
    /// of it is mandatory.
    mandatory: Option<String>,
    #[serde(flatten)]
    own: OwnView<'a>,
}

/// What only digests say, or only batches; templates that both share ask by it which they are in.
#[derive(Serialize)]
#[serde(untagged)]
enum OwnView<'a> {
    Digest {
        /// `daily`, `weekly`, or empty for a digest that was asked for by hand.
        cadence: &'static str,
        period: &'a str,
    },
    Batch {
        /// Whose times these are, such as `Europe/London`.
        zone: &'static str,
        /// When the newest event happened that is known.
        until: String,
        /// How many events nothing is known of any more.
        not_kept: u64,
        /// What all of it is about, if that is known to be one thing.
        topic: Option<AboutView<'a>>,
        /// What the mail can begin with.
        sentence: Option<Box<SentenceView>>,
    },
}

#[derive(Serialize)]
struct LinksView<'a> {
    preferences: Option<&'a str>,
    unsubscribe: Option<&'a str>,
    mute: Option<&'a str>,
}

#[derive(Serialize)]
struct SectionView<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    heading: String,
    total: u64,
    /// How many there are beside the items, or beside those of the groups.
    more: u64,
    /// The same in words, if there are any: `12 more works`.
    further: Option<String>,
    /// Whether pictures stand beside items, in a column of their own.
    pictured: bool,
    #[serde(flatten)]
    told: ToldView<'a>,
}

/// In a digest, each item for itself; in a batch, by what they are about.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum ToldView<'a> {
    Items(Vec<ItemView<'a>>),
    Groups(Vec<GroupView<'a>>),
}

impl ToldView<'_> {
    /// Whether pictures stand beside items; `opens` says that the first has its own above it.
    fn is_pictured(&self, opens: bool) -> bool {
        match self {
            Self::Items(items) => {
                let mut beside = items.iter().skip(usize::from(opens));
                beside.any(|item| item.image.is_some())
            }
            Self::Groups(groups) => groups.iter().any(|group| {
                let alone = group.sentence.is_none() && group.total == 1 && group.about.is_itself();
                alone && group.items.iter().any(|item| item.image.is_some())
            }),
        }
    }
}

#[derive(Serialize)]
struct GroupView<'a> {
    #[serde(flatten)]
    about: AboutView<'a>,
    sentence: Option<SentenceView>,
    total: u64,
    items: Vec<ItemView<'a>>,
    /// How many there are beside the items.
    more: u64,
    /// The same in words, if there are any: `1 more comment on Budget`.
    further: Option<String>,
}

#[derive(Serialize)]
struct ItemView<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    heading: String,
    id: String,
    title: Option<String>,
    /// The title, or the id where there is none.
    label: String,
    url: Option<&'a str>,
    /// The same, unless its group or an item before it in the group leads there as well.
    link: Option<&'a str>,
    image: Option<&'a str>,
    by: Option<String>,
    /// What was said.
    text: Option<String>,
    /// When the event happened: its day in a digest, its time in a batch.
    date: String,
    /// The moment of the event by ISO 8601, in UTC.
    at: String,
    /// The same of the object's own time, such as that of an opening.
    on: Option<String>,
    /// When the object takes place, unless that is no later than the event.
    when: Option<String>,
    /// Where it takes place, by name: `data.place` of the object.
    place: Option<String>,
    /// What the application keeps with the object.
    data: Value,
}

impl<'a> MailView<'a> {
    /// The view of a mail that shows so many items of each section, and only as many sections.
    pub(super) fn new(mail: &'a Mail<'a>, voice: &Voice, user: Value, shown: &[usize]) -> Self {
        let content = mail.content;
        let all = &content.sections;
        let sections: Vec<_> = all
            .iter()
            .zip(shown)
            .map(|(section, shown)| mail.section(voice, section, *shown))
            .collect();
        let told: u64 = sections.iter().map(|section| section.total).sum();
        let known: u64 = all.iter().map(|section| section.total).sum();
        let by = content.items().map(|(_, item)| item.person());
        let by_all = by_all(by, content.more() == 0);
        let columns: Vec<Vec<Named<'_>>> = all.iter().map(named_by).collect();
        let names = names(&columns, content.total, by_all.is_some());
        let alike = match all.as_slice() {
            [section] if known == content.total => Some(section),
            _ => None,
        };
        let things = alike.and_then(|section| things(voice, section, content.total));
        let one = all.first().filter(|_| content.total == 1);
        let one = one.and_then(|section| {
            let item = section.items().next()?;
            Some(mail.item(voice, section, heading(voice, section), item))
        });
        Self {
            user,
            date: voice.day_in_full(mail.at, mail.tz),
            tz: mail.tz.name(),
            since: mail.when(voice, content.oldest),
            total: content.total,
            unnamed: things.is_none(),
            things: things.unwrap_or_else(|| news(voice, content.total)),
            one,
            others: content
                .total
                .saturating_sub(named(&columns, &names, by_all.is_some())),
            names: names.into_iter().map(|name| name.name).collect(),
            by_all,
            preview: mail.preview(voice),
            sections,
            elsewhere: content.total.saturating_sub(told),
            because: FollowedView::all(mail),
            links: LinksView::of(&mail.links),
            ends: mail.ends(voice),
            mutes: mail.mutes(),
            mandatory: mandatory(voice, &content.sections),
            own: OwnView::of(mail, voice),
        }
    }
}

impl<'a> OwnView<'a> {
    fn of(mail: &'a Mail<'a>, voice: &Voice) -> Self {
        let content = mail.content;
        match mail.occasion {
            Occasion::Digest { cadence, period } => Self::Digest {
                cadence: match cadence {
                    Cadence::Never => "",
                    cadence => cadence.as_str(),
                },
                period,
            },
            Occasion::Batch { .. } => Self::Batch {
                zone: mail.tz.name(),
                until: mail.when(voice, content.newest),
                not_kept: content.not_kept,
                topic: match content.sections.as_slice() {
                    [section] if section.abouts == 1 && content.not_kept == 0 => {
                        section.groups.first().map(AboutView::of)
                    }
                    _ => None,
                },
                sentence: SentenceView::of_all(voice, &content.sections, content.total)
                    .map(Box::new),
            },
        }
    }
}

impl<'a> Mail<'a> {
    fn section(&self, voice: &Voice, section: &'a Section, shown: usize) -> SectionView<'a> {
        let heading = heading(voice, section);
        let (mut left, mut in_groups) = (shown, 0);
        let mut groups = Vec::new();
        for group in &section.groups {
            let items = &group.items[..group.items.len().min(left)];
            left -= items.len();
            if !items.is_empty() {
                in_groups += group.total;
                groups.push((group, items));
            }
        }
        let view = |items: &'a [Item]| {
            let items = items.iter();
            items.map(|item| self.item(voice, section, heading.clone(), item))
        };
        // A mail's first item has its picture above it.
        let opens = self.content.sections.first().map(|first| &first.kind) == Some(&section.kind);
        let told = match self.occasion {
            Occasion::Digest { .. } => ToldView::Items(
                groups
                    .into_iter()
                    .flat_map(|(_, items)| view(items))
                    .collect(),
            ),
            Occasion::Batch { .. } => {
                let group = |(group, items): (&'a Group, &'a [Item])| {
                    let sentence =
                        SentenceView::of_group(voice, section, group, self.content.total);
                    GroupView {
                        about: AboutView::of(group),
                        total: group.total,
                        more: group.total - items.len() as u64,
                        further: further(
                            voice,
                            section,
                            group.total - items.len() as u64,
                            group.title().and_then(|title| words(title, SHORT)),
                        ),
                        items: once_linked(group, sentence.as_ref(), view(items).collect()),
                        sentence,
                    }
                };
                ToldView::Groups(groups.into_iter().map(group).collect())
            }
        };
        SectionView {
            pictured: told.is_pictured(opens),
            kind: section.kind.as_str(),
            total: section.total,
            more: section.total - in_groups,
            further: further(voice, section, section.total - in_groups, None),
            told,
            heading,
        }
    }

    fn item(
        &self,
        voice: &Voice,
        section: &'a Section,
        heading: String,
        item: &'a Item,
    ) -> ItemView<'a> {
        let object = &*item.object;
        let title = object.title.as_deref();
        let details = item.details.as_deref();
        let text = details.and_then(|details| details.text.as_deref());
        let place = data::place_in(&object.data);
        ItemView {
            kind: section.kind.as_str(),
            heading,
            id: short(item.id.as_str(), TITLE),
            title: title.and_then(|title| words(title, TITLE)),
            label: label(item, TITLE),
            url: object.url.as_deref().and_then(link),
            link: object.url.as_deref().and_then(link),
            image: object.image.as_deref().and_then(link),
            by: item.by().and_then(|by| words(by, NAME)),
            text: text.and_then(|text| words(text, SAID)),
            date: self.when(voice, item.at),
            at: iso(item.at),
            on: object.at.map(|at| self.when(voice, at)),
            when: object
                .at
                .filter(|at| *at - item.at > AT_ONCE)
                .map(|at| voice.takes_place(at, self.at, self.tz)),
            place: place.and_then(|place| words(&place, NAME)),
            data: data::value_of(&object.data),
        }
    }

    /// What its link ends, by the headings of its own sections.
    fn ends(&self, voice: &Voice) -> Option<EndsView> {
        self.links.unsubscribe.as_ref()?;
        let sections = &self.content.sections;
        Some(EndsView::of(self.stop.unwrap_or(&Stop::All), |kind| {
            let section = sections.iter().find(|section| section.kind == *kind);
            section.map_or_else(
                || voice.heading(kind.as_str(), kind),
                |section| heading(voice, section),
            )
        }))
    }

    /// What all of it is about, by its name.
    fn mutes(&self) -> Option<String> {
        self.links.mute.as_ref()?;
        let group = self.content.sections.first()?.groups.first()?;
        words(group.title()?, TITLE)
    }

    /// A moment as the mail names it: what comes once a day tells days, what comes soon tells
    /// times.
    fn when(&self, voice: &Voice, at: DateTime<Utc>) -> String {
        match self.occasion {
            Occasion::Digest { .. } => voice.day(at, self.at, self.tz),
            Occasion::Batch { .. } => voice.moment(at, self.at, self.tz),
        }
    }

    /// What the first items begin with: who said what in a batch, else their own titles, else who
    /// and when. A batch repeats none, as many items can be about the same.
    fn preview(&self, voice: &Voice) -> Vec<String> {
        let repeats = matches!(self.occasion, Occasion::Digest { .. });
        let mut preview = Vec::new();
        let groups = self.content.sections.iter().flat_map(|one| &one.groups);
        for (about, item) in
            groups.flat_map(|group| group.items.iter().map(|item| (&group.about, item)))
        {
            let by = item.by().and_then(|by| words(by, SHORT));
            let said = by.as_deref().filter(|_| !repeats);
            let said = said.and_then(|by| says(voice, by, about, item));
            let by = by.filter(|_| is_unnamed(about, item));
            let beginning = said.unwrap_or_else(|| match (by, about) {
                (Some(by), _) => format!("{by} {}", self.when(voice, item.at)),
                (None, About::Page { title, .. }) => short(title, SHORT),
                (None, About::Other { .. } | About::Itself) => label(item, SHORT),
            });
            if repeats || !preview.contains(&beginning) {
                preview.push(beginning);
            }
            if preview.len() == NAMES {
                break;
            }
        }
        preview
    }
}

impl<'a> LinksView<'a> {
    fn of(links: &'a Links) -> Self {
        Self {
            preferences: links.preferences.as_deref().and_then(link),
            unsubscribe: links.unsubscribe.as_deref().and_then(link),
            mute: links.mute.as_deref().and_then(link),
        }
    }
}

/// The items of a group, of which each link is shown once.
fn once_linked<'a>(
    group: &'a Group,
    sentence: Option<&SentenceView>,
    mut items: Vec<ItemView<'a>>,
) -> Vec<ItemView<'a>> {
    let of_sentence = sentence.and_then(SentenceView::url);
    let above = of_sentence.or_else(|| group.url().and_then(link));
    let mut shown: Vec<&str> = above.into_iter().collect();
    for item in &mut items {
        match item.link {
            Some(url) if shown.contains(&url) => item.link = None,
            Some(url) => shown.push(url),
            None => {}
        }
    }
    items
}

/// A moment by ISO 8601, in UTC: for `<time datetime>`.
pub(super) fn iso(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Whether an item has no title of its own: it is one of several on a page, or done to another
/// thing and not called anything.
fn is_unnamed(about: &About, item: &Item) -> bool {
    match about {
        About::Page { .. } => true,
        About::Other { .. } => item.object.title.is_none(),
        About::Itself => false,
    }
}
