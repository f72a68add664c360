//! Puts together what accepts events and says what of them is known.

use std::sync::Arc;

use super::App;
use crate::domain::Fanout;
use crate::engine::directory::unknown::{Known, Named};
use crate::engine::ingest::notify::{Notify, Warnings};
use crate::engine::joint::Joint;
use crate::store::Accepted;
use crate::wire::unknown::Unknown;

/// What requests of this process are made together by.
#[derive(Clone, Default)]
pub(super) struct Joined {
    accepted: Arc<Joint<Fanout, Accepted>>,
    known: Arc<Joint<Named, Unknown>>,
}

impl App {
    /// Accepts events.
    pub fn notify(&self) -> Notify {
        Notify {
            journal: self.store.clone(),
            clock: self.clock.clone(),
            ids: self.ids.clone(),
            joint: self.joined.accepted.clone(),
            window_back: self.config.window_back,
            brands: self.config.brand_names(),
            policies: self.policies.clone(),
        }
    }

    /// What of events is known.
    pub fn known(&self) -> Known {
        Known {
            catalog: self.catalog(),
            journal: self.store.clone(),
            directory: self.store.clone(),
            policies: self.policies.clone(),
            joint: self.joined.known.clone(),
        }
    }

    /// Says who will not see an event, and why.
    pub fn warnings(&self) -> Warnings {
        Warnings {
            known: self.known(),
            directory: self.store.clone(),
            objects: self.store.clone(),
            policies: self.policies.clone(),
        }
    }
}
