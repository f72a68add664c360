//! The record of a fan-out: an entry of the journal.
//!
//! On SQLite, audiences are in a table of their own. On MongoDB, earlier versions stored long lists
//! of users separately, and the record holds the number of their parts. The reader adds them.

use compact_str::CompactString;

use super::fields::{As, Count, LeaseRecord, Oid, Place, Time};
use super::{Record, needs, of};
use crate::domain::details::Actor;
use crate::domain::{
    Audience, ChosenKey, Counts, Day, Details, Event, EventType, Fanout, FanoutState, Json,
    Progress, Selector,
};
use crate::store::types::JournalEntry;

record! {
    /// See [`Fanout`]. Contains the audience only if [`FanoutRecord::whole`] created it.
    FanoutRecord of Fanout {
        id = "_id": Oid, key: String, kind = "type": CompactString, objects: Vec<CompactString>,
        day: Day, at: Time, state: FanoutState;
        batch_key: String, details: DetailsRecord, lease: LeaseRecord
    }
    extra(fanout) {
        audience: AudienceRecord = None,
        except: Vec<CompactString> = None,
        counts: CountsRecord = Some(As::from_value(&fanout.progress.counts)),
        cursor: CompactString = As::from_value(&fanout.progress.cursor),
    }
    odd(record) {
        audience: Audience {
            to: of("audience", needs("audience", record.audience)?.selector())?,
            except: record.except.unwrap_or_default().into_value()?,
        },
        progress: Progress {
            cursor: record.cursor.into_value()?,
            counts: record.counts.map_or_else(|| Ok(Counts::default()), As::into_value)?,
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
    extra(details) {
        data: String = (!details.data.is_null()).then(|| details.data.text().to_owned()),
        keys: Vec<CompactString> = (!details.keys.is_empty()).then(|| As::from_value(&details.keys)),
    }
    odd(record) {
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
    extra(_actor) {}
    odd(record) {}
}

record! {
    CountsRecord of Counts {
        people: Option<Count<u64>>, pushed: Option<Count<u64>>, capped: Option<Count<u64>>;
    }
    extra(_value) {}
    odd(record) {}
}

/// An audience. Exactly one field is set.
#[derive(Default, serde::Serialize, serde::Deserialize)]
pub(in crate::store) struct AudienceRecord {
    /// The number of documents in which an earlier version stored the named users.
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<Count<i32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    users: Option<Vec<CompactString>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    followers_of: Option<Vec<CompactString>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    near: Option<NearRecord>,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct NearRecord {
    point: Place,
    km: f64,
}

impl As<ChosenKey> for String {
    fn from_value(key: &ChosenKey) -> Self {
        key.as_str().to_owned()
    }

    fn into_value(self) -> Result<ChosenKey, String> {
        ChosenKey::new(self).map_err(|why| why.to_string())
    }
}

impl FanoutRecord {
    /// Returns the record with its audience.
    pub(in crate::store) fn whole(fanout: &Fanout) -> Self {
        let mut audience = AudienceRecord::default();
        match &fanout.audience.to {
            Selector::Users(users) => audience.users = Some(As::from_value(users)),
            Selector::FollowersOf(keys) => audience.followers_of = Some(As::from_value(keys)),
            Selector::Near { point, km } => {
                let (point, km) = (Place(*point), *km);
                audience.near = Some(NearRecord { point, km });
            }
        }
        Self {
            audience: Some(audience),
            except: Some(As::from_value(&fanout.audience.except)),
            ..Self::from_value(fanout)
        }
    }
}

impl AudienceRecord {
    /// Returns no users if they are stored in parts.
    fn selector(self) -> Result<Selector, String> {
        if self.parts.is_some() {
            return Ok(Selector::Users(Vec::new()));
        }
        if let Some(users) = self.users {
            return Ok(Selector::Users(users.into_value()?));
        }
        if let Some(keys) = self.followers_of {
            return Ok(Selector::FollowersOf(keys.into_value()?));
        }
        let near = needs("near", self.near)?;
        let (point, km) = (near.point.0, near.km);
        Ok(Selector::Near { point, km })
    }
}

impl Record for FanoutRecord {
    const WHAT: &'static str = "fan-out";
    /// The fan-out, and the number of parts that hold its users.
    type Value = (Fanout, Option<usize>);

    fn value(self) -> Result<Self::Value, String> {
        let audience = self.audience.as_ref();
        let parts = audience.and_then(|audience| Some(audience.parts?.0 as usize));
        Ok((self.into_value()?, parts))
    }
}

/// The events of a fan-out, with their details.
#[derive(serde::Deserialize)]
pub(in crate::store) struct EventsRecord {
    #[serde(rename = "_id")]
    id: Oid,
    r#type: CompactString,
    objects: Vec<CompactString>,
    details: Option<DetailsRecord>,
}

impl Record for EventsRecord {
    const WHAT: &'static str = "fan-out";
    type Value = JournalEntry;

    fn value(self) -> Result<JournalEntry, String> {
        let (t, id): (EventType, _) = (self.r#type.into_value()?, self.id.0);
        let event = |o: CompactString| {
            let (t, o, i) = (t.clone(), o.into_value()?, Some(id));
            Ok(Event { t, o, i })
        };
        let events = self.objects.into_iter().map(event);
        Ok(JournalEntry {
            id,
            events: events.collect::<Result<_, String>>()?,
            details: of("details", self.details.into_value())?,
        })
    }
}

#[cfg(test)]
#[path = "fanout_tests.rs"]
mod tests;
