//! The record of a user.
//!
//! Choices of types and mutes are lists. The name is a field of each element, because field names
//! cannot contain every dot and dollar. Documents of other programs and rows of older versions may
//! have an object instead. [`StoredFields`] reads what it can of a record of a newer version.

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

use super::values::{DayOfWeek, Hour, StoredForm, StoredPoint, Time, read_date, read_typed};
use super::{Record, in_field, require, truncate_reason};
use crate::domain::mutes_and_quiet_hours::Title;
use crate::domain::user::{
    DigestPreference, Revision, TypePreference, UnreadableField, parse_window,
};
use crate::domain::{
    Address, Cadence, EventType, Mute, Mutes, QuietHours, RecordStart, Route, Subject, User,
    UserId, durations_and_times,
};
use crate::store::Error;
use crate::store::extjson::{self, CanonicalJson};

record! {
    /// See [`User`].
    UserRecord of User as "user" {
        id = "_id": CompactString, confirmed: Option<bool>;
        name: String, tz: Tz, locale: String, brand: CompactString, loc: StoredPoint,
        unsubscribed: Time, quiet: QuietHours, start: RecordStart
    }
    write(user) {
        email: Email = user.email.clone().map(|email| Email(Some(email))),
        digest: DigestRecord = Some(StoredForm::from_value(&user.digest)),
        types: NamedList<TypeRecord> = Some(StoredForm::from_value(&user.types)),
        mutes: NamedList<MuteRecord> =
            (!user.mutes.is_empty()).then(|| StoredForm::from_value(&user.mutes)),
        suppressed: SuppressedSince = user.suppressed.map(|at| SuppressedSince(Some(Time(at)))),
        // Each store sets it.
        rev: i64 = None,
    }
    read(record) {
        email: record.email.and_then(|email| email.0),
        digest: match record.digest {
            Some(digest) => in_field("digest", digest.into_value())?,
            None => DigestPreference::default(),
        },
        types: StoredForm::into_value(record.types)?.unwrap_or_default(),
        mutes: StoredForm::into_value(record.mutes)?.unwrap_or_default(),
        suppressed: record.suppressed.and_then(|since| Some(since.0?.0)),
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

/// An address. An invalid one in a document, which other programs may write, is read as no address.
pub(in crate::store) struct Email(Option<Address>);

impl Serialize for Email {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().map(Address::reveal).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Email {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let is_row = from.is_human_readable();
        match Address::stored(String::deserialize(from)?) {
            Err(why) if is_row => Err(D::Error::custom(why)),
            address => Ok(Self(address.ok())),
        }
    }
}

/// The time of a suppression. Other programs may write `true`; it is read as the Unix epoch.
#[derive(Serialize)]
pub(in crate::store) struct SuppressedSince(Option<Time>);

impl<'de> Deserialize<'de> for SuppressedSince {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            return Time::deserialize(from).map(|since| Self(Some(since)));
        }
        read_typed(from, |value| match value {
            RawBsonRef::Boolean(suppressed) => {
                Some(Self(suppressed.then_some(Time(DateTime::UNIX_EPOCH))))
            }
            value => read_date(value).map(|since| Self(Some(Time(since)))),
        })
    }
}

/// See [`TypePreference`]. Older versions stored an array of the fields, which serde also accepts.
#[derive(Serialize, Deserialize)]
pub(in crate::store) struct TypeRecord {
    route: Route,
    #[serde(default)]
    since: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window: Option<WindowText>,
    /// The event type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    t: Option<CompactString>,
}

/// The batch window that the user chose, as text.
#[derive(Clone, Copy)]
struct WindowText(TimeDelta);

impl Serialize for WindowText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        durations_and_times::format_duration(self.0).serialize(to)
    }
}

impl<'de> Deserialize<'de> for WindowText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = CompactString::deserialize(from)?;
        parse_window(&text).map(Self).map_err(D::Error::custom)
    }
}

impl NamedElement for TypeRecord {
    const FIELD: &'static str = "t";

    fn name(&mut self) -> &mut Option<CompactString> {
        &mut self.t
    }
}

impl StoredForm<BTreeMap<EventType, TypePreference>> for NamedList<TypeRecord> {
    fn from_value(types: &BTreeMap<EventType, TypePreference>) -> Self {
        let to_record = |(kind, preference): (&EventType, &TypePreference)| TypeRecord {
            route: preference.route,
            since: Some(Time(preference.since)),
            window: preference.window.map(WindowText),
            t: Some(kind.as_str().into()),
        };
        Self(types.iter().map(to_record).collect())
    }

    fn into_value(self) -> Result<BTreeMap<EventType, TypePreference>, String> {
        let types = self.0.into_iter().map(|record| {
            let preference = TypePreference {
                route: record.route,
                since: record.since.map_or(DateTime::UNIX_EPOCH, |since| since.0),
                window: record.window.map(|window| window.0),
            };
            (EventType::stored(record.t.unwrap_or_default()), preference)
        });
        Ok(types.collect())
    }
}

/// See [`Mute`]. Older versions stored an array of the fields, which serde also accepts.
#[derive(Serialize, Deserialize)]
pub(in crate::store) struct MuteRecord {
    at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// The muted subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    s: Option<CompactString>,
}

impl NamedElement for MuteRecord {
    const FIELD: &'static str = "s";

    fn name(&mut self) -> &mut Option<CompactString> {
        &mut self.s
    }
}

