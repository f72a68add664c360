//! What templates see of a mail: words ready to be shown, nothing that must still be cut, cleaned or counted.
//!
//! The rule: everything a template can print is harmless as text (one line, no direction marks) and of bounded length;
//! only HTML escaping is left to do, and the template engine does it. Field names are the contract with templates that
//! applications write: they may be added to, not changed.

use chrono::{DateTime, Datelike, Utc};
use chrono_tz::Tz;
use serde::Serialize;

use super::colour::{self, Colour};
use super::text::{clamp, clean, link, spaced};
use super::{DigestMail, Error, Site};
use crate::domain::digest::{Item, Section};
use crate::domain::{Cadence, EventType};

/// How long a title may be, in characters.
const TITLE: usize = 140;
/// How long any other name may be.
const NAME: usize = 80;
/// How long a name may be that shares a line with others.
const SHORT: usize = 60;
/// How many lines a postal address may have.
const ADDRESS_LINES: usize = 8;

/// `site` in every template.
#[derive(Serialize)]
pub struct SiteView {
    name: String,
    url: Option<String>,
    /// Line by line.
    postal_address: Vec<String>,
    /// The accent colour as it can be read on the light page …
    accent: String,
    /// … and on the dark one.
    accent_dark: String,
}

impl SiteView {
    pub fn of(site: &Site) -> Result<Self, Error> {
        let accent = Colour::parse(&site.accent)?;
        let postal = site.postal_address.as_deref().unwrap_or_default();
        Ok(Self {
            name: short(&site.name, SHORT),
            url: site.url.as_deref().and_then(link).map(str::to_owned),
            postal_address: postal
                .lines()
                .map(|line| short(line, NAME))
                .filter(|line| !line.is_empty())
                .take(ADDRESS_LINES)
                .collect(),
            accent: accent.readable_on(colour::PAPER).to_string(),
            accent_dark: accent.readable_on(colour::NIGHT).to_string(),
        })
    }
}

/// Everything else in a digest's templates.
#[derive(Serialize)]
pub struct DigestView<'a> {
    user: UserView<'a>,
    /// `daily`, `weekly`, or empty for a digest that was asked for by hand.
    cadence: &'static str,
    period: &'a str,
    /// The mail's day, such as `22 April 2014`.
    date: String,
    /// The day of the oldest event.
    since: String,
    /// How many events the mail tells of.
    total: usize,
    /// What they are called together, after a number: `new works` if there is but one section, whose heading is
    /// `New works`; else `new things`.
    things: String,
    /// The event, if it is the only one.
    one: Option<ItemView<'a>>,
    /// Up to three names that tell best what is inside: by-lines, else titles.
    names: Vec<String>,
    /// How many events there are beside those named.
    others: usize,
    /// By whom all of it is, if by one.
    by_all: Option<String>,
    /// The first titles.
    preview: Vec<String>,
    sections: Vec<SectionView<'a>>,
    /// How many events stand in sections that are not shown.
    elsewhere: usize,
    links: LinksView<'a>,
}

#[derive(Serialize)]
struct UserView<'a> {
    id: &'a str,
    name: Option<String>,
    locale: Option<&'a str>,
}

#[derive(Serialize)]
struct LinksView<'a> {
    preferences: Option<&'a str>,
    unsubscribe: Option<&'a str>,
}

#[derive(Serialize)]
struct SectionView<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    heading: String,
    total: usize,
    items: Vec<ItemView<'a>>,
    /// How many there are beside the items.
    more: usize,
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
    image: Option<&'a str>,
    by: Option<String>,
    /// The day of the event.
    date: String,
    /// The object's own day, such as that of an opening.
    on: Option<String>,
    /// What the application keeps with the object.
    data: &'a serde_json::Value,
}

impl<'a> DigestView<'a> {
    /// The view of a mail that shows so many items of each section, and only as many sections.
    pub fn new(mail: &'a DigestMail<'a>, shown: &[usize]) -> Self {
        let all = &mail.digest.sections;
        let sections: Vec<_> = all
            .iter()
            .zip(shown)
            .map(|(section, shown)| mail.section(section, *shown))
            .collect();
        let told: usize = sections.iter().map(|section| section.total).sum();
        let by_all = by_all(all);
        let names = names(all, mail.digest.total, by_all.is_some());
        let one = match all.iter().flat_map(|section| &section.items).next() {
            Some(item) if mail.digest.total == 1 => Some(mail.item(item, heading(&all[0]))),
            _ => None,
        };
        Self {
            user: UserView {
                id: mail.user.id.as_str(),
                name: mail
                    .user
                    .name
                    .as_deref()
                    .and_then(|name| words(name, SHORT)),
                locale: mail.user.locale.as_deref(),
            },
            cadence: match mail.cadence {
                Cadence::Never => "",
                cadence => cadence.as_str(),
            },
            period: mail.period,
            date: day_in_full(mail.at, mail.tz),
            since: day(mail.digest.oldest, mail.at, mail.tz),
            total: mail.digest.total,
            things: things(all),
            one,
            others: mail.digest.total.saturating_sub(names.len()),
            names,
            by_all,
            preview: all
                .iter()
                .flat_map(|section| &section.items)
                .take(3)
                .map(|item| label(item, SHORT))
                .collect(),
            sections,
            elsewhere: mail.digest.total.saturating_sub(told),
            links: LinksView {
                preferences: mail.links.preferences.as_deref().and_then(link),
                unsubscribe: mail.links.unsubscribe.as_deref().and_then(link),
            },
        }
    }
}

