//! The configuration: read from all sources, validated as a whole, and printed without its secrets.
//!
//! `config.default.toml` documents all options and holds their defaults; other sources override it.
//! All problems are reported at once, each with its option, its value and advice. Later code can
//! rely on the values in [`Config`]. Start with [`Config::load`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chrono::TimeDelta;
use toml::Table;

use crate::domain::object::ModelMapping;
use crate::domain::{BrandName, InvalidValue, ModelName, Policies, SendSettings, Site};
use crate::email::providers::Provider;

mod brands;
mod mail;
mod policies;
mod reader;
mod redact;
mod sections;
mod sources;

pub use brands::Brand;
pub use mail::{MailSettings, ProviderApi, Transport};
pub use policies::{CandidatePolicies, CandidatePolicy};
use reader::TableReader;
pub use reader::{ConfigProblem, ConfigProblems, ConfigWarning};
use sections::read_site;
pub use sections::{
    DigestSettings, FanoutSettings, FeedSettings, HookSettings, LogFormat, ObservabilitySettings,
    ServerSettings, TokenSettings,
};
use sources::{DEFAULT_TABLE, PREFIX, overlay, set_option, syntax_problem};
pub use sources::{DEFAULTS, StoreUrl};

/// All settings, validated.
#[derive(Debug, Clone)]
pub struct Config {
    /// The location of all data.
    pub store: StoreUrl,
    /// The name and look of the service in emails and pages.
    pub site: Site,
    /// The HTTP interface.
    pub server: ServerSettings,
    /// The keys that verify user tokens.
    pub tokens: TokenSettings,
    /// The sender and the provider of emails.
    pub mail: MailSettings,
    /// The number of days before today that feeds and digests include, 0 to 60.
    pub window_days_back: u32,
    /// The fan-out of events.
    pub fanout: FanoutSettings,
    /// The schedule and the content of digests.
    pub digest: DigestSettings,
    /// Feed settings.
    pub feed: FeedSettings,
    /// Sending, retries and limits.
    pub delivery: SendSettings,
    /// The keys that verify provider webhooks.
    pub hooks: HookSettings,
    /// The brands, by name.
    pub brands: BTreeMap<BrandName, Brand>,
    /// The age at which a day may be dropped; never shorter than the window.
    pub archive_keep: TimeDelta,
    /// How long an idle worker sleeps, 10 ms to 1 minute.
    pub worker_idle: TimeDelta,
    /// Metrics and the log.
    pub observability: ObservabilitySettings,
    /// The policies of event types, in the order of their sections.
    pub policies: Policies,
    /// Models that are read from the application's own collections; empty on SQLite.
    pub models: BTreeMap<ModelName, ModelMapping>,
    /// Valid settings that are probably a mistake.
    pub warnings: Vec<ConfigWarning>,
    /// Files that contain secrets: key and password files, and the configuration file if it holds
    /// any.
    pub secret_files: Vec<PathBuf>,
    /// The file that it was read from, if any.
    pub file: Option<PathBuf>,
    /// The options of all sources as TOML, with secrets redacted.
    pub redacted: String,
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
    pub fn reporting_provider(&self) -> Option<&'static Provider> {
        let Transport::Api(api) = &self.mail.transport else {
            return None;
        };
        let has_key = self.hooks.keys.get(api.provider.name).is_some();
        has_key.then_some(api.provider)
    }

    /// Returns how long after it happened an event may be emailed, or shown in a feed.
    pub fn max_event_age(&self) -> TimeDelta {
        // A batch gathers for up to 30 days, and its email expires after at most 30 more.
        const BATCHED: TimeDelta = TimeDelta::days(60);
        let window = TimeDelta::days(i64::from(self.window_days_back) + 1);
        self.digest.max_age.max(window).max(BATCHED) + TimeDelta::days(1)
    }

    /// Returns for how many days before today marks of feed items are kept. Digests that exclude
    /// seen events need them for as long as a digest may include an event.
    pub fn mark_days_back(&self) -> u32 {
        if !self.digest.skip_seen {
            return self.window_days_back;
        }
        let digest_days = self.digest.max_age.num_days() + 1;
        u32::try_from(digest_days).unwrap_or(0).max(self.window_days_back)
    }

    /// Reads and validates all sources.
    ///
    /// # Errors
    ///
    /// Returns all problems of all sources.
    pub fn load(sources: &Sources) -> Result<Self, ConfigProblems> {
        let mut merged = DEFAULT_TABLE.clone();
        let mut problems = Vec::new();
        let mut secret_file = None;
        if let Some(file) = &sources.file {
            match sources::read_table(file) {
                Ok(table) => {
                    secret_file = sources::has_secrets(&table).then(|| file.clone());
                    overlay(&mut merged, table);
                }
                Err(problem) => problems.push(problem),
            }
            sources::resolve_paths(&mut merged, file.parent().unwrap_or(Path::new("")));
        }
        for (name, text) in &sources.environment {
            // Platforms append a line end to the content of a secret.
            let text = text.trim_end_matches(['\r', '\n']);
            match sources::option_of_variable(PREFIX, name) {
                Some(option) => set_option(&mut merged, &option, text),
                None if brands::set_by_variable(&mut merged, name, text) => {}
                None if sources::is_other_variable(name) => {}
                None => problems.push(sources::unknown_variable(name)),
            }
        }
        for (option, text) in &sources.flags {
            set_option(&mut merged, option, text);
        }
        let mut config = Self::check(merged, problems)?;
        config.secret_files.extend(secret_file);
        config.file.clone_from(&sources.file);
        Ok(config)
    }

    /// Returns the default configuration.
    pub fn with_defaults() -> Self {
        let checked = Self::check(DEFAULT_TABLE.clone(), Vec::new());
        checked.expect("the defaults are valid; a test reads them")
    }

    /// Reads a TOML text over the defaults.
    ///
    /// # Errors
    ///
    /// Returns all problems of the text.
    pub fn parse(text: &str) -> Result<Self, ConfigProblems> {
        let mut merged = DEFAULT_TABLE.clone();
        match text.parse::<Table>() {
            Ok(table) => overlay(&mut merged, table),
            Err(error) => {
                return Err(ConfigProblems(vec![syntax_problem("the text", text, &error)]));
            }
        }
        Self::check(merged, Vec::new())
    }

    fn check(merged: Table, problems: Vec<ConfigProblem>) -> Result<Self, ConfigProblems> {
        let mut r = TableReader::new(&merged, &DEFAULT_TABLE, problems);
        let delivery = sections::delivery(&mut r);
        let batch = policies::standard_batch(&mut r);
        let store_urls = "sqlite:PATH or mongodb://HOST/DATABASE";
        let idle_range = TimeDelta::milliseconds(10)..=TimeDelta::minutes(1);
        let is_strict = r.flag("strict_types");
        let mut config = Self {
            store: r.parse_with("store", store_urls, StoreUrl::parse),
            site: read_site(&mut r),
            server: ServerSettings::read(&mut r),
            tokens: TokenSettings::read(&mut r),
            mail: MailSettings::read(&mut r, delivery.lease),
            window_days_back: r.number("window.days_back", 0..=60),
            fanout: FanoutSettings::read(&mut r),
            digest: DigestSettings::read(&mut r),
            feed: FeedSettings::read(&mut r),
            delivery,
            hooks: HookSettings::read(&mut r),
            brands: brands::read(&mut r, &merged, delivery.lease),
            archive_keep: r.duration("archive.keep", TimeDelta::days(1)..=TimeDelta::days(36_500)),
            worker_idle: r.duration("worker.idle", idle_range),
            observability: ObservabilitySettings::read(&mut r),
            policies: policies::read_types(&mut r, &batch).with_strict(is_strict),
            models: r.each("models", |r, _: &ModelName, path| model(r, path)).into_iter().collect(),
            warnings: Vec::new(),
            secret_files: Vec::new(),
            file: None,
            redacted: sources::redact_table(merged.clone()),
        };
        config.server.check_key(&mut r);
        config.check_grace(&mut r);
        // The wait must end before the lease does.
        config.fanout.linger = config.fanout.linger.min(config.fanout.lease / 2);
        let window_days = config.window_days_back + 1;
        let min_keep = TimeDelta::days(i64::from(window_days));
        if config.archive_keep < min_keep && !r.has_problem("archive.keep") {
            let problem = format!(
                "is shorter than the window of {window_days} days; days in it are never dropped"
            );
            r.add_problem("archive.keep", problem);
        }
        if matches!(config.store, StoreUrl::Sqlite(_)) && !config.models.is_empty() {
            r.add_problem(
                "models",
                "can only be mapped on MongoDB; with SQLite, put the objects into tidings",
            );
        }
        config.secret_files = std::mem::take(&mut r.secret_files);
        config.warnings = r.finish()?;
        Ok(config)
    }

    /// Adds a warning if a call to a provider may take longer than the grace. Over SMTP the timeout
    /// is for each step, and a stop cancels all steps but the one that is under way.
    fn check_grace(&self, r: &mut TableReader<'_>) {
        let is_slow = |mail: &MailSettings| {
            let has_provider = !matches!(mail.transport, Transport::Outbox);
            has_provider && mail.timeout >= self.server.grace
        };
        if self.brands.values().map(|brand| &brand.mail).chain([&self.mail]).any(is_slow) {
            r.warn(
                "server.grace",
                "is not above mail.timeout, so a stop may leave emails whose outcome is unknown",
                "raise it, or lower mail.timeout",
            );
        }
    }

    /// Returns the configuration of a brand: its settings as the default ones, and no brands.
    pub fn with_brand(&self, brand: &Brand) -> Self {
        let mut config = self.clone();
        config.brands.clear();
        (config.site, config.mail) = (brand.site.clone(), brand.mail.clone());
        config.server.public_url.clone_from(&brand.public_url);
        config.hooks.keys.override_with(&brand.hooks);
        config
    }

    /// Returns the configuration of this brand, or the default one for `None`.
    ///
    /// # Errors
    ///
    /// Fails if there is no such brand.
    pub fn for_brand(&self, brand: Option<&BrandName>) -> Result<Self, InvalidValue> {
        let Some(name) = brand else {
            return Ok(self.clone());
        };
        self.check_brand(name)?;
        Ok(self.with_brand(&self.brands[name]))
    }

    /// Rejects a brand that is not configured. The error lists the configured ones.
    pub fn check_brand(&self, name: &BrandName) -> Result<(), InvalidValue> {
        if self.brands.contains_key(name) {
            return Ok(());
        }
        let known: Vec<&str> = self.brands.keys().map(BrandName::as_str).collect();
        let problem = match known.as_slice() {
            [] => "is not configured: there is no table [brands.NAME]".to_owned(),
            known => format!("is not configured; the brands are {}", known.join(", ")),
        };
        Err(InvalidValue::new("brand", name, problem))
    }
}

fn model(r: &mut TableReader<'_>, path: &str) -> ModelMapping {
    let field = |r: &mut TableReader<'_>, name: &str| r.non_empty(&format!("{path}.{name}"));
    ModelMapping {
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
