//! The composition root: builds a working engine from a configuration.
//!
//! The rule: only here does anybody know which store, which mailer and which clock it is. Tests and
//! the demo hand in their own ([`App::assemble`]); everything else asks [`App::open`].

use std::path::Path;
use std::sync::Arc;

use tokio::sync::watch;

use crate::clock::{Clock, Ids, SystemClock};
use crate::config::{Config, StoreUrl};
use crate::context::Context;
use crate::domain::{BrandName, Fanout};
use crate::email::{Mailer, Pinned};
use crate::engine::access::links::Links;
use crate::engine::archive::Archive;
use crate::engine::archive::clean::Cleaner;
use crate::engine::batches::{BatchService, Closer, Joiner};
use crate::engine::delivery::deliveries::DeliveryService;
use crate::engine::delivery::{Pacer, brand_of_call};
use crate::engine::digest::due::NextDigest;
use crate::engine::digest::flush::Flush;
use crate::engine::digest::owed::OwedDays;
use crate::engine::directory::import::Import;
use crate::engine::directory::people::PeopleService;
use crate::engine::directory::starts::Starts;
use crate::engine::directory::unknown::Named;
use crate::engine::fanout::{self, Fanouts, Lingering};
use crate::engine::feed::polls::Polls;
use crate::engine::feed::shelf::Shelf;
use crate::engine::feedback::FeedbackService;
use crate::engine::feedback::suppressions::SuppressionService;
use crate::engine::ingest::objects::ObjectService;
use crate::engine::ingest::retract::Retract;
use crate::engine::joint::Joint;
use crate::engine::worker::Worker;
use crate::metrics::{Build, Metrics};
use crate::operate::scrape::Lately;
use crate::render::{self, Pages, Renderer, ReportPage};
use crate::store::{Accepted, Store};
use crate::wire::unknown::Unknown;

mod accepting;
mod access;
mod brands;
mod doctor;
mod feeds;
mod mailer;
mod mailing;
mod measured;
mod preview;
mod users;
mod watching;

use brands::{Looks, site};
use measured::MeasuredStore;

pub use access::{Access, Closed, NoStore, is_missing, open_store, transfer, upgrade_ahead};
pub use brands::{Made, Mailers};
pub use doctor::doctor;
pub use mailer::{mailer, outbox};
pub use preview::{preview, send_test};

/// Everything a face needs.
#[derive(Clone)]
pub struct App {
    /// The configuration, checked.
    pub config: Arc<Config>,
    /// The store, the clock and the other shared parts.
    pub context: Arc<Context>,
    mailer: Arc<dyn Mailer>,
    brands: brands::Parts,
    renderer: Arc<Renderer>,
    links: Arc<Links>,
    pages: Arc<Pages>,
    pacer: Arc<Pacer>,
    polls: Arc<Polls>,
    shelf: Arc<Shelf>,
    starts: Arc<Starts>,
    metrics: Metrics,
    lately: Arc<Lately>,
    joined: Joined,
    pinned: Arc<Pinned>,
}

/// What requests of this process are made together by.
#[derive(Clone, Default)]
pub(super) struct Joined {
    accepted: Arc<Joint<Fanout, Accepted>>,
    known: Arc<Joint<Named, Unknown>>,
}

/// What runs here.
fn build(config: &Config, mailer: &dyn Mailer) -> Build {
    Build {
        version: env!("CARGO_PKG_VERSION"),
        store: match config.store {
            StoreUrl::Sqlite(_) => "sqlite",
            StoreUrl::Mongo(_) => "mongodb",
        },
        provider: mailer.name().to_owned(),
        types: config.policies.kinds().map(ToString::to_string).collect(),
    }
}

impl App {
    /// Opens the configured store and mailer on this machine's clock.
    pub async fn open(config: Config, access: Access, made: Made) -> anyhow::Result<Self> {
        // Whatever may be wrong with the configuration comes first: then nothing was changed.
        let mailers = Mailers::of(&config)?;
        let looks = Looks::of(&config, made)?;
        let store = open_store(&config, access).await?;
        let (clock, ids) = (Arc::new(SystemClock), Arc::new(Ids::random()));
        Ok(Self::of(config, store, mailers, looks, clock, ids))
    }

