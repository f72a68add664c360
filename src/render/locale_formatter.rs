//! Formats messages, numbers, dates and times in one locale.
//!
//! Values cannot change the message they are inserted into, and they are escaped in HTML. Values
//! that may run in the other text direction are isolated. HTML uses `<span dir="auto">`, which more
//! email clients support than `<bdi>`; text uses U+2068 and U+2069. Start with
//! [`LocaleFormatter::format`].

use std::borrow::Cow;
use std::sync::Arc;

use chrono::{DateTime, Datelike, Locale, NaiveTime, Utc};
use chrono_tz::Tz;
use fluent_bundle::FluentArgs;

use super::catalog_files::{Bundle, ENGLISH, NUMBER_MARKS, plural_number};
use super::safe_text::{MAX_NAME, MAX_SHORT_NAME, escape_into, heading_of, non_empty, shorten};
use crate::domain::{EventType, Mandate, Phrase};

/// Starts a placeholder for a text value. The next character identifies the value.
const PLACEHOLDER: char = '\u{e000}';
/// The character that identifies the first value.
const FIRST_VALUE: u32 = 0xe100;

const ISOLATE_START: char = '\u{2068}';
const ISOLATE_END: char = '\u{2069}';

/// A value to insert into a message.
#[derive(Debug, Clone)]
pub(super) enum MessageValue<'a> {
    /// A number. It selects the plural form.
    Count(u64),
    /// Untrusted text, to be escaped and isolated.
    Words(Cow<'a, str>),
    /// Text that is inserted as it is, such as HTML.
    Ready(Cow<'a, str>),
}

impl<'a> MessageValue<'a> {
    pub(super) fn words(words: &'a str) -> Self {
        Self::Words(Cow::Borrowed(words))
    }
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Medium {
    Html,
    Text,
}

/// The formatter of one locale.
pub(super) struct LocaleFormatter {
    tag: String,
    /// The catalog of the locale, then its fallbacks.
    bundles: Vec<Arc<Bundle>>,
    /// The number of bundles in the locale's own language, at the start of `bundles`.
    own: usize,
    is_rtl: bool,
    calendar: Locale,
    thousands: String,
    /// The number of digits from which thousands are separated.
    separated_from: usize,
}

impl LocaleFormatter {
    pub(super) fn new(tag: String, bundles: Vec<Arc<Bundle>>) -> Self {
        let language = |bundle: &Arc<Bundle>| bundle.locales.first().map(|locale| locale.language);
        let first = bundles.first().and_then(language);
        let own = bundles.iter().take_while(|bundle| language(bundle) == first).count();
        let mut formatter = Self {
            tag,
            own,
            bundles,
            is_rtl: false,
            calendar: Locale::POSIX,
            thousands: String::new(),
            separated_from: usize::MAX,
        };
        formatter.is_rtl = formatter.text_of("direction") == "rtl";
        formatter.calendar = formatter.text_of("calendar").parse().unwrap_or(Locale::POSIX);
        formatter.thousands = formatter.text_of("thousands");
        formatter.separated_from = formatter.text_of("thousands.min").parse().unwrap_or(usize::MAX);
        formatter
    }

    /// Returns a message without values; empty if no catalog has it.
    pub(super) fn text_of(&self, id: &str) -> String {
        self.format(id, &[], Medium::Text).unwrap_or_default()
    }

    /// Returns whether no catalog of the locale's own language has this message.
    pub(super) fn lacks(&self, id: &str) -> bool {
        !self.bundles[..self.own].iter().any(|bundle| bundle.has_message(id))
    }

    pub(super) fn tag(&self) -> &str {
        &self.tag
    }

    /// Returns whether text runs from right to left.
    pub(super) fn is_rtl(&self) -> bool {
        self.is_rtl
    }

    /// Returns whether the locale is a variant of English.
    pub(super) fn is_english(&self) -> bool {
        self.tag.split('-').next() == Some(ENGLISH)
    }

    /// Formats a message; `None` if no catalog has it or if it cannot be formatted with these
    /// values. An attribute is written `message.attribute`.
    pub(super) fn format(
        &self,
        id: &str,
        values: &[(&str, MessageValue<'_>)],
        medium: Medium,
    ) -> Option<String> {
        self.format_from(&self.bundles, id, values, medium)
    }

    fn format_from(
        &self,
        bundles: &[Arc<Bundle>],
        id: &str,
        values: &[(&str, MessageValue<'_>)],
        medium: Medium,
    ) -> Option<String> {
        let (id, attribute) = match id.split_once('.') {
            Some((id, attribute)) => (id, Some(attribute)),
            None => (id, None),
        };
        bundles.iter().find_map(|bundle| {
            let message = bundle.get_message(id)?;
            let pattern = match attribute {
                Some(name) => message.get_attribute(name)?.value(),
                None => message.value()?,
            };
            let args = args(bundle, values);
            let mut errors = Vec::new();
            let text = bundle.format_pattern(pattern, Some(&args), &mut errors);
            errors.is_empty().then(|| self.fill(&text, values, medium))
        })
    }

    /// Replaces the placeholders and groups the digits of numbers.
    fn fill(&self, text: &str, values: &[(&str, MessageValue<'_>)], medium: Medium) -> String {
        let mut out = String::with_capacity(text.len() + 32);
        let mut rest = text;
        while let Some(at) = rest.find([PLACEHOLDER, NUMBER_MARKS.0]) {
            plain(&rest[..at], medium, &mut out);
            let mut chars = rest[at..].chars();
            if chars.next() == Some(PLACEHOLDER) {
                let index = chars.next().and_then(|c| u32::from(c).checked_sub(FIRST_VALUE));
                match index.and_then(|index| values.get(index as usize)) {
                    Some((_, MessageValue::Words(words))) => self.isolate(words, medium, &mut out),
                    Some((_, MessageValue::Ready(ready))) => out.push_str(ready),
                    Some((_, MessageValue::Count(_))) | None => {}
                }
                rest = chars.as_str();
            } else {
                let (digits, after) = chars.as_str().split_once(NUMBER_MARKS.1).unwrap_or_default();
                out.push_str(&self.with_separators(digits));
                rest = after;
            }
        }
        plain(rest, medium, &mut out);
        out
    }

    /// Appends text, isolated if its direction may differ from the locale's. Text with isolates is
    /// not isolated again.
    pub(super) fn isolate(&self, words: &str, medium: Medium, out: &mut String) {
        let differs = if self.is_rtl {
            let is_ltr = |c: char| c.is_alphabetic() && !is_rtl(c);
            // Parts of a time, such as `09` or `:00`, keep the direction of the text around them.
            let is_time = words.chars().all(|c| c.is_ascii_digit() || c == ':');
            words.contains(is_ltr) || !(is_time || words.contains(is_rtl))
        } else {
            words.contains(is_rtl)
        };
        if words.is_empty() || !differs || words.contains(ISOLATE_START) {
            return plain(words, medium, out);
        }
        match medium {
            Medium::Html => {
                out.push_str("<span dir=\"auto\">");
                plain(words, medium, out);
                out.push_str("</span>");
            }
            Medium::Text => {
                out.push(ISOLATE_START);
                out.push_str(words);
                out.push(ISOLATE_END);
            }
        }
    }

    /// Formats a number with separated thousands, such as `39,389`.
    pub(super) fn grouped(&self, n: u64) -> String {
        self.with_separators(&n.to_string())
    }

    fn with_separators(&self, digits: &str) -> String {
        if digits.len() < self.separated_from {
            return digits.to_owned();
        }
        let mut out = String::with_capacity(digits.len() + 4);
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                out.push_str(&self.thousands);
            }
            out.push(digit);
        }
        out
    }
}

/// Dates and times.
impl LocaleFormatter {
    /// Formats a time in the pattern of this message.
    fn format_time(&self, at: DateTime<Tz>, pattern: &str) -> String {
        at.format_localized(&self.text_of(pattern), self.calendar).to_string()
    }

    /// Formats a date with its year, such as `22 April 2014`.
    pub(super) fn day_in_full(&self, at: DateTime<Utc>, tz: Tz) -> String {
        self.format_time(at.with_timezone(&tz), "date-year")
    }

    /// Formats a date, with the year only if it is not the year of `now`.
    pub(super) fn day(&self, at: DateTime<Utc>, now: DateTime<Utc>, tz: Tz) -> String {
        let (at, now) = (at.with_timezone(&tz), now.with_timezone(&tz));
        self.format_time(at, if at.year() == now.year() { "date" } else { "date-year" })
    }

    /// Formats the time of an object, such as `2 May, 18:00`. Midnight UTC means a date without a
    /// time; it is not shifted to the zone.
    pub(super) fn event_time(&self, at: DateTime<Utc>, now: DateTime<Utc>, tz: Tz) -> String {
        if at.time() == NaiveTime::MIN {
            return self.day(at, now, Tz::UTC);
        }
        self.day_and_time(at, now, tz)
    }

    /// Formats a time of day, such as `08:14`.
    fn time(&self, at: DateTime<Utc>, tz: Tz) -> String {
        self.format_time(at.with_timezone(&tz), "time")
    }

    /// Formats a time of day, with the date if it is not the day of `now`.
    pub(super) fn moment(&self, at: DateTime<Utc>, now: DateTime<Utc>, tz: Tz) -> String {
        if at.with_timezone(&tz).date_naive() == now.with_timezone(&tz).date_naive() {
            self.time(at, tz)
        } else {
            self.day_and_time(at, now, tz)
        }
    }

    fn day_and_time(&self, at: DateTime<Utc>, now: DateTime<Utc>, tz: Tz) -> String {
        let (day, time) = (self.day(at, now, tz), self.time(at, tz));
        let parts = [
            ("date", MessageValue::Ready(day.as_str().into())),
            ("time", MessageValue::Ready(time.as_str().into())),
        ];
        let text = self.format("date-time", &parts, Medium::Text);
        text.unwrap_or_else(|| format!("{day}, {time}"))
    }

    /// Formats the weekday, date and time of the next digest.
    pub(super) fn next_digest_time(&self, at: DateTime<Utc>, tz: Tz) -> String {
        self.format_time(at.with_timezone(&tz), "date-next")
    }
}

/// Words for event types. A catalog can replace or translate those of the configuration.
impl LocaleFormatter {
    /// Uses only bundles in the locale's own language, because these words become parts of its
    /// sentences.
    fn type_message(
        &self,
        kind: &EventType,
        what: &str,
        count: Option<(&str, u64)>,
    ) -> Option<String> {
        let count = count.map(|(name, count)| (name, MessageValue::Count(count)));
        let (own, id) = (&self.bundles[..self.own], message_of(kind, what));
        let text = self.format_from(own, &id, count.as_slice(), Medium::Text)?;
        non_empty(&text, MAX_NAME)
    }

    /// Returns the heading of a type: from the catalogs including the English fallback, else from
    /// the configuration.
    pub(super) fn heading(&self, configured: &str, kind: &EventType) -> String {
        let text = non_empty(&self.text_of(&message_of(kind, "")), MAX_NAME);
        text.unwrap_or_else(|| heading_of(configured, kind))
    }

    /// Returns the messages that the locale's language lacks for a type: the heading, and the
    /// phrase if the type has one. English lacks none, because the configuration is in English.
    pub(super) fn missing_messages(&self, kind: &EventType, has_phrase: bool) -> Vec<String> {
        if self.is_english() {
            return Vec::new();
        }
        let mut missing = Vec::new();
        if self.type_message(kind, "", None).is_none() {
            missing.push(message_of(kind, ""));
        }
        if has_phrase && self.phrase(kind, 1).is_none() {
            missing.push(message_of(kind, ".phrase"));
        }
        missing
    }

    /// Returns the noun for `count` new events of the type, to follow the number, such as `new
    /// works`.
    pub(super) fn new_events_noun(&self, kind: &EventType, count: u64) -> Option<String> {
        self.type_message(kind, ".new", Some(("count", count)))
    }

    /// Returns the noun for further events of the type, to follow the number, such as `more
    /// comments`.
    pub(super) fn further_events_noun(&self, kind: &EventType, count: u64) -> Option<String> {
        self.type_message(kind, ".more", Some(("count", count)))
    }

    /// Returns the phrase for an action of `people` people, such as `commented on`.
    pub(super) fn phrase(&self, kind: &EventType, people: u64) -> Option<String> {
        let text = self.type_message(kind, ".phrase", Some(("people", people)))?;
        non_empty(&text, MAX_SHORT_NAME)
    }

    /// Returns the phrase like [`Self::phrase`]. If there is none, English uses the configured one.
    /// That one is English, so other languages must not use it.
    pub(super) fn phrase_or(
        &self,
        kind: &EventType,
        people: u64,
        configured: &Phrase,
    ) -> Option<String> {
        let text = self.phrase(kind, people);
        text.or_else(|| self.is_english().then(|| shorten(configured.as_str(), MAX_SHORT_NAME)))
    }

    /// Returns the category of the type on the preference page.
    pub(super) fn category(&self, kind: &EventType) -> Option<String> {
        self.type_message(kind, ".category", None)
    }

    /// Returns the reason why the user cannot turn the type off.
    pub(super) fn reason(&self, kind: &EventType, mandate: &Mandate) -> String {
        let text = self.type_message(kind, ".reason", None);
        let is_default = *mandate == Mandate::default();
        let default = || self.format("locked", &[], Medium::Text).filter(|_| is_default);
        text.or_else(default).unwrap_or_else(|| mandate.as_str().to_owned())
    }
}

/// Returns the message id for a type; `what` is empty or an attribute with its dot.
fn message_of(kind: &EventType, what: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let name: String = kind.as_str().chars().map(|c| if allowed(c) { c } else { '-' }).collect();
    format!("type-{name}{what}")
}

/// Returns the Fluent arguments. Text values are passed as placeholders, which `fill` replaces.
fn args<'a>(bundle: &Bundle, values: &[(&'a str, MessageValue<'_>)]) -> FluentArgs<'a> {
    let mut args = FluentArgs::with_capacity(values.len());
    for (n, (name, value)) in (FIRST_VALUE..).zip(values) {
        match value {
            MessageValue::Count(count) => args.set(*name, plural_number(bundle, *count)),
            MessageValue::Words(_) | MessageValue::Ready(_) => {
                let which = char::from_u32(n).unwrap_or_default();
                args.set(*name, format!("{PLACEHOLDER}{which}"));
            }
        }
    }
    args
}

/// Appends text, escaped in HTML.
pub(super) fn plain(text: &str, medium: Medium, out: &mut String) {
    match medium {
        Medium::Text => out.push_str(text),
        Medium::Html => escape_into(out, text),
    }
}

/// Returns whether a character belongs to a right-to-left script.
fn is_rtl(c: char) -> bool {
    matches!(c,
        '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}'
        | '\u{10800}'..='\u{10fff}' | '\u{1e800}'..='\u{1efff}')
}

/// Closes the isolates in a line that may have been cut.
pub(super) fn close_isolates(mut line: String) -> String {
    let open =
        line.matches(ISOLATE_START).count().saturating_sub(line.matches(ISOLATE_END).count());
    line.extend(std::iter::repeat_n(ISOLATE_END, open));
    line
}
