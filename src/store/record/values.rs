//! The stored form of single values.
//!
//! In human-readable formats (JSON and columns) a time is whole milliseconds and an id its
//! hexadecimal digits. In BSON they are a date and an ObjectId. Also reads the forms of older
//! versions and other programs: numbers of any type, and points as GeoJSON or as a pair.

use std::fmt::Display;
use std::str::FromStr;

use bson::{Bson, RawBsonRef, doc, oid};
use chrono::{DateTime, Utc, Weekday};
use chrono_tz::Tz;
use compact_str::CompactString;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::require;
use crate::domain::{
    BatchKey, BatchState, BrandName, Cadence, Day, DeliveryId, DeliveryState, EventType,
    FanoutState, FollowKey, Id, Lease, ObjectId, ObjectKey, Point, QuietHours, RecordStart,
    ReportKind, Route, SuppressionReason, UserId,
};

/// Deserializes a value of one BSON type.
pub(super) fn read_typed<'de, T, D: Deserializer<'de>>(
    from: D,
    read: impl Fn(RawBsonRef<'de>) -> Option<T>,
) -> Result<T, D::Error> {
    let value = RawBsonRef::deserialize(from)?;
    let wrong_type = || D::Error::custom(format!("it is of type {:?}", value.element_type()));
    read(value).ok_or_else(wrong_type)
}

/// Implements `Serialize` by one function for human-readable formats, and one for BSON.
macro_rules! two_forms {
    ($($form:ty: $text:expr, $bson:expr;)*) => {$(
        impl Serialize for $form {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let text: fn(&Self) -> _ = $text;
                let bson: fn(&Self) -> _ = $bson;
                if to.is_human_readable() {
                    return text(self).serialize(to);
                }
                bson(self).serialize(to)
            }
        }
    )*};
}

two_forms! {
    Time: |time| time.0.timestamp_millis(),
        |time| bson::DateTime::from_millis(time.0.timestamp_millis());
    StoredId: |id| id.0, |id| oid::ObjectId::from_bytes(id.0.bytes());
    StoredIds: |ids| hex::encode(ids.0.iter().flat_map(|id| id.bytes()).collect::<Vec<u8>>()),
        |ids| ids.0.iter().copied().map(StoredId).collect::<Vec<StoredId>>();
    DayOfWeek: |day| day.0.to_string(), |day| day.0.to_string().to_lowercase();
    StoredPoint: |point| Degrees { lng: point.0.lng(), lat: point.0.lat() },
        |point| doc! {"type": "Point", "coordinates": [point.0.lng(), point.0.lat()]};
}

/// A moment, in whole milliseconds.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Time(pub DateTime<Utc>);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if !from.is_human_readable() {
            return read_typed(from, read_date).map(Self);
        }
        let millis = i64::deserialize(from)?;
        let time = DateTime::from_timestamp_millis(millis).map(Self);
        time.ok_or_else(|| D::Error::custom(format!("{millis} ms is not a valid time")))
    }
}

/// An [`Id`].
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct StoredId(pub Id);

impl<'de> Deserialize<'de> for StoredId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            return Id::deserialize(from).map(Self);
        }
        read_typed(from, |value| Some(Self(Id::from_bytes(value.as_object_id()?.bytes()))))
    }
}

/// A list of ids. In JSON it is one string of concatenated hexadecimal ids, because it can contain
/// thousands and is rewritten with every change. Older versions stored a list of strings, which is
/// also read.
#[derive(Debug, Clone)]
pub(in crate::store) struct StoredIds(pub Vec<Id>);

#[derive(Deserialize)]
#[serde(untagged)]
enum OidsInJson {
    Digits(String),
    List(Vec<StoredId>),
}

