//! Renders equal contents of a build once, so that users share them.
//!
//! An email that does not mention its recipient is rendered once for all users with the same
//! content, time zone and language. Contents are compared in full, not by hash.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use chrono_tz::Tz;

use crate::domain::{Cadence, Content, Occasion};
use crate::email;

/// A build is full when its contents have this many bytes.
const BYTES: usize = 16 << 20;
/// The most renderings that are kept for reuse. If all users have different events, more would only
/// cost memory.
const REMEMBERED: usize = 256;

/// The contents of a build.
#[derive(Default)]
pub(super) struct Contents {
    bytes: usize,
    rendered: HashMap<u64, Vec<(Rendering, Arc<email::Content>)>>,
    remembered: usize,
}

/// The input of a rendering.
#[derive(PartialEq)]
pub(super) struct Rendering {
    /// The cadence and the period of a digest; `None` for a batch.
    digest: Option<(Cadence, String)>,
    tz: Tz,
    locale: String,
    pub(super) content: Content,
}

impl Rendering {
    pub(super) fn new(occasion: &Occasion, tz: Tz, locale: &str, content: Content) -> Self {
        let digest = match occasion {
            Occasion::Digest { cadence, period } => Some((*cadence, period.clone())),
            Occasion::Batch { .. } => None,
        };
        Self {
            digest,
            tz,
            locale: locale.to_owned(),
            content,
        }
    }

    /// Hashes the parts that usually differ between different contents.
    fn hash(&self) -> u64 {
        let (mut hasher, content) = (DefaultHasher::new(), &self.content);
        (&self.digest, self.tz, &self.locale).hash(&mut hasher);
        (content.total, content.oldest, content.newest).hash(&mut hasher);
        for (kind, item) in content.items() {
            (kind, &item.id, item.at).hash(&mut hasher);
        }
        hasher.finish()
    }
}

impl Contents {
    /// Returns whether the build has reached its limit in bytes.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= BYTES
    }

    /// Returns the content for another user with the same input.
    pub(super) fn rendered(&self, rendering: &Rendering) -> Option<Arc<email::Content>> {
        let mut known = self.rendered.get(&rendering.hash())?.iter();
        let same = known.find(|(known, _)| known == rendering)?;
        Some(Arc::clone(&same.1))
    }

    /// Counts a new content. Keeps it if it does not mention its recipient.
    pub(super) fn add(
        &mut self,
        rendering: Rendering,
        content: &Arc<email::Content>,
        is_personal: bool,
    ) {
        self.bytes += content.bytes();
        if !is_personal && self.remembered < REMEMBERED {
            self.remembered += 1;
            let same_hash = self.rendered.entry(rendering.hash()).or_default();
            same_hash.push((rendering, content.clone()));
        }
    }
}
