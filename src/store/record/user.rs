//! The record of a user.
//!
//! Choices of types and mutes are lists. The name is a field of each element, because field names
//! cannot hold every dot and dollar. Documents of other programs and rows of older versions may
//! have an object there. [`StoredFields`] reads a record of a newer version as far as possible.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use bson::{RawBsonRef, RawDeserializer, RawDocument};
use chrono::{DateTime, TimeDelta};
use chrono_tz::Tz;
use compact_str::CompactString;
use serde::de::{DeserializeOwned, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};
use serde_path_to_error::{Path, Segment};

use super::values::{As, DayOfWeek, Hour, Place, Time, date, typed};
use super::{Record, cut, needs, of};
use crate::domain::mutes_and_quiet_hours::Title;
use crate::domain::user::{DigestPreference, Revision, TypePreference, UnreadableField, window};
use crate::domain::{
    Address, Cadence, EventType, Mute, Mutes, Quiet, Route, Start, Subject, User, UserId, durations,
};
use crate::store::Error;
use crate::store::extjson::{self, Canonical};

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
        suppressed: Since = user.suppressed.map(|since| Since(Some(Time(since)))),
        // Each store sets it.
        rev: i64 = None,
    }
    odd(record) {
        email: record.email.and_then(|email| email.0),
        digest: of("digest", record.digest.map_or_else(|| Ok(DigestPreference::default()), As::into_value))?,
        types: As::into_value(record.types)?.unwrap_or_default(),
        mutes: As::into_value(record.mutes)?.unwrap_or_default(),
        suppressed: record.suppressed.and_then(|since| since.0).map(|since| since.0),
        unreadable: Vec::new(),
        revision: Revision(record.rev.unwrap_or_default() as u64),
    }
}

record! {
    DigestRecord of DigestPreference {
        ;
        cadence: Cadence, since: Time, weekday: DayOfWeek, hour: Hour
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
#[derive(Serialize)]
pub(in crate::store) struct Since(Option<Time>);

impl<'de> Deserialize<'de> for Since {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            return Time::deserialize(from).map(|since| Self(Some(since)));
        }
        let since = typed(from, |value| match value {
            RawBsonRef::Boolean(yes) => Some(yes.then_some(DateTime::UNIX_EPOCH)),
            value => date(value).map(Some),
        });
        since.map(|since| Self(since.map(Time)))
    }
}

/// See [`TypePreference`]. Older versions wrote a list of the fields to JSON.
#[derive(Serialize, Deserialize)]
pub(in crate::store) struct TypeRecord {
    route: Route,
    #[serde(default)]
    since: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window: Option<WindowText>,
    /// The type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    t: Option<CompactString>,
}

/// The user's own window, as text.
#[derive(Clone, Copy)]
struct WindowText(TimeDelta);

impl Serialize for WindowText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        durations::show_duration(self.0).serialize(to)
    }
}

impl<'de> Deserialize<'de> for WindowText {
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
            window: chosen.window.map(WindowText),
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

/// A start in the year 2106. See [`crate::domain::user_id_reuse::Start`].
const HIDES_ALL: &str = "0 ffffffffffffffffffffffff 0 0";
/// Fields whose parts are replaced one at a time.
const NESTED: [&str; 3] = ["digest", "types", "mutes"];

/// The fields of a record, as JSON.
///
/// A user's record may have fields that this version cannot read, such as those of a newer version.
/// Such a field gets its default and is reported. If the default would send or show more, it gets a
/// restrictive value. An unreadable `suppressed` or `unsubscribed` counts as set (P7), and an
/// unreadable `start` hides all events (P8).
pub(in crate::store) struct StoredFields {
    pub fields: Value,
    /// Fields that are not in the JSON because their bytes cannot be read, each with the reason.
    pub broken: Vec<(String, String)>,
    /// Whether the values are canonical Extended JSON, as those of a document.
    pub extended: bool,
}

/// Returns a user whose record caused this error: what can be read, or only the id and a start that
/// hides all events.
pub(in crate::store) fn user_with_defaults(
    id: UserId,
    error: &Error,
    stored: Option<StoredFields>,
) -> User {
    tracing::warn!(%error, "a user's record has fields that this version cannot read");
    let read = stored.and_then(StoredFields::read);
    read.unwrap_or_else(|| User {
        start: HIDES_ALL.parse().ok(),
        unreadable: vec![UnreadableField::record(error)],
        ..User::new(id)
    })
}

impl StoredFields {
    /// Returns the fields of a document; `None` if it is not valid BSON.
    pub(in crate::store) fn of_document(raw: &RawDocument) -> Option<Self> {
        let (mut fields, mut broken) = (Map::new(), Vec::new());
        for element in raw.iter_elements() {
            let element = element.ok()?;
            let field = element.key().as_str().to_owned();
            let value = element.value().map_err(|why| why.to_string());
            let json =
                |value| serde_json::to_value(Canonical(value)).map_err(|why| why.to_string());
            match value.and_then(json) {
                Ok(value) => drop(fields.insert(field, value)),
                Err(why) => broken.push((field, why)),
            }
        }
        Some(Self { fields: fields.into(), broken, extended: true })
    }

