//! What templates see of a mail: words ready to be shown, nothing that must still be cut, cleaned
//! or counted.
//!
//! The rule: everything a template can print is harmless as text (one line, no direction marks) and
//! of bounded length; only HTML escaping is left to do, and the template engine does it. Field
//! names are the contract with templates that applications write: they may be added to, not
//! changed.

use serde::Serialize;

use super::colour::{self, Colour};
use super::naming::{
    NAME, Named, SHORT, TITLE, by_all, day, day_in_full, heading_of, label, names, short, things,
    words,
};
use super::text::link;
use super::{DigestMail, Error, Links, Site};
use crate::domain::digest::{Item, Section};
use crate::domain::{Cadence, Object, ObjectId, User};

/// How many lines a postal address may have.
const ADDRESS_LINES: usize = 8;

/// `site` in every template.
#[derive(Serialize)]
pub(super) struct SiteView {
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
    pub(super) fn of(site: &Site) -> Result<Self, Error> {
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
pub(super) struct DigestView<'a> {
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
    /// What they are called together, after a number: `new works` if there is but one section,
    /// whose heading is `New works`; else `new things`.
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
pub(super) struct UserView<'a> {
    id: &'a str,
    name: Option<String>,
    locale: Option<&'a str>,
}

#[derive(Serialize)]
pub(super) struct LinksView<'a> {
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
pub(super) struct ItemView<'a> {
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
    pub(super) fn new(mail: &'a DigestMail<'a>, shown: &[usize]) -> Self {
        let all = &mail.digest.sections;
        let sections: Vec<_> = all
            .iter()
            .zip(shown)
            .map(|(section, shown)| mail.section(section, *shown))
            .collect();
        let told: usize = sections.iter().map(|section| section.total).sum();
        let all_known = all.iter().all(|section| section.more == 0);
        let by_all = by_all(objects(all).map(|object| object.by.as_deref()), all_known);
        let columns: Vec<Vec<Named<'_>>> = all.iter().map(named).collect();
        let names = names(&columns, mail.digest.total as u64, by_all.is_some());
        let headings: Vec<String> = all.iter().map(heading).collect();
        let one = match all.iter().flat_map(|section| &section.items).next() {
            Some(item) if mail.digest.total == 1 => Some(mail.item(item, heading(&all[0]))),
            _ => None,
        };
        Self {
            user: UserView::of(mail.user),
            cadence: match mail.cadence {
                Cadence::Never => "",
                cadence => cadence.as_str(),
            },
            period: mail.period,
            date: day_in_full(mail.at, mail.tz),
            since: day(mail.digest.oldest, mail.at, mail.tz),
            total: mail.digest.total,
            things: things(&headings),
            one,
            others: mail.digest.total.saturating_sub(names.len()),
            names,
            by_all,
            preview: all
                .iter()
                .flat_map(|section| &section.items)
                .take(3)
                .map(|item| label(&item.object, &item.id, SHORT))
                .collect(),
            sections,
            elsewhere: mail.digest.total.saturating_sub(told),
            links: LinksView::of(&mail.links),
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
        let date = day(item.at, self.at, self.tz);
        let on = item.object.at.map(|at| day(at, self.at, self.tz));
        ItemView::of(
            &item.object,
            &item.id,
            item.kind.as_str(),
            heading,
            date,
            on,
        )
    }
}

impl<'a> UserView<'a> {
    pub(super) fn of(user: &'a User) -> Self {
        let name = user.name.as_deref();
        Self {
            id: user.id.as_str(),
            name: name.and_then(|name| words(name, SHORT)),
            locale: user.locale.as_deref(),
        }
    }
}

impl<'a> LinksView<'a> {
    pub(super) fn of(links: &'a Links) -> Self {
        Self {
            preferences: links.preferences.as_deref().and_then(link),
            unsubscribe: links.unsubscribe.as_deref().and_then(link),
        }
    }
}

impl<'a> ItemView<'a> {
    pub(super) fn of(
        object: &'a Object,
        id: &ObjectId,
        kind: &'a str,
        heading: String,
        date: String,
        on: Option<String>,
    ) -> Self {
        let title = object.title.as_deref();
        Self {
            kind,
            heading,
            id: short(id.as_str(), TITLE),
            title: title.and_then(|title| words(title, TITLE)),
            label: label(object, id, TITLE),
            url: object.url.as_deref().and_then(link),
            image: object.image.as_deref().and_then(link),
            by: object.by.as_deref().and_then(|by| words(by, NAME)),
            date,
            on,
            data: &object.data,
        }
    }
}

fn heading(section: &Section) -> String {
    heading_of(&section.heading, &section.kind)
}

fn objects(sections: &[Section]) -> impl Iterator<Item = &Object> {
    let items = sections.iter().flat_map(|section| &section.items);
    items.map(|item| &*item.object)
}

fn named(section: &Section) -> Vec<Named<'_>> {
    let objects = section.items.iter().map(|item| &*item.object);
    objects
        .map(|object| Named {
            by: object.by.as_deref(),
            title: object.title.as_deref(),
        })
        .collect()
}
