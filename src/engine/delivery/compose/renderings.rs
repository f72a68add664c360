//! Renderings that users share: an email that does not mention its recipient is rendered once for
//! all users with the same content, time zone and language.

use std::sync::Arc;

use chrono_tz::Tz;

use crate::domain::{Cadence, EmailContent};
use crate::email;

/// A build is full when its contents have this many bytes.
const MAX_BYTES: usize = 16 << 20;
/// The most renderings that are kept for reuse. If all users have different events, more would only
/// cost memory.
const MAX_REUSABLE: usize = 256;

/// The contents of a build.
#[derive(Default)]
pub(super) struct Contents {
    bytes: usize,
    rendered: Vec<(Rendering, Arc<email::SharedContent>)>,
}

/// The input of a rendering.
#[derive(PartialEq)]
pub(super) struct Rendering {
    /// The cadence and the period of a digest; `None` for a batch.
    pub digest: Option<(Cadence, String)>,
    pub tz: Tz,
    pub locale: String,
    pub content: EmailContent,
}

impl Contents {
    /// Returns whether the build has reached its limit in bytes.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= MAX_BYTES
    }

    /// Returns the content for another user with the same input.
    pub(super) fn rendered(&self, rendering: &Rendering) -> Option<Arc<email::SharedContent>> {
        let (_, content) = self.rendered.iter().find(|(known, _)| known == rendering)?;
        Some(Arc::clone(content))
    }

    /// Counts a new content. Keeps it if it does not mention its recipient.
    pub(super) fn add(
        &mut self,
        rendering: Rendering,
        content: &Arc<email::SharedContent>,
        is_personal: bool,
    ) {
        self.bytes += content.bytes();
        if !is_personal && self.rendered.len() < MAX_REUSABLE {
            self.rendered.push((rendering, content.clone()));
        }
    }
}
