//! Who speaks: the words, numbers, days and times of one locale.
//!
//! The rule: what is filled into a message stays what it is. It cannot be taken for a part of the
//! message, in HTML it is escaped, and where it may run in the other direction it is isolated: by
//! `<span dir="auto">` in HTML, which more mail programs know than `<bdi>`, by U+2068 and U+2069
//! elsewhere.

use std::borrow::Cow;
use std::sync::Arc;

use chrono::{DateTime, Datelike, Locale, NaiveTime, TimeZone, Utc};
use chrono_tz::Tz;
use fluent_bundle::FluentArgs;

use super::bundle::{Bundle, ENGLISH, NUMBER, counted};
use super::naming::{NAME, SHORT, heading_of, words};
use super::text::escape_into;
use crate::domain::{EventType, Mandate};

/// Before the character that says which words stand here.
const WORDS: char = '\u{e000}';
/// The first of these.
const FIRST: u32 = 0xe100;

const ISOLATE: char = '\u{2068}';
const END: char = '\u{2069}';

/// What is filled into a message.
#[derive(Debug, Clone)]
pub(super) enum Filled<'a> {
    /// A number: it chooses the plural.
    Count(u64),
    /// Words from outside.
    Words(Cow<'a, str>),
    /// What is ready to stand where it goes, such as HTML.
    Ready(Cow<'a, str>),
}

impl<'a> Filled<'a> {
    pub(super) fn words(words: &'a str) -> Self {
        Self::Words(Cow::Borrowed(words))
    }
}

/// Where words go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Medium {
    Html,
    Text,
}

/// The direction of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Ltr,
    Rtl,
}

impl Direction {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Ltr => "ltr",
            Self::Rtl => "rtl",
        }
    }
}

/// Speaks for one locale.
pub(super) struct Voice {
    tag: String,
    /// Its catalog, then those it falls back to.
    bundles: Vec<Arc<Bundle>>,
    /// How many of these are of its own language; the others are English.
    own: usize,
    direction: Direction,
    calendar: Locale,
    thousands: String,
    /// So many digits has a number at least whose thousands are parted.
    parted_from: usize,
    date: String,
    date_year: String,
    date_next: String,
    time: String,
}

impl Voice {
    pub(super) fn new(tag: String, bundles: Vec<Arc<Bundle>>) -> Self {
        let language = |bundle: &Arc<Bundle>| bundle.locales.first().map(|of| of.language);
        let first = bundles.first().and_then(language);
        let own = bundles
            .iter()
            .take_while(|bundle| language(bundle) == first);
        let mut voice = Self {
            tag,
            own: own.count(),
            bundles,
            direction: Direction::Ltr,
            calendar: Locale::POSIX,
            thousands: String::new(),
            parted_from: usize::MAX,
            date: String::new(),
            date_year: String::new(),
            date_next: String::new(),
            time: String::new(),
        };
        let plain = |id: &str| voice.say(id, &[], Medium::Text).unwrap_or_default();
        let direction = match plain("direction").as_str() {
            "rtl" => Direction::Rtl,
            _ => Direction::Ltr,
        };
        let calendar = plain("calendar").parse().unwrap_or(Locale::POSIX);
        let parted_from = plain("thousands.min").parse().unwrap_or(usize::MAX);
        let [thousands, date, date_year, date_next, time] =
            ["thousands", "date", "date-year", "date-next", "time"].map(plain);
        voice.direction = direction;
        voice.calendar = calendar;
        voice.parted_from = parted_from;
        voice.thousands = thousands;
        voice.date = date;
        voice.date_year = date_year;
        voice.date_next = date_next;
        voice.time = time;
        voice
    }

    /// Its locale.
    pub(super) fn tag(&self) -> &str {
        &self.tag
    }

    pub(super) fn direction(&self) -> Direction {
        self.direction
    }

    /// Whether English is spoken, and nothing else is fallen back to.
    pub(super) fn is_english(&self) -> bool {
        self.tag.split('-').next() == Some(ENGLISH)
    }

