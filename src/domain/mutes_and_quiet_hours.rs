//! Preferences of users that defer or exclude emails: muted subjects and quiet hours.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, NaiveTime, TimeDelta, Timelike, Utc};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};

use super::details::Details;
use super::name::{InvalidValue, Subject, checked_texts, serde_as_text};
use super::object::{GroupTopic, Object, ObjectKey};
use super::schedule::moments;
use super::text_checks::Phrase;

checked_texts! {
    /// The name of a subject for users, such as the title of a document. One line of 1 to
    /// [`Title::MAX_BYTES`] bytes.
    Title: check_title;
}

impl Title {
    /// The longest title, in bytes. Titles are part of unsubscribe links.
    pub const MAX_BYTES: usize = 120;

    /// Shortens a text to a title on one line. Returns `None` for blank text.
    pub fn cut(text: &str) -> Option<Self> {
        let words = text.split(|c: char| c.is_whitespace() || c.is_control());
        let line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        if line.len() <= Self::MAX_BYTES {
            return (!line.is_empty()).then(|| Self::stored(line));
        }
        let room = Self::MAX_BYTES - '…'.len_utf8();
        let end = (0..=room).rev().find(|end| line.is_char_boundary(*end))?;
        Some(Self::stored(format!("{}…", line[..end].trim_end())))
    }
}

fn check_title(text: &str) -> Result<&str, InvalidValue> {
    let (trimmed, most) = (text.trim(), Title::MAX_BYTES);
    if trimmed.is_empty() || trimmed.chars().any(char::is_control) {
        let why = "is not one line of text; leave it out if there is none";
        return Err(InvalidValue::new("title", text.escape_debug(), why));
    }
    let why = format_args!("bytes is more than the {most} that can be kept; shorten it");
    InvalidValue::check_limit("title of", trimmed.len(), most, why)?;
    Ok(trimmed)
}

/// A mute of one subject, current or ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mute {
    /// The start.
    pub at: DateTime<Utc>,
    /// The end. Later events are emailed again. `None` until the user unmutes the subject.
    pub until: Option<DateTime<Utc>>,
    /// The subject's title, if known.
    pub title: Option<Title>,
}

impl Mute {
    /// Returns whether the mute covers an event of this time, which may be earlier than the mute.
    fn covers(&self, at: DateTime<Utc>) -> bool {
        self.until.is_none_or(|until| at < until)
    }
}

/// The mutes of one user, including those that ended recently.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mutes(BTreeMap<Subject, Mute>);

impl Mutes {
    /// The maximum number of subjects, including recently ended mutes.
    pub const MAX: usize = 1_000;

    /// Creates the mutes from the store, without checks.
    pub fn stored(mutes: impl IntoIterator<Item = (Subject, Mute)>) -> Self {
        Self(mutes.into_iter().collect())
    }

    /// Returns all mutes by subject, including ended ones.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Subject, &Mute)> {
        self.0.iter()
    }

    /// Returns the mutes that have not ended.
    pub fn current(&self, now: DateTime<Utc>) -> impl Iterator<Item = (&Subject, &Mute)> {
        self.0.iter().filter(move |(_, mute)| mute.covers(now))
    }

    /// Returns whether there is no mute, not even an ended one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of mutes, including ended ones.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Checks that the number of mutes is within [`Self::MAX`].
    pub fn check(&self) -> Result<(), InvalidValue> {
        let most = Self::MAX;
        let why = format_args!(
            "is more than the {most} subjects one person can have muted, including recently ended \
             mutes"
        );
        InvalidValue::check_limit("mutes", self.0.len(), most, why)
    }

    /// Returns whether any mute may cover an event of this time.
    pub fn may_cover(&self, at: DateTime<Utc>) -> bool {
        self.0.values().any(|mute| mute.covers(at))
    }

    /// Returns whether this subject is muted without an end.
    pub fn is_muted_forever(&self, subject: &Subject) -> bool {
        self.0.get(subject).is_some_and(|mute| mute.until.is_none())
    }

    /// Mutes a subject until `until`, or until the user unmutes it. An `until` that has passed
    /// unmutes it. A subject that is already muted keeps its start.
    pub fn mute(
        &mut self,
        subject: Subject,
        until: Option<DateTime<Utc>>,
        title: Option<Title>,
        now: DateTime<Utc>,
    ) {
        if until.is_some_and(|until| until <= now) {
            return self.unmute(&subject, now);
        }
        let before = self.0.get(&subject);
        let current = before.filter(|mute| mute.covers(now));
        let mute = Mute {
            at: current.map_or(now, |mute| mute.at),
            until,
            title: title.or_else(|| before?.title.clone()),
        };
        self.0.insert(subject, mute);
    }

    /// Ends a mute now. An ended mute does not change.
    pub fn unmute(&mut self, subject: &Subject, now: DateTime<Utc>) {
        if let Some(mute) = self.0.get_mut(subject).filter(|mute| mute.covers(now)) {
            mute.until = Some(now);
        }
    }

    /// Sets missing titles to what `find_title` returns.
    pub fn fill_titles(&mut self, find_title: impl Fn(&Subject) -> Option<Title>) {
        for (subject, mute) in &mut self.0 {
            if mute.title.is_none() {
                mute.title = find_title(subject);
            }
        }
    }

    /// Removes the mutes that ended before this moment. Use a moment before the oldest event that
    /// may still be emailed.
    pub fn remove_ended(&mut self, before: DateTime<Utc>) {
        self.0.retain(|_, mute| mute.covers(before));
    }

    /// Removes the mutes that started after this moment, to rebuild an email as it was then.
    pub fn remove_started_after(&mut self, moment: DateTime<Utc>) {
        self.0.retain(|_, mute| mute.at <= moment);
    }

    /// Returns the start of the mute that covers an event, or `None` if no mute does.
    ///
    /// An event is about its object's key, and about the object's topic ([`GroupTopic`]), by URL or
    /// title. It is also about a follow key if it goes only to the followers of that key. If
    /// several mutes cover it, the earliest start counts.
    pub fn covering_start(
        &self,
        at: DateTime<Utc>,
        key: &ObjectKey,
        object: Option<&Object>,
        phrase: Option<&Phrase>,
        details: Option<&Details>,
    ) -> Option<DateTime<Utc>> {
        let topic = object.map(|object| GroupTopic::of(object, phrase));
        let topic_name = topic.as_ref().and_then(GroupTopic::name);
        let follow_key = details.and_then(Details::followed);
        let subjects = [Some(key.as_str()), topic_name, follow_key].into_iter().flatten();
        let mutes = subjects.filter_map(|subject| self.0.get(&Subject::stored(subject)));
        mutes.filter(|mute| mute.covers(at)).map(|mute| mute.at).min()
    }
}

