//! What the templates of batch mails see: the bulletin in words, and the sentences that can be said
//! of it.
//!
//! The rule is that of `view`: harmless, bounded, and a contract with templates that applications
//! write. A sentence ("Ada and Ben commented on Budget") exists where the type has a phrase and
//! everybody in it is known; the words between its parts are the templates'.

use chrono_tz::Tz;
use serde::Serialize;

use super::batch::BatchMail;
use super::naming::{
    Named, SHORT, TITLE, by_all, day_in_full, heading_of, label, moment, names, short, things,
    words,
};
use super::text::link;
use super::view::{ItemView, LinksView, UserView};
use crate::domain::bulletin::{Group, Item, People, Section, Subject};

/// So many names stand in a sentence if that is all of them, else one fewer.
const NAMES: usize = 3;

/// Everything but `site` in a batch's templates.
#[derive(Serialize)]
pub(super) struct BulletinView<'a> {
    user: UserView<'a>,
    /// The mail's day, such as `22 April 2014`.
    date: String,
    /// Whose times these are, such as `Europe/London`.
    zone: &'static str,
    /// When the oldest and the newest event happened that are known.
    since: String,
    until: String,
    /// How many events the mail tells of, and how many of them nothing is known of any more.
    total: u64,
    not_kept: u64,
    /// What they are called together, after a number: `new comments` if all are known to be of one
    /// section, whose heading is `New comments`; else `new things`.
    things: String,
    /// The event, if it is the only one.
    one: Option<ItemView<'a>>,
    /// What all of it is about, if that is known to be one thing.
    topic: Option<AboutView<'a>>,
    /// What the mail can begin with.
    sentence: Option<SentenceView>,
    /// As in a digest, for mails without a sentence.
    names: Vec<String>,
    others: u64,
    by_all: Option<String>,
    /// The beginnings of the first items.
    preview: Vec<String>,
    sections: Vec<SectionView<'a>>,
    /// How many events stand in sections that are not shown, or nobody knows where.
    elsewhere: u64,
    links: LinksView<'a>,
}

/// Who did what to what.
#[derive(Serialize, Clone)]
struct SentenceView {
    /// The first of them, and how many there are besides, and in all.
    names: Vec<String>,
    others: usize,
    people: usize,
    phrase: String,
    /// The first things it is about, and how many there are besides.
    about: Vec<String>,
    elsewhere: usize,
    /// Where the thing is, if it is one.
    url: Option<String>,
    /// How many events it tells of, and how many of the mail's it does not.
    total: u64,
    rest: u64,
    /// Whether it tells of one thing everything the mail knows.
    whole: bool,
}

#[derive(Serialize)]
struct SectionView<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    heading: String,
    total: u64,
    groups: Vec<GroupView<'a>>,
    /// How many there are beside those of the groups.
    more: u64,
}

/// What something is about, and where that is.
#[derive(Serialize)]
struct AboutView<'a> {
    about: String,
    url: Option<&'a str>,
    /// Whether that is the items themselves, so that they have no other title.
    itself: bool,
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
}

