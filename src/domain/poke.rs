//! Change notices, by which processes tell each other that feeds may have changed.
//!
//! A notice says who may be affected, never what changed. It contains short hashes of users and
//! objects that every process computes alike. A collision only causes an extra read.

/// A user or an object, by a hash of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PokeKey(pub u32);

impl PokeKey {
    /// Returns the hash of a user id or object key: 64-bit FNV-1a, folded to 32 bits. Notices are
    /// stored for minutes, so all versions must compute the same hash.
    pub fn of(name: &str) -> Self {
        const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0100_0000_01b3;
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
        let hash = name.bytes().fold(BASIS, mix);
        Self((hash >> 32) as u32 ^ hash as u32)
    }
}

/// A change notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Poke {
    /// Anything may have changed, because notices were missed.
    All,
    /// The feeds of these users may have changed.
    People(Vec<PokeKey>),
    /// The feeds that show or count these objects may have changed.
    Objects(Vec<PokeKey>),
}

impl Poke {
    /// Creates a notice about these users.
    pub fn people<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::People(names.into_iter().map(PokeKey::of).collect())
    }

    /// Creates a notice about these objects.
    pub fn objects<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Objects(names.into_iter().map(PokeKey::of).collect())
    }

    /// Returns the stored form: the kind of the notice, and its hashes as little-endian bytes.
    pub fn kept(&self) -> (&'static str, Vec<u8>) {
        let bytes = |keys: &[PokeKey]| keys.iter().flat_map(|key| key.0.to_le_bytes()).collect();
        match self {
            Self::All => (ALL, Vec::new()),
            Self::People(keys) => (PEOPLE, bytes(keys)),
            Self::Objects(keys) => (OBJECTS, bytes(keys)),
        }
    }

    /// Parses the stored form. An unknown kind may concern anything.
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

/// Every version reads an unknown kind as [`Poke::All`].
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
    fn a_change_notice_round_trips_and_an_unreadable_one_means_everything() {
        for notice in [Poke::people(["ada", "ben"]), Poke::objects(["Artwork:1"])] {
            let (about, keys) = notice.kept();
            assert_eq!(Poke::stored(about, &keys), notice);
            assert_eq!(Poke::stored(about, &keys[1..]), Poke::All);
        }
        let (about, keys) = Poke::All.kept();
        assert_eq!(Poke::stored(about, &keys), Poke::All);
        assert_eq!(Poke::stored("places", &[]), Poke::All);
    }
}
