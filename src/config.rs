//! The configuration: read from all sources, validated as a whole, and printed without its secrets.
//!
//! `config.default.toml` documents all options and holds their defaults; other sources override it.
//! All problems are reported at once, each with its option, its value and advice. Later code can
//! rely on the values in [`Config`]. Start with [`Config::load`].

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use chrono::TimeDelta;
use toml::Table;

use crate::domain::{BrandName, Brands, Invalid, ModelName, Policies, Sending};
use crate::email::providers::Provider;

mod batch;
mod brands;
mod delivery;
mod digest;
mod dkim;
mod feed;
mod hidden;
mod hooks;
mod layers;
mod mail;
mod paths;
mod problem;
mod public;
mod reader;
mod store_url;
mod tokens;
mod types;
mod variables;
mod watch;

pub use batch::{Candidate, Candidates};
pub use brands::Brand;
pub use digest::Digest;
pub use feed::Feed;
pub use hooks::Hooks;
pub use layers::DEFAULTS;
use layers::{defaults, overlay, read_table, set, syntax};
pub use mail::{Api, Login, Mail, SmtpServer, SmtpTls, Transport};
pub use problem::{Problem, Problems, Warning};
pub use public::{Server, Site};
use reader::Reader;
pub use store_url::StoreUrl;
pub use tokens::Tokens;
pub use watch::{LogFormat, Watch};

/// All settings, validated.
#[derive(Debug, Clone)]
pub struct Config {
    /// The location of all data.
    pub store: StoreUrl,
    /// The name and look of the service in emails and pages.
    pub site: Site,
    /// The HTTP interface.
    pub server: Server,
    /// The keys that verify user tokens.
    pub tokens: Tokens,
    /// The sender and the provider of emails.
    pub mail: Mail,
    /// The number of days before today that feeds and digests include, 0 to 60.
    pub window_back: u32,
    /// The fan-out of events.
    pub fanout: Fanout,
    /// The schedule and the content of digests.
    pub digest: Digest,
    /// Feed settings.
    pub feed: Feed,
    /// Sending, retries and limits.
    pub delivery: Sending,
    /// The keys that verify provider webhooks.
    pub hooks: Hooks,
    /// The brands, by name.
    pub brands: BTreeMap<BrandName, Brand>,
    /// The age at which a day may be dropped; never shorter than the window.
    pub archive_keep: TimeDelta,
    /// How long an idle worker sleeps, 10 ms to 1 minute.
    pub worker_idle: TimeDelta,
    /// Metrics and the log.
    pub watch: Watch,
    /// The policies of event types, in the order of their sections.
    pub policies: Policies,
    /// Models that are read from the application's own collections; empty on SQLite.
    pub models: BTreeMap<ModelName, Model>,
    /// Valid settings that are probably a mistake.
    pub warnings: Vec<Warning>,
    /// Files that contain secrets: key and password files, and the configuration file if it holds
    /// any.
    pub secret_files: Vec<PathBuf>,
    merged: Merged,
}

/// The merged table of all sources. `Debug` hides it, because it contains secrets.
#[derive(Clone)]
struct Merged(Table);

impl fmt::Debug for Merged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// The section `[fanout]`, validated.
#[derive(Debug, Clone, Copy)]
pub struct Fanout {
    /// The most entries in one user's day, 10 to 100,000.
    pub day_cap: usize,
    /// The number of users between two saves of the cursor, 100 to 50,000.
    pub page: usize,
    /// The most fan-outs that are processed together, 1 to 500.
    pub merge: usize,
    /// How long a lease on a fan-out lasts without renewal, 5 seconds to 1 hour.
    pub lease: TimeDelta,
    /// The longest time that fan-outs to large audiences wait to be merged with others: 0 to 30
    /// seconds, and at most half of `lease`.
    pub linger: TimeDelta,
}

/// An application's collection that contains the objects of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// The name of the collection.
    pub collection: String,
    /// The database; `None` for the store's own.
    pub database: Option<String>,
    /// The field with the object id of events; `_id` by default.
    pub id: String,
    /// The filter that an object must match to apply; empty for all.
    pub filter: Table,
    /// The field of the title.
    pub title: Option<String>,
    /// The field of the URL, or a template of one: `https://gallery.example/artwork/{slug}`.
    pub url: Option<String>,
    /// The field of the image URL, or a template as for `url`.
    pub image: Option<String>,
    /// The field of the author's name.
    pub by: Option<String>,
    /// The field of the object's time.
    pub at: Option<String>,
    /// The field of the location: a GeoJSON point or `[longitude, latitude]`.
    pub place: Option<String>,
}

