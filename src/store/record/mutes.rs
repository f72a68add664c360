//! Mutes by subject: see [`super::keyed`]. In JSON each is `[at, until, title]`.

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use super::fields::{As, Time};
use super::keyed::{ByName, Keyed};
use crate::domain::preferences::Title;
use crate::domain::{Mute, Mutes, Subject};

/// See [`Mute`].
#[derive(Serialize, Deserialize)]
pub(in crate::store) struct MuteRecord {
    at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// The subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    s: Option<CompactString>,
}

impl Keyed for MuteRecord {
    const KEY: &'static str = "s";

    fn take_name(&mut self) -> Option<CompactString> {
        self.s.take()
    }

    fn listed(&self) -> impl Serialize {
        (self.at, self.until, &self.title)
    }
}

impl As<Mutes> for ByName<MuteRecord> {
    fn keep(mutes: &Mutes) -> Self {
        let record = |(subject, mute): (&Subject, &Mute)| {
            let name = CompactString::new(subject.as_str());
            let record = MuteRecord {
                at: Time(mute.at),
                until: mute.until.map(Time),
                title: mute.title.as_ref().map(|title| title.as_str().to_owned()),
                s: Some(name.clone()),
            };
            (name, record)
        };
        Self(mutes.all().map(record).collect())
    }

    fn told(self) -> Result<Mutes, String> {
        let mutes = self.0.into_iter().map(|(subject, record)| {
            let mute = Mute {
                at: record.at.0,
                until: record.until.map(|until| until.0),
                title: record.title.map(Title::stored),
            };
            (Subject::stored(subject), mute)
        });
        Ok(Mutes::stored(mutes))
    }
}
