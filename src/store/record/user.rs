//! The record of a user.
//!
//! [`super::fallback`] gives unreadable fields their defaults and names them. Choices of types and
//! mutes are stored by name: see [`super::keyed`].

use std::collections::BTreeMap;

use bson::RawBsonRef;
use chrono::{DateTime, TimeDelta, Utc, Weekday};
use chrono_tz::Tz;
use compact_str::CompactString;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

use super::fields::{As, Count, Place, Time, date, typed};
use super::keyed::{ByName, Keyed};
use super::mutes::MuteRecord;
use super::of;
use crate::domain::user::{DigestPreference, Revision, TypePreference, window};
use crate::domain::{Address, Cadence, EventType, Quiet, Route, Start, User, time};

record! {
    /// See [`User`].
    UserRecord of User as "user" {
        id = "_id": CompactString, confirmed: Option<bool>;
        name: String, tz: Tz, locale: String, brand: CompactString, loc: Place, unsubscribed: Time
    }
    extra(user) {
        email: Email = user.email.clone().map(|email| Email(Some(email))),
        digest: DigestRecord = Some(As::keep(&user.digest)),
        types: ByName<TypeRecord> = Some(As::keep(&user.types)),
        mutes: ByName<MuteRecord> = Some(&user.mutes)
            .filter(|mutes| !mutes.is_empty())
            .map(As::keep),
        quiet: Quiet = user.quiet,
        start: Start = user.start,
        suppressed: Since = user.suppressed.map(|since| Since(Some(since))),
        // Each store sets it.
        rev: i64 = None,
    }
    odd(record) {
        email: record.email.and_then(|email| email.0),
        digest: of("digest", record.digest.map_or_else(|| Ok(DigestPreference::default()), As::told))?,
        types: As::told(record.types)?.unwrap_or_default(),
        mutes: As::told(record.mutes)?.unwrap_or_default(),
        quiet: record.quiet,
        start: record.start,
        suppressed: record.suppressed.and_then(|since| since.0),
        unreadable: Vec::new(),
        revision: Revision(record.rev.unwrap_or_default() as u64),
    }
}

record! {
    DigestRecord of DigestPreference { ; cadence: Cadence, since: Time }
    extra(digest) {
        weekday: DayOfWeek = digest.weekday.map(DayOfWeek),
        hour: Hour = digest.hour.map(Hour),
    }
    odd(record) {
        weekday: record.weekday.map(|day| day.0),
        hour: record.hour.map(|hour| hour.0),
    }
}

/// A local hour, 0 to 23.
#[derive(Serialize)]
pub(in crate::store) struct Hour(u8);

impl<'de> Deserialize<'de> for Hour {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Count::deserialize(from)?.0 {
            hour @ 0..24 => Ok(Self(hour)),
            hour => Err(D::Error::custom(format!("hour {hour} is not 0 to 23"))),
        }
    }
}

/// A weekday; in lower case in BSON.
#[derive(Deserialize)]
pub(in crate::store) struct DayOfWeek(Weekday);

impl Serialize for DayOfWeek {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let name = self.0.to_string();
        match to.is_human_readable() {
            true => name.serialize(to),
            false => name.to_lowercase().serialize(to),
        }
    }
}

/// An address. In a document, which other programs may write, an invalid one counts as none.
pub(in crate::store) struct Email(Option<Address>);

impl Serialize for Email {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().map(Address::reveal).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Email {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let ours = from.is_human_readable();
        match Address::stored(String::deserialize(from)?) {
            Err(why) if ours => Err(D::Error::custom(why)),
            read => Ok(Self(read.ok())),
        }
    }
}

/// The moment of a suppression. `true`, which other programs may write, is the first one of 1970.
pub(in crate::store) struct Since(Option<DateTime<Utc>>);

impl Serialize for Since {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.map(Time).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Since {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            return Ok(Self(Some(Time::deserialize(from)?.0)));
        }
        let since = typed(from, |value| match value {
            RawBsonRef::Boolean(yes) => Some(yes.then_some(DateTime::UNIX_EPOCH)),
            value => date(value).map(Some),
        });
        since.map(Self)
    }
}

/// See [`TypePreference`]. In JSON it is `[route, since]` or `[route, since, window]`.
#[derive(Serialize, Deserialize)]
pub(in crate::store) struct TypeRecord {
    route: Route,
    #[serde(default)]
    since: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window: Option<Window>,
    /// The type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    t: Option<CompactString>,
}

/// The user's own window, as text.
#[derive(Clone, Copy)]
struct Window(TimeDelta);

impl Serialize for Window {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        time::show_duration(self.0).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = CompactString::deserialize(from)?;
        window(&text).map(Self).map_err(D::Error::custom)
    }
}

impl Keyed for TypeRecord {
    const KEY: &'static str = "t";

    fn take_name(&mut self) -> Option<CompactString> {
        self.t.take()
    }

    fn listed(&self) -> impl Serialize {
        let window = self.window.map(|window| json!(window));
        let fields = [Some(json!(self.route)), Some(json!(self.since)), window];
        fields.into_iter().flatten().collect::<Vec<_>>()
    }
}

impl As<BTreeMap<EventType, TypePreference>> for ByName<TypeRecord> {
    fn keep(types: &BTreeMap<EventType, TypePreference>) -> Self {
        let record = |(kind, chosen): (&EventType, &TypePreference)| {
            let name = CompactString::new(kind.as_str());
            let record = TypeRecord {
                route: chosen.route,
                since: Some(Time(chosen.since)),
                window: chosen.window.map(Window),
                t: Some(name.clone()),
            };
            (name, record)
        };
        Self(types.iter().map(record).collect())
    }

    fn told(self) -> Result<BTreeMap<EventType, TypePreference>, String> {
        let types = self.0.into_iter().map(|(kind, record)| {
            let chosen = TypePreference {
                route: record.route,
                since: record.since.map_or(DateTime::UNIX_EPOCH, |since| since.0),
                window: record.window.map(|window| window.0),
            };
            (EventType::stored(kind), chosen)
        });
        Ok(types.collect())
    }
}

#[cfg(test)]
#[path = "user_tests.rs"]
mod tests;
