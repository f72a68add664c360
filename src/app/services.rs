//! Builds the use cases from the shared parts of the process, and from each other.

use super::App;
use crate::engine::access::keys::ServerKeys;
use crate::engine::access::tokens::UserTokens;
use crate::engine::archive::ArchiveService;
use crate::engine::archive::expired_records::Cleaner;
use crate::engine::batches::BatchService;
use crate::engine::delivery::operator_actions::DeliveryService;
use crate::engine::delivery::{Compose, Sender};
use crate::engine::digest::DigestService;
use crate::engine::digest::backlog::BacklogService;
use crate::engine::fanout::{FanOutService, WaitingFanouts};
use crate::engine::feed::FeedService;
use crate::engine::feedback::FeedbackService;
use crate::engine::feedback::suppressions::SuppressionService;
use crate::engine::import::FileImport;
use crate::engine::ingest::EventService;
use crate::engine::ingest::objects::ObjectService;
use crate::engine::ingest::unknown_names::NameLookup;
use crate::engine::users::service::UserService;
use crate::engine::worker::{Activity, Worker};
use crate::operate::dry_run::{DryRun, MAX_RENDERED};
use crate::operate::explain::Explain;
use crate::operate::metrics_text::MetricsService;
use crate::operate::preview::UserEmails;
use crate::operate::status::StatusService;

/// Declares a method for each use case: `scrape -> MetricsService { context, cache: scrape_cache }
/// with backlog;` expands to
///
/// ```text
/// pub fn scrape(&self) -> MetricsService {
///     let (context, cache) = (self.context.clone(), self.scrape_cache.clone());
///     MetricsService { context, cache, backlog: self.backlog() }
/// }
/// ```
macro_rules! services {
    ($(
        $(#[$doc:meta])*
        $name:ident -> $type:ident { $($field:ident $(: $part:ident)?),* }
            $(with $($inner:ident),+)?;
    )*) => {
        impl App {$(
            $(#[$doc])*
            pub fn $name(&self) -> $type {
                $type {
                    $($field: services!(@part self $field $($part)?),)*
                    $($($inner: self.$inner(),)+)?
                }
            }
        )*}
    };
    (@part $app:ident $part:ident) => { $app.$part.clone() };
    (@part $app:ident $field:ident $part:ident) => { $app.$part.clone() };
}

services! {
    /// Accepts events.
    notify -> EventService { context, coalescer: event_coalescer };
    /// Finds unknown types, objects and users of events.
    name_lookup -> NameLookup { context, shared_lookups: name_coalescer };
    /// Reads and writes objects, except those of mapped models, and retracts events.
    objects -> ObjectService { context, feed_cache } with batches;
    /// Imports files.
    import -> FileImport {} with users, notify, objects, suppressions;
    /// Reads feeds, and marks their items.
    feeds -> FeedService { context, cache: feed_cache, feed_reads: feed_coalescer, mark_writes: mark_coalescer };
    /// Lists, settles and retries deliveries.
    deliveries -> DeliveryService { context };
    /// Finds and sends the digests that are due.
    digests -> DigestService { context } with sender, backlog;
    /// Finds the backlog of days that have left the window, and flushes users.
    backlog -> BacklogService { context };
    /// Fills, closes, cancels and lists batches.
    batches -> BatchService { context };
    /// Finds the emails that one user would get now.
    user_emails -> UserEmails {} with digests, batches;
    /// Creates, changes, exports and erases users, and changes their follows.
    users -> UserService { context, feed_cache } with batches;
    /// Lists and changes the suppressed addresses.
    suppressions -> SuppressionService { context };
    /// Verifies and records the reports of providers.
    feedback -> FeedbackService { context, pinned } with users;
    /// Creates, lists and revokes server keys.
    keys -> ServerKeys { context };
    /// Records that a worker runs, and when digests last ran.
    activity -> Activity { context };
    /// Exports, drops and restores old days.
    archive -> ArchiveService { context } with backlog;
    /// Explains why a user gets an event or not.
    explain -> Explain { context } with batches, compose, backlog;
    /// Reports the state of the whole installation.
    status -> StatusService { context } with activity, deliveries, backlog, name_lookup;
    /// Answers scrapes of metrics.
    scrape -> MetricsService { context, cache: scrape_cache } with backlog;
}

impl App {
    /// Fans out accepted events.
    pub fn fanouts(&self) -> FanOutService {
        FanOutService {
            context: self.context.clone(),
            batches: self.batches(),
            backlog: self.backlog(),
            feed_cache: self.feed_cache.clone(),
            waiting_fanouts: WaitingFanouts::default(),
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

    /// Shows the emails that a run would send, without sending them or writing to the store.
    pub fn dry_run(&self) -> DryRun {
        DryRun { digests: self.digests(), max_rendered: MAX_RENDERED }
    }

    /// Verifies user tokens.
    pub fn tokens(&self) -> UserTokens {
        let tokens = &self.config.tokens;
        UserTokens::new(&tokens.audience, tokens.keys.clone())
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
}