impl StoredForm<Mutes> for NamedList<MuteRecord> {
    fn from_value(mutes: &Mutes) -> Self {
        let to_record = |(subject, mute): (&Subject, &Mute)| MuteRecord {
            at: Time(mute.at),
            until: mute.until.map(Time),
            title: mute.title.as_ref().map(|title| title.as_str().to_owned()),
            s: Some(subject.as_str().into()),
        };
        Self(mutes.iter().map(to_record).collect())
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

/// A list element that stores its own name in the field `FIELD`.
pub(in crate::store) trait NamedElement: Serialize + DeserializeOwned {
    const FIELD: &'static str;

    fn name(&mut self) -> &mut Option<CompactString>;
}

/// A list of named elements. Also read from an object, whose keys are the names.
#[derive(Serialize)]
pub(in crate::store) struct NamedList<V>(Vec<V>);

impl<'de, V: NamedElement> Deserialize<'de> for NamedList<V> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(NamedListVisitor(PhantomData)).map(Self)
    }
}

struct NamedListVisitor<V>(PhantomData<V>);

impl<'de, V: NamedElement> Visitor<'de> for NamedListVisitor<V> {
    type Value = Vec<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("values by name")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while let Some(mut value) = list.next_element::<V>()? {
            require(V::FIELD, value.name().as_ref()).map_err(A::Error::custom)?;
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

/// A start in the year 2106. See [`crate::domain::user_id_reuse::RecordStart`].
const HIDES_ALL: &str = "0 ffffffffffffffffffffffff 0 0";
/// Fields whose parts are replaced one at a time.
const FIELDS_WITH_PARTS: [&str; 3] = ["digest", "types", "mutes"];

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
    /// Whether the values are canonical Extended JSON, as in a document.
    pub extended: bool,
}

/// Returns a user whose record caused this error, with the fields that can be read. If defaults do
/// not help, the user has only an id and a start that hides all events.
pub(in crate::store) fn user_with_defaults(
    id: UserId,
    error: &Error,
    stored: Option<StoredFields>,
) -> User {
    tracing::warn!(%error, "a user's record has fields that this version cannot read");
    stored.and_then(StoredFields::into_user).unwrap_or_else(|| User {
        start: HIDES_ALL.parse().ok(),
        unreadable: vec![UnreadableField::for_whole_record(error)],
        ..User::new(id)
    })
}

impl StoredFields {
    /// Returns the fields of a document; `None` if it is not valid BSON.
    pub(in crate::store) fn from_document(raw: &RawDocument) -> Option<Self> {
        let (mut fields, mut broken) = (Map::new(), Vec::new());
        for element in raw.iter_elements() {
            let element = element.ok()?;
            let field = element.key().as_str().to_owned();
            let to_json =
                |value| serde_json::to_value(CanonicalJson(value)).map_err(|why| why.to_string());
            match element.value().map_err(|why| why.to_string()).and_then(to_json) {
                Ok(value) => drop(fields.insert(field, value)),
                Err(why) => broken.push((field, why)),
            }
        }
        Some(Self { fields: fields.into(), broken, extended: true })
    }

    /// Returns the user. Returns `None` if defaults do not help, as with an unreadable id.
    fn into_user(mut self) -> Option<User> {
        let mut unreadable: Vec<UnreadableField> = Vec::new();
        for (field, why) in std::mem::take(&mut self.broken) {
            if let Some(value) = self.restrictive_value(&field) {
                self.fields[&field] = value;
            }
            unreadable.push(UnreadableField { field, why: truncate_reason(why) });
        }
        // Each round removes or replaces one field.
        loop {
            let (path, why) = match self.parse() {
                Ok(record) => return Some(User { unreadable, ..record.value().ok()? }),
                Err(error) => error,
            };
            let field = self.replace(&path?)?;
            let is_repeated = unreadable.iter().any(|reported| reported.field == field);
            if is_repeated && self.restrictive_value(&field).is_some() {
                // The replacement itself cannot be read.
                return None;
            }
            unreadable.push(UnreadableField { field, why: truncate_reason(why) });
        }
    }

    /// Returns the restrictive value of a field; `None` if the field gets its default.
    fn restrictive_value(&self, field: &str) -> Option<Value> {
        match field {
            "suppressed" | "unsubscribed" if self.extended => {
                Some(json!({"$date": {"$numberLong": "0"}}))
            }
            "suppressed" | "unsubscribed" => Some(0.into()),
            "start" => Some(HIDES_ALL.into()),
            _ => None,
        }
    }

    /// Deserializes the record. An error has the path of the field, if it is known, and the reason.
    fn parse(&self) -> Result<UserRecord, (Option<Path>, String)> {
        if !self.extended {
            return serde_path_to_error::deserialize(&self.fields)
                .map_err(|error| (Some(error.path().clone()), error.into_inner().to_string()));
        }
        let document =
            extjson::from_line(&self.fields.to_string()).map_err(|why| (None, why.to_string()))?;
        let deserializer =
            RawDeserializer::new(document.as_bytes()).map_err(|why| (None, why.to_string()))?;
        serde_path_to_error::deserialize(deserializer).map_err(|error| {
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
        if key == "_id" {
            return None;
        }
        let restrictive = self.restrictive_value(key);
        let fields = self.fields.as_object_mut()?;
        if let Some(value) = restrictive {
            fields.insert(key.clone(), value);
            return Some(key.clone());
        }
        let has_parts = FIELDS_WITH_PARTS.contains(&key.as_str());
        let segment = if has_parts { segments.next() } else { None };
        let removed_part = match (fields.get_mut(key)?, segment) {
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
        match removed_part {
            Some(name) => Some(format!("{key}.{name}")),
            None => fields.remove(key).map(|_| key.clone()),
        }
    }
}

#[cfg(test)]
#[path = "user_tests.rs"]
mod tests;