    /// A message with all that is filled in; `None` if there is none of this name, or none that
    /// can be said.
    pub(super) fn say(
        &self,
        id: &str,
        filled: &[(&str, Filled<'_>)],
        medium: Medium,
    ) -> Option<String> {
        self.say_by(&self.bundles, id, filled, medium)
    }

    fn say_by(
        &self,
        bundles: &[Arc<Bundle>],
        id: &str,
        filled: &[(&str, Filled<'_>)],
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
            let args = args(bundle, filled);
            let mut errors = Vec::new();
            let said = bundle.format_pattern(pattern, Some(&args), &mut errors);
            errors.is_empty().then(|| self.fill(&said, filled, medium))
        })
    }

    /// Puts in what marks stand for.
    fn fill(&self, said: &str, filled: &[(&str, Filled<'_>)], medium: Medium) -> String {
        let mut out = String::with_capacity(said.len() + 32);
        let mut rest = said;
        while let Some(at) = rest.find([WORDS, NUMBER.0]) {
            plain(&rest[..at], medium, &mut out);
            let mut chars = rest[at..].chars();
            if chars.next() == Some(WORDS) {
                let which = chars.next().map_or(0, u32::from);
                let which = which.checked_sub(FIRST).map(|n| n as usize);
                match which.and_then(|n| filled.get(n)) {
                    Some((_, Filled::Words(words))) => self.isolate(words, medium, &mut out),
                    Some((_, Filled::Ready(ready))) => out.push_str(ready),
                    Some((_, Filled::Count(_))) | None => {}
                }
                rest = chars.as_str();
            } else {
                let (digits, after) = chars.as_str().split_once(NUMBER.1).unwrap_or_default();
                out.push_str(&self.parted(digits));
                rest = after;
            }
        }
        plain(rest, medium, &mut out);
        out
    }

    /// Words that may run in another direction than what is around them; what was isolated in parts
    /// stays so.
    pub(super) fn isolate(&self, words: &str, medium: Medium, out: &mut String) {
        let differs = match self.direction {
            Direction::Rtl => {
                let other = |c: char| c.is_alphabetic() && !is_rtl(c);
                // An hour is a part of what is around it: `09` and `:00` are one time.
                let is_time = words.chars().all(|c| c.is_ascii_digit() || c == ':');
                words.contains(other) || !(is_time || words.contains(is_rtl))
            }
            Direction::Ltr => words.contains(is_rtl),
        };
        if words.is_empty() || !differs || words.contains(ISOLATE) {
            return plain(words, medium, out);
        }
        match medium {
            Medium::Html => {
                out.push_str("<span dir=\"auto\">");
                plain(words, medium, out);
                out.push_str("</span>");
            }
            Medium::Text => {
                out.push(ISOLATE);
                out.push_str(words);
                out.push(END);
            }
        }
    }

    /// A number with its thousands parted: `39,389`.
    pub(super) fn grouped(&self, n: u64) -> String {
        self.parted(&n.to_string())
    }

    fn parted(&self, digits: &str) -> String {
        if digits.len() < self.parted_from {
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

/// Days and times.
impl Voice {
    fn written<T: TimeZone>(&self, at: &DateTime<T>, pattern: &str) -> String
    where
        T::Offset: std::fmt::Display,
    {
        at.format_localized(pattern, self.calendar).to_string()
    }

    /// A day with its year, such as `22 April 2014`.
    pub(super) fn day_in_full(&self, at: DateTime<Utc>, tz: Tz) -> String {
        self.written(&at.with_timezone(&tz), &self.date_year)
    }

    /// A day as people write it, with its year if that is not this one.
    pub(super) fn day(&self, at: DateTime<Utc>, now: DateTime<Utc>, tz: Tz) -> String {
        let (at, now) = (at.with_timezone(&tz), now.with_timezone(&tz));
        let same = at.year() == now.year();
        self.written(&at, if same { &self.date } else { &self.date_year })
    }

    /// When something takes place, such as `2 May, 18:00`. What is noted as midnight UTC has a day
    /// alone, which is the same everywhere.
    pub(super) fn takes_place(&self, at: DateTime<Utc>, now: DateTime<Utc>, tz: Tz) -> String {
        if at.time() == NaiveTime::MIN {
            return self.day(at, now, Tz::UTC);
        }
        self.day_and_time(at, now, tz)
    }

    /// A time of the day, such as `08:14`.
    pub(super) fn time(&self, at: DateTime<Utc>, tz: Tz) -> String {
        self.written(&at.with_timezone(&tz), &self.time)
    }

    /// A time of the day, with its day if that is not this one.
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
            ("date", Filled::Ready(day.as_str().into())),
            ("time", Filled::Ready(time.as_str().into())),
        ];
        let said = self.say("date-time", &parts, Medium::Text);
        said.unwrap_or_else(|| format!("{day}, {time}"))
    }

    /// The day of the week, the day and the time: when a digest comes.
    pub(super) fn next(&self, at: DateTime<Utc>, tz: Tz) -> String {
        self.written(&at.with_timezone(&tz), &self.date_next)
    }
}

/// Types: a catalog may say what the configuration says, for its readers.
impl Voice {
    /// In its own language alone: these words become parts of its sentences.
    fn of_type(&self, kind: &EventType, what: &str, count: Option<(&str, u64)>) -> Option<String> {
        self.of_type_by(&self.bundles[..self.own], kind, what, count)
    }

    fn of_type_by(
        &self,
        bundles: &[Arc<Bundle>],
        kind: &EventType,
        what: &str,
        count: Option<(&str, u64)>,
    ) -> Option<String> {
        let count = count.map(|(name, count)| (name, Filled::Count(count)));
        let id = message_of(kind, what);
        let said = self.say_by(bundles, &id, count.as_slice(), Medium::Text)?;
        words(&said, NAME)
    }

    /// What a type is called; in English where its own language has no words.
    pub(super) fn heading(&self, configured: &str, kind: &EventType) -> String {
        let said = self.of_type_by(&self.bundles, kind, "", None);
        said.unwrap_or_else(|| heading_of(configured, kind))
    }

    /// The messages of a type that its own language lacks: its heading, and its phrase if it has
    /// one. English lacks none, as the configuration is in English.
    pub(super) fn lacking(&self, kind: &EventType, has_phrase: bool) -> Vec<String> {
        if self.is_english() {
            return Vec::new();
        }
        let heading = self.of_type(kind, "", None).is_none();
        let phrase = has_phrase && self.phrase(kind, 1).is_none();
        let lacking = [(heading, ""), (phrase, ".phrase")].into_iter();
        let lacking = lacking.filter(|(lacks, _)| *lacks);
        lacking.map(|(_, what)| message_of(kind, what)).collect()
    }

    /// What so many of its events are called after their number.
    pub(super) fn news(&self, kind: &EventType, count: u64) -> Option<String> {
        self.of_type(kind, ".new", Some(("count", count)))
    }

    /// What further events of it are called after their number: `more comments`.
    pub(super) fn further(&self, kind: &EventType, count: u64) -> Option<String> {
        self.of_type(kind, ".more", Some(("count", count)))
    }

    /// What so many people do in it.
    pub(super) fn phrase(&self, kind: &EventType, people: u64) -> Option<String> {
        let said = self.of_type(kind, ".phrase", Some(("people", people)))?;
        words(&said, SHORT)
    }

    /// What it belongs to.
    pub(super) fn category(&self, kind: &EventType) -> Option<String> {
        self.of_type(kind, ".category", None)
    }

    /// Why it cannot be turned off.
    pub(super) fn reason(&self, kind: &EventType, mandate: &Mandate) -> String {
        let said = self.of_type(kind, ".reason", None);
        said.or_else(|| {
            let usual = *mandate == Mandate::default();
            usual
                .then(|| self.say("locked", &[], Medium::Text))
                .flatten()
        })
        .unwrap_or_else(|| mandate.as_str().to_owned())
    }
}

/// The message that says something of a type.
fn message_of(kind: &EventType, what: &str) -> String {
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let name = kind.as_str().chars();
    let name: String = name.map(|c| if letter(c) { c } else { '-' }).collect();
    format!("type-{name}{what}")
}

/// What stands for what is filled in while a message of this bundle is put together.
fn args<'a>(bundle: &Bundle, filled: &[(&'a str, Filled<'_>)]) -> FluentArgs<'a> {
    let mut args = FluentArgs::with_capacity(filled.len());
    for (n, (name, value)) in (FIRST..).zip(filled) {
        match value {
            Filled::Count(count) => args.set(*name, counted(bundle, *count)),
            Filled::Words(_) | Filled::Ready(_) => {
                let which = char::from_u32(n).unwrap_or_default();
                args.set(*name, format!("{WORDS}{which}"));
            }
        }
    }
    args
}

/// Words as they stand in a medium.
pub(super) fn plain(text: &str, medium: Medium, out: &mut String) {
    match medium {
        Medium::Text => out.push_str(text),
        Medium::Html => escape_into(out, text),
    }
}

/// Whether letters run from right to left after this one.
fn is_rtl(c: char) -> bool {
    matches!(c,
        '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}'
        | '\u{10800}'..='\u{10fff}' | '\u{1e800}'..='\u{1efff}')
}

/// One line with its isolates ended, whatever was cut off.
pub(super) fn closed(mut line: String) -> String {
    let opened = line.matches(ISOLATE).count();
    let ended = line.matches(END).count();
    line.extend(std::iter::repeat_n(END, opened.saturating_sub(ended)));
    line
}
