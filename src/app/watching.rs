//! Puts together what those see who watch: how things stand, and the metrics of a process.

use super::App;
use crate::domain::Id;
use crate::engine::worker::Part;
use crate::engine::worker::activity::Activity;
use crate::metrics::Metrics;
use crate::operate::explain::Explain;
use crate::operate::health::Health;
use crate::operate::scrape::Scrape;
use crate::operate::status::StatusService;

impl App {
    /// What this process counts.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Records that a worker runs, and when digests last ran.
    pub fn activity(&self) -> Activity {
        Activity {
            context: self.context.clone(),
        }
    }

    /// Explains why a person gets something or not.
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

    /// Says how things stand.
    pub fn status(&self) -> StatusService {
        StatusService {
            activity: self.activity(),
            context: self.context.clone(),
            deliveries: self.deliveries(),
            owed: self.owed(),
            known: self.known(),
            place: format!("{:?}", self.config.store),
            window_back: self.config.window_back,
            expects_reports: self.config.reporter().is_some(),
        }
    }

    /// Says whether the store answers.
    pub fn health(&self) -> Health {
        Health {
            context: self.context.clone(),
        }
    }

    /// A part of the worker came to the end of a round.
    pub fn worked(&self, part: Part, is_ok: bool) {
        let part = match part {
            Part::FanningOut => "fan_out",
            Part::Mailing => "mail",
            Part::Digests => "digest",
        };
        self.metrics.worked(part, is_ok, self.context.clock.now());
    }

    /// Answers scrapes.
    pub fn scrape(&self) -> Scrape {
        Scrape {
            metrics: self.metrics.clone(),
            context: self.context.clone(),
            owed: self.owed(),
            lately: self.lately.clone(),
        }
    }

    /// A new id for a request that brought none.
    pub fn request_id(&self) -> Id {
        self.context.ids.next(self.context.clock.now())
    }
}
