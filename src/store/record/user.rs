//! The record of a user.
//!
//! [`super::fallback`] gives unreadable fields their defaults and names them. Choices of types and
//! mutes are lists. The name is a field of each element, because field names cannot hold every dot
//! and dollar. Documents of other programs and rows of older versions may have an object there.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use bson::RawBsonRef;
use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;
use compact_str::CompactString;
use serde::de::{DeserializeOwned, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::values::{As, DayOfWeek, Hour, Place, Time, date, typed};
use super::{needs, of};
use crate::domain::preferences::Title;
use crate::domain::user::{DigestPreference, Revision, TypePreference, window};
use crate::domain::{
    Address, Cadence, EventType, Mute, Mutes, Quiet, Route, Start, Subject, User, time,
};

record! {
    /// See [`User`].
    UserRecord of User as "user" {
        id = "_id": CompactString, confirmed: Option<bool>;
        name: String, tz: Tz, locale: String, brand: CompactString, loc: Place,
        unsubscribed: Time, quiet: Quiet, start: Start
    }
    extra(user) {
        email: Email = user.email.clone().map(|email| Email(Some(email))),
        digest: DigestRecord = Some(As::from_value(&user.digest)),
        types: ByName<TypeRecord> = Some(As::from_value(&user.types)),
        mutes: ByName<MuteRecord> = Some(&user.mutes)
            .filter(|mutes| !mutes.is_empty())
            .map(As::from_value),
        suppressed: Since = user.suppressed.map(|since| Since(Some(since))),
        // Each store sets it.
        rev: i64 = None,
    }
    odd(record) {
        email: record.email.and_then(|email| email.0),
        digest: of("digest", record.digest.map_or_else(|| Ok(DigestPreference::default()), As::into_value))?,
        types: As::into_value(record.types)?.unwrap_or_default(),
        mutes: As::into_value(record.mutes)?.unwrap_or_default(),
        suppressed: record.suppressed.and_then(|since| since.0),
        unreadable: Vec::new(),
        revision: Revision(record.rev.unwrap_or_default() as u64),
    }
}

record! {
    DigestRecord of DigestPreference {
        ;
        cadence: Cadence, since: Time, weekday: DayOfWeek, hour: Hour
    }
    extra(_digest) {}
    odd(record) {}
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

/// See [`TypePreference`]. Older versions wrote a list of the fields to JSON.
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

impl Named for TypeRecord {
    const FIELD: &'static str = "t";

    fn name(&mut self) -> &mut Option<CompactString> {
        &mut self.t
    }
}

impl As<BTreeMap<EventType, TypePreference>> for ByName<TypeRecord> {
    fn from_value(types: &BTreeMap<EventType, TypePreference>) -> Self {
        let record = |(kind, chosen): (&EventType, &TypePreference)| TypeRecord {
            route: chosen.route,
            since: Some(Time(chosen.since)),
            window: chosen.window.map(Window),
            t: Some(kind.as_str().into()),
        };
        Self(types.iter().map(record).collect())
    }

    fn into_value(self) -> Result<BTreeMap<EventType, TypePreference>, String> {
        let types = self.0.into_iter().map(|record| {
            let chosen = TypePreference {
                route: record.route,
                since: record.since.map_or(DateTime::UNIX_EPOCH, |since| since.0),
                window: record.window.map(|window| window.0),
            };
            (EventType::stored(record.t.unwrap_or_default()), chosen)
        });
        Ok(types.collect())
    }
}

/// See [`Mute`]. Older versions wrote a list of the fields to JSON.
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

impl Named for MuteRecord {
    const FIELD: &'static str = "s";

    fn name(&mut self) -> &mut Option<CompactString> {
        &mut self.s
    }
}

impl As<Mutes> for ByName<MuteRecord> {
    fn from_value(mutes: &Mutes) -> Self {
        let record = |(subject, mute): (&Subject, &Mute)| MuteRecord {
            at: Time(mute.at),
            until: mute.until.map(Time),
            title: mute.title.as_ref().map(|title| title.as_str().to_owned()),
            s: Some(subject.as_str().into()),
        };
        Self(mutes.all().map(record).collect())
    }

    fn into_value(self) -> Result<Mutes, String> {
        let mutes = self.0.into_iter().map(|record| {
            let mute = Mute {
                at: record.at.0,
                until: record.until.map(|until| until.0),
                title: record.title.map(Title::stored),
            };
            (Subject::stored(record.s.unwrap_or_default()), mute)
        });
        Ok(Mutes::stored(mutes))
    }
}

/// A value that holds its name.
pub(in crate::store) trait Named: Serialize + DeserializeOwned {
    /// The field of the name.
    const FIELD: &'static str;

    fn name(&mut self) -> &mut Option<CompactString>;
}

/// Values with their names.
#[derive(Serialize)]
pub(in crate::store) struct ByName<V>(Vec<V>);

impl<'de, V: Named> Deserialize<'de> for ByName<V> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Values(PhantomData)).map(Self)
    }
}

struct Values<V>(PhantomData<V>);

impl<'de, V: Named> Visitor<'de> for Values<V> {
    type Value = Vec<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("values by name")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while let Some(mut value) = list.next_element::<V>()? {
            needs(V::FIELD, value.name().as_ref()).map_err(A::Error::custom)?;
            values.push(value);
        }
        Ok(values)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while let Some((name, mut value)) = map.next_entry::<CompactString, V>()? {
            *value.name() = Some(name);
            values.push(value);
        }
        Ok(values)
    }
}

#[cfg(test)]
#[path = "user_tests.rs"]
mod tests;
