//! Builds the use cases from the parts of the process.

use super::App;
use crate::engine::access::keys::ServerKeys;
use crate::engine::access::tokens::Tokens;
use crate::engine::archive::Archive;
use crate::engine::archive::clean::Cleaner;
use crate::engine::batches::BatchService;
use crate::engine::delivery::deliveries::DeliveryService;
use crate::engine::delivery::{Compose, Sender};
use crate::engine::digest::Digests;
use crate::engine::digest::backlog::BacklogDays;
use crate::engine::fanout::{Fanouts, Lingering};
use crate::engine::feed::Feeds;
use crate::engine::feedback::FeedbackService;
use crate::engine::feedback::suppressions::SuppressionService;
use crate::engine::ingest::Notify;
use crate::engine::ingest::objects::ObjectService;
use crate::engine::users::import::Import;
use crate::engine::users::people::PeopleService;
use crate::engine::users::unknown::NameLookup;
use crate::engine::worker::{Activity, Worker};
use crate::operate::dry_run::{DryRun, MAX_RENDERED};
use crate::operate::explain::Explain;
use crate::operate::preview::OfPerson;
use crate::operate::scrape::Scrape;
use crate::operate::status::StatusService;

impl App {
    /// Accepts events.
    pub fn notify(&self) -> Notify {
        Notify {
            context: self.context.clone(),
            coalescer: self.accepting.clone(),
        }
    }

    /// Finds unknown types, objects and users of events.
    pub fn known(&self) -> NameLookup {
        NameLookup {
            context: self.context.clone(),
            coalescer: self.looking_up.clone(),
        }
    }

    /// Fans out accepted events.
    pub fn fanouts(&self) -> Fanouts {
        Fanouts {
            context: self.context.clone(),
            batches: self.batches(),
            backlog: self.backlog(),
            feed_cache: self.feed_cache.clone(),
            lingering: Lingering::default(),
        }
    }

    /// Reads and writes objects, except those of mapped models, and retracts events.
    pub fn objects(&self) -> ObjectService {
        ObjectService {
            context: self.context.clone(),
            batches: self.batches(),
            feed_cache: self.feed_cache.clone(),
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
            cache: self.feed_cache.clone(),
            reads: self.reading.clone(),
            coalescer: self.marking.clone(),
        }
    }

    /// Builds emails from deliveries, and only reads.
    pub fn compose(&self) -> Compose {
        Compose {
            context: self.context.clone(),
            brand: None,
            identities: self.identities.clone(),
            identity: self.identities.default.clone(),
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
            backlog: self.backlog(),
        }
    }

    /// Finds the backlog of days that have left the window, and flushes users.
    pub fn backlog(&self) -> BacklogDays {
        BacklogDays {
            context: self.context.clone(),
        }
    }

    /// Fills, closes, cancels and lists batches.
    pub fn batches(&self) -> BatchService {
        BatchService {
            context: self.context.clone(),
        }
    }

    /// Shows the emails that a run would send, and writes nothing.
    pub fn dry_run(&self) -> DryRun {
        DryRun {
            digests: self.digests(),
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
        }
    }

    /// Creates, changes, exports and erases users, and changes their follows.
    pub fn people(&self) -> PeopleService {
        PeopleService {
            context: self.context.clone(),
            batches: self.batches(),
            feed_cache: self.feed_cache.clone(),
        }
    }

    /// Lists and changes the suppressed addresses.
    pub fn suppressions(&self) -> SuppressionService {
        SuppressionService {
            context: self.context.clone(),
        }
    }

    /// Verifies and records the reports of providers.
    pub fn feedback(&self) -> FeedbackService {
        FeedbackService {
            context: self.context.clone(),
            people: self.people(),
            pinned: self.pinned.clone(),
        }
    }

    /// Creates, lists and revokes server keys.
    pub fn keys(&self) -> ServerKeys {
        ServerKeys {
            context: self.context.clone(),
        }
    }

    /// Verifies user tokens.
    pub fn tokens(&self) -> Tokens {
        let tokens = &self.config.tokens;
        Tokens::new(&tokens.audience, tokens.keys.clone())
    }

    /// Runs fan-outs, batches, deliveries and digests.
    pub fn worker(&self) -> Worker {
        Worker {
            fanouts: self.fanouts(),
            batches: self.batches(),
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
            backlog: self.backlog(),
        }
    }

    /// Explains why a user gets an event or not.
    pub fn explain(&self) -> Explain {
        Explain {
            context: self.context.clone(),
            batches: self.batches(),
            compose: self.compose(),
            backlog: self.backlog(),
        }
    }

    /// Reports the state of the whole installation.
    pub fn status(&self) -> StatusService {
        StatusService {
            activity: self.activity(),
            context: self.context.clone(),
            deliveries: self.deliveries(),
            backlog: self.backlog(),
            known: self.known(),
        }
    }

    /// Answers scrapes of metrics.
    pub fn scrape(&self) -> Scrape {
        Scrape {
            metrics: self.metrics.clone(),
            context: self.context.clone(),
            backlog: self.backlog(),
            cache: self.scraped.clone(),
        }
    }
}
