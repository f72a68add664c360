//! The variables of an email that its templates see.
//!
//! All text is safe to print: one line, no direction marks, bounded length. Only HTML escaping is
//! left to the template engine. The names are a contract with the templates of applications: add
//! variables, but never rename or remove one. Start with [`view_of`].

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use minijinja::value::Serde;
use minijinja::{Value, context};

use super::locale_formatter::LocaleFormatter;
use super::safe_text::{
    MAX_NAME, MAX_QUOTE, MAX_SHORT_NAME, MAX_TITLE, label, link, names, non_empty, only_author,
    shorten,
};
use super::sentence::{
    MAX_NAMES, SentenceView, about_view, further_events, general_noun, heading, is_itself,
    mandatory_reason, quote_of, representatives, section_noun, stop_effect,
};
use super::template_input::{EmailInput, data_value, follow_views, place_in};
use crate::domain::email_sections::{Author, EmailGroup, EmailItem, EmailSection, GroupTopic};
use crate::domain::{Cadence, DeliverySource, StopAction};

/// An object's time that is later than its event by no more than this is not shown.
const MAX_SAME_TIME: TimeDelta = TimeDelta::minutes(1);

/// Returns the variables of an email's templates, except `site`. `shown` is the number of items for
/// each section; sections beyond its length are not shown.
pub(super) fn view_of(
    email: &EmailInput<'_>,
    formatter: &LocaleFormatter,
    shown: &[usize],
) -> Value {
    let content = email.content;
    let all = &content.sections;
    let known: u64 = all.iter().map(|section| section.total).sum();
    let in_sections = all.iter().take(shown.len()).map(|section| section.total);
    let shown_sections = all.iter().zip(shown);
    let sections = shown_sections.map(|(section, shown)| email.section(formatter, section, *shown));
    let authors = content.items().map(|(_, item)| item.author());
    let by_all = only_author(authors, content.hidden_count() == 0);
    let columns: Vec<Vec<(Author, u64)>> =
        all.iter().map(|section| representatives(section, by_all.is_some())).collect();
    let names = names(&columns, content.total);
    let is_named = |name: &Author| names.iter().any(|named| named.is_same(name));
    let counts = columns.iter().flatten().filter(|(name, _)| is_named(name));
    let represented: u64 = counts.map(|(_, events)| events).sum();
    let things = match all.as_slice() {
        [section] if known == content.total => section_noun(formatter, section, content.total),
        _ => None,
    };
    let one = all.first().filter(|_| content.total == 1).and_then(|section| {
        let item = section.items().next()?;
        Some(email.item(formatter, section, item, url(item)))
    });
    context! {
        // The recipient. Built-in templates do not read it, see `Rendered::is_personal`.
        user => context! {
            id => email.user.id.as_str(),
            name => email.user.name.as_deref().and_then(|name| non_empty(name, MAX_SHORT_NAME)),
            locale => email.user.locale.as_deref(),
        },
        // The date of the email, such as `22 April 2014`.
        date => formatter.day_in_full(email.at, email.tz),
        // The recipient's time zone, such as `Europe/London`.
        tz => email.tz.name(),
        // The time of the oldest included event: a date in a digest, a time in a batch.
        since => email.when(formatter, content.oldest),
        // The number of included events.
        total => content.total,
        // Whether `things` is the general noun.
        unnamed => things.is_none(),
        // A noun for the events, to follow their number: `new works` if all are in one section with
        // the heading `New works`, else `new things`.
        things => things.unwrap_or_else(|| general_noun(formatter, content.total)),
        // The event, if it is the only one.
        one,
        // The number of events that `names` does not represent.
        others => content.total.saturating_sub(represented),
        // Up to three names that represent the content: of people, else titles.
        names => names.into_iter().map(|name| name.name).collect::<Vec<_>>(),
        // The name of the one person behind all events, if there is only one.
        by_all,
        // Short texts for the first items.
        preview => email.preview(formatter),
        sections => sections.collect::<Vec<_>>(),
        // The number of events that are in no shown section: in a hidden one, or of unknown type.
        elsewhere => content.total.saturating_sub(in_sections.sum()),
        links => context! {
            preferences => email.links.preferences.as_deref().and_then(link),
            unsubscribe => email.links.unsubscribe.as_deref().and_then(link),
            mute => email.links.mute.as_deref().and_then(link),
        },
        // The follows that brought these events to the user, those with the most events first.
        because => follow_views(email),
        // The effect of the unsubscribe link, if there is one.
        ends => email.ends(formatter),
        // The title of the subject that the mute link mutes; none if it has no title.
        mutes => email.mutes(),
        // The reason why the user cannot turn this email off, without a period. None unless all of
        // its events are mandatory.
        mandatory => mandatory_reason(formatter, &content.sections),
        ..email.own_variables(formatter)
    }
}

