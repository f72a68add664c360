//! What mails of one build say, each once: people who are told the same share it.
//!
//! The rule: a mail that says nothing of its person is rendered once for all who are told the same
//! things in the same zone and language. What two people are told is compared whole.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use chrono_tz::Tz;

use crate::domain::{Cadence, Content, Occasion};
use crate::email;

/// As much leaves together, in bytes of different contents.
const BYTES: usize = 16 << 20;
/// So many renderings are remembered: enough where people are told much the same, and little memory
/// where everybody is told something else.
const REMEMBERED: usize = 256;

/// Contents, each once.
#[derive(Default)]
pub(crate) struct Contents {
    known: HashSet<Arc<email::Content>>,
    bytes: usize,
    rendered: HashMap<u64, Vec<Rendered>>,
    remembered: usize,
}

/// What a rendering rests on, and what it came to.
struct Rendered {
    of: Of,
    told: Content,
    content: Arc<email::Content>,
}

/// What beside the things it tells a mail's words depend on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Of {
    /// Of a digest.
    digest: Option<(Cadence, String)>,
    tz: Tz,
    /// Of the words.
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

    /// What is mostly different where two people are told different things.
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

    /// Whether as much was built as leaves together.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= BYTES
    }

    /// What was rendered for somebody else who is told the same.
    pub(super) fn rendered(&self, of: &Of, told: &Content) -> Option<Arc<email::Content>> {
        let alike = self.rendered.get(&of.hash(told))?;
        let same = alike.iter().find(|one| one.of == *of && one.told == *told);
        same.map(|one| Arc::clone(&one.content))
    }

    /// Remembers a mail that says nothing of its person.
    pub(super) fn remember(&mut self, of: Of, told: Content, content: Arc<email::Content>) {
        if self.remembered < REMEMBERED {
            self.remembered += 1;
            let alike = self.rendered.entry(of.hash(&told)).or_default();
            alike.push(Rendered { of, told, content });
        }
    }
}