    /// Puts given parts together; all brands are sent by this mailer.
    pub fn assemble(
        config: Config,
        store: Arc<dyn Store>,
        mailer: Arc<dyn Mailer>,
        clock: Arc<dyn Clock>,
        ids: Arc<Ids>,
    ) -> Result<Self, render::Error> {
        let mailers = Mailers::one(mailer, &config);
        Self::assemble_with(config, store, mailers, clock, ids)
    }

    /// The same with a mailer for each brand.
    pub fn assemble_with(
        config: Config,
        store: Arc<dyn Store>,
        mailers: Mailers,
        clock: Arc<dyn Clock>,
        ids: Arc<Ids>,
    ) -> Result<Self, render::Error> {
        let looks = Looks::of(&config, Made::Something)?;
        Ok(Self::of(config, store, mailers, looks, clock, ids))
    }

    fn of(
        config: Config,
        store: Arc<dyn Store>,
        mailers: Mailers,
        looks: Looks,
        clock: Arc<dyn Clock>,
        ids: Arc<Ids>,
    ) -> Self {
        let metrics = Metrics::new(build(&config, &*mailers.default));
        let store: Arc<dyn Store> = Arc::new(MeasuredStore {
            inner: store,
            metrics: metrics.clone(),
            clock: clock.clone(),
        });
        let mailers = mailers.measured(&metrics);
        let pacer = brands::pacer(&config);
        let Looks { default, brands } = looks;
        let brands = brands::Parts::of(&config, &store, brands, &mailers, &pacer);
        let server = &config.server;
        let (public_url, secret) = (server.public_url.clone(), server.link_secret.clone());
        let links = Arc::new(Links::new(store.clone(), public_url, secret));
        let polls = Arc::new(Polls::new(clock.clone(), config.feed.fresh));
        let context = Arc::new(Context {
            store,
            clock,
            owner: ids.owner(),
            ids,
            policies: Arc::new(config.policies.clone()),
        });
        let starts = Arc::new(Starts::new(context.clone(), Arc::clone(&polls)));
        Self {
            config: Arc::new(config),
            context,
            mailer: mailers.default,
            brands,
            renderer: default.renderer,
            links,
            pages: default.pages,
            pacer,
            shelf: Arc::new(Shelf::new(Arc::clone(&polls))),
            starts,
            polls,
            metrics,
            lately: Arc::default(),
            joined: Joined::default(),
            pinned: Arc::default(),
        }
    }

    /// The same with certificates from elsewhere.
    pub fn with_pinned(self, pinned: Pinned) -> Self {
        Self {
            pinned: Arc::new(pinned),
            ..self
        }
    }

    /// From now on nothing new is handed over once this turns true.
    pub fn end_with(&self, stop: watch::Receiver<bool>) {
        let brands = self.brands.outlets.values();
        brands.for_each(|outlet| outlet.pacer.end_with(stop.clone()));
        self.pacer.end_with(stop);
    }

    /// The folder that emails are written to; `None` if they are sent.
    pub fn outbox(&self) -> Option<&Path> {
        self.mailer.outbox()
    }

    /// Fans out accepted events.
    pub fn fanouts(&self) -> Fanouts {
        let config = &self.config.fanout;
        Fanouts {
            context: self.context.clone(),
            joiner: Joiner::new(self.closer()),
            owed: self.owed(),
            polls: self.polls.clone(),
            lingering: Lingering::default(),
            settings: fanout::Settings {
                day_cap: config.day_cap,
                page: config.page,
                merge: config.merge,
                lease: config.lease,
            },
        }
    }

    /// Ends batches that are due.
    pub fn closer(&self) -> Closer {
        Closer {
            context: self.context.clone(),
            quiet: self.quiet_hours(),
            lease: self.config.fanout.lease,
        }
    }

