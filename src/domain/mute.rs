//! What somebody wants to hear nothing of: a thread, a document, an artist.
//!
//! The rule (P7): nothing that happened before a mute ends is mailed, and feeds take it for read.
//! So whoever unmutes something gets nothing older, and how things stand depends on no clock: a
//! mute that has ended is remembered for as long as any of what it covers may still be mailed. What
//! is mandatory is never muted. What an event is about is said by [`Mutes::cover`].

use std::collections::BTreeMap;
use std::str::FromStr;

use chrono::{DateTime, Utc};

use super::about::About;
use super::details::Details;
use super::name::{Invalid, Subject};
use super::object::{Object, ObjectKey};
use super::policy::Phrase;

/// What people read of a subject, such as the name of a document: one line of up to
/// [`Title::MAX_BYTES`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize)]
pub struct Title(String);

impl<'de> serde::Deserialize<'de> for Title {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Title {
    /// The longest, in bytes: it is part of a link.
    pub const MAX_BYTES: usize = 120;

    /// A title as it stands in the store, or in a link.
    pub fn stored(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The title as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As much of a text as a title may have, on one line; `None` of nothing.
    pub fn cut(text: &str) -> Option<Self> {
        let words = text.split(|c: char| c.is_whitespace() || c.is_control());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let line = words.join(" ");
        if line.len() <= Self::MAX_BYTES {
            return (!line.is_empty()).then_some(Self(line));
        }
        let room = Self::MAX_BYTES - '…'.len_utf8();
        let ends = line.char_indices().map(|(at, c)| at + c.len_utf8());
        let end = ends.take_while(|end| *end <= room).last()?;
        Some(Self(format!("{}…", line[..end].trim_end())))
    }
}

impl FromStr for Title {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let (trimmed, most) = (text.trim(), Self::MAX_BYTES);
        if trimmed.is_empty() || trimmed.chars().any(char::is_control) {
            let why = "is not one line of text; leave it out if there is none";
            return Err(Invalid::new("title", text.escape_debug(), why));
        }
        if trimmed.len() > most {
            let why = format!("bytes is more than the {most} that can be kept; shorten it");
            return Err(Invalid::limit("title of", trimmed.len(), why));
        }
        Ok(Self(trimmed.to_owned()))
    }
}

/// That something is muted, or was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mute {
    /// Since when.
    pub at: DateTime<Utc>,
    /// What happens from then on is mailed again; `None` for as long as they do not unmute it.
    pub until: Option<DateTime<Utc>>,
    /// What people read of it, if that is known.
    pub title: Option<Title>,
}

impl Mute {
    /// Whether what happened then is muted.
    fn covers(&self, at: DateTime<Utc>) -> bool {
        self.until.is_none_or(|until| at < until)
    }
}

/// All that one person muted, and what they unmuted lately.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mutes(BTreeMap<Subject, Mute>);

impl Mutes {
    /// The most subjects of one person, with those whose mute ended lately.
    pub const MOST: usize = 1_000;

    /// As they stand in the store.
    pub fn stored(mutes: impl IntoIterator<Item = (Subject, Mute)>) -> Self {
        Self(mutes.into_iter().collect())
    }

    /// All, by subject, also those that have ended.
    pub fn all(&self) -> impl ExactSizeIterator<Item = (&Subject, &Mute)> {
        self.0.iter()
    }

    /// Those that have not ended.
    pub fn standing(&self, now: DateTime<Utc>) -> impl Iterator<Item = (&Subject, &Mute)> {
        self.0.iter().filter(move |(_, mute)| mute.covers(now))
    }

    /// Whether nothing is known of any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// That these are not more than can be kept.
    pub fn check(&self) -> Result<(), Invalid> {
        let most = Self::MOST;
        if self.0.len() <= most {
            return Ok(());
        }
        let why = format!(
            "is more than the {most} subjects one person can have muted, with those that were \
             muted lately"
        );
        Err(Invalid::limit("mutes", self.0.len(), why))
    }

    /// Whether anything that happened then may be muted.
    pub fn may_cover(&self, at: DateTime<Utc>) -> bool {
        self.0.values().any(|mute| mute.covers(at))
    }

    /// Whether this subject is muted until it is unmuted.
    pub fn for_good(&self, subject: &Subject) -> bool {
        let mute = self.0.get(subject);
        mute.is_some_and(|mute| mute.until.is_none())
    }

    /// Mutes a subject, until then if that is said; a moment that has passed unmutes it. One that
    /// is muted stays so since it was.
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
        let standing = before.filter(|mute| mute.covers(now));
        let mute = Mute {
            at: standing.map_or(now, |mute| mute.at),
            until,
            title: title.or_else(|| before?.title.clone()),
        };
        self.0.insert(subject, mute);
    }

    /// Ends a mute now; one that has ended stays as it is.
    pub fn unmute(&mut self, subject: &Subject, now: DateTime<Utc>) {
        if let Some(mute) = self.0.get_mut(subject).filter(|mute| mute.covers(now)) {
            mute.until = Some(now);
        }
    }

    /// Names subjects that have no title, as far as their title is known.
    pub fn name(&mut self, title: impl Fn(&Subject) -> Option<Title>) {
        for (subject, mute) in &mut self.0 {
            if mute.title.is_none() {
                mute.title = title(subject);
            }
        }
    }

    /// Forgets those that ended before, when nothing that they cover can be mailed any more.
    pub fn forget(&mut self, before: DateTime<Utc>) {
        self.0.retain(|_, mute| mute.covers(before));
    }

    /// Forgets what was muted later than then, as a mail of that moment knew nothing of it.
    pub fn as_of(&mut self, then: DateTime<Utc>) {
        self.0.retain(|_, mute| mute.at <= then);
    }

    /// Since when an event of that moment is muted that is about this object, with what is known of
    /// both; `None` where it is not. It is about the object, by its key; about what the object says
    /// that it is about, by its address or its title, as mails tell it ([`About`]); and about a
    /// key, where it goes to the followers of that key alone.
    pub fn cover(
        &self,
        at: DateTime<Utc>,
        key: &ObjectKey,
        object: Option<&Object>,
        phrase: Option<&Phrase>,
        details: Option<&Details>,
    ) -> Option<DateTime<Utc>> {
        let about = object.map(|object| About::of(object, phrase));
        let about = about.as_ref().and_then(About::name);
        let followed = details.and_then(Details::followed);
        let names = [Some(key.as_str()), about, followed].into_iter().flatten();
        let mutes = names.filter_map(|name| self.0.get(&Subject::stored(name)));
        mutes
            .filter(|mute| mute.covers(at))
            .map(|mute| mute.at)
            .min()
    }
}

#[cfg(test)]
#[path = "mute_tests.rs"]
mod tests;
