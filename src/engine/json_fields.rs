//! Readers of JSON fields, for serde's `deserialize_with`.
//!
//! They reject lists where an object is expected (P10). serde's derived code would accept a list of
//! the values without their names.

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
    JsonObject::deserialize(from).map(|JsonObject(object)| object)
}

/// Reads an object or `null`, which both differ from an omitted field.
pub(crate) fn named_or_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    let object = Option::<JsonObject<T>>::deserialize(from)?;
    Ok(Some(object.map(|JsonObject(object)| object)))
}

/// Reads a value that may be omitted. Unless its type has a `null`, it cannot be `null`: a value
/// lost by its sender would otherwise change the meaning.
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
pub(crate) enum NameOrNumber {
    Text(String),
    Number(i64),
}

impl NameOrNumber {
    /// Parses the name, or the digits of the number.
    pub(crate) fn parse<T: FromStr>(self) -> Result<T, T::Err> {
        match self {
            Self::Text(text) => text.parse(),
            Self::Number(number) => number.to_string().parse(),
        }
    }
}

/// An object, read from nothing but an object.
#[derive(Debug, Clone)]
pub struct JsonObject<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ObjectVisitor(PhantomData)).map(JsonObject)
    }
}

/// Reads the fields of an object.
pub(crate) struct ObjectVisitor<T>(pub(crate) PhantomData<T>);

/// Passes values that are neither arrays nor objects to the derived code, whose errors describe the
/// expected value.
macro_rules! scalars {
    ($($visit:ident: $type:ty),*) => {
        $(fn $visit<E: Error>(self, value: $type) -> Result<T, E> {
            T::deserialize(value.into_deserializer())
        })*
    };
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
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

    scalars! {visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str}

    fn visit_unit<E: Error>(self) -> Result<T, E> {
        T::deserialize(().into_deserializer())
    }
}
