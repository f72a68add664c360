//! A cache with a limit in bytes, divided into parts that each have a lock.
//!
//! A part without room for a new value is emptied. Callers pass the bytes that a value uses beyond
//! its own size; the cache adds the map's share.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of parts. More parts mean less contention.
const PARTS: usize = 64;

/// Values by the hash of their name.
pub(crate) struct ByteCache<V> {
    parts: Vec<Mutex<Part<V>>>,
    /// The limit of each part, in bytes.
    most: usize,
}

struct Part<V> {
    values: HashMap<u64, (V, usize)>,
    bytes: usize,
}

impl<V> Default for Part<V> {
    fn default() -> Self {
        Self {
            values: HashMap::new(),
            bytes: 0,
        }
    }
}

impl<V> ByteCache<V> {
    /// Creates an empty cache with this limit in bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            most: bytes / PARTS,
        }
    }

    /// Returns the result of `read` on the value with this hash, if there is one. `read` returns
    /// `None` if the value has another name with the same hash.
    pub(crate) fn read<T>(&self, name: u64, read: impl FnOnce(&V) -> Option<T>) -> Option<T> {
        let part = self.part(name);
        let (value, _) = part.values.get(&name)?;
        read(value)
    }

    /// Stores a value that uses `bytes` beyond its own size. A value that needs more than half of a
    /// part is not stored.
    pub(crate) fn keep(&self, name: u64, value: V, bytes: usize) {
        // A growing map reserves about twice the space that its entries need.
        let bytes = bytes + 2 * size_of::<(u64, (V, usize))>();
        if bytes > self.most / 2 {
            return;
        }
        let mut part = self.part(name);
        if part.bytes + bytes > self.most {
            *part = Part::default();
        }
        let before = part.values.insert(name, (value, bytes));
        part.bytes += bytes;
        part.bytes -= before.map_or(0, |(_, bytes)| bytes);
    }

    fn part(&self, name: u64) -> MutexGuard<'_, Part<V>> {
        let part = &self.parts[name as usize % PARTS];
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of values and the bytes that they use.
    #[cfg(test)]
    pub(crate) fn size(&self) -> (usize, usize) {
        let parts = (0..PARTS as u64).map(|name| {
            let part = self.part(name);
            (part.values.len(), part.bytes)
        });
        parts.fold((0, 0), |all, part| (all.0 + part.0, all.1 + part.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_values_stay_within_the_byte_limit() {
        let cache = ByteCache::<usize>::new(64 << 10);
        for name in 0..10_000 {
            cache.keep(name, name as usize, 100);
            assert_eq!(cache.read(name, |value| Some(*value)), Some(name as usize));
        }

        let (values, bytes) = cache.size();

        assert!(
            bytes <= 64 << 10 && values * 100 <= bytes,
            "{values} in {bytes}"
        );
        assert!(values > 0);
    }

    #[test]
    fn replaced_and_oversized_values_use_no_space() {
        let cache = ByteCache::<u8>::new(64 << 10);
        (0..100).for_each(|n| cache.keep(1, n, 300));
        let before = cache.size();
        cache.keep(2, 0, 600);

        assert_eq!(
            (cache.read(1, |n| Some(*n)), cache.read(2, |n| Some(*n))),
            (Some(99), None)
        );
        assert_eq!((cache.size(), before.0), (before, 1));
    }
}