impl<'a> DigestMail<'a> {
    fn section(&self, section: &'a Section, shown: usize) -> SectionView<'a> {
        let heading = heading(section);
        let items: Vec<_> = section
            .items
            .iter()
            .take(shown)
            .map(|item| self.item(item, heading.clone()))
            .collect();
        SectionView {
            kind: section.kind.as_str(),
            total: section.total(),
            more: section.total() - items.len(),
            heading,
            items,
        }
    }

    fn item(&self, item: &'a Item, heading: String) -> ItemView<'a> {
        let object = &*item.object;
        ItemView {
            kind: item.kind.as_str(),
            heading,
            id: short(item.id.as_str(), TITLE),
            title: object
                .title
                .as_deref()
                .and_then(|title| words(title, TITLE)),
            label: label(item, TITLE),
            url: object.url.as_deref().and_then(link),
            image: object.image.as_deref().and_then(link),
            by: object.by.as_deref().and_then(|by| words(by, NAME)),
            date: day(item.at, self.at, self.tz),
            on: object.at.map(|at| day(at, self.at, self.tz)),
            data: &object.data,
        }
    }
}

/// One harmless line of at most so many characters. Of endless texts only the beginning is looked at.
fn short(text: &str, max: usize) -> String {
    let enough = text
        .char_indices()
        .nth(4 * max)
        .map_or(text.len(), |(at, _)| at);
    clamp(&clean(&text[..enough]), max).into_owned()
}

/// The same, if anything is left of it.
fn words(text: &str, max: usize) -> Option<String> {
    Some(short(text, max)).filter(|text| !text.is_empty())
}

fn label(item: &Item, max: usize) -> String {
    let title = item.object.title.as_deref();
    title
        .and_then(|title| words(title, max))
        .unwrap_or_else(|| short(item.id.as_str(), max))
}

/// A type that nobody gave a heading goes by its name, which is written for programs.
pub fn heading_of(heading: &str, kind: &EventType) -> String {
    if heading == kind.as_str() {
        short(&spaced(heading), NAME)
    } else {
        short(heading, NAME)
    }
}

fn heading(section: &Section) -> String {
    heading_of(&section.heading, &section.kind)
}

fn things(sections: &[Section]) -> String {
    if let [section] = sections
        && let Some(rest) = heading(section).strip_prefix("New ")
    {
        return format!("new {rest}");
    }
    "new things".to_owned()
}

/// The one by-line of everything, if every single event is known to have it.
fn by_all(sections: &[Section]) -> Option<String> {
    let mut items = sections.iter().flat_map(|section| &section.items);
    let by = items.next()?.object.by.as_deref()?;
    let same = items.all(|item| item.object.by.as_deref() == Some(by));
    let all_known = sections.iter().all(|section| section.more == 0);
    words(by, NAME).filter(|_| same && all_known)
}

/// Names for a subject, from all sections in turn: three if that is everything, else two.
fn names(sections: &[Section], total: usize, by_one: bool) -> Vec<String> {
    const ROUNDS: usize = 12;
    let mut names: Vec<String> = Vec::new();
    for n in 0..ROUNDS {
        for item in sections.iter().filter_map(|section| section.items.get(n)) {
            let by = item.object.by.as_deref().filter(|_| !by_one);
            let name = by.or(item.object.title.as_deref());
            if let Some(name) = name.and_then(|name| words(name, SHORT))
                && !names.contains(&name)
            {
                names.push(name);
            }
            if names.len() == 3 {
                names.truncate(if total == 3 { 3 } else { 2 });
                return names;
            }
        }
    }
    names
}

/// A day as people write it, with its year if that is not this one.
/// A day with its year, such as `22 April 2014`.
pub fn day_in_full(at: DateTime<Utc>, tz: Tz) -> String {
    at.with_timezone(&tz).format("%-d %B %Y").to_string()
}

fn day(at: DateTime<Utc>, now: DateTime<Utc>, tz: Tz) -> String {
    let (at, now) = (at.with_timezone(&tz), now.with_timezone(&tz));
    let format = if at.year() == now.year() {
        "%-d %B"
    } else {
        "%-d %B %Y"
    };
    at.format(format).to_string()
}
