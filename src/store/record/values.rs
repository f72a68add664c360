//! The stored form of single values.
//!
//! In human-readable formats (JSON and columns) a time is whole milliseconds and an id its
//! hexadecimal digits. In BSON they are a date and an ObjectId. Forms of older versions and other
//! programs are read, too: numbers of any type, and places as GeoJSON or as a pair.

use std::fmt::Display;
use std::str::FromStr;

use bson::{Bson, RawBsonRef, doc, oid};
use chrono::{DateTime, Utc, Weekday};
use chrono_tz::Tz;
use compact_str::CompactString;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::needs;
use crate::domain::{
    BatchKey, BatchState, BrandName, Cadence, Day, DeliveryId, DeliveryState, EventType,
    FanoutState, FollowKey, Id, Lease, ObjectId, ObjectKey, Point, Quiet, Reason, ReportKind,
    Route, Start, UserId,
};

/// Deserializes a value of one BSON type.
pub(super) fn typed<'de, T, D: Deserializer<'de>>(
    from: D,
    read: impl Fn(RawBsonRef<'de>) -> Option<T>,
) -> Result<T, D::Error> {
    let value = RawBsonRef::deserialize(from)?;
    let other = || D::Error::custom(format!("it is of type {:?}", value.element_type()));
    read(value).ok_or_else(other)
}

/// Serializes each form by one function for human-readable formats, and one for BSON.
macro_rules! two_forms {
    ($($form:ty: $text:expr, $bson:expr;)*) => {$(
        impl Serialize for $form {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let text: fn(&Self) -> _ = $text;
                let bson: fn(&Self) -> _ = $bson;
                match to.is_human_readable() {
                    true => text(self).serialize(to),
                    false => bson(self).serialize(to),
                }
            }
        }
    )*};
}

two_forms! {
    Time: |time| time.0.timestamp_millis(),
        |time| bson::DateTime::from_millis(time.0.timestamp_millis());
    Oid: |id| id.0, |id| oid::ObjectId::from_bytes(id.0.bytes());
    Oids: |ids| hex::encode(ids.0.iter().flat_map(|id| id.bytes()).collect::<Vec<u8>>()),
        |ids| ids.0.iter().copied().map(Oid).collect::<Vec<Oid>>();
    DayOfWeek: |day| day.0.to_string(), |day| day.0.to_string().to_lowercase();
    Place: |place| Degrees { lng: place.0.lng(), lat: place.0.lat() },
        |place| doc! {"type": "Point", "coordinates": [place.0.lng(), place.0.lat()]};
}

/// A moment, in whole milliseconds.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Time(pub DateTime<Utc>);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if !from.is_human_readable() {
            return typed(from, date).map(Self);
        }
        let millis = i64::deserialize(from)?;
        let time = DateTime::from_timestamp_millis(millis).map(Self);
        time.ok_or_else(|| D::Error::custom(format!("{millis} ms are no time")))
    }
}

/// An [`Id`].
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Oid(pub Id);

impl<'de> Deserialize<'de> for Oid {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let id = |value: RawBsonRef<'_>| Some(Id::from_bytes(value.as_object_id()?.bytes()));
        match from.is_human_readable() {
            true => Id::deserialize(from).map(Self),
            false => typed(from, id).map(Self),
        }
    }
}

/// A list of ids. In JSON it is one string of concatenated hexadecimal ids, because it can hold
/// thousands and is rewritten with every change. The list of strings of older versions is read as
/// well.
#[derive(Debug, Clone)]
pub(in crate::store) struct Oids(pub Vec<Id>);

#[derive(Deserialize)]
#[serde(untagged)]
enum OidsInJson {
    Digits(String),
    List(Vec<Oid>),
}

impl<'de> Deserialize<'de> for Oids {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let ids = match from.is_human_readable() {
            true => OidsInJson::deserialize(from)?,
            false => OidsInJson::List(Vec::deserialize(from)?),
        };
        let digits = match ids {
            OidsInJson::List(ids) => return Ok(Self(ids.into_iter().map(|id| id.0).collect())),
            OidsInJson::Digits(digits) => digits,
        };
        let bytes = hex::decode(digits).map_err(D::Error::custom)?;
        match bytes.as_chunks() {
            (ids, []) => Ok(Self(ids.iter().copied().map(Id::from_bytes).collect())),
            _ => Err(D::Error::custom("the last id is cut off")),
        }
    }
}

impl As<Vec<Id>> for Oids {
    fn from_value(ids: &Vec<Id>) -> Self {
        Self(ids.clone())
    }

    fn into_value(self) -> Result<Vec<Id>, String> {
        Ok(self.0)
    }
}

/// A value in its text form.
#[derive(Debug, Clone)]
pub(in crate::store) struct Text<T>(pub T);

impl<T: Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = CompactString::deserialize(from)?;
        text.parse().map(Self).map_err(D::Error::custom)
    }
}

/// A count. Reads every number type.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(in crate::store) struct Count<T>(pub T);

impl<'de, T: TryFrom<u64>> Deserialize<'de> for Count<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = serde_json::Number::deserialize(from)?;
        let of_double = || number.as_f64().filter(|n| *n >= 0.0 && n.fract() == 0.0);
        let whole = number.as_u64().or_else(|| Some(of_double()? as u64));
        let count = whole.and_then(|n| T::try_from(n).ok()).map(Self);
        count.ok_or_else(|| D::Error::custom(format!("{number} is no count")))
    }
}

/// A local hour, 0 to 23.
#[derive(Serialize)]
pub(in crate::store) struct Hour(pub u8);

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
pub(in crate::store) struct DayOfWeek(pub Weekday);

