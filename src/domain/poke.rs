//! Pokes: whose feeds may have changed, told from process to process.
//!
//! The rule: a poke says that something may have changed, never what. It names people and objects
//! by a short hash that every process computes alike; whoever shares it is poked as well, which
//! costs a look and nothing else.

/// A person or an object, by a hash of the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PokeKey(pub u32);

impl PokeKey {
    /// That of a user id or of an object's key: FNV-1a of 64 bits, folded. It is on disk for
    /// minutes, so older and newer processes must agree.
    pub fn of(name: &str) -> Self {
        const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0100_0000_01b3;
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
        let hash = name.bytes().fold(BASIS, mix);
        Self((hash >> 32) as u32 ^ hash as u32)
    }
}

/// What may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Poke {
    /// Anything: some pokes were not heard.
    All,
    /// The feeds of these people.
    People(Vec<PokeKey>),
    /// The feeds that show these objects, or count what is about them.
    Objects(Vec<PokeKey>),
}

impl Poke {
    /// A poke of these people.
    pub fn people<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::People(names.into_iter().map(PokeKey::of).collect())
    }

    /// A poke of these objects.
    pub fn objects<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Objects(names.into_iter().map(PokeKey::of).collect())
    }

    /// How it is stored: the kind of what changed, and the hashes one after the other.
    pub fn kept(&self) -> (&'static str, Vec<u8>) {
        let bytes = |keys: &[PokeKey]| keys.iter().flat_map(|key| key.0.to_le_bytes()).collect();
        match self {
            Self::All => (ALL, Vec::new()),
            Self::People(keys) => (PEOPLE, bytes(keys)),
            Self::Objects(keys) => (OBJECTS, bytes(keys)),
        }
    }

    /// A poke as it is kept. One that says nothing known may be about anything.
    pub fn stored(about: &str, keys: &[u8]) -> Self {
        let (keys, rest) = keys.as_chunks::<4>();
        let keys = keys.iter().map(|key| PokeKey(u32::from_le_bytes(*key)));
        match about {
            PEOPLE if rest.is_empty() => Self::People(keys.collect()),
            OBJECTS if rest.is_empty() => Self::Objects(keys.collect()),
            _ => Self::All,
        }
    }
}

/// Every version reads a kind that it does not know as a change of anything.
const ALL: &str = "all";
const PEOPLE: &str = "people";
const OBJECTS: &str = "objects";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_same_in_every_version() {
        assert_eq!(PokeKey::of(""), PokeKey(0x4fd0_bfc1));
        assert_ne!(PokeKey::of("ada"), PokeKey::of("adb"));
    }

    #[test]
    fn what_is_kept_comes_back_and_what_is_odd_is_all() {
        for poke in [Poke::people(["ada", "ben"]), Poke::objects(["Artwork:1"])] {
            let (about, keys) = poke.kept();
            assert_eq!(Poke::stored(about, &keys), poke);
            assert_eq!(Poke::stored(about, &keys[1..]), Poke::All);
        }
        let (about, keys) = Poke::All.kept();
        assert_eq!(Poke::stored(about, &keys), Poke::All);
        assert_eq!(Poke::stored("places", &[]), Poke::All);
    }
}
