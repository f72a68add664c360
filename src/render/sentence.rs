//! Words about an email's events: sentences such as "Ada and Ben commented on Budget", nouns such
//! as "12 more works", and the effect of a stop link.
//!
//! A sentence exists only if the type has a phrase in the user's language and all people are known.
//! Words of the configuration are English, so they appear only in English sentences. This module
//! supplies the parts; templates and catalogs supply the wording. Start with [`SentenceView`].

use minijinja::{Value, context};
use serde::Serialize;

use super::safe_text::{NAME, SHORT, TITLE, label, link, short, words};
use super::voice::{Medium, MessageValue, Voice};
use crate::domain::email_content::{
    Author, Authors, EmailGroup, EmailItem, EmailSection, GroupTopic,
};
use crate::domain::mutes_and_quiet_hours::Title;
use crate::domain::{EventType, Mandate, StopAction};

/// The most names in a sentence. Longer lists show one fewer, and a count of the rest.
pub(super) const NAMES: usize = 3;

/// The parts of a sentence: people, phrase and topics.
#[derive(Serialize)]
pub(super) struct SentenceView {
    /// The first names. `others` counts the remaining people, `people` all of them.
    names: Vec<String>,
    others: usize,
    people: usize,
    phrase: String,
    /// The first topics. `elsewhere` counts the remaining ones.
    about: Vec<String>,
    elsewhere: usize,
    /// The URL of the topic, if there is only one.
    url: Option<String>,
    /// The number of events that the sentence covers. `rest` counts the other events of the email.
    total: u64,
    rest: u64,
}

impl SentenceView {
    /// Returns a sentence for all events if they are of one type, else for the first group that
    /// allows one.
    pub(super) fn of_all(voice: &Voice, sections: &[EmailSection], total: u64) -> Option<Self> {
        let of_one = match sections {
            [section] => Self::of_section(voice, section, total),
            _ => None,
        };
        of_one.or_else(|| {
            let groups = |section: &'_ EmailSection| -> Option<Self> {
                let mut groups = section.groups.iter();
                groups.find_map(|group| Self::of_group(voice, section, group, total))
            };
            sections.iter().find_map(groups)
        })
    }

    /// Returns the URL of the topic, if there is only one.
    pub(super) fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    pub(super) fn of_group(
        voice: &Voice,
        section: &EmailSection,
        group: &EmailGroup,
        total: u64,
    ) -> Option<Self> {
        let url = match group.items.as_slice() {
            [only] if is_itself(group) && group.total == 1 => only.object.url.as_deref(),
            _ => group.url(),
        };
        Some(Self {
            about: vec![about(group, TITLE)],
            url: url.and_then(link).map(str::to_owned),
            ..Self::of(voice, section, &group.authors, group.total, total)?
        })
    }

    fn of_section(voice: &Voice, section: &EmailSection, total: u64) -> Option<Self> {
        if section.topic_count == 1 {
            return Self::of_group(voice, section, section.groups.first()?, total);
        }
        let groups = section.groups.iter().take(named(section.topic_count));
        let about: Vec<String> = groups.map(|group| about(group, SHORT)).collect();
        let known = section.total - section.omitted;
        Some(Self {
            elsewhere: section.topic_count - about.len(),
            about,
            ..Self::of(voice, section, &section.authors, known, total)?
        })
    }

    /// Returns a sentence without topics; `covered` is the number of events that it covers.
    fn of(
        voice: &Voice,
        section: &EmailSection,
        people: &Authors,
        covered: u64,
        total: u64,
    ) -> Option<Self> {
        let phrase = section.phrase.as_ref()?;
        let Authors::Named(people) = people else {
            return None;
        };
        let said = voice.phrase_or(&section.kind, people.len() as u64, phrase)?;
        let names = people.iter().take(named(people.len()));
        let names: Vec<String> = names.map(|by| short(&by.name, SHORT)).collect();
        Some(Self {
            others: people.len() - names.len(),
            names,
            people: people.len(),
            phrase: said,
            about: Vec::new(),
            elsewhere: 0,
            url: None,
            total: covered,
            rest: total - covered,
        })
    }
}

/// Returns how many names of a list to show.
fn named(all: usize) -> usize {
    if all <= NAMES { all } else { NAMES - 1 }
}

/// Returns the topic of a group in words.
fn about(group: &EmailGroup, max: usize) -> String {
    match (&group.topic, group.items.first()) {
        (GroupTopic::Stated(topic) | GroupTopic::Page(topic), _) => short(&topic.title, max),
        (GroupTopic::Object, item) => item.map_or_else(String::new, |item| label(item, max)),
    }
}

/// Returns whether the topic is the items themselves, so that they have no other title.
pub(super) fn is_itself(group: &EmailGroup) -> bool {
    match group.topic {
        GroupTopic::Page(_) | GroupTopic::Object => true,
        GroupTopic::Stated(_) => false,
    }
}

/// Returns the topic of a group, and its URL.
pub(super) fn about_view(group: &EmailGroup) -> Value {
    context! {
        about => about(group, TITLE),
        url => group.url().and_then(link),
        itself => is_itself(group),
    }
}

pub(super) fn heading(voice: &Voice, section: &EmailSection) -> String {
    voice.heading(&section.heading, &section.kind)
}