/// A time of day with minute precision, such as `22:00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeOfDay(NaiveTime);

impl FromStr for TimeOfDay {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let refuse = || InvalidValue::new("time of day", text, "is not 00:00 to 23:59");
        let digits = text.bytes().filter(u8::is_ascii_digit);
        let is_plain = text.len() == 5 && digits.count() == 4;
        let time = NaiveTime::parse_from_str(text, "%H:%M").ok();
        time.filter(|_| is_plain).map(Self).ok_or_else(refuse)
    }
}

serde_as_text!(TimeOfDay);

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0.hour(), self.0.minute())
    }
}

/// Quiet hours, the same every day. If `to` is not later than `from`, they end on the next day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Hours")]
pub struct QuietHours {
    from: TimeOfDay,
    to: TimeOfDay,
}

/// The JSON form, before validation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with from and to")]
struct Hours {
    from: TimeOfDay,
    to: TimeOfDay,
}

impl TryFrom<Hours> for QuietHours {
    type Error = InvalidValue;

    fn try_from(hours: Hours) -> Result<Self, InvalidValue> {
        Self::new(hours.from, hours.to)
    }
}

impl QuietHours {
    /// Rejects equal times, which could mean both no quiet hours and the whole day.
    pub fn new(from: TimeOfDay, to: TimeOfDay) -> Result<Self, InvalidValue> {
        if from == to {
            let why = "is where they begin as well; for no quiet hours, set null";
            return Err(InvalidValue::new("the end of quiet hours", to, why));
        }
        Ok(Self { from, to })
    }

    /// Returns the local time at which they start.
    pub fn from(self) -> TimeOfDay {
        self.from
    }

    /// Returns the local time at which they end.
    pub fn to(self) -> TimeOfDay {
        self.to
    }

    /// Returns the end of the quiet hours in progress at `at`, or `None` outside quiet hours.
    pub fn end_at(self, at: DateTime<Utc>, tz: Tz) -> Option<DateTime<Utc>> {
        let mut end = self.current_end(at, tz)?;
        // Where the clock skips a day, the next quiet hours may start at that very moment.
        while let Some(later) = self.current_end(end, tz) {
            end = later;
        }
        Some(end)
    }

    fn current_end(self, at: DateTime<Utc>, tz: Tz) -> Option<DateTime<Utc>> {
        let today = at.with_timezone(&tz).date_naive();
        // They may have started the evening before, and a clock change may move midnight.
        let ends = [-1, 0, 1].into_iter().filter_map(|days| {
            let first_day = today.checked_add_signed(TimeDelta::days(days))?;
            let last_day = if self.to > self.from { first_day } else { first_day.succ_opt()? };
            let (start, _) = moments(first_day.and_time(self.from.0), tz)?;
            let (_, end) = moments(last_day.and_time(self.to.0), tz)?;
            (start <= at && at < end).then_some(end)
        });
        ends.max()
    }
}

#[cfg(test)]
#[path = "mutes_and_quiet_hours_tests.rs"]
mod tests;
