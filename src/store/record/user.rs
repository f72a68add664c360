//! The record of a user.
//!
//! [`super::fallback`] gives unreadable fields their defaults and reports them. In BSON, type
//! preferences are a list with the event types as values, because these may contain dots and dollar
//! signs. In JSON they are a map to `[route, since]` or `[route, since, window]`.

use std::collections::BTreeMap;
use std::fmt;

use bson::RawBsonRef;
use chrono::{DateTime, TimeDelta, Utc, Weekday};
use chrono_tz::Tz;
use compact_str::CompactString;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::fields::{As, Count, Place, Time, date, typed};
use super::mutes::MutesRecord;
use super::{needs, of};
use crate::domain::user::{DigestPreference, Revision, TypePreference, window};
use crate::domain::{Address, Cadence, EventType, Quiet, Route, Start, User, duration};

record! {
    /// See [`User`].
    UserRecord of User as "user" {
        id = "_id": CompactString, confirmed: Option<bool>;
        name: String, tz: Tz, locale: String, brand: CompactString, loc: Place, unsubscribed: Time
    }
    extra(user) {
        email: Email = user.email.clone().map(|email| Email(Some(email))),
        digest: DigestRecord = Some(As::keep(&user.digest)),
        types: Types = Some(Types(user.types.clone())),
        mutes: MutesRecord = Some(&user.mutes)
            .filter(|mutes| !mutes.is_empty())
            .map(|mutes| MutesRecord(mutes.clone())),
        quiet: Quiet = user.quiet,
        start: Start = user.start,
        suppressed: Since = user.suppressed.map(|since| Since(Some(since))),
        // Each store sets it.
        rev: i64 = None,
    }
    odd(record) {
        email: record.email.and_then(|email| email.0),
        digest: of("digest", record.digest.map_or_else(|| Ok(DigestPreference::default()), As::told))?,
        types: record.types.map(|types| types.0).unwrap_or_default(),
        mutes: record.mutes.map(|mutes| mutes.0).unwrap_or_default(),
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

/// A weekday, in lower case in BSON.
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

/// An email address. In BSON, which other programs may write, an invalid address reads as none; in
/// JSON it is an error.
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

/// When a user was suppressed. In BSON it may be a boolean; `true` reads as 1970.
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

/// Preferences by event type.
pub(in crate::store) struct Types(BTreeMap<EventType, TypePreference>);

/// One preference. The order of the fields is the order of the JSON list.
#[derive(Deserialize)]
struct ChoiceRecord {
    route: Route,
    #[serde(default)]
    since: Option<Time>,
    #[serde(default)]
    window: Option<Gathering>,
    /// Event type; only in lists.
    #[serde(default)]
    t: Option<CompactString>,
}

/// A batch window that the user chose.
struct Gathering(TimeDelta);

impl<'de> Deserialize<'de> for Gathering {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = CompactString::deserialize(from)?;
        window(&text).map(Self).map_err(D::Error::custom)
    }
}

/// A preference to be serialized.
struct Choice<'a>(&'a EventType, &'a TypePreference);

impl Serialize for Choice<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self(kind, chosen) = self;
        let (since, window) = (Time(chosen.since), chosen.window.map(duration::show));
        if to.is_human_readable() {
            return match window {
                Some(window) => (chosen.route, since, window).serialize(to),
                None => (chosen.route, since).serialize(to),
            };
        }
        let mut choice = to.serialize_struct("Choice", 4)?;
        choice.serialize_field("t", kind)?;
        choice.serialize_field("route", &chosen.route)?;
        choice.serialize_field("since", &since)?;
        if let Some(window) = window {
            choice.serialize_field("window", &window)?;
        }
        choice.end()
    }
}

impl Serialize for Types {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let choices = self.0.iter().map(|(kind, chosen)| Choice(kind, chosen));
        match to.is_human_readable() {
            true => to.collect_map(choices.map(|choice| (choice.0, choice))),
            false => to.collect_seq(choices),
        }
    }
}

impl<'de> Deserialize<'de> for Types {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(TypesVisitor)
    }
}

struct TypesVisitor;

impl<'de> Visitor<'de> for TypesVisitor {
    type Value = Types;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("choices of types")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Types, A::Error> {
        let mut types = BTreeMap::new();
        while let Some(choice) = list.next_element::<ChoiceRecord>()? {
            let kind = needs("t", choice.t.as_deref()).map_err(A::Error::custom)?;
            types.insert(EventType::stored(kind), choice.preference());
        }
        Ok(Types(types))
    }

    /// Other programs may also write documents in this form.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Types, A::Error> {
        let mut types = BTreeMap::new();
        while let Some((kind, choice)) = map.next_entry::<CompactString, ChoiceRecord>()? {
            types.insert(EventType::stored(kind), choice.preference());
        }
        Ok(Types(types))
    }
}

impl ChoiceRecord {
    fn preference(&self) -> TypePreference {
        TypePreference {
            route: self.route,
            since: self.since.map_or(DateTime::UNIX_EPOCH, |since| since.0),
            window: self.window.as_ref().map(|window| window.0),
        }
    }
}

#[cfg(test)]
#[path = "user_tests.rs"]
mod tests;
