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
            context: self.context.clone(),
            batches: self.batches(),
            polls: self.polls.clone(),
            window_back: self.config.window_back,
        }
    }

    /// Exports what is held about users.
    pub fn exporter(&self) -> Exporter {
        Exporter {
            people: self.people(),
            context: self.context.clone(),
            batches: self.batches(),
            window_back: self.config.window_back,
        }
    }

    /// Finds where users begin whose ids had belonged to deleted users.
    pub fn starts(&self) -> &Arc<Starts> {
        &self.starts
    }
}
