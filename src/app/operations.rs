//! Builds the worker, and the use cases of operators.

use super::App;
use crate::engine::archive::Archive;
use crate::engine::archive::clean::Cleaner;
use crate::engine::worker::Worker;
use crate::engine::worker::activity::Activity;
use crate::operate::explain::Explain;
use crate::operate::scrape::Scrape;
use crate::operate::status::StatusService;

impl App {
    /// Runs fan-outs, batches, deliveries and digests.
    pub fn worker(&self) -> Worker {
        Worker {
            fanouts: self.fanouts(),
            closer: self.closer(),
            cleaner: Cleaner::new(self.context.clone()),
            digests: self.digests(),
            context: self.context.clone(),
        }
    }

    /// Records that a worker runs, and when digests last ran.
    pub fn activity(&self) -> Activity {
        Activity {
            context: self.context.clone(),
        }
    }

    /// Exports, drops and restores old days.
    pub fn archive(&self) -> Archive {
        Archive {
            context: self.context.clone(),
            owed: self.owed(),
        }
    }

    /// Explains why a user gets an event or not.
    pub fn explain(&self) -> Explain {
        Explain {
            context: self.context.clone(),
            catalog: self.catalog(),
            batches: self.batches(),
            compose: self.compose(),
            brands: self.config.brand_names(),
            schedule: self.config.digest.schedule,
            skip_seen: self.skip_seen(),
            owed: self.owed(),
            day_cap: self.config.fanout.day_cap,
            caps: self.config.digest.caps,
        }
    }

    /// Reports the state of the whole installation.
    pub fn status(&self) -> StatusService {
        StatusService {
            activity: self.activity(),
            context: self.context.clone(),
            deliveries: self.deliveries(),
            owed: self.owed(),
            known: self.known(),
        }
    }

    /// Answers scrapes of metrics.
    pub fn scrape(&self) -> Scrape {
        Scrape {
            metrics: self.metrics.clone(),
            context: self.context.clone(),
            owed: self.owed(),
            cache: self.scraped.clone(),
        }
    }
}
