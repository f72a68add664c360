//! Builds the use cases that write and send emails.

use super::App;
use crate::engine::batches::{BatchService, Closer};
use crate::engine::delivery::deliveries::DeliveryService;
use crate::engine::delivery::{Compose, Sender};
use crate::engine::digest::Digests;
use crate::engine::digest::due::NextDigest;
use crate::engine::digest::flush::Flush;
use crate::engine::digest::owed::OwedDays;
use crate::operate::dry_run::{DryRun, MAX_RENDERED};
use crate::operate::preview::OfPerson;

impl App {
    /// Builds emails from deliveries, and only reads.
    pub fn compose(&self) -> Compose {
        Compose {
            context: self.context.clone(),
            catalog: self.catalog(),
            skip_seen: self.skip_seen(),
            brand: None,
            identity: self.identities.default.clone(),
            identities: self.identities.clone(),
            caps: self.config.digest.caps,
            schedule: self.config.digest.schedule,
        }
    }

    /// Sends deliveries.
    pub fn sender(&self) -> Sender {
        Sender::new(self.compose())
    }

    /// Lists, settles and retries deliveries.
    pub fn deliveries(&self) -> DeliveryService {
        DeliveryService {
            context: self.context.clone(),
        }
    }

    /// Finds and sends the digests that are due.
    pub fn digests(&self) -> Digests {
        Digests {
            sender: self.sender(),
            context: self.context.clone(),
            catalog: self.catalog(),
            skip_seen: self.skip_seen(),
            owed: self.owed(),
            full_look: self.config.digest.full_look,
            schedule: self.config.digest.schedule,
            caps: self.config.digest.caps,
        }
    }

    /// Computes when a user's next digest is due.
    pub fn next_digest(&self) -> NextDigest {
        NextDigest {
            context: self.context.clone(),
            schedule: self.config.digest.schedule,
        }
    }

    /// Finds the backlog of days that have left the window.
    pub fn owed(&self) -> OwedDays {
        OwedDays {
            context: self.context.clone(),
            catalog: self.catalog(),
            schedule: self.config.digest.schedule,
            window_back: self.config.window_back,
            skip_seen: self.skip_seen(),
            max_age: self.config.digest.max_age,
        }
    }

    /// Marks pending events as done.
    pub fn flush(&self) -> Flush {
        Flush {
            context: self.context.clone(),
            catalog: self.catalog(),
            skip_seen: self.skip_seen(),
            owed: self.owed(),
        }
    }

    /// Closes batches that are due.
    pub fn closer(&self) -> Closer {
        Closer::new(self.context.clone())
    }

    /// Lists, closes and cancels batches.
    pub fn batches(&self) -> BatchService {
        BatchService::new(self.context.clone(), self.catalog())
    }

    /// Shows the emails that a run would send, and writes nothing.
    pub fn dry_run(&self) -> DryRun {
        DryRun {
            digests: self.digests(),
            batches: self.batches(),
            compose: self.compose(),
            context: self.context.clone(),
            max_rendered: MAX_RENDERED,
        }
    }

    /// Finds the emails that one user would get now.
    pub fn of_person(&self) -> OfPerson {
        OfPerson {
            digests: self.digests(),
            batches: self.batches(),
            compose: self.compose(),
            context: self.context.clone(),
            brand: None,
        }
    }
}
