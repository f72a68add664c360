//! The record of a user's mutes.
//!
//! In BSON it is a list with the subjects as values, because they may contain dots and dollar
//! signs. In JSON it is a map from subject to `[at, until, title]`; `until` and `title` may be
//! `null`.

use std::fmt;

use compact_str::CompactString;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::fields::Time;
use super::needs;
use crate::domain::mute::Title;
use crate::domain::{Mute, Mutes, Subject};

/// See [`Mutes`]. Users without mutes have no such record.
pub(in crate::store) struct MutesRecord(pub Mutes);

/// One mute. The order of the fields is the order of the JSON list.
#[derive(Serialize, Deserialize)]
struct MuteRecord {
    at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// Subject; only in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    s: Option<CompactString>,
}

impl MuteRecord {
    fn keep(subject: &Subject, mute: &Mute) -> Self {
        Self {
            at: Time(mute.at),
            until: mute.until.map(Time),
            title: mute.title.as_ref().map(|title| title.as_str().to_owned()),
            s: Some(CompactString::new(subject.as_str())),
        }
    }

    fn told(self) -> Mute {
        Mute {
            at: self.at.0,
            until: self.until.map(|until| until.0),
            title: self.title.map(Title::stored),
        }
    }
}

impl Serialize for MutesRecord {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mutes = self.0.all();
        let mutes = mutes.map(|(subject, mute)| (subject, MuteRecord::keep(subject, mute)));
        match to.is_human_readable() {
            true => to.collect_map(mutes.map(|(subject, mute)| {
                let MuteRecord {
                    at, until, title, ..
                } = mute;
                (subject, (at, until, title))
            })),
            false => to.collect_seq(mutes.map(|(_, mute)| mute)),
        }
    }
}

impl<'de> Deserialize<'de> for MutesRecord {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(MutesVisitor)
    }
}

struct MutesVisitor;

impl<'de> Visitor<'de> for MutesVisitor {
    type Value = MutesRecord;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what is muted")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<MutesRecord, A::Error> {
        let mut mutes = Vec::new();
        while let Some(mut mute) = list.next_element::<MuteRecord>()? {
            let subject = needs("s", mute.s.take()).map_err(A::Error::custom)?;
            mutes.push((Subject::stored(subject), mute.told()));
        }
        Ok(MutesRecord(Mutes::stored(mutes)))
    }

    /// Other programs may also write documents in this form.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<MutesRecord, A::Error> {
        let mut mutes = Vec::new();
        while let Some((subject, mute)) = map.next_entry::<CompactString, MuteRecord>()? {
            mutes.push((Subject::stored(subject), mute.told()));
        }
        Ok(MutesRecord(Mutes::stored(mutes)))
    }
}