impl<'a> BulletinView<'a> {
    /// The view of a mail that shows so many items of each section, and only as many sections.
    pub(super) fn new(mail: &'a BatchMail<'a>, shown: &[usize]) -> Self {
        let bulletin = mail.bulletin;
        let all = &bulletin.sections;
        let sections: Vec<_> = all
            .iter()
            .zip(shown)
            .map(|(section, shown)| mail.section(section, *shown))
            .collect();
        let told: u64 = sections.iter().map(|section| section.total).sum();
        let known: u64 = all.iter().map(|section| section.total).sum();
        let items = || all.iter().flat_map(Section::items);
        let by_all = by_all(
            items().map(|item| item.object.by.as_deref()),
            bulletin.more == 0,
        );
        let columns: Vec<Vec<Named<'_>>> = all.iter().map(named).collect();
        let names = names(&columns, bulletin.total, by_all.is_some());
        let headings: Vec<String> = match known == bulletin.total {
            true => all.iter().map(heading).collect(),
            false => Vec::new(),
        };
        let one = all.first().filter(|_| bulletin.total == 1);
        let one = one.and_then(|section| Some(mail.item(section, section.items().next()?)));
        Self {
            user: UserView::of(mail.user),
            date: day_in_full(mail.at, mail.tz),
            zone: zone(mail.tz),
            since: moment(bulletin.oldest, mail.at, mail.tz),
            until: moment(bulletin.newest, mail.at, mail.tz),
            total: bulletin.total,
            not_kept: bulletin.not_kept,
            things: things(&headings),
            one,
            topic: match all.as_slice() {
                [section] if section.abouts == 1 && bulletin.not_kept == 0 => {
                    section.groups.first().map(AboutView::of)
                }
                _ => None,
            },
            sentence: SentenceView::of_all(all, bulletin.total),
            others: bulletin.total.saturating_sub(names.len() as u64),
            names,
            by_all,
            preview: mail.preview(),
            sections,
            elsewhere: bulletin.total.saturating_sub(told),
            links: LinksView::of(&mail.links),
        }
    }
}

impl<'a> BatchMail<'a> {
    fn section(&self, section: &'a Section, shown: usize) -> SectionView<'a> {
        let mut left = shown;
        let mut groups = Vec::new();
        for group in &section.groups {
            let items = group.items.len().min(left);
            left -= items;
            if items > 0 {
                groups.push(self.group(section, group, items));
            }
        }
        let in_groups: u64 = groups.iter().map(|group| group.total).sum();
        SectionView {
            kind: section.kind.as_str(),
            heading: heading(section),
            total: section.total,
            more: section.total - in_groups,
            groups,
        }
    }

    fn group(&self, section: &'a Section, group: &'a Group, shown: usize) -> GroupView<'a> {
        let items = group.items.iter().take(shown);
        GroupView {
            about: AboutView::of(group),
            sentence: SentenceView::of_group(section, group, self.bulletin.total),
            total: group.total,
            more: group.total - shown as u64,
            items: items.map(|item| self.item(section, item)).collect(),
        }
    }

    fn item(&self, section: &'a Section, item: &'a Item) -> ItemView<'a> {
        let when = |at| moment(at, self.at, self.tz);
        ItemView::of(
            &item.object,
            &item.id,
            section.kind.as_str(),
            heading(section),
            when(item.at),
            item.object.at.map(when),
        )
    }

    /// What the first items begin with: their titles where those are their own, else who and when.
    fn preview(&self) -> Vec<String> {
        let mut preview = Vec::new();
        let sections = self.bulletin.sections.iter();
        for group in sections.flat_map(|section| &section.groups) {
            for item in &group.items {
                let by = item.object.by.as_deref().and_then(|by| words(by, SHORT));
                let beginning = match (&group.about.subject, by) {
                    (subject, Some(by)) if is_unnamed(subject, item) => {
                        format!("{by} {}", moment(item.at, self.at, self.tz))
                    }
                    (Subject::Page(title), _) => short(title, SHORT),
                    (Subject::Other(_) | Subject::Itself(_), _) => {
                        label(&item.object, &item.id, SHORT)
                    }
                };
                if !preview.contains(&beginning) {
                    preview.push(beginning);
                }
                if preview.len() == NAMES {
                    return preview;
                }
            }
        }
        preview
    }
}

impl<'a> AboutView<'a> {
    fn of(group: &'a Group) -> Self {
        Self {
            about: about(group, TITLE),
            url: group.about.url.as_deref().and_then(link),
            itself: is_itself(group),
        }
    }
}

