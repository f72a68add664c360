//! Readers of JSON fields, for serde's `deserialize_with`.
//!
//! They reject lists where an object is expected (P10). serde's derived code would accept a list of
//! the values without their names.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

/// Reads an object.
pub(crate) fn named<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Named::deserialize(from).map(|Named(object)| object)
}

/// Reads an object or `null`, which both differ from an omitted field.
pub(crate) fn named_or_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    let object = Option::<Named<T>>::deserialize(from)?;
    Ok(Some(object.map(|Named(object)| object)))
}

/// Objects or `null`s by name.
type ByName<K, T> = BTreeMap<K, Option<T>>;

fn unnamed<K: Ord, T>(objects: ByName<K, Named<T>>) -> ByName<K, T> {
    let objects = objects.into_iter();
    let object = |(name, object): (K, Option<Named<T>>)| (name, object.map(|Named(object)| object));
    objects.map(object).collect()
}

/// Reads objects or `null`s by name.
pub(crate) fn each_if_given<'de, D, K, T>(from: D) -> Result<Option<ByName<K, T>>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de> + Ord,
    T: Deserialize<'de>,
{
    let objects = ByName::<K, Named<T>>::deserialize(from)?;
    Ok(Some(unnamed(objects)))
}

/// Reads objects or `null`s by name, or `null` in place of all of them.
pub(crate) fn each_or_null<'de, D, K, T>(from: D) -> Result<Option<Option<ByName<K, T>>>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de> + Ord,
    T: Deserialize<'de>,
{
    let objects = Option::<ByName<K, Named<T>>>::deserialize(from)?;
    Ok(Some(objects.map(unnamed)))
}

/// Reads a value that may be omitted but not `null`: a value lost by its sender would otherwise
/// change the meaning.
pub(crate) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// Reads an object that may be omitted but not `null`.
pub(crate) fn named_if_given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    named(from).map(Some)
}

/// A name, which may be written as a whole number.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a name as text or a whole number")]
pub(crate) enum Name {
    Text(String),
    Number(i64),
}

impl Name {
    /// Parses the name, or the digits of the number.
    pub(crate) fn parse<T: FromStr>(self) -> Result<T, T::Err> {
        match self {
            Self::Text(text) => text.parse(),
            Self::Number(number) => number.to_string().parse(),
        }
    }
}

struct Named<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Fields(PhantomData)).map(Named)
    }
}

struct Fields<T>(PhantomData<T>);

/// Passes values that are neither arrays nor objects to the derived code, whose errors describe the
/// expected value.
macro_rules! refused {
    ($($visit:ident: $type:ty),*) => {
        $(fn $visit<E: Error>(self, value: $type) -> Result<T, E> {
            T::deserialize(value.into_deserializer())
        })*
    };
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<T, A::Error> {
        Err(A::Error::invalid_type(Unexpected::Seq, &self))
    }

    refused! {visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str}

    fn visit_unit<E: Error>(self) -> Result<T, E> {
        T::deserialize(().into_deserializer())
    }
}