    /// Takes events back.
    pub fn retract(&self) -> Retract {
        Retract {
            context: self.context.clone(),
            batches: self.batches(),
            catalog: self.catalog(),
            polls: self.polls.clone(),
        }
    }

    /// Looks into batches, closes and cancels them.
    pub fn batches(&self) -> BatchService {
        BatchService {
            context: self.context.clone(),
            catalog: self.catalog(),
            quiet: self.quiet_hours(),
        }
    }

    /// What is owed of days that have left the window.
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

    /// The page that a rehearsal is told on.
    pub fn report_page(&self) -> Result<ReportPage, render::Error> {
        ReportPage::new(&site(&self.config))
    }

    /// Lists, settles and retries mails.
    pub fn deliveries(&self) -> DeliveryService {
        DeliveryService {
            context: self.context.clone(),
        }
    }

    /// Marks what people have pending as dealt with.
    pub fn flush(&self) -> Flush {
        Flush {
            context: self.context.clone(),
            catalog: self.catalog(),
            skip_seen: self.skip_seen(),
            owed: self.owed(),
        }
    }

    /// Exports and drops old days, and restores them.
    pub fn archive(&self) -> Archive {
        Archive {
            context: self.context.clone(),
            owed: self.owed(),
        }
    }

    /// Keeps users and follows.
    pub fn people(&self) -> PeopleService {
        PeopleService {
            context: self.context.clone(),
            brands: self.config.brand_names(),
            schedule: self.config.digest.schedule,
            remembered: self.remembers(),
            polls: self.polls.clone(),
            eraser: self.eraser(),
        }
    }

    /// Whether mails leave for people and carry nothing to stop them by.
    pub fn lacks_links(&self) -> bool {
        self.links.public_url.is_none() && self.outbox().is_none()
    }

    /// The links of mails.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// The pages people reach from their mails.
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    /// The pages people reach from their mails of this brand; those of the default where there is
    /// no such brand any more, so that a link still does what it says.
    pub fn pages_of(&self, brand: Option<&BrandName>) -> &Pages {
        let own = brand.and_then(|brand| self.brands.pages.get(brand));
        own.unwrap_or(&self.pages)
    }

    /// For which brand a call was made, if it was for one that there is.
    pub fn brand_of_call(&self, call: &str) -> Option<&BrandName> {
        brand_of_call(&self.brands.outlets, call)
    }

    /// Keeps the addresses that no mail goes to.
    pub fn suppressions(&self) -> SuppressionService {
        SuppressionService {
            context: self.context.clone(),
        }
    }

    /// Takes what providers report.
    pub fn feedback(&self) -> FeedbackService {
        let hooks = &self.config.hooks;
        let mut keys = hooks.keys.clone();
        let brands = self.config.brands.values();
        brands.for_each(|brand| keys.add(&brand.hooks));
        FeedbackService {
            context: self.context.clone(),
            people: self.people(),
            keys,
            pinned: self.pinned.clone(),
            soft_bounces: hooks.soft_bounces,
        }
    }

    /// Keeps records of objects, except those of mapped models.
    pub fn objects(&self) -> ObjectService {
        ObjectService {
            context: self.context.clone(),
            polls: self.polls.clone(),
            mapped: self.config.models.keys().cloned().collect(),
        }
    }

    /// Says when a person's next digest falls due.
    pub fn next_digest(&self) -> NextDigest {
        NextDigest {
            context: self.context.clone(),
            schedule: self.config.digest.schedule,
        }
    }

    /// Brings in files.
    pub fn import(&self) -> Import {
        Import {
            people: self.people(),
            notify: self.notify(),
            objects: self.objects(),
            suppressions: self.suppressions(),
        }
    }

    /// Keeps everything moving.
    pub fn worker(&self) -> Worker {
        Worker {
            fanouts: self.fanouts(),
            closer: self.closer(),
            cleaner: Cleaner::new(
                self.context.clone(),
                self.config.delivery.keep,
                self.config.digest.max_age,
            ),
            digests: self.digests(),
            context: self.context.clone(),
            linger: self.config.fanout.linger,
            idle: self.config.worker_idle,
        }
    }
}