impl SentenceView {
    /// Of everything, if one can be said of all that is of one type; else of the first group of
    /// which one can.
    fn of_all(sections: &[Section], total: u64) -> Option<Self> {
        let of_one = match sections {
            [section] => Self::of_section(section, total),
            _ => None,
        };
        of_one.or_else(|| {
            let groups = |section: &'_ Section| -> Option<Self> {
                let mut groups = section.groups.iter();
                groups.find_map(|group| Self::of_group(section, group, total))
            };
            sections.iter().find_map(groups)
        })
    }

    fn of_group(section: &Section, group: &Group, total: u64) -> Option<Self> {
        let all = section.groups.len() == 1 && section.abouts == 1;
        let url = match group.items.as_slice() {
            [only] if is_itself(group) && group.total == 1 => only.object.url.as_deref(),
            _ => group.about.url.as_deref(),
        };
        Some(Self {
            about: vec![about(group, TITLE)],
            elsewhere: 0,
            url: url.and_then(link).map(str::to_owned),
            total: group.total,
            rest: total - group.total,
            whole: all && group.total == total,
            ..Self::of(section, &group.people)?
        })
    }

    fn of_section(section: &Section, total: u64) -> Option<Self> {
        if section.abouts == 1 {
            return Self::of_group(section, section.groups.first()?, total);
        }
        let shown = match section.abouts {
            abouts if abouts <= NAMES => abouts,
            _ => NAMES - 1,
        };
        let known = section.total - section.not_kept;
        let groups = section.groups.iter().take(shown);
        let about: Vec<String> = groups.map(|group| about(group, SHORT)).collect();
        Some(Self {
            elsewhere: section.abouts - about.len(),
            about,
            url: None,
            total: known,
            rest: total - known,
            whole: false,
            ..Self::of(section, &section.people)?
        })
    }

    /// Who did what, to nothing yet.
    fn of(section: &Section, people: &People) -> Option<Self> {
        let phrase = section.phrase.as_ref()?;
        let People::Named(people) = people else {
            return None;
        };
        let shown = match people.len() {
            few if few <= NAMES => few,
            _ => NAMES - 1,
        };
        Some(Self {
            names: people
                .iter()
                .take(shown)
                .map(|by| short(by, SHORT))
                .collect(),
            others: people.len() - shown,
            people: people.len(),
            phrase: short(phrase.as_str(), SHORT),
            about: Vec::new(),
            elsewhere: 0,
            url: None,
            total: 0,
            rest: 0,
            whole: false,
        })
    }
}

fn heading(section: &Section) -> String {
    heading_of(&section.heading, &section.kind)
}

/// Whether an item has no title of its own: it is one of several on a page, or done to another
/// thing and not called anything.
fn is_unnamed(subject: &Subject, item: &Item) -> bool {
    match subject {
        Subject::Page(_) => true,
        Subject::Other(_) => item.object.title.is_none(),
        Subject::Itself(_) => false,
    }
}

/// What a group is about, in words.
fn about(group: &Group, max: usize) -> String {
    match &group.about.subject {
        Subject::Other(title) | Subject::Page(title) => short(title, max),
        Subject::Itself(id) => group.items.first().map_or_else(
            || short(id.as_str(), max),
            |item| label(&item.object, id, max),
        ),
    }
}

fn is_itself(group: &Group) -> bool {
    match group.about.subject {
        Subject::Page(_) | Subject::Itself(_) => true,
        Subject::Other(_) => false,
    }
}

/// What the items of a section can be named by, one a group.
fn named(section: &Section) -> Vec<Named<'_>> {
    let groups = section.groups.iter();
    groups
        .filter_map(|group| {
            let object = &group.items.first()?.object;
            Some(Named {
                // Where people do something to a thing, the thing tells more than one of many.
                by: object.by.as_deref().filter(|_| section.phrase.is_none()),
                title: match &group.about.subject {
                    Subject::Other(title) | Subject::Page(title) => Some(title),
                    Subject::Itself(_) => object.title.as_deref(),
                },
            })
        })
        .collect()
}

/// The name of a zone as people read it.
fn zone(tz: Tz) -> &'static str {
    tz.name()
}
