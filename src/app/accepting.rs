//! Puts together what accepts events and says what of them is known.

use super::App;
use crate::engine::directory::unknown::Known;
use crate::engine::ingest::notify::{Notify, Warnings};

impl App {
    /// Accepts events.
    pub fn notify(&self) -> Notify {
        Notify {
            context: self.context.clone(),
            joint: self.joined.accepted.clone(),
            window_back: self.config.window_back,
            brands: self.config.brand_names(),
        }
    }

    /// What of events is known.
    pub fn known(&self) -> Known {
        Known {
            catalog: self.catalog(),
            context: self.context.clone(),
            joint: self.joined.known.clone(),
        }
    }

    /// Says who will not see an event, and why.
    pub fn warnings(&self) -> Warnings {
        Warnings {
            known: self.known(),
            context: self.context.clone(),
        }
    }
}
