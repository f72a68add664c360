//! The record of a fan-out: an entry of the journal.
//!
//! On SQLite, audiences are in a table of their own. On MongoDB, earlier versions stored long lists
//! of users in separate documents, and the record has the number of these. The reader adds them.

use compact_str::CompactString;

use super::values::{Count, LeaseRecord, StoredForm, StoredId, StoredPoint, Time};
use super::{in_field, require};
use crate::domain::details::Actor;
use crate::domain::{
    Audience, ChosenKey, Day, Details, Fanout, FanoutCounts, FanoutProgress, FanoutState, Json,
    Selector, UserId,
};

record! {
    /// See [`Fanout`]. Contains the audience only if [`FanoutRecord::with_audience`] created it.
    FanoutRecord of Fanout as "fan-out" {
        id = "_id": StoredId, key: String, kind = "type": CompactString, objects: Vec<CompactString>,
        day: Day, at: Time, state: FanoutState;
        batch_key: String, details: DetailsRecord, lease: LeaseRecord
    }
    write(fanout) {
        audience: AudienceRecord = None,
        except: Vec<CompactString> = None,
        counts: CountsRecord = Some(StoredForm::from_value(&fanout.progress.counts)),
        cursor: CompactString = StoredForm::from_value(&fanout.progress.cursor),
    }
    read(record) {
        audience: Audience {
            to: in_field("audience", require("audience", record.audience)?.selector(record.state))?,
            except: record.except.unwrap_or_default().into_value()?,
        },
        progress: FanoutProgress {
            cursor: record.cursor.into_value()?,
            counts: match record.counts {
                Some(counts) => counts.into_value()?,
                None => FanoutCounts::default(),
            },
            done: record.state == FanoutState::Done,
        },
    }
}

record! {
    /// The details of an event. `data` is JSON text, because it may contain field names that are
    /// invalid in documents.
    DetailsRecord of Details as "the details of an event" {
        ;
        actor: ActorRecord, brand: CompactString, text: String, reason: String
    }
    write(details) {
        data: String = (!details.data.is_null()).then(|| details.data.text().to_owned()),
        keys: Vec<CompactString> = (!details.keys.is_empty()).then(|| StoredForm::from_value(&details.keys)),
    }
    read(record) {
        data: match &record.data {
            Some(json) => serde_json::from_str(json).map_err(|why| format!("data: {why}"))?,
            None => Json::default(),
        },
        keys: record.keys.unwrap_or_default().into_value()?,
    }
}

record! {
    ActorRecord of Actor {
        id: CompactString;
        name: String, url: String, image: String
    }
}

record! {
    CountsRecord of FanoutCounts {
        people: Option<Count<u64>>, pushed: Option<Count<u64>>, capped: Option<Count<u64>>;
    }
}

/// The selector of an audience.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::store) enum AudienceRecord {
    /// The number of documents in which an earlier version stored the named users. The reader adds
    /// them.
    Parts(Count<i32>),
    Users(Vec<CompactString>),
    FollowersOf(Vec<CompactString>),
    Near {
        point: StoredPoint,
        km: f64,
    },
}

impl StoredForm<ChosenKey> for String {
    fn from_value(key: &ChosenKey) -> Self {
        key.as_str().to_owned()
    }

    fn into_value(self) -> Result<ChosenKey, String> {
        ChosenKey::new(self).map_err(|why| why.to_string())
    }
}

impl FanoutRecord {
    /// Returns the record with its audience.
    pub(in crate::store) fn with_audience(fanout: &Fanout) -> Self {
        let audience = match &fanout.audience.to {
            Selector::Users(users) => AudienceRecord::Users(StoredForm::from_value(users)),
            Selector::FollowersOf(keys) => {
                AudienceRecord::FollowersOf(StoredForm::from_value(keys))
            }
            Selector::Near { point, km } => {
                AudienceRecord::Near { point: StoredPoint(*point), km: *km }
            }
        };
        Self {
            audience: Some(audience),
            except: Some(StoredForm::from_value(&fanout.audience.except)),
            ..Self::from_value(fanout)
        }
    }
}

impl AudienceRecord {
    /// Returns the selector of a fan-out in this state. Earlier versions accepted more users than
    /// fit into one document. Nothing needs such a list once the fan-out is done, so it is omitted.
    fn selector(self, state: FanoutState) -> Result<Selector, String> {
        Ok(match self {
            Self::Parts(_) => Selector::Users(Vec::new()),
            Self::Users(users) => {
                let users: Vec<UserId> = users.into_value()?;
                let is_needed =
                    state != FanoutState::Done || Audience::users(users.iter().cloned()).is_ok();
                Selector::Users(if is_needed { users } else { Vec::new() })
            }
            Self::FollowersOf(keys) => Selector::FollowersOf(keys.into_value()?),
            Self::Near { point, km } => Selector::Near { point: point.0, km },
        })
    }
}

#[cfg(test)]
#[path = "fanout_tests.rs"]
mod tests;