impl<'de> Deserialize<'de> for StoredIds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let stored = if from.is_human_readable() {
            OidsInJson::deserialize(from)?
        } else {
            OidsInJson::List(Vec::deserialize(from)?)
        };
        let digits = match stored {
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

impl StoredForm<Vec<Id>> for StoredIds {
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
        let whole_double = || number.as_f64().filter(|n| *n >= 0.0 && n.fract() == 0.0);
        let integer = number.as_u64().or_else(|| Some(whole_double()? as u64));
        let count = integer.and_then(|n| T::try_from(n).ok()).map(Self);
        count.ok_or_else(|| D::Error::custom(format!("{number} is not a count")))
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

/// A weekday, in lower case in BSON.
#[derive(Deserialize)]
pub(in crate::store) struct DayOfWeek(pub Weekday);

/// A geographic point: GeoJSON in BSON, otherwise `{lng, lat}`.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct StoredPoint(pub Point);

#[derive(Serialize, Deserialize)]
struct Degrees {
    lng: f64,
    lat: f64,
}

impl<'de> Deserialize<'de> for StoredPoint {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            let Degrees { lng, lat } = Degrees::deserialize(from)?;
            return Point::new(lng, lat).map(Self).map_err(D::Error::custom);
        }
        let point = parse_point(&Bson::deserialize(from)?).map(Self);
        point.ok_or_else(|| D::Error::custom("it is not a GeoJSON point"))
    }
}

/// Parses a GeoJSON point or a bare `[longitude, latitude]`.
pub(in crate::store) fn parse_point(value: &Bson) -> Option<Point> {
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
pub(in crate::store) trait StoredForm<T>: Sized {
    fn from_value(value: &T) -> Self;

    /// Converts back to the value. The error names the invalid field and the defect.
    fn into_value(self) -> Result<T, String>;

    /// Converts back to an optional value. Some forms can represent an absent value.
    fn into_option(self) -> Result<Option<T>, String> {
        self.into_value().map(Some)
    }
}

impl<T, A: StoredForm<T>> StoredForm<Option<T>> for Option<A> {
    fn from_value(value: &Option<T>) -> Self {
        value.as_ref().map(A::from_value)
    }

    fn into_value(self) -> Result<Option<T>, String> {
        self.map_or(Ok(None), A::into_option)
    }
}

impl<T, A: StoredForm<T>> StoredForm<Vec<T>> for Vec<A> {
    fn from_value(values: &Vec<T>) -> Self {
        values.iter().map(A::from_value).collect()
    }

    fn into_value(self) -> Result<Vec<T>, String> {
        self.into_iter().map(A::into_value).collect()
    }
}

impl StoredForm<Lease> for LeaseRecord {
    fn from_value(lease: &Lease) -> Self {
        Self { owner: Some(lease.owner.clone()), ..Self::until(lease.until) }
    }

    fn into_value(self) -> Result<Lease, String> {
        Ok(Lease { owner: require("owner", self.owner)?, until: require("until", self.until)?.0 })
    }

    fn into_option(self) -> Result<Option<Lease>, String> {
        if self.owner.is_none() { Ok(None) } else { self.into_value().map(Some) }
    }
}

/// Implements `StoredForm` for each form, by a function that writes it and a function that reads
/// it.
macro_rules! forms {
    ($($value:ty as $form:ty: $write:expr, $read:expr;)*) => {$(
        impl StoredForm<$value> for $form {
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
    Id as StoredId: |id| StoredId(*id), |id| id.0;
    Point as StoredPoint: |point| StoredPoint(*point), |point| point.0;
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
    bool as Option<bool>: |flag| Some(*flag), |flag| flag.unwrap_or_default();
    String as String: String::clone, |text| text;
}

pub(super) use forms;

/// Implements `StoredForm` for types that are their own stored form.
macro_rules! stored_as_is {
    ($($value:ty),*) => { forms! { $($value as $value: |value| *value, |value| value;)* } };
}

stored_as_is! {
    Cadence, DeliveryState, FanoutState, BatchState, ReportKind, SuppressionReason, Route, Day, Tz,
    QuietHours, RecordStart
}

/// Returns the time of a BSON date.
pub(super) fn read_date(value: RawBsonRef<'_>) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp_millis(value.as_datetime()?.timestamp_millis())
}
