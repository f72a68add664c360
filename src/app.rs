//! Builds the parts of a process from its configuration.
//!
//! Only this module knows which store, mailers and clock a process uses. Tests and the demo pass
//! their own to [`App::assemble`]; commands call [`App::open`].

use std::sync::Arc;

use tokio::sync::watch;

use crate::clock::{Clock, SystemClock};
use crate::config::{Config, StoreUrl};
use crate::context::Context;
use crate::domain::{DaySet, Fanout, Id, Inbox, UserId};
use crate::email::{Mailer, PinnedClient};
use crate::engine::access::keys::ServerKeys;
use crate::engine::access::tokens::UserTokens;
use crate::engine::archive::ArchiveService;
use crate::engine::archive::expired_records::Cleaner;
use crate::engine::batches::BatchService;
use crate::engine::coalescer::Coalescer;
use crate::engine::delivery::brand_identities::Identities;
use crate::engine::delivery::operator_actions::DeliveryService;
use crate::engine::delivery::{Compose, Sender};
use crate::engine::digest::DigestService;
use crate::engine::digest::backlog::BacklogService;
use crate::engine::fanout::{FanOutService, WaitingFanouts};
use crate::engine::feed::FeedService;
use crate::engine::feed::cache::FeedCache;
use crate::engine::feedback::FeedbackService;
use crate::engine::feedback::suppressions::SuppressionService;
use crate::engine::import::FileImport;
use crate::engine::ingest::EventService;
use crate::engine::ingest::objects::ObjectService;
use crate::engine::ingest::unknown_names::{NameLookup, RequestNames};
use crate::engine::users::service::UserService;
use crate::engine::worker::{Activity, Worker};
use crate::ids::Ids;
use crate::metrics::{BuildInfo, Metrics};
use crate::operate::dry_run::{DryRun, MAX_RENDERED};
use crate::operate::explain::Explain;
use crate::operate::metrics_text::{MetricsService, ScrapeCache};
use crate::operate::open::open_store;
use crate::operate::preview::UserEmails;
use crate::operate::status::StatusService;
use crate::render;
use crate::store::{Acceptance, FeedParts, Store};
use crate::wire::event::UnknownNames;

mod measured;

use measured::MeasuredStore;

pub use crate::engine::delivery::brand_identities::{Mailers, TemplateUse, Themes};
pub use crate::operate::open::Access;

/// The parts of a process, and the use cases built from them.
#[derive(Clone)]
pub struct App {
    /// The checked configuration.
    pub config: Arc<Config>,
    /// The store, the clock and the other shared parts.
    pub context: Arc<Context>,
    /// The senders, providers and themes of the brands.
    pub identities: Arc<Identities>,
    /// Caches what feeds read and which answers to polls are still valid.
    pub feed_cache: Arc<FeedCache>,
    /// Counts the work of this process.
    pub metrics: Metrics,
    /// Accepts short events of concurrent requests together.
    event_coalescer: Arc<Coalescer<Fanout, Acceptance>>,
    /// Looks up the names in concurrent requests together.
    name_coalescer: Arc<Coalescer<RequestNames, UnknownNames>>,
    /// Reads the feeds of concurrent requests together.
    feed_coalescer: Arc<Coalescer<(DaySet, UserId), FeedParts>>,
    /// Stores the marks of concurrent requests together.
    mark_coalescer: Arc<Coalescer<(Inbox, Id), bool>>,
    scrape_cache: Arc<ScrapeCache>,
    pinned: Arc<PinnedClient>,
}

impl App {
    /// Opens the configured store and mailer on this machine's clock.
    ///
    /// # Errors
    ///
    /// Reports a wrong configuration before anything is changed.
    pub async fn open(
        config: Config,
        access: Access,
        templates: TemplateUse,
    ) -> anyhow::Result<Self> {
        let mailers = Mailers::from_config(&config)?;
        let themes = Themes::load(&config, templates)?;
        let store = open_store(&config, access).await?;
        let (clock, ids) = (Arc::new(SystemClock), Arc::new(Ids::random()));
        Ok(Self::from_parts(config, store, mailers, themes, clock, ids))
    }

    /// Builds an app from a store, a clock and one mailer for all brands.
    pub fn assemble(
        config: Config,
        store: Arc<dyn Store>,
        mailer: Arc<dyn Mailer>,
        clock: Arc<dyn Clock>,
        ids: Arc<Ids>,
    ) -> Result<Self, render::Error> {
        let mailers = Mailers::shared(mailer, &config);
        let themes = Themes::load(&config, TemplateUse::Required)?;
        Ok(Self::from_parts(config, store, mailers, themes, clock, ids))
    }

    /// Builds an app from a store, a clock, and a mailer and a theme for each brand.
    pub fn from_parts(
        config: Config,
        store: Arc<dyn Store>,
        mailers: Mailers,
        themes: Themes,
        clock: Arc<dyn Clock>,
        ids: Arc<Ids>,
    ) -> Self {
        let metrics = Metrics::new(BuildInfo {
            version: env!("CARGO_PKG_VERSION"),
            store: match config.store {
                StoreUrl::Sqlite(_) => "sqlite",
                StoreUrl::Mongo(_) => "mongodb",
            },
            provider: mailers.default.name().to_owned(),
            types: config.policies.kinds().map(ToString::to_string).collect(),
        });
        let store: Arc<dyn Store> = Arc::new(MeasuredStore {
            inner: store,
            metrics: metrics.clone(),
            clock: clock.clone(),
        });
        let identities = Identities::new(&config, &store, themes, mailers);
        let feed_cache = Arc::new(FeedCache::new(clock.clone(), config.feed.fresh));
        let context = Arc::new(Context::new(config, store, clock, ids, metrics.clone()));
        Self {
            config: context.config.clone(),
            identities: Arc::new(identities),
            context,
            feed_cache,
            metrics,
            event_coalescer: Arc::default(),
            name_coalescer: Arc::default(),
            feed_coalescer: Arc::default(),
            mark_coalescer: Arc::default(),
            scrape_cache: Arc::default(),
            pinned: Arc::default(),
        }
    }

    /// Uses this client for the certificates of providers.
    pub fn with_pinned_client(self, pinned: PinnedClient) -> Self {
        Self { pinned: Arc::new(pinned), ..self }
    }

    /// Starts no further call to a provider once `stop` is true.
    pub fn set_shutdown_signal(&self, stop: &watch::Receiver<bool>) {
        let Identities { default, brands } = &*self.identities;
        for identity in brands.values().chain([default]) {
            identity.account.set_shutdown_signal(stop.clone());
        }
    }
}

/// Declares a method for each use case. The names in braces are fields of [`App`], and those after
/// `with` are its methods. `scrape -> MetricsService { context, cache: scrape_cache } with
/// backlog;` expands to
///
/// ```text
/// pub fn scrape(&self) -> MetricsService {
///     MetricsService {
///         context: self.context.clone(),
///         cache: self.scrape_cache.clone(),
///         backlog: self.backlog(),
///     }
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