impl EmailInput<'_> {
    /// Returns the variables that only digests have, or only batches. Shared templates use them to
    /// distinguish the two.
    fn own_variables(&self, formatter: &LocaleFormatter) -> Value {
        let content = self.content;
        match self.occasion {
            DeliverySource::Digest(cadence, period) => context! {
                // `daily`, `weekly`, or empty for a digest on demand.
                cadence => match cadence {
                    Cadence::Never => "",
                    cadence => cadence.as_str(),
                },
                period,
            },
            DeliverySource::Batch(..) => {
                let topic = match content.sections.as_slice() {
                    [section] if section.topic_count == 1 && content.omitted == 0 => {
                        section.groups.first().map(about_view)
                    }
                    _ => None,
                };
                let sentence = SentenceView::of_all(formatter, &content.sections, content.total);
                context! {
                    // The time zone of the times, such as `Europe/London`.
                    zone => self.tz.name(),
                    // The time of the newest included event.
                    until => self.when(formatter, content.newest),
                    // The number of events that the batch counted but did not keep.
                    omitted => content.omitted,
                    // The topic of all events, if they are known to share one.
                    topic,
                    // A sentence to open the email with.
                    sentence => sentence.map(|sentence| Value::from(Serde(sentence))),
                }
            }
        }
    }

    /// Returns a section with its items in a digest, or with its groups by topic in a batch.
    fn section(&self, formatter: &LocaleFormatter, section: &EmailSection, shown: usize) -> Value {
        let mut remaining = shown;
        let groups_with_items = section.groups.iter().map(|group| {
            let items = &group.items[..group.items.len().min(remaining)];
            remaining -= items.len();
            (group, items)
        });
        let shown_groups: Vec<(&EmailGroup, &[EmailItem])> =
            groups_with_items.filter(|(_, items)| !items.is_empty()).collect();
        let more = section.total - shown_groups.iter().map(|(group, _)| group.total).sum::<u64>();
        // The first item of the email shows its image above the text.
        let opens = self.content.sections.first().map(|first| &first.kind) == Some(&section.kind);
        let has_image = |item: &EmailItem| image(item).is_some();
        let (pictured, own) = match self.occasion {
            DeliverySource::Digest(..) => {
                let shown_items = || shown_groups.iter().flat_map(|(_, items)| *items);
                let pictured = shown_items().skip(usize::from(opens)).any(has_image);
                let items: Vec<Value> = shown_items()
                    .map(|item| self.item(formatter, section, item, url(item)))
                    .collect();
                (pictured, context! { items })
            }
            DeliverySource::Batch(..) => {
                let (mut pictured, mut groups) = (false, Vec::new());
                for (group, items) in shown_groups {
                    let sentence =
                        SentenceView::of_group(formatter, section, group, self.content.total);
                    let is_alone = sentence.is_none() && group.total == 1 && is_itself(group);
                    pictured |= is_alone && items.iter().any(has_image);
                    groups.push(self.group(formatter, section, (group, items), sentence));
                }
                (pictured, context! { groups })
            }
        };
        context! {
            type => section.kind.as_str(),
            heading => heading(formatter, section),
            total => section.total,
            // The number of events that are not in the shown items or groups.
            more,
            // The same number in words, such as `12 more works`; none if it is 0.
            further => further_events(formatter, section, more, None),
            // Whether images appear next to items, in a column of their own.
            pictured,
            ..own
        }
    }

    fn group(
        &self,
        formatter: &LocaleFormatter,
        section: &EmailSection,
        (group, items): (&EmailGroup, &[EmailItem]),
        sentence: Option<SentenceView>,
    ) -> Value {
        // An item has no link if an earlier one or the heading of the group has the same.
        let sentence_url = sentence.as_ref().and_then(SentenceView::url);
        let heading_url = sentence_url.or_else(|| group.url().and_then(link));
        let mut linked: Vec<&str> = heading_url.into_iter().collect();
        let views = items.iter().map(|item| {
            let link = url(item).filter(|url| !linked.contains(url));
            linked.extend(link);
            self.item(formatter, section, item, link)
        });
        let item_views: Vec<Value> = views.collect();
        let more = group.total - items.len() as u64;
        let title = group.title().and_then(|title| non_empty(title, MAX_SHORT_NAME));
        context! {
            total => group.total,
            items => item_views,
            // The number of events that are not in the shown items.
            more,
            // The same number in words, such as `2 more comments on Budget`; none if it is 0.
            further => further_events(formatter, section, more, title),
            sentence => sentence.map(|sentence| Value::from(Serde(sentence))),
            ..about_view(group)
        }
    }

    fn item(
        &self,
        formatter: &LocaleFormatter,
        section: &EmailSection,
        item: &EmailItem,
        link: Option<&str>,
    ) -> Value {
        let object = &*item.object;
        let text = item.details.as_deref().and_then(|details| details.text.as_deref());
        let later = object.at.filter(|at| *at - item.at > MAX_SAME_TIME);
        context! {
            type => section.kind.as_str(),
            heading => heading(formatter, section),
            id => shorten(item.id.as_str(), MAX_TITLE),
            title => object.title.as_deref().and_then(|title| non_empty(title, MAX_TITLE)),
            // The title, or the id if there is none.
            label => label(item, MAX_TITLE),
            url => url(item),
            // The URL, unless the group or an earlier item of the group already links to it.
            link,
            image => image(item),
            by => item.author_name().and_then(|by| non_empty(by, MAX_NAME)),
            // The quoted text of the event.
            text => text.and_then(|text| non_empty(text, MAX_QUOTE)),
            // When the event happened: a date in a digest, a time in a batch.
            date => self.when(formatter, item.at),
            // The time of the event in ISO 8601, UTC.
            at => iso(item.at),
            // The object's own time, such as that of an opening, in the format of `date`.
            on => object.at.map(|at| self.when(formatter, at)),
            // The object's own time, such as `2 May, 18:00`; none unless later than the event.
            when => later.map(|at| formatter.event_time(at, self.at, self.tz)),
            // The name of the place: `data.place` of the object.
            place => place_in(&object.data).and_then(|place| non_empty(&place, MAX_NAME)),
            // The application's own data of the object.
            data => data_value(&object.data),
        }
    }

    /// Returns the effect of the unsubscribe link, with the headings of this email's sections.
    fn ends(&self, formatter: &LocaleFormatter) -> Option<Value> {
        self.links.unsubscribe.as_ref()?;
        let sections = &self.content.sections;
        Some(stop_effect(self.stop.unwrap_or(&StopAction::All), None, |kind| {
            let section = sections.iter().find(|section| section.kind == *kind);
            section.map_or_else(
                || formatter.heading(kind.as_str(), kind),
                |section| heading(formatter, section),
            )
        }))
    }

    fn mutes(&self) -> Option<String> {
        self.links.mute.as_ref()?;
        let group = self.content.sections.first()?.groups.first()?;
        non_empty(group.title()?, MAX_TITLE)
    }

    /// Formats a time as a date in a digest, and as a time of day in a batch.
    fn when(&self, formatter: &LocaleFormatter, at: DateTime<Utc>) -> String {
        match self.occasion {
            DeliverySource::Digest(..) => formatter.day(at, self.at, self.tz),
            DeliverySource::Batch(..) => formatter.moment(at, self.at, self.tz),
        }
    }

    /// Returns short texts for the first items: in a batch the person and the quoted text, else the
    /// title, else the person and the time. A batch omits duplicates, because many items can share
    /// a topic.
    fn preview(&self, formatter: &LocaleFormatter) -> Vec<String> {
        let is_digest = matches!(self.occasion, DeliverySource::Digest(..));
        let mut preview = Vec::new();
        let groups = self.content.sections.iter().flat_map(|section| &section.groups);
        let items = groups.flat_map(|group| group.items.iter().map(|item| (&group.topic, item)));
        for (about, item) in items {
            let by = item.author_name().and_then(|by| non_empty(by, MAX_SHORT_NAME));
            let author = by.as_deref().filter(|_| !is_digest);
            let quote = author.and_then(|by| quote_of(formatter, by, about, item));
            let text =
                quote.unwrap_or_else(|| match (by.filter(|_| is_unnamed(about, item)), about) {
                    (Some(by), _) => format!("{by} {}", self.when(formatter, item.at)),
                    (None, GroupTopic::Page(topic)) => shorten(&topic.title, MAX_SHORT_NAME),
                    (None, GroupTopic::Stated(_) | GroupTopic::Object) => {
                        label(item, MAX_SHORT_NAME)
                    }
                });
            if is_digest || !preview.contains(&text) {
                preview.push(text);
            }
            if preview.len() == MAX_NAMES {
                break;
            }
        }
        preview
    }
}

fn url(item: &EmailItem) -> Option<&str> {
    item.object.url.as_deref().and_then(link)
}

fn image(item: &EmailItem) -> Option<&str> {
    item.object.image.as_deref().and_then(link)
}

/// Formats a time in ISO 8601, UTC, for `<time datetime>`.
pub(super) fn iso(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Returns whether an item has no title to show: it is on the page of its group, or it has another
/// topic and no title.
fn is_unnamed(about: &GroupTopic, item: &EmailItem) -> bool {
    match about {
        GroupTopic::Page(_) => true,
        GroupTopic::Stated(_) => item.object.title.is_none(),
        GroupTopic::Object => false,
    }
}
