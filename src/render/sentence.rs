//! Words about an email's events: sentences such as "Ada and Ben commented on Budget", nouns such
//! as "12 more works", and the effect of a stop link.
//!
//! A sentence exists only if the type has a phrase in the user's language and all people are known.
//! Words of the configuration are English, so they appear only in English sentences. This module
//! supplies the parts; templates and catalogs supply the wording. Start with [`SentenceView`].

use minijinja::{Value, context};
use serde::Serialize;

use super::locale_formatter::{LocaleFormatter, Medium, MessageValue};
use super::safe_text::{MAX_NAME, MAX_SHORT_NAME, MAX_TITLE, label, link, non_empty, shorten};
use crate::domain::email_sections::{
    Author, Authors, EmailGroup, EmailItem, EmailSection, GroupTopic,
};
use crate::domain::mutes_and_quiet_hours::Title;
use crate::domain::{EventType, Mandate, StopAction};

/// The most names in a sentence. Longer lists show one fewer, and a count of the rest.
pub(super) const MAX_NAMES: usize = 3;

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
    #[serde(rename = "total")]
    covered: u64,
    rest: u64,
}

impl SentenceView {
    /// Returns a sentence for all events if they are of one type, else for the first group that
    /// allows one. `email_total` is the number of events of the email.
    pub(super) fn of_all(
        formatter: &LocaleFormatter,
        sections: &[EmailSection],
        email_total: u64,
    ) -> Option<Self> {
        if let [section] = sections
            && let Some(sentence) = Self::of_section(formatter, section, email_total)
        {
            return Some(sentence);
        }
        let first_of = |section: &EmailSection| {
            let mut groups = section.groups.iter();
            groups.find_map(|group| Self::of_group(formatter, section, group, email_total))
        };
        sections.iter().find_map(first_of)
    }

    /// Returns the URL of the topic, if there is only one.
    pub(super) fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    pub(super) fn of_group(
        formatter: &LocaleFormatter,
        section: &EmailSection,
        group: &EmailGroup,
        email_total: u64,
    ) -> Option<Self> {
        let url = match group.items.as_slice() {
            [only] if is_itself(group) && group.total == 1 => only.object.url.as_deref(),
            _ => group.url(),
        };
        Some(Self {
            about: vec![topic(group, MAX_TITLE)],
            url: url.and_then(link).map(str::to_owned),
            ..Self::of(formatter, section, &group.authors, group.total, email_total)?
        })
    }

    fn of_section(
        formatter: &LocaleFormatter,
        section: &EmailSection,
        email_total: u64,
    ) -> Option<Self> {
        if section.topic_count == 1 {
            return Self::of_group(formatter, section, section.groups.first()?, email_total);
        }
        let groups = section.groups.iter().take(shown_names(section.topic_count));
        let about: Vec<String> = groups.map(|group| topic(group, MAX_SHORT_NAME)).collect();
        let known = section.total - section.omitted;
        Some(Self {
            elsewhere: section.topic_count - about.len(),
            about,
            ..Self::of(formatter, section, &section.authors, known, email_total)?
        })
    }

    /// Returns a sentence without topics; `covered` is the number of events that it covers.
    fn of(
        formatter: &LocaleFormatter,
        section: &EmailSection,
        people: &Authors,
        covered: u64,
        email_total: u64,
    ) -> Option<Self> {
        let configured = section.phrase.as_ref()?;
        let Authors::Named(people) = people else {
            return None;
        };
        let phrase = formatter.phrase_or(&section.kind, people.len() as u64, configured)?;
        let shown = people.iter().take(shown_names(people.len()));
        let names: Vec<String> =
            shown.map(|author| shorten(&author.name, MAX_SHORT_NAME)).collect();
        Some(Self {
            others: people.len() - names.len(),
            names,
            people: people.len(),
            phrase,
            about: Vec::new(),
            elsewhere: 0,
            url: None,
            covered,
            rest: email_total - covered,
        })
    }
}

/// Returns how many names of a list to show.
fn shown_names(count: usize) -> usize {
    if count <= MAX_NAMES { count } else { MAX_NAMES - 1 }
}

/// Returns the topic of a group in words.
fn topic(group: &EmailGroup, max: usize) -> String {
    match (&group.topic, group.items.first()) {
        (GroupTopic::Stated(topic) | GroupTopic::Page(topic), _) => shorten(&topic.title, max),
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
        about => topic(group, MAX_TITLE),
        url => group.url().and_then(link),
        itself => is_itself(group),
    }
}