/// The sources of the configuration, besides the defaults.
#[derive(Debug, Default)]
pub struct Sources {
    /// The configuration file, such as `tidings.toml`.
    pub file: Option<PathBuf>,
    /// The environment variables: names and values.
    pub environment: Vec<(String, String)>,
    /// The flags: option paths such as `store`, and values.
    pub flags: Vec<(String, String)>,
}

impl Config {
    /// Returns the provider that sends, if a key verifies its webhooks.
    pub fn reporter(&self) -> Option<&'static Provider> {
        let Transport::Api(api) = &self.mail.transport else {
            return None;
        };
        let has_key = !self.hooks.keys.of(api.provider.name).is_empty();
        has_key.then_some(api.provider)
    }

    /// Returns how long after it happened an event may be emailed, or shown in a feed.
    pub fn remembered(&self) -> TimeDelta {
        // A batch gathers for up to 30 days, and its email expires after at most 30 more.
        const BATCHED: TimeDelta = TimeDelta::days(60);
        let window = TimeDelta::days(i64::from(self.window_back) + 1);
        self.digest.max_age.max(window).max(BATCHED) + TimeDelta::days(1)
    }

    /// Returns for how many days before today marks of feed items are kept. Digests that exclude
    /// seen events need them for as long as a digest may include an event.
    pub fn remembered_back(&self) -> u32 {
        let digest = &self.digest;
        let days = digest.skip_seen.then(|| digest.max_age.num_days() + 1);
        let days = days.and_then(|days| u32::try_from(days).ok());
        days.unwrap_or(0).max(self.window_back)
    }

    /// Reads and validates all sources.
    ///
    /// # Errors
    ///
    /// Returns all problems of all sources.
    pub fn load(sources: &Sources) -> Result<Self, Problems> {
        let mut merged = defaults();
        let mut problems = Vec::new();
        let mut secret_file = None;
        if let Some(file) = &sources.file {
            match read_table(file) {
                Ok(table) => {
                    secret_file = hidden::holds_secrets(&table).then(|| file.clone());
                    overlay(&mut merged, table);
                }
                Err(problem) => problems.push(problem),
            }
            let folder = file.parent().unwrap_or(Path::new(""));
            paths::begin_at(&mut merged, folder);
            brands::begin_at(&mut merged, folder);
        }
        for (name, text) in &sources.environment {
            match variables::option_of(name) {
                Some(option) => set(&mut merged, &option, text),
                None if brands::set_by_variable(&mut merged, name, text) => {}
                None if variables::is_for_others(name) => {}
                None => problems.push(variables::unknown(name)),
            }
        }
        for (option, text) in &sources.flags {
            set(&mut merged, option, text);
        }
        mail::borrow(&mut merged, &defaults(), &sources.environment);
        let mut config = Self::check(merged, problems)?;
        config.secret_files.extend(secret_file);
        Ok(config)
    }

    /// Returns the default configuration.
    pub fn standard() -> Self {
        Self::check(defaults(), Vec::new()).expect("the defaults are valid; a test reads them")
    }

    /// Reads a TOML text over the defaults.
    ///
    /// # Errors
    ///
    /// Returns all problems of the text.
    pub fn parse(text: &str) -> Result<Self, Problems> {
        let mut merged = defaults();
        match text.parse::<Table>() {
            Ok(table) => overlay(&mut merged, table),
            Err(error) => return Err(Problems(vec![syntax("the text", text, &error)])),
        }
        Self::check(merged, Vec::new())
    }

    fn check(merged: Table, problems: Vec<Problem>) -> Result<Self, Problems> {
        let mut r = Reader::new(&merged, problems);
        let (delivery, standard) = (delivery::read(&mut r), defaults());
        let batch = batch::standard(&mut r);
        let lease = r.duration("fanout.lease", TimeDelta::seconds(5)..=TimeDelta::hours(1));
        let linger = r.duration("fanout.linger", TimeDelta::zero()..=TimeDelta::seconds(30));
        let mut config = Self {
            store: r.parse(
                "store",
                "sqlite:PATH or mongodb://HOST/DATABASE",
                StoreUrl::parse,
            ),
            site: Site::read(&mut r),
            server: Server::read(&mut r),
            tokens: tokens::read(&mut r),
            mail: Mail::read(&mut r, delivery.lease),
            window_back: r.number("window.days_back", 0..=60) as u32,
            fanout: Fanout {
                day_cap: r.number("fanout.day_cap", 10..=100_000) as usize,
                page: r.number("fanout.page", 100..=50_000) as usize,
                merge: r.number("fanout.merge", 1..=500) as usize,
                lease,
                linger: linger.min(lease / 2),
            },
            digest: digest::read(&mut r),
            feed: feed::read(&mut r),
            delivery,
            hooks: hooks::read(&mut r),
            brands: brands::read(&mut r, &merged, &standard, delivery.lease),
            archive_keep: r.duration("archive.keep", TimeDelta::days(1)..=TimeDelta::days(36_500)),
            worker_idle: r.duration(
                "worker.idle",
                TimeDelta::milliseconds(10)..=TimeDelta::minutes(1),
            ),
            watch: watch::read(&mut r),
            policies: {
                let strict = r.flag("strict_types");
                types::read(&mut r, &batch).with_strict(strict)
            },
            models: r
                .each("models", |r, name, path| {
                    Some((r.name::<ModelName>(name, path)?, model(r, path)))
                })
                .into_iter()
                .collect(),
            warnings: Vec::new(),
            secret_files: Vec::new(),
            merged: Merged(merged.clone()),
        };
        let shortest = TimeDelta::days(i64::from(config.window_back) + 1);
        if config.archive_keep < shortest && !r.is_wrong("archive.keep") {
            let what = format!(
                "is shorter than the window of {} days; days in it are never dropped",
                config.window_back + 1
            );
            r.problem("archive.keep", what);
        }
        if matches!(config.store, StoreUrl::Sqlite(_)) && !config.models.is_empty() {
            r.problem(
                "models",
                "can only be mapped on MongoDB; with SQLite, put the objects into tidings",
            );
        }
        config.secret_files = std::mem::take(&mut r.secret_files);
        config.warnings = r.finish()?;
        Ok(config)
    }

    /// Returns the effective configuration as TOML, with secrets redacted.
    pub fn redacted(&self) -> String {
        let mut table = self.merged.0.clone();
        set(&mut table, "store", &format!("{:?}", self.store));
        self.server.redact(&mut table);
        self.mail.redact(&mut table);
        hooks::redact(&mut table);
        brands::redact(&mut table);
        tokens::redact(&mut table);
        table.to_string()
    }

    /// Returns the configuration of a brand: its settings as the default ones, and no brands.
    pub fn of_brand(&self, brand: &Brand) -> Self {
        let mut config = self.clone();
        config.brands.clear();
        (config.site, config.mail) = (brand.site.clone(), brand.mail.clone());
        config.server.public_url.clone_from(&brand.public_url);
        config.hooks.keys.add(&brand.hooks);
        config
    }

    /// Returns the configuration of this brand, or the default one for `None`.
    ///
    /// # Errors
    ///
    /// Fails if there is no such brand.
    pub fn of(&self, brand: Option<&BrandName>) -> Result<Self, Invalid> {
        self.brand_names().check(brand)?;
        let brand = brand.and_then(|brand| self.brands.get(brand));
        Ok(brand.map_or_else(|| self.clone(), |brand| self.of_brand(brand)))
    }

    /// Returns the names of all brands.
    pub fn brand_names(&self) -> Brands {
        self.brands.keys().cloned().collect()
    }
}

fn model(r: &mut Reader<'_>, path: &str) -> Model {
    let field = |r: &mut Reader<'_>, name: &str| r.optional(&format!("{path}.{name}"));
    Model {
        collection: r.string(&format!("{path}.collection")),
        database: field(r, "database"),
        id: field(r, "id").unwrap_or_else(|| "_id".into()),
        filter: r.table(&format!("{path}.filter")),
        title: field(r, "title"),
        url: field(r, "url"),
        image: field(r, "image"),
        by: field(r, "by"),
        at: field(r, "at"),
        place: field(r, "place"),
    }
}

#[cfg(test)]
#[path = "config/tests.rs"]
mod tests;

#[cfg(test)]
#[path = "config/batch_tests.rs"]
mod batch_tests;
