//! Values by name: an object in JSON, a list in BSON.
//!
//! In BSON the name is a field of each element, because field names cannot hold every dot and
//! dollar. Documents of other programs may have an object there, too.

use std::fmt;
use std::marker::PhantomData;

use compact_str::CompactString;
use serde::de::{DeserializeOwned, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::needs;

/// A value that holds its name in BSON.
pub(in crate::store) trait Keyed: Serialize + DeserializeOwned {
    /// The field of the name.
    const KEY: &'static str;

    /// Removes the name.
    fn take_name(&mut self) -> Option<CompactString>;

    /// The value in JSON: a list of the fields, in the order of their declaration.
    fn listed(&self) -> impl Serialize;
}

/// Values by name.
pub(in crate::store) struct ByName<V>(pub Vec<(CompactString, V)>);

impl<V: Keyed> Serialize for ByName<V> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match to.is_human_readable() {
            true => to.collect_map(self.0.iter().map(|(name, value)| (name, value.listed()))),
            false => to.collect_seq(self.0.iter().map(|(_, value)| value)),
        }
    }
}

impl<'de, V: Keyed> Deserialize<'de> for ByName<V> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Values(PhantomData)).map(Self)
    }
}

struct Values<V>(PhantomData<V>);

impl<'de, V: Keyed> Visitor<'de> for Values<V> {
    type Value = Vec<(CompactString, V)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("values by name")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while let Some(mut value) = list.next_element::<V>()? {
            let name = needs(V::KEY, value.take_name()).map_err(A::Error::custom)?;
            values.push((name, value));
        }
        Ok(values)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while let Some(entry) = map.next_entry()? {
            values.push(entry);
        }
        Ok(values)
    }
}