pub(super) fn heading(formatter: &LocaleFormatter, section: &EmailSection) -> String {
    formatter.heading(&section.heading, &section.kind)
}

/// Returns the noun for a number of events of one section, or `None` if the section has no noun.
pub(super) fn section_noun(
    formatter: &LocaleFormatter,
    section: &EmailSection,
    count: u64,
) -> Option<String> {
    let from_heading = || Some(format!("new {}", new_things(formatter, section)?));
    formatter.new_events_noun(&section.kind, count).or_else(from_heading)
}

/// Returns `works` for a section with the English heading `New works`.
fn new_things(formatter: &LocaleFormatter, section: &EmailSection) -> Option<String> {
    let heading = heading(formatter, section);
    let things = heading.strip_prefix("New ").filter(|_| formatter.is_english())?;
    Some(things.to_owned())
}

/// Returns the number of further events in words, with their topic; `None` if there are none.
pub(super) fn further_events(
    formatter: &LocaleFormatter,
    section: &EmailSection,
    count: u64,
    about: Option<String>,
) -> Option<String> {
    if count == 0 {
        return None;
    }
    // The heading is a plural.
    let from_heading = || {
        let things = new_things(formatter, section).filter(|_| count > 1)?;
        Some(format!("more {things}"))
    };
    let more = formatter.further_events_noun(&section.kind, count).or_else(from_heading);
    let id = match (&more, &about) {
        (Some(_), Some(_)) => "more-named-on",
        (Some(_), None) => "more-named",
        (None, Some(_)) => "more-on",
        (None, None) => "more",
    };
    let mut values = vec![("count", MessageValue::Count(count))];
    values.extend(more.as_deref().map(|more| ("more", MessageValue::words(more))));
    values.extend(about.as_deref().map(|name| ("name", MessageValue::words(name))));
    formatter.format(id, &values, Medium::Text)
}

/// Returns the reason why the user cannot turn an email off, if all its sections are mandatory.
pub(super) fn mandatory_reason(
    formatter: &LocaleFormatter,
    sections: &[EmailSection],
) -> Option<String> {
    let reason = |section: &EmailSection| {
        let configured = section.mandate.clone()?;
        // The configured reason is English, so other languages must not use it.
        let mandate = if formatter.is_english() { configured } else { Mandate::default() };
        Some(formatter.reason(&section.kind, &mandate))
    };
    let reasons: Vec<String> = sections.iter().map(reason).collect::<Option<_>>()?;
    let reason = reasons.first()?.trim_end_matches(['.', '。']);
    non_empty(reason, MAX_NAME + MAX_SHORT_NAME)
}

/// Returns the phrase for a number of events that share no noun.
pub(super) fn general_noun(formatter: &LocaleFormatter, count: u64) -> String {
    let values = [("count", MessageValue::Count(count))];
    formatter.format("things", &values, Medium::Text).unwrap_or_default()
}

/// Returns the person with the quoted text, or with the item's own title if it has another topic.
pub(super) fn quote_of(
    formatter: &LocaleFormatter,
    by: &str,
    about: &GroupTopic,
    item: &EmailItem,
) -> Option<String> {
    let text = item.details.as_deref().and_then(|details| details.text.as_deref());
    let title = match about {
        GroupTopic::Stated(_) => item.object.title.as_deref(),
        GroupTopic::Page(_) | GroupTopic::Object => None,
    };
    let quote = non_empty(text.or(title)?, MAX_SHORT_NAME)?;
    let parts = [("label", MessageValue::words(by)), ("text", MessageValue::words(&quote))];
    formatter.format("label", &parts, Medium::Text)
}

/// Returns the names that can represent a section in a subject, one for each group, with the number
/// of its events. `by_one` is whether one person is behind all events.
pub(super) fn representatives(section: &EmailSection, by_one: bool) -> Vec<(Author, u64)> {
    let representative = |group: &EmailGroup| {
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
        let short_name = non_empty(&name.name, MAX_SHORT_NAME)?;
        Some((Author { name: short_name, ..name }, events))
    };
    section.groups.iter().filter_map(representative).collect()
}

/// Returns `ends` in templates: the effect of a stop link. `follow` is the name of the follow that
/// it ends, and `heading` returns the heading of a type.
pub(super) fn stop_effect(
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
    let headings: Vec<String> = match follow.and_then(|name| non_empty(name, MAX_NAME)) {
        Some(name) => vec![name],
        None => kinds.iter().map(heading).collect(),
    };
    context! { what, headings, subject }
}
