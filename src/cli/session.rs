//! The context of a command: the flags of every command, the output, the log, the configuration
//! and the store.
//!
//! Commands import their common names from here. A command opens the store itself, so it names its
//! access where it uses it. Start with [`Session::open`].

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use futures::future::LocalBoxFuture;
use tokio::sync::watch;
use tracing::subscriber::set_global_default;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use super::screen::LogWriter;
use super::stop::{Stop, stop_on_signal};
use crate::clock::{Clock, SystemClock};
use crate::config::{Config, ConfigProblems, LogFormat, Sources};
use crate::operate::machine;
use crate::operate::open::is_missing;

pub(super) use super::exit::Exit;
pub(super) use super::phrases;
pub(super) use super::screen::{Column, Fit, Screen, Table};
pub(super) use crate::app::{Access, App, TemplateUse};
pub(super) use crate::operate::open::Refusal;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "For every command")]
pub(super) struct Global {
    /// Configuration file [default: tidings.toml in this folder, if there is one]
    #[arg(long, global = true, value_name = "FILE")]
    #[arg(env = "TIDINGS_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// Store to use: sqlite:PATH, or mongodb://HOST/DATABASE
    #[arg(long, global = true, value_name = "URL")]
    store: Option<String>,
    /// Log level on standard error [default: info for serve and worker, otherwise warn]
    #[arg(long, global = true, value_name = "LEVEL")]
    #[arg(env = "TIDINGS_LOG", hide_env_values = true)]
    log: Option<Level>,
    /// Answer in JSON: each line of standard output is a JSON value
    #[arg(long, global = true)]
    pub json: bool,
}

/// A log level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Runs a command line of tidings with this app.
pub(super) type RunCommand =
    for<'a> fn(Vec<String>, &'a App, &'a mut Screen) -> LocalBoxFuture<'a, anyhow::Result<Exit>>;

/// The default configuration file.
pub(super) const DEFAULT_FILE: &str = "tidings.toml";

/// The context of a command.
pub(super) struct Session<'a> {
    pub global: Global,
    pub screen: &'a mut Screen,
    /// The app of the demo whose story runs this command.
    pub demo: Option<&'a App>,
    /// Runs the commands of a demo's story.
    pub run_command: RunCommand,
    /// The definition of all commands.
    pub define_commands: fn() -> clap::Command,
    /// The log level without `--log`.
    pub default_level: Level,
    /// The configuration options that the command's own flags set.
    pub options: Vec<(String, String)>,
    /// Whether opening the store created it.
    pub is_new: bool,
}

impl Session<'_> {
    /// Returns the file of `--config` or `TIDINGS_CONFIG`, or the default file if it exists.
    pub(super) fn file(&self) -> Option<PathBuf> {
        let default = || Path::new(DEFAULT_FILE).exists().then(|| DEFAULT_FILE.into());
        self.global.config.clone().or_else(default)
    }

    /// Returns an error if there is a `--store`, for commands that cannot use it.
    pub(super) fn refuse_store(&self, why: &str) -> Result<(), Refusal> {
        match self.global.store {
            Some(_) => Err(Refusal::new(why, "omitting --store")),
            None => Ok(()),
        }
    }

    /// Sets an option of the configuration by a flag of the command.
    pub(super) fn set_option(&mut self, option: &str, value: Option<&String>) {
        self.options.extend(value.map(|value| (option.to_owned(), value.clone())));
    }

    /// Loads the configuration from all its sources, and starts the log.
    pub(super) fn load(&self) -> Result<Config, ConfigProblems> {
        let store = self.global.store.iter().map(|store| ("store".to_owned(), store.clone()));
        let environment = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok().filter(|name| name.starts_with("TIDINGS_"))?;
            Some((name, value.to_string_lossy().into_owned()))
        });
        let config = Config::load(&Sources {
            file: self.file(),
            environment: environment.collect(),
            flags: self.options.iter().cloned().chain(store).collect(),
        })?;
        self.start_log(config.observability.log);
        Ok(config)
    }

    /// Opens the configured store, for a command that renders no emails.
    pub(super) async fn open(&mut self, access: Access) -> anyhow::Result<App> {
        self.open_with(access, TemplateUse::BuiltIn).await
    }

    /// Opens the configured store. In the story of a demo, returns the demo's app.
    pub(super) async fn open_with(
        &mut self,
        access: Access,
        templates: TemplateUse,
    ) -> anyhow::Result<App> {
        if let Some(app) = self.demo {
            return Ok(app.clone());
        }
        let config = self.load()?;
        self.is_new = is_missing(&config);
        App::open(config, access, templates).await
    }

    /// Opens the configured store for a command that sends emails, and stops it on a signal.
    pub(super) async fn open_to_send(&mut self, access: Access) -> anyhow::Result<(App, Stop)> {
        let app = self.open_with(access, TemplateUse::Required).await?;
        let stop = match self.demo {
            // Its sender is gone, so waiting for a change fails at once.
            Some(_) => watch::channel(false).1,
            None => stop_on_signal()?,
        };
        machine::prepare_process(&app.config);
        Ok((app, stop))
    }

    /// Starts logging to standard error, one line per message, as text or JSON. Only the first call
    /// of a process has an effect.
    ///
    /// Messages of other crates are logged only from `warn` up, because those crates do not know
    /// which data is private.
    pub(super) fn start_log(&self, format: LogFormat) {
        let level = self.global.log.unwrap_or(self.default_level);
        let ours = format!("{level:?}").to_lowercase();
        let others = match level {
            Level::Off | Level::Error => ours.as_str(),
            _ => "warn",
        };
        // actix reports malformed requests as errors. They are errors of the client.
        let requests = match level {
            Level::Debug | Level::Trace => "error",
            _ => "off",
        };
        let filter = EnvFilter::new(format!("{others},tidings={ours},actix_http={requests}"));
        let logger = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(|| LogWriter(std::io::stderr()))
            .with_ansi(false)
            .with_timer(LogTime)
            .with_target(false);
        let _ = match format {
            LogFormat::Text => set_global_default(logger.finish()),
            LogFormat::Json => {
                let logger = logger.json().flatten_event(true).with_span_list(false);
                set_global_default(logger.finish())
            }
        };
    }
}

/// The time of a log message in UTC, in whole seconds.
struct LogTime;

impl FormatTime for LogTime {
    fn format_time(&self, out: &mut Writer<'_>) -> std::fmt::Result {
        write!(out, "{}", SystemClock.now().format("%Y-%m-%dT%H:%M:%SZ"))
    }
}
