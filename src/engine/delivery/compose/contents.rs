//! Stores each distinct content of a build once, so that users share it.
//!
//! An email that does not mention its recipient is rendered once for all users with the same
//! content, time zone and language. Contents are compared in full, not by hash.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use chrono_tz::Tz;

use crate::domain::{Cadence, Content, Occasion};
use crate::email;

/// A build is full when its distinct contents have this many bytes.
const BYTES: usize = 16 << 20;
/// The most renderings that are kept for reuse. If all users have different events, more would only
/// cost memory.
const REMEMBERED: usize = 256;

/// The distinct contents of a build.
#[derive(Default)]
pub(crate) struct Contents {
    known: HashSet<Arc<email::Content>>,
    bytes: usize,
    rendered: HashMap<u64, Vec<Rendered>>,
    remembered: usize,
}

/// A rendering, with its input.
struct Rendered {
    of: Of,
    told: Content,
    content: Arc<email::Content>,
}

/// The input of a rendering besides its events.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Of {
    /// The cadence and the period of a digest; `None` for a batch.
    digest: Option<(Cadence, String)>,
    tz: Tz,
    /// The locale of the text.
    locale: String,
}

impl Of {
    pub(super) fn new(occasion: &Occasion, tz: Tz, locale: &str) -> Self {
        let digest = match occasion {
            Occasion::Digest { cadence, period } => Some((*cadence, period.clone())),
            Occasion::Batch { .. } => None,
        };
        Self {
            digest,
            tz,
            locale: locale.to_owned(),
        }
    }

    /// Hashes the parts that usually differ between different contents.
    fn hash(&self, told: &Content) -> u64 {
        let mut hasher = DefaultHasher::new();
        Hash::hash(self, &mut hasher);
        (told.total, told.oldest, told.newest).hash(&mut hasher);
        for (kind, item) in told.items() {
            (kind, &item.id, item.at).hash(&mut hasher);
        }
        hasher.finish()
    }
}

impl Contents {
    pub(crate) fn share(&mut self, content: email::Content) -> Arc<email::Content> {
        if let Some(known) = self.known.get(&content) {
            return Arc::clone(known);
        }
        self.bytes += content.bytes();
        let content = Arc::new(content);
        self.known.insert(Arc::clone(&content));
        content
    }

    /// Returns whether the build has reached its limit in bytes.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= BYTES
    }

    /// Returns the rendering for another user with the same content.
    pub(super) fn rendered(&self, of: &Of, told: &Content) -> Option<Arc<email::Content>> {
        let alike = self.rendered.get(&of.hash(told))?;
        let same = alike.iter().find(|one| one.of == *of && one.told == *told);
        same.map(|one| Arc::clone(&one.content))
    }

    /// Keeps a rendering that does not mention its recipient.
    pub(super) fn remember(&mut self, of: Of, told: Content, content: Arc<email::Content>) {
        if self.remembered < REMEMBERED {
            self.remembered += 1;
            let alike = self.rendered.entry(of.hash(&told)).or_default();
            alike.push(Rendered { of, told, content });
        }
    }
}