/// Returns the noun for a number of events of one section, or `None` if the section has no noun.
pub(super) fn things(voice: &Voice, section: &EmailSection, total: u64) -> Option<String> {
    let named = || Some(format!("new {}", new_things(voice, section)?));
    voice.news(&section.kind, total).or_else(named)
}

/// Returns `works` for a section with the English heading `New works`.
fn new_things(voice: &Voice, section: &EmailSection) -> Option<String> {
    let heading = heading(voice, section);
    let things = heading.strip_prefix("New ").filter(|_| voice.is_english())?;
    Some(things.to_owned())
}

/// Returns the number of further events in words, with their topic; `None` if there are none.
pub(super) fn further(
    voice: &Voice,
    section: &EmailSection,
    count: u64,
    about: Option<String>,
) -> Option<String> {
    if count == 0 {
        return None;
    }
    // The heading is a plural.
    let english = || {
        let things = new_things(voice, section).filter(|_| count > 1)?;
        Some(format!("more {things}"))
    };
    let more = voice.further(&section.kind, count).or_else(english);
    let id = match (&more, &about) {
        (Some(_), Some(_)) => "more-named-on",
        (Some(_), None) => "more-named",
        (None, Some(_)) => "more-on",
        (None, None) => "more",
    };
    let mut filled = vec![("count", MessageValue::Count(count))];
    filled.extend(more.as_deref().map(|more| ("more", MessageValue::words(more))));
    filled.extend(about.as_deref().map(|name| ("name", MessageValue::words(name))));
    voice.say(id, &filled, Medium::Text)
}

/// Returns the reason why the user cannot turn an email off, if all its sections are mandatory.
pub(super) fn mandatory(voice: &Voice, sections: &[EmailSection]) -> Option<String> {
    let reason = |section: &EmailSection| {
        let configured = section.mandate.clone()?;
        // The configured reason is English, so other languages must not use it.
        let mandate = if voice.is_english() { configured } else { Mandate::default() };
        Some(voice.reason(&section.kind, &mandate))
    };
    let reasons: Vec<String> = sections.iter().map(reason).collect::<Option<_>>()?;
    let reason = reasons.first()?.trim_end_matches(['.', '。']);
    words(reason, NAME + SHORT)
}

/// Returns the phrase for a number of events that share no noun.
pub(super) fn news(voice: &Voice, total: u64) -> String {
    let count = [("count", MessageValue::Count(total))];
    voice.say("things", &count, Medium::Text).unwrap_or_default()
}

/// Returns the person with the quoted text, or with the item's own title if it has another topic.
pub(super) fn says(
    voice: &Voice,
    by: &str,
    about: &GroupTopic,
    item: &EmailItem,
) -> Option<String> {
    let details = item.details.as_deref();
    let text = details.and_then(|details| details.text.as_deref());
    let title = match about {
        GroupTopic::Stated(_) => item.object.title.as_deref(),
        GroupTopic::Page(_) | GroupTopic::Object => None,
    };
    let said = words(text.or(title)?, SHORT)?;
    let parts = [("label", MessageValue::words(by)), ("text", MessageValue::words(&said))];
    voice.say("label", &parts, Medium::Text)
}

/// Returns the names that can represent a section in a subject, one for each group, with the number
/// of its events. `by_one` is whether one person is behind all events.
pub(super) fn named_by(section: &EmailSection, by_one: bool) -> Vec<(Author, u64)> {
    let named = section.groups.iter().filter_map(|group| {
        // If the type has a phrase, the topic is more informative than one of many people.
        let by = group.items.first()?.author();
        let (name, events) = match by.filter(|_| section.phrase.is_none() && !by_one) {
            Some(by) => {
                let people = group.items.iter().filter_map(EmailItem::author);
                let events = people.filter(|other| other.is_same(&by)).count();
                (by, events as u64)
            }
            None => {
                let (id, name) = (None, group.title()?.to_owned());
                (Author { id, name }, group.total)
            }
        };
        let shown = words(&name.name, SHORT)?;
        Some((Author { name: shown, ..name }, events))
    });
    named.collect()
}

/// Returns `ends` in templates: the effect of a stop link. `follow` is the name of the follow that
/// it ends, and `heading` returns the heading of a type.
pub(super) fn ends(
    stop: &StopAction,
    follow: Option<&str>,
    heading: impl Fn(&EventType) -> String,
) -> Value {
    let (what, kinds) = match stop {
        StopAction::All => ("all", &[][..]),
        StopAction::Digest => ("digest", &[][..]),
        // All types that are emailed outside the digest.
        StopAction::OutsideDigest => ("alone", &[][..]),
        StopAction::Types(kinds) => ("types", kinds.as_slice()),
        StopAction::Follow(_) => ("follow", &[][..]),
        StopAction::Subject(..) => ("subject", &[][..]),
    };
    // The title of the subject, or its key if it has no title.
    let subject = match stop {
        StopAction::Subject(subject, title) => {
            Some(title.as_ref().map_or(subject.as_str(), Title::as_str))
        }
        _ => None,
    };
    // The headings of the types, or the name of the follow.
    let headings: Vec<String> = match follow.and_then(|name| words(name, NAME)) {
        Some(name) => vec![name],
        None => kinds.iter().map(heading).collect(),
    };
    context! { what, headings, subject }
}
