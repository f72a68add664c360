//! Builds the use cases that write and read events.

use super::App;
use crate::engine::batches::Joiner;
use crate::engine::directory::import::Import;
use crate::engine::directory::unknown::Known;
use crate::engine::eligibility::catalog::CatalogSource;
use crate::engine::eligibility::skip_seen::SkipSeen;
use crate::engine::fanout::{Fanouts, Lingering};
use crate::engine::feed::Feeds;
use crate::engine::ingest::notify::Notify;
use crate::engine::ingest::objects::ObjectService;
use crate::engine::ingest::retract::Retract;

impl App {
    /// Accepts events.
    pub fn notify(&self) -> Notify {
        Notify {
            context: self.context.clone(),
            joint: self.accepting.clone(),
        }
    }

    /// Finds unknown types, objects and users of events.
    pub fn known(&self) -> Known {
        Known {
            catalog: self.catalog(),
            context: self.context.clone(),
            joint: self.looking_up.clone(),
        }
    }

    /// Fans out accepted events.
    pub fn fanouts(&self) -> Fanouts {
        Fanouts {
            context: self.context.clone(),
            joiner: Joiner::new(self.closer()),
            owed: self.owed(),
            polls: self.polls.clone(),
            lingering: Lingering::default(),
        }
    }

    /// Retracts events.
    pub fn retract(&self) -> Retract {
        Retract {
            context: self.context.clone(),
            batches: self.batches(),
            catalog: self.catalog(),
            polls: self.polls.clone(),
        }
    }

    /// Reads and writes objects, except those of mapped models.
    pub fn objects(&self) -> ObjectService {
        ObjectService {
            context: self.context.clone(),
            polls: self.polls.clone(),
        }
    }

    /// Imports files.
    pub fn import(&self) -> Import {
        Import {
            people: self.people(),
            notify: self.notify(),
            objects: self.objects(),
            suppressions: self.suppressions(),
        }
    }

    /// Reads feeds, and marks their items.
    pub fn feeds(&self) -> Feeds {
        Feeds {
            context: self.context.clone(),
            catalog: self.catalog(),
            window_back: self.config.window_back,
            remembered_back: self.config.remembered_back(),
            since: self.config.feed.since,
            skip_seen: self.skip_seen(),
            caps: self.config.digest.caps,
            polls: self.polls.clone(),
            shelf: self.shelf.clone(),
        }
    }

    /// Looks up whether events still apply.
    pub(super) fn catalog(&self) -> CatalogSource {
        CatalogSource {
            context: self.context.clone(),
            shelf: Some(self.shelf.clone()),
        }
    }

    /// Excludes events from digests that were seen in the feed.
    pub(super) fn skip_seen(&self) -> SkipSeen {
        SkipSeen::new(self.config.digest.skip_seen, self.context.clone())
    }
}