/// A place: GeoJSON in BSON, otherwise `{lng, lat}`.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Place(pub Point);

#[derive(Serialize, Deserialize)]
struct Degrees {
    lng: f64,
    lat: f64,
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            let Degrees { lng, lat } = Degrees::deserialize(from)?;
            return Point::new(lng, lat).map(Self).map_err(D::Error::custom);
        }
        let point = place(&Bson::deserialize(from)?);
        let point = point.ok_or_else(|| D::Error::custom("it is no GeoJSON point"));
        point.map(Self)
    }
}

/// Parses a GeoJSON point or a bare `[longitude, latitude]`.
pub(in crate::store) fn place(value: &Bson) -> Option<Point> {
    let pair = match value {
        Bson::Array(pair) => pair,
        Bson::Document(point) => point.get_array("coordinates").ok()?,
        _ => return None,
    };
    let number = |value: &Bson| match value {
        Bson::Double(n) => Some(*n),
        Bson::Int32(n) => Some(f64::from(*n)),
        Bson::Int64(n) => Some(*n as f64),
        _ => None,
    };
    match &pair[..] {
        [lng, lat] => Point::new(number(lng)?, number(lat)?).ok(),
        _ => None,
    }
}

/// A lease. Without an owner, it is a time before which no worker may claim the record.
#[derive(Serialize, Deserialize)]
pub(in crate::store) struct LeaseRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    pub until: Option<Time>,
}

impl LeaseRecord {
    /// Returns a lease without an owner.
    pub(in crate::store) fn until(time: DateTime<Utc>) -> Self {
        Self { owner: None, until: Some(Time(time)) }
    }
}

/// A stored form of values of type `T`.
pub(in crate::store) trait As<T>: Sized {
    fn from_value(value: &T) -> Self;

    /// Converts back to the value. The error names the wrong field and the defect.
    fn into_value(self) -> Result<T, String>;

    /// Converts back to the value, for forms that can represent an absent one.
    fn into_option(self) -> Result<Option<T>, String> {
        self.into_value().map(Some)
    }
}

impl<T, A: As<T>> As<Option<T>> for Option<A> {
    fn from_value(value: &Option<T>) -> Self {
        value.as_ref().map(A::from_value)
    }

    fn into_value(self) -> Result<Option<T>, String> {
        self.map_or(Ok(None), A::into_option)
    }
}

impl<T, A: As<T>> As<Vec<T>> for Vec<A> {
    fn from_value(values: &Vec<T>) -> Self {
        values.iter().map(A::from_value).collect()
    }

    fn into_value(self) -> Result<Vec<T>, String> {
        self.into_iter().map(A::into_value).collect()
    }
}

impl As<Lease> for LeaseRecord {
    fn from_value(lease: &Lease) -> Self {
        Self { owner: Some(lease.owner.clone()), ..Self::until(lease.until) }
    }

    fn into_value(self) -> Result<Lease, String> {
        let owner = needs("owner", self.owner)?;
        let until = needs("until", self.until)?.0;
        Ok(Lease { owner, until })
    }

    fn into_option(self) -> Result<Option<Lease>, String> {
        let held = self.owner.is_some();
        held.then(|| self.into_value()).transpose()
    }
}

/// Implements `As` for each form, by a function that writes it and one that reads it.
macro_rules! forms {
    ($($value:ty as $form:ty: $write:expr, $read:expr;)*) => {$(
        impl As<$value> for $form {
            fn from_value(value: &$value) -> Self {
                let write: fn(&$value) -> Self = $write;
                write(value)
            }

            fn into_value(self) -> Result<$value, String> {
                let read: fn(Self) -> $value = $read;
                Ok(read(self))
            }
        }
    )*};
}

forms! {
    DateTime<Utc> as Time: |time| Time(*time), |time| time.0;
    Id as Oid: |id| Oid(*id), |id| id.0;
    Point as Place: |point| Place(*point), |place| place.0;
    u8 as Hour: |hour| Hour(*hour), |hour| hour.0;
    Weekday as DayOfWeek: |day| DayOfWeek(*day), |day| day.0;
    BatchKey as Text<BatchKey>: |key| Text(key.clone()), |key| key.0;
    UserId as CompactString: |name| name.as_str().into(), UserId::stored;
    EventType as CompactString: |name| name.as_str().into(), EventType::stored;
    ObjectId as CompactString: |name| name.as_str().into(), ObjectId::stored;
    ObjectKey as CompactString: |name| name.as_str().into(), ObjectKey::stored;
    BrandName as CompactString: |name| name.as_str().into(), BrandName::stored;
    FollowKey as CompactString: |name| name.as_str().into(), FollowKey::stored;
    DeliveryId as String: |id| id.to_string(), DeliveryId::stored;
    u64 as Count<u64>: |n| Count(*n), |n| n.0;
    // These fields are missing in records of older versions.
    u64 as Option<Count<u64>>: |n| Some(Count(*n)), |n| n.unwrap_or_default().0;
    u32 as Option<Count<u32>>: |n| Some(Count(*n)), |n| n.unwrap_or_default().0;
    bool as Option<bool>: |yes| Some(*yes), |yes| yes.unwrap_or_default();
    String as String: String::clone, |text| text;
}

pub(super) use forms;

/// Values that are their own stored form.
macro_rules! own_forms {
    ($($value:ty),*) => { forms! { $($value as $value: |value| *value, |value| value;)* } };
}

own_forms! {
    Cadence, DeliveryState, FanoutState, BatchState, ReportKind, Reason, Route, Day, Tz,
    Quiet, Start
}

/// Returns the time of a BSON date.
pub(super) fn date(value: RawBsonRef<'_>) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp_millis(value.as_datetime()?.timestamp_millis())
}
