//! Puts together what erases and exports users.

use std::sync::Arc;

use super::App;
use crate::engine::directory::erasure::Eraser;
use crate::engine::directory::export::Exporter;
use crate::engine::directory::starts::Starts;

impl App {
    /// Erases users.
    pub fn eraser(&self) -> Eraser {
        Eraser {
            directory: self.store.clone(),
            notes: self.store.clone(),
            stacks: self.store.clone(),
            inboxes: self.store.clone(),
            journal: self.store.clone(),
            deliveries: self.store.clone(),
            batches: self.batches(),
            polls: self.polls.clone(),
            clock: self.clock.clone(),
            ids: self.ids.clone(),
            window_back: self.config.window_back,
        }
    }

    /// Exports what is held about users.
    pub fn exporter(&self) -> Exporter {
        Exporter {
            people: self.people(),
            inboxes: self.store.clone(),
            notes: self.store.clone(),
            batches: self.batches(),
            deliveries: self.store.clone(),
            suppressions: self.store.clone(),
            policies: self.policies.clone(),
            clock: self.clock.clone(),
            window_back: self.config.window_back,
        }
    }

    /// Finds where users begin whose ids had belonged to deleted users.
    pub fn starts(&self) -> &Arc<Starts> {
        &self.starts
    }
}
