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
use crate::engine::coalescer::Coalescer;
use crate::engine::delivery::brand_identities::Identities;
use crate::engine::feed::cache::FeedCache;
use crate::engine::ingest::unknown_names::RequestNames;
use crate::ids::Ids;
use crate::metrics::{BuildInfo, Metrics};
use crate::operate::metrics_text::ScrapeCache;
use crate::operate::open::open_store;
use crate::render;
use crate::store::{Acceptance, FeedParts, Store};
use crate::wire::event::UnknownNames;

mod measured;
mod services;

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