    /// Returns the user. Returns `None` if defaults do not help, as with an unreadable id.
    fn read(mut self) -> Option<User> {
        let report = |field, why| UnreadableField { field, why: cut(why) };
        let mut unreadable = Vec::new();
        for (field, why) in std::mem::take(&mut self.broken) {
            if let Some(value) = self.restrictive(&field) {
                self.fields[&field] = value;
            }
            unreadable.push(report(field, why));
        }
        loop {
            let (path, why) = match self.parse() {
                Ok(record) => {
                    let user = record.value().ok()?;
                    return Some(User { unreadable, ..user });
                }
                Err(failed) => failed,
            };
            let field = self.replace(&path?)?;
            let is_known = unreadable.iter().any(|known| known.field == field);
            if is_known && self.restrictive(&field).is_some() {
                return None;
            }
            unreadable.push(report(field, why));
        }
    }

    /// Returns the restrictive value of a field; `None` if the field gets its default.
    fn restrictive(&self, field: &str) -> Option<Value> {
        match field {
            "suppressed" | "unsubscribed" => Some(match self.extended {
                true => json!({"$date": {"$numberLong": "0"}}),
                false => 0.into(),
            }),
            "start" => Some(HIDES_ALL.into()),
            _ => None,
        }
    }

    /// Deserializes the record. An error has the path of the field, if it is known.
    fn parse(&self) -> Result<UserRecord, (Option<Path>, String)> {
        if !self.extended {
            return serde_path_to_error::deserialize(&self.fields)
                .map_err(|error| (Some(error.path().clone()), error.into_inner().to_string()));
        }
        let raw = extjson::from_line(&self.fields.to_string());
        let raw = raw.map_err(|why| (None, why.to_string()))?;
        let from = RawDeserializer::new(raw.as_bytes());
        let from = from.map_err(|why| (None, why.to_string()))?;
        serde_path_to_error::deserialize(from).map_err(|error| {
            let path = Some(error.path().clone());
            let why = error.into_inner();
            (path, why.message.clone().unwrap_or_else(|| why.to_string()))
        })
    }

    /// Replaces the field at this path by its restrictive value or its default, and returns its
    /// name.
    fn replace(&mut self, path: &Path) -> Option<String> {
        let mut segments = path.iter();
        let Segment::Map { key } = segments.next()? else {
            return None;
        };
        let restrictive = self.restrictive(key);
        let fields = self.fields.as_object_mut().filter(|_| key != "_id")?;
        if let Some(value) = restrictive {
            fields.insert(key.clone(), value);
            return Some(key.clone());
        }
        let nested = NESTED.contains(&key.as_str()).then(|| segments.next());
        let removed = match (fields.get_mut(key)?, nested.flatten()) {
            (Value::Object(parts), Some(Segment::Map { key: name })) => {
                parts.remove(name).map(|_| name.clone())
            }
            (Value::Array(parts), Some(Segment::Seq { index })) if *index < parts.len() => {
                let part = parts.remove(*index);
                let name = part["t"].as_str().or(part["s"].as_str());
                Some(name.map_or_else(|| format!("[{index}]"), str::to_owned))
            }
            _ => None,
        };
        match removed {
            Some(name) => Some(format!("{key}.{name}")),
            None => fields.remove(key).map(|_| key.clone()),
        }
    }
}

#[cfg(test)]
#[path = "user_tests.rs"]
mod tests;
