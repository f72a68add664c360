//! The data of an email that its templates see.
//!
//! All text is safe to print: one line, no direction marks, bounded length. Only HTML escaping is
//! left to the template engine. Field names are a contract with the templates of applications: add
//! fields, but never rename or remove one. Start with [`MailView`].

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

/// The most lines of a postal address.
const ADDRESS_LINES: usize = 8;
/// An object's time that is later than its event by no more than this is not shown.
const AT_ONCE: TimeDelta = TimeDelta::minutes(1);

/// `site` in every template.
#[derive(Serialize)]
pub(super) struct SiteView {
    name: String,
    url: Option<String>,
    /// The URL of an image that shows the name.
    logo: Option<String>,
    /// The lines of the address.
    postal_address: Vec<String>,
    /// The accent color, legible on a light background.
    accent: String,
    /// The accent color, legible on a dark background.
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

/// The variables of an email's templates, except `site`.
#[derive(Serialize)]
pub(super) struct MailView<'a> {
    /// See [`super::recipient`].
    user: Value,
    /// The date of the email, such as `22 April 2014`.
    date: String,
    /// The recipient's time zone, such as `Europe/London`.
    tz: &'static str,
    /// The time of the oldest included event: a date in a digest, a time in a batch.
    since: String,
    /// The number of included events.
    total: u64,
    /// A noun for the events, to follow their number: `new works` if all are in one section with
    /// the heading `New works`, else `new things`.
    things: String,
    /// Whether `things` is the general noun.
    unnamed: bool,
    /// The event, if it is the only one.
    one: Option<ItemView<'a>>,
    /// Up to three names that represent the content: of people, else titles.
    names: Vec<String>,
    /// The number of events that `names` does not represent.
    others: u64,
    /// The name of the one person behind all events, if there is only one.
    by_all: Option<String>,
    /// Short texts for the first items.
    preview: Vec<String>,
    sections: Vec<SectionView<'a>>,
    /// The number of events that are in no shown section: in a hidden one, or of unknown type.
    elsewhere: u64,
    links: LinksView<'a>,
    /// The follows that brought these events to the user, those with the most events first.
    because: Vec<FollowedView<'a>>,
    /// The effect of the unsubscribe link, if there is one.
    ends: Option<EndsView>,
    /// The title of the subject that the mute link mutes; `None` if it has no title.
    mutes: Option<String>,
    /// The reason why the user cannot turn this email off, without a period. `None` unless all of
    /// its events are mandatory.
    mandatory: Option<String>,
    #[serde(flatten)]
    own: OwnView<'a>,
}

/// The variables that only digests have, or only batches. Shared templates use them to distinguish
/// the two.
#[derive(Serialize)]
#[serde(untagged)]
enum OwnView<'a> {
    Digest {
        /// `daily`, `weekly`, or empty for a digest on demand.
        cadence: &'static str,
        period: &'a str,
    },
    Batch {
        /// The time zone of the times, such as `Europe/London`.
        zone: &'static str,
        /// The time of the newest included event.
        until: String,
        /// The number of events that the batch counted but did not keep.
        not_kept: u64,
        /// The topic of all events, if they are known to share one.
        topic: Option<AboutView<'a>>,
        /// A sentence to open the email with.
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
    /// The number of events that are not in the shown items or groups.
    more: u64,
    /// The same number in words, such as `12 more works`; `None` if it is 0.
    further: Option<String>,
    /// Whether images appear next to items, in a column of their own.
    pictured: bool,
    #[serde(flatten)]
    told: ToldView<'a>,
}

/// The items of a digest section, or the groups by topic of a batch section.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum ToldView<'a> {
    Items(Vec<ItemView<'a>>),
    Groups(Vec<GroupView<'a>>),
}

impl ToldView<'_> {
    /// Returns whether images appear next to items. `opens` is set if the first item shows its
    /// image above it.
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
    /// The number of events that are not in the shown items.
    more: u64,
    /// The same number in words, such as `1 more comment on Budget`; `None` if it is 0.
    further: Option<String>,
}

#[derive(Serialize)]
struct ItemView<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    heading: String,
    id: String,
    title: Option<String>,
    /// The title, or the id if there is none.
    label: String,
    url: Option<&'a str>,
    /// The URL, unless the group or an earlier item of the group already links to it.
    link: Option<&'a str>,
    image: Option<&'a str>,
    by: Option<String>,
    /// The quoted text of the event.
    text: Option<String>,
    /// When the event happened: a date in a digest, a time in a batch.
    date: String,
    /// The time of the event in ISO 8601, UTC.
    at: String,
    /// The object's own time, such as that of an opening, in the format of `date`.
    on: Option<String>,
    /// The object's own time, such as `2 May, 18:00`; `None` unless it is later than the event.
    when: Option<String>,
    /// The name of the place: `data.place` of the object.
    place: Option<String>,
    /// The application's own data of the object.
    data: Value,
}

impl<'a> MailView<'a> {
    /// Creates the view of an email. `shown` is the number of items for each section; sections
    /// beyond its length are not shown.
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
        // The first item of the email shows its image above the text.
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

    /// Returns the effect of the unsubscribe link, with the headings of this email's sections.
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

    fn mutes(&self) -> Option<String> {
        self.links.mute.as_ref()?;
        let group = self.content.sections.first()?.groups.first()?;
        words(group.title()?, TITLE)
    }

    /// Formats a time as a date in a digest, and as a time of day in a batch.
    fn when(&self, voice: &Voice, at: DateTime<Utc>) -> String {
        match self.occasion {
            Occasion::Digest { .. } => voice.day(at, self.at, self.tz),
            Occasion::Batch { .. } => voice.moment(at, self.at, self.tz),
        }
    }

    /// Returns short texts for the first items: in a batch the person and the quoted text, else the
    /// title, else the person and the time. A batch omits duplicates, because many items can share
    /// a topic.
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

/// Removes links from items of a group if an earlier item or the group's heading has the same link.
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

/// Formats a time in ISO 8601, UTC, for `<time datetime>`.
pub(super) fn iso(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Returns whether an item has no title to show: it is on the page of its group, or it has another
/// topic and no title.
fn is_unnamed(about: &About, item: &Item) -> bool {
    match about {
        About::Page { .. } => true,
        About::Other { .. } => item.object.title.is_none(),
        About::Itself => false,
    }
}
