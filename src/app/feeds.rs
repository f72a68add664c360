//! Puts together what serves feeds: who reads and marks them, what is known of polls, and who may
//! ask.

use std::sync::Arc;

use chrono::TimeDelta;
use tokio::sync::watch;

use super::App;
use crate::engine::access::keys::{KeyRing, ServerKeys};
use crate::engine::access::tokens::Tokens;
use crate::engine::batches::QuietHours;
use crate::engine::eligibility::catalog::CatalogSource;
use crate::engine::feed::Feeds;
use crate::engine::feed::polls::Polls;

/// A batch gathers for up to 30 days, and its mail is given up after 30 at the most.
const BATCHED: TimeDelta = TimeDelta::days(60);

impl App {
    /// Reads feeds, and notes what people did to their items.
    pub fn feeds(&self) -> Feeds {
        Feeds {
            context: self.context.clone(),
            catalog: self.catalog(),
            window_back: self.config.window_back,
            remembered_back: self.remembered_back(),
            since: self.config.feed.since,
            skip_seen: self.skip_seen(),
            caps: self.config.digest.caps,
            polls: self.polls.clone(),
            shelf: self.shelf.clone(),
        }
    }

    /// Digests that leave out what was seen ask for as long as they tell of a day.
    fn remembered_back(&self) -> u32 {
        let digest = &self.config.digest;
        let asked = digest.skip_seen.then(|| digest.max_age.num_days() + 1);
        let asked = asked.and_then(|days| u32::try_from(days).ok());
        asked.unwrap_or(0).max(self.config.window_back)
    }

    /// How long after it happened something may be mailed, or shown in a feed.
    pub(super) fn remembers(&self) -> TimeDelta {
        let window = TimeDelta::days(i64::from(self.config.window_back) + 1);
        let digest = self.config.digest.max_age.max(window);
        digest.max(BATCHED) + TimeDelta::days(1)
    }

    /// Where it is looked up whether events still apply.
    pub(crate) fn catalog(&self) -> CatalogSource {
        CatalogSource {
            context: self.context.clone(),
            shelf: Some(self.shelf.clone()),
        }
    }

    /// Knows whose batches wait until when.
    pub(super) fn quiet_hours(&self) -> QuietHours {
        let tz = self.config.digest.schedule.tz;
        QuietHours::new(self.context.clone(), tz)
    }

    /// What is known of the answers to polls.
    pub fn polls(&self) -> &Arc<Polls> {
        &self.polls
    }

    /// Listens for what other processes change in feeds, until this turns true.
    pub async fn listen(&self, stop: watch::Receiver<bool>) {
        self.polls.listen(&*self.context.store, stop).await;
    }

    /// Creates, lists and revokes server keys.
    pub fn keys(&self) -> ServerKeys {
        ServerKeys {
            context: self.context.clone(),
        }
    }

    /// Recognizes the configured server key and those that were created.
    pub fn key_ring(&self, configured: &str) -> KeyRing {
        KeyRing::new(configured, self.context.clone())
    }

    /// Verifies user tokens.
    pub fn tokens(&self) -> Tokens {
        let tokens = &self.config.tokens;
        Tokens::new(&tokens.audience, tokens.keys.clone())
    }
}
